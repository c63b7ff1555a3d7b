package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/filestore"
)

// anID is an incarnation that no process has.
const anID = "00000000-0000-4000-8000-000000000000"

// longAgo is this machine's clock, with a wall clock that is 40 days behind.
type longAgo struct{ clock.Clock }

func (c longAgo) Read() clock.Reading {
	r := c.Clock.Read()
	r.Wall -= 40 * 24 * time.Hour
	return r
}

// past is a store of files in which a session, 40 days ago, was ended by force while
// it held a lease, and its node went on: what is left are two certificates, of which
// the older may be folded.
func past(t *testing.T, opts ...tenure.Option) (url string, dead tenure.Proof) {
	t.Helper()
	ctx := t.Context()
	url = "file://" + filepath.Join(t.TempDir(), "store")
	open := func() *tenure.Client {
		c, err := tenure.Open(ctx, url, append(opts, tenure.WithClock(longAgo{clock.NewSystem()}))...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := open(), open()
	s, err := a.Join(ctx, "web-1", tenure.TTL(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(ctx, "job"); err != nil {
		t.Fatal(err)
	}
	if err := b.ForceNode(ctx, s.Proof(), tenure.StealOptions{Reason: "gone", By: "op", Vouch: true}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		next, err := b.Join(ctx, "web-1")
		if err != nil {
			t.Fatal(err)
		}
		if err := next.Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	<-s.Lost() // by its next renewal
	_ = a.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return url, s.Proof()
}

// in runs the program in this process on the store at target.
func in(t *testing.T, target string, rules []faultstore.Rule, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(""), &stdout, &stderr, []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "TENURE_STORE=fault:"})
	a.drivers = append(a.drivers, store.Driver{Scheme: "fault", Open: func(context.Context, *url.URL) (store.Store, error) {
		st, err := filestore.Open(strings.TrimPrefix(target, "file://"))
		if err != nil {
			return nil, err
		}
		return faultstore.New(st, faultstore.Options{Rules: rules}), nil
	}})
	code := a.run(newRootCmd(a), args)
	return result{code, stdout.String(), stderr.String()}
}

// Old certificates are folded, and what they proved is proven by the later term: the
// lease of the session that they told of is over before and after. The newest one
// stays, and folding again has nothing to do.
//
// SPEC PL5 LS8
func TestPruneFoldsCertificates(t *testing.T) {
	t.Parallel()
	target, dead := past(t)
	states := func(want string) {
		t.Helper()
		var j statusJSON
		r := in(t, target, nil, "status", "job", "--json")
		if err := json.Unmarshal([]byte(r.stdout), &j); err != nil || j.Session == nil {
			t.Fatalf("%v in %s%s", err, r.stdout, r.stderr)
		}
		got := fmt.Sprintf("%s %d %s %q", j.Session.Incarnation, j.Session.Term, j.Session.State, j.Session.How)
		if want = fmt.Sprintf("%s %d %s", dead.Incarnation, dead.Term, want); got != want {
			t.Errorf("the session is told as %s, want %s", got, want)
		}
	}
	states(`over "vouched"`)
	in(t, target, nil, "store", "prune", "--json").want(t, 0, `"certificates":1}`, "")
	states(`over ""`)
	in(t, target, nil, "status", "job").want(t, 0, "session    over: its node is released at term 4 by now", "")
	in(t, target, nil, "store", "prune").want(t, 0, "folded 0 old certificates into the records of their nodes", "")
	r := in(t, target, nil, "node", "history", "web-1", "--json")
	if r.want(t, 0, `"successor":{"incarnation":"`, ""); strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("the history is %s", r.stdout)
	}
	in(t, target, nil, "node", "fence", "web-1", "--incarnation", dead.Incarnation).want(t, 76, "", "missing evidence")
}

// Without the right to delete, old certificates stay, which harms nothing: a warning
// is all. Other trouble is told as what it is.
//
// SPEC PL5
func TestPruneWithoutDeleteRights(t *testing.T) {
	t.Parallel()
	target, _ := past(t)
	certificates := func(c faultstore.Call) bool { return strings.HasPrefix(c.Key, store.Prefix("default", "certificate")) }
	denied := []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpDelete}, Match: certificates, Fault: faultstore.Fail(store.ErrDenied)}}
	r := in(t, target, denied, "store", "prune")
	r.want(t, 0, "folded 0 old certificates", "tenure: warning: old certificates of nodes stay, which costs space only: ")
	r.want(t, 0, "removed 0 leases and 0 archives of history, kept 1 leases", "denied")
	down := []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpDelete}, Match: certificates, Fault: faultstore.Fail(store.ErrUnavailable)}}
	in(t, target, down, "store", "prune", "--json").want(t, 69, `"certificates":0}`, "store unavailable")
	in(t, target, nil, "store", "prune", "--json").want(t, 0, `"certificates":1}`, "")
}

// Where leases are kept for ever, that is refused as ever, but certificates are no
// leases.
//
// SPEC PL5 LS15
func TestPruneWhereLeasesAreKept(t *testing.T) {
	t.Parallel()
	target, _ := past(t, tenure.WithRetention(0))
	r := in(t, target, nil, "store", "prune")
	r.want(t, 64, "folded 1 old certificates into the records of their nodes", "the namespace keeps everything for ever")
	if strings.Contains(r.stdout, "leases") {
		t.Errorf("it tells of leases: %s", r.stdout)
	}
}

// An owner that ends or is succeeded while it is observed is neither alive nor
// silent, and the name's state afterwards is what is shown.
//
// SPEC PL2 UI1
func TestObservedNodeEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vouch       bool
		state, seen string
	}{
		"ended":     {state: "released", seen: "its owner ended after "},
		"succeeded": {vouch: true, state: "held", seen: "changed hands after "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			target := "file://" + filepath.Join(t.TempDir(), "store")
			client, err := tenure.Open(ctx, target)
			if err != nil {
				t.Fatal(err)
			}
			s, err := client.Join(ctx, "web-1")
			if err != nil {
				t.Fatal(err)
			}
			var reads int
			// A rule that never fires, and acts before the command's second look.
			between := fail(store.ErrUnavailable, faultstore.OpGet)
			between[0].Key, between[0].Match = store.Key("default", "identity", "web-1"), func(faultstore.Call) bool {
				if reads++; reads == 2 {
					err = client.ForceNode(ctx, s.Proof(), tenure.StealOptions{Reason: "gone", Vouch: c.vouch})
					if c.vouch && err == nil {
						_, err = client.Join(ctx, "web-1")
					}
				}
				return false
			}
			r := in(t, target, between, "node", "status", "web-1", "--observe")
			if err != nil || reads != 2 {
				t.Fatalf("%d reads: %v", reads, err)
			}
			r.want(t, 0, "state        "+c.state+"\n", "")
			r.want(t, 0, "observed     "+c.seen, "")
			_ = client.Close() // the first session says that it was lost
		})
	}
}

// A lease is shown also where its session's node cannot be read, and the trouble
// decides the exit code.
//
// SPEC UI1
func TestStatusWithoutItsNode(t *testing.T) {
	t.Parallel()
	target, _ := past(t)
	broken := []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpGet}, Key: store.Key("default", "identity", "web-1"), Fault: faultstore.Fail(store.ErrDenied)}}
	in(t, target, broken, "status", "job").want(t, 77, "session    unknown", `lease "job": its session cannot be looked up: `)
	in(t, target, broken, "ls", "--json").want(t, 77, `"state":"unknown"`, "denied")
	in(t, target, broken, "ls").want(t, 0, "job   session  held, session ?  ", `lease "job": its session cannot be looked up: `)
	in(t, target, broken, "node", "status", "web-1").want(t, 77, "", "denied")
}
