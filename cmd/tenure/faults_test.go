package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// result is one run of the program in this process.
type result struct {
	code           int
	stdout, stderr string
}

// onStore runs the program on the store "fault:", which misbehaves by rules.
func onStore(t *testing.T, rules []faultstore.Rule, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(""), &stdout, &stderr, []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "TENURE_STORE=fault:"})
	a.drivers = append(a.drivers, store.Driver{Scheme: "fault", Open: func(context.Context, *url.URL) (store.Store, error) {
		return faultstore.New(memstore.New(), faultstore.Options{Rules: rules}), nil
	}})
	code := a.run(newRootCmd(a), args)
	return result{code, stdout.String(), stderr.String()}
}

func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.stdout, stdout) || !strings.Contains(r.stderr, stderr) {
		t.Errorf("exit code %d, want %d; want %q and %q in\n%s\n%s", r.code, code, stdout, stderr, r.stdout, r.stderr)
	}
}

func fail(kind error, ops ...faultstore.Op) []faultstore.Rule {
	return []faultstore.Rule{{Ops: ops, Fault: faultstore.Fail(kind)}}
}

// A store that ignores a condition fails its probe: the doctor names the
// property, and no command that acts keeps a lease there. One that only looks
// does not write, so it does not probe either.
//
// SPEC ST10 UI1
func TestStoreThatFailsItsProbe(t *testing.T) {
	t.Parallel()
	for op, property := range map[faultstore.Op]string{
		faultstore.OpCreate:  "the store let a second create of one key succeed",
		faultstore.OpReplace: "the store let a replace at an old version succeed",
	} {
		rules := []faultstore.Rule{{Ops: []faultstore.Op{op}, Fault: faultstore.IgnoreCondition()}}
		onStore(t, rules, "doctor").want(t, 78, "fail  probe", "failed: probe")
		onStore(t, rules, "store", "init").want(t, 78, "", property)
		onStore(t, rules, "jump", "--all", "--above", "5").want(t, 78, "", property)
		onStore(t, rules, "status", "job").want(t, 0, "absent", "")
		r := onStore(t, rules, "doctor", "--json")
		var report doctorJSON
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || report.OK || r.code != 78 {
			t.Errorf("exit code %d, ok %v: %v", r.code, report.OK, err)
		}
		for _, f := range report.Checks {
			if f.Check == "probe" && (f.Result != resultFail || !strings.Contains(f.Detail, property) || f.Todo == "") {
				t.Errorf("the probe's line is %+v", f)
			}
		}
	}
}

// Missing rights are told from a store that is down, and name the action.
//
// SPEC ST8 UI1
func TestMissingRights(t *testing.T) {
	t.Parallel()
	onStore(t, fail(store.ErrDenied, faultstore.OpReplace), "doctor").want(t, 77, "fail  rights", "failed: rights")
	onStore(t, fail(store.ErrDenied, faultstore.OpCreate), "store", "init").want(t, 77, "", "denied")
	onStore(t, fail(store.ErrDenied, faultstore.OpGet), "ls").want(t, 77, "", "denied")
	onStore(t, fail(store.ErrDenied, faultstore.OpCreate, faultstore.OpReplace, faultstore.OpDelete), "ls").want(t, 0, "", "no lease")
	r := onStore(t, fail(store.ErrDenied, faultstore.OpDelete), "doctor")
	r.want(t, 0, "warn  rights", "")
	r.want(t, 0, "these credentials may not delete: leases are safe", "")
	r.want(t, 0, "do: grant the right to delete", "")
}

// A store that does not answer ends a command within its time limit, and says
// which limit that was.
//
// SPEC ST13 UI1
// CASE B73
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	probe := store.Prefix("default", "probe")
	hang := []faultstore.Rule{{Fault: faultstore.Hang(), Match: func(c faultstore.Call) bool { return !strings.HasPrefix(c.Key, probe) }}}
	for _, args := range [][]string{
		{"status", "job"}, {"ls"}, {"history", "job"}, {"check", "job", "--token", "1"}, {"watch", "job"}, {"store", "show"},
		{"release", "job", "--token", "1", "--owner", "x"}, {"steal", "job", "--token", "1", "--reason", "r"}, {"jump", "job", "--above", "1"},
		{"store", "prune"}, {"store", "upgrade"}, {"store", "init"},
		{"node", "ls"}, {"node", "status", "n"}, {"node", "history", "n"}, {"node", "verify", "n", "--incarnation", anID},
		{"node", "fence", "n", "--incarnation", anID}, {"node", "retire", "n"}, {"jump", "--node", "n", "--above", "1"},
		{"node", "force", "n", "--incarnation", anID, "--term", "1", "--reason", "r"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			onStore(t, hang, append(args, "--timeout", "200ms")...).want(t, 69, "", "the time limit of 200ms (--timeout) ended")
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// The doctor obeys its time limit too, and then tries as long to remove its keys.
//
// SPEC ST10 ST13
func TestDoctorOnAStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	began := time.Now()
	onStore(t, []faultstore.Rule{{Fault: faultstore.Hang()}}, "doctor", "--timeout", "200ms").want(t, 69, "fail  probe", "the time limit of 200ms (--timeout) ended")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// The doctor says what --deep proves, and a healthy store passes.
//
// SPEC ST10
func TestDoctorDeep(t *testing.T) {
	t.Parallel()
	r := onStore(t, nil, "doctor", "--deep")
	r.want(t, 0, "ok    probe", "")
	r.want(t, 0, "one that ignores 1 condition in 50 would pass this with a chance of", "")
	if shallow := onStore(t, nil, "doctor"); strings.Contains(shallow.stdout, "odds") {
		t.Errorf("odds are stated without --deep:\n%s", shallow.stdout)
	}
}

// A watch goes on while the store cannot be read, and says so once.
//
// SPEC LS9
func TestWatchBearsTrouble(t *testing.T) {
	t.Parallel()
	key := store.Key("default", "lease", "job")
	rules := []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpGet}, Key: key, Times: 2, Fault: faultstore.Fail(store.ErrUnavailable)}}
	r := onStore(t, rules, "watch", "job", "--count", "1")
	r.want(t, 0, "- absent", "tenure: warning: cannot read the lease now, watching on: ")
	if strings.Count(r.stderr, "watching on") != 1 {
		t.Errorf("the same trouble is told more than once:\n%s", r.stderr)
	}
	onStore(t, []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpGet}, Key: key, Fault: faultstore.Fail(store.ErrDenied)}}, "watch", "job").want(t, 77, "", "denied")
}

// brokenPipe is a writer that cannot write.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// Output that could not be written is not a success.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	if code := run([]string{"version"}, strings.NewReader(""), brokenPipe{}, &stderr, nil); code != 69 || !strings.Contains(stderr.String(), "cannot write the output: no space left") {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
