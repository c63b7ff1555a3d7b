package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var probePrefix = store.Prefix("n", "probe")

// probe probes a place through the given faults, in a bubble, and returns what
// is left in the place.
func probe(t *testing.T, faults faultstore.Options, o store.ProbeOptions, judge func(t *testing.T, r store.Report, err error, left []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		place := memstore.New()
		s := faultstore.New(place.Peer(), faults)
		defer s.Close()
		o.Prefix = probePrefix
		r, err := store.Probe(t.Context(), s, o)
		left := []string{}
		for k, err := range place.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, k)
		}
		judge(t, r, err, left)
	})
}

func rules(r ...faultstore.Rule) faultstore.Options { return faultstore.Options{Seed: 1, Rules: r} }

func onOps(f faultstore.Fault, ops ...faultstore.Op) faultstore.Options {
	return rules(faultstore.Rule{Ops: ops, Fault: f})
}

// SPEC ST10
func TestProbePassesASoundStore(t *testing.T) {
	t.Parallel()
	for _, deep := range []bool{false, true} {
		probe(t, faultstore.Options{}, store.ProbeOptions{Deep: deep}, func(t *testing.T, r store.Report, err error, left []string) {
			if err != nil || !r.Sound || !r.DeleteIfSound || r.RepeatsVersions || r.DeleteIfFlaw != "" || r.Repeated != 0 {
				t.Errorf("deep %v: %v, %+v", deep, err, r)
			}
			if len(left) > 0 || len(r.Leftover) > 0 || r.Note() != "" {
				t.Errorf("deep %v: the probe left %q behind and reports %q", deep, left, r.Leftover)
			}
			if n := r.RefusedCreates + r.RefusedReplaces; deep && n < 500 || n < 16 {
				t.Errorf("deep %v: %d refusals", deep, n)
			}
			for _, op := range []string{"create", "delete", "get", "list", "replace"} {
				if !strings.Contains(r.String(), "\n"+op) {
					t.Errorf("the report has no latency of %s:\n%s", op, r)
				}
			}
		})
	}
}

// Further broken stores fail, and the failure names what they lack in words for
// an operator. The family of package brokenstore has its own test.
//
// SPEC ST10
// CASE B21 B82
func TestProbeNamesWhatIsBroken(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		faults faultstore.Options
		lacks  store.Property
		says   string
	}{
		{"ignores all conditions", rules(faultstore.Rule{Fault: faultstore.IgnoreCondition()}), store.CreateRefuses, "every contender"},
		{"replace creates", rules(faultstore.Rule{Fault: faultstore.IgnoreCondition(), Match: func(c faultstore.Call) bool {
			return c.Op == faultstore.OpReplace && strings.HasSuffix(c.Key, "absent")
		}}), store.ReplaceNeverCreates, "absent key"},
		{"both creators win", onOps(faultstore.TearCondition(time.Millisecond), faultstore.OpCreate), store.OneCreator, "two holders"},
		{"both replacers win", onOps(faultstore.TearCondition(time.Millisecond), faultstore.OpReplace), store.OneReplacer, "two contenders"},
		{"nobody wins", rules(faultstore.Rule{Fault: faultstore.Fail(store.ErrExists), Match: func(c faultstore.Call) bool {
			return c.Op == faultstore.OpCreate && strings.HasSuffix(c.Key, "race")
		}}), store.OneCreator, "or none"},
		{"driver repeats creates", onOps(faultstore.RetrySelf(), faultstore.OpCreate), store.CreateRefuses, "fresh key"},
		{"driver repeats replaces", onOps(faultstore.RetrySelf(), faultstore.OpReplace), store.ReplaceWorks, "no lease could be renewed"},
		{"refused writes land", onOps(faultstore.Fail(store.ErrExists), faultstore.OpCreate), store.CreateRefuses, "fresh key"},
		{"reads lag", onOps(faultstore.LaggingRead(3*time.Second), faultstore.OpGet), store.ReadShowsWrite, "acknowledged"},
		{"list lags", onOps(faultstore.LaggingList(3*time.Second), faultstore.OpList), store.ListShows, "a listing did not show"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			probe(t, c.faults, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, left []string) {
				var failed *store.ProbeError
				if !errors.As(err, &failed) {
					t.Fatalf("the probe gave %v, want a *ProbeError", err)
				}
				if c.lacks != "" && failed.Property != c.lacks {
					t.Errorf("the store lacks %q, the probe says %q: %v", c.lacks, failed.Property, err)
				}
				if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "mem:") || failed.Seen == "" {
					t.Errorf("the message lacks %q, the store or what was seen: %v", c.says, err)
				}
				if r.Sound {
					t.Error("the report calls the store sound")
				}
				if len(left) > 0 {
					t.Errorf("the probe left %q behind", left)
				}
			})
		})
	}
}

// A store that misbehaves 1 time in 50 passes the quick probe, which does not
// claim otherwise.
//
// SPEC ST10
// CASE B21
func TestProbeStatesItsOdds(t *testing.T) {
	t.Parallel()
	probe(t, faultstore.Options{}, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, _ []string) {
		alike, oneKind := r.Escape(50)
		if err != nil || alike < 0.5 || oneKind < alike || oneKind >= 1 {
			t.Errorf("the quick probe claims odds of %v and %v (%v)", alike, oneKind, err)
		}
	})
	probe(t, faultstore.Options{}, store.ProbeOptions{Deep: true}, func(t *testing.T, r store.Report, err error, _ []string) {
		alike, oneKind := r.Escape(50)
		if err != nil || alike > 0.0001 || oneKind > 0.01 || !strings.Contains(r.Odds(), "1 condition in 50") {
			t.Errorf("the deep probe claims odds of %v and %v (%v): %s", alike, oneKind, err, r.Odds())
		}
		if always, _ := r.Escape(1); always != 0 {
			t.Errorf("a store that ignores each condition would escape with a chance of %v", always)
		}
		if none, _ := r.Escape(0); none != 1 {
			t.Errorf("senseless odds give %v", none)
		}
	})
}

// A declared content mark is no failure, and is reported.
func TestProbeReportsRepeatedVersions(t *testing.T) {
	t.Parallel()
	o := faultstore.Options{ContentVersions: true, Info: func(i store.Info) store.Info { i.ContentVersions = true; return i }}
	probe(t, o, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, _ []string) {
		if err != nil || !r.Sound || !r.RepeatsVersions {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// A flaw of conditional delete is no failure, but retention must not rest on it.
//
// SPEC ST5 ST10
// CASE B60
func TestProbeJudgesConditionalDelete(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		faults faultstore.Options
		says   string
	}{
		{"ignored", onOps(faultstore.IgnoreCondition(), faultstore.OpDeleteIf), "old version succeeded"},
		{"torn", onOps(faultstore.TearCondition(time.Millisecond), faultstore.OpDeleteIf), "raced"},
		{"no rights", onOps(faultstore.Fail(store.ErrDenied), faultstore.OpDeleteIf), "rights to delete"},
		{"wrong refusal", onOps(faultstore.Fail(store.ErrNotFound), faultstore.OpDeleteIf), "refused as"},
		{"not there", faultstore.Options{Info: func(i store.Info) store.Info { i.Can = 0; return i }}, "no conditional delete"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The torn store betrays itself in most races, so in some of 20.
			probe(t, c.faults, store.ProbeOptions{Deep: true}, func(t *testing.T, r store.Report, err error, _ []string) {
				if err != nil || !r.Sound || r.DeleteIfSound || !strings.Contains(r.DeleteIfFlaw, c.says) {
					t.Errorf("%v, sound %v, DeleteIf sound %v: %q", err, r.Sound, r.DeleteIfSound, r.DeleteIfFlaw)
				}
			})
		})
	}
}

// SPEC ST10
func TestProbeWithoutRightsToDeletePasses(t *testing.T) {
	t.Parallel()
	faults := onOps(faultstore.Fail(store.ErrDenied), faultstore.OpDelete, faultstore.OpDeleteIf)
	probe(t, faults, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, left []string) {
		if err != nil || !r.Sound || !r.DeleteDenied {
			t.Errorf("%v, %+v", err, r)
		}
		if len(left) == 0 || len(r.Leftover) != len(left) || !strings.Contains(r.Note(), left[0]) || !strings.Contains(r.Note(), "may not delete") {
			t.Errorf("left behind: %q, reported: %q, note: %q", left, r.Leftover, r.Note())
		}
	})
}

// Trouble that says nothing about the store's properties is no verdict.
//
// SPEC ST10 ST13
func TestProbeWithoutAVerdict(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		faults faultstore.Options
		kind   error
		took   time.Duration
		says   string
	}{
		{"hang", onOps(faultstore.Hang(), faultstore.OpReplace), store.ErrUnknown, 30 * time.Second, "within 30s"},
		{"hung reads", onOps(faultstore.Hang(), faultstore.OpGet), store.ErrUnavailable, 30 * time.Second, "within 30s"},
		{"unavailable", rules(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Fail(store.ErrUnavailable)}), store.ErrUnavailable, 30 * time.Second, "within 30s"},
		{"no rights to write", onOps(faultstore.Fail(store.ErrDenied), faultstore.OpCreate), store.ErrDenied, 0, "create"},
		{"no rights to list", onOps(faultstore.Fail(store.ErrDenied), faultstore.OpList), store.ErrDenied, 0, "list"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			probe(t, c.faults, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, left []string) {
				if errors.As(err, new(*store.ProbeError)) || !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("the probe gave %v, want the kind %v and %q", err, c.kind, c.says)
				}
				if r.Sound || r.Took < c.took || r.Took > c.took+time.Second {
					t.Errorf("sound %v after %v, want no verdict after %v", r.Sound, r.Took, c.took)
				}
				if len(left) > 0 {
					t.Errorf("the probe left %q behind", left)
				}
			})
		})
	}
}

// SPEC ST10
func TestProbeReportsBothErrors(t *testing.T) {
	t.Parallel()
	faults := rules(
		faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.IgnoreCondition()},
		faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Hang()})
	probe(t, faults, store.ProbeOptions{CleanUp: 3 * time.Second}, func(t *testing.T, r store.Report, err error, left []string) {
		if !errors.As(err, new(*store.ProbeError)) || !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "could not remove its keys") {
			t.Errorf("the probe gave %v, want the lacking property and the failed clean-up", err)
		}
		if r.Took != 3*time.Second || len(r.Leftover) == 0 || len(left) == 0 {
			t.Errorf("clean-up of 3 s took %v; left %q, reported %q", r.Took, left, r.Leftover)
		}
	})
	only := onOps(faultstore.Hang(), faultstore.OpDelete)
	probe(t, only, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, _ []string) {
		if err == nil || !r.Sound || errors.As(err, new(*store.ProbeError)) || !strings.Contains(r.Note(), "left behind") {
			t.Errorf("a sound store whose clean-up hung: %v, sound %v, note %q", err, r.Sound, r.Note())
		}
	})
}

// The clean-up has a time limit of its own, so it runs after the caller gave up.
//
// SPEC ST10
func TestProbeCleansUpAfterCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		place := memstore.New()
		s := faultstore.New(place.Peer(), onOps(faultstore.Delay(time.Second, time.Second)))
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
		defer cancel()
		_, err := store.Probe(ctx, s, store.ProbeOptions{Prefix: probePrefix})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the probe gave %v, want the end of its caller's context", err)
		}
		for k := range place.List(t.Context(), "", "") {
			t.Errorf("the probe left %s behind", k)
		}
	})
}

// A bad network is not a bad store: what is unknown is settled, and nothing is
// called broken.
//
// SPEC ST9 ST10
func TestProbeSettlesOnABadNetwork(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		faults := faultstore.Options{Seed: seed, Rules: []faultstore.Rule{
			{Odds: 0.15, Fault: faultstore.LoseReply()},
			{Odds: 0.10, Fault: faultstore.LoseRequest()},
			{Odds: 0.15, Fault: faultstore.Fail(store.ErrUnavailable)},
			{Odds: 0.10, Fault: faultstore.LandLate(0, 50*time.Millisecond), Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpCreate}},
		}}
		probe(t, faults, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, _ []string) {
			if err != nil || !r.Sound || !r.DeleteIfSound {
				t.Errorf("seed %d: %v, sound %v, DeleteIf: %q", seed, err, r.Sound, r.DeleteIfFlaw)
			}
			if r.Repeated == 0 {
				t.Errorf("seed %d: no call was repeated, so the network was not bad", seed)
			}
		})
	}
}

// A store with few writes per second and key is not rushed.
//
// SPEC ST14
func TestProbeKeepsTheDeclaredPace(t *testing.T) {
	t.Parallel()
	var last time.Time
	faults := faultstore.Options{
		Info: func(i store.Info) store.Info { i.WritesPerSecond = 2; i.Can = 0; return i },
		Trace: func(e faultstore.Event) {
			if e.Op == faultstore.OpReplace && e.Done && e.Err == nil {
				if since := time.Since(last); !last.IsZero() && since < 500*time.Millisecond {
					t.Errorf("two replaces of one key within %v", since)
				}
				last = time.Now()
			}
		},
	}
	probe(t, faults, store.ProbeOptions{}, func(t *testing.T, r store.Report, err error, _ []string) {
		if err != nil || last.IsZero() {
			t.Errorf("%v, last replace at %v", err, last)
		}
	})
}

func TestProbeRefusesBadOptions(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for _, o := range []store.ProbeOptions{
		{Prefix: "Bad/"}, {Prefix: "/"}, {Prefix: "a//"}, {Prefix: probePrefix, Racers: 1}, {Prefix: probePrefix, Racers: 65},
		{Prefix: probePrefix, Limit: -1}, {Prefix: probePrefix, CleanUp: -1},
	} {
		if _, err := store.Probe(t.Context(), s, o); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", o, err)
		}
	}
	for k := range s.List(t.Context(), "", "") {
		t.Errorf("a refused probe wrote %s", k)
	}
}
