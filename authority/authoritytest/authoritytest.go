// Package authoritytest is the conformance suite of package authority over one
// driver: that an authority has one leader at a time and a fenced log on that store,
// in real time, and how many requests that takes. A driver's test is its harness of
// package storetest and one call:
//
//	func TestAuthorities(t *testing.T) { authoritytest.Run(t, harness()) }
package authoritytest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/storetest"
)

// name is the authority of every test.
const name = "jobs"

// Run holds the authorities on the harness's store to their rules, each in a
// parallel subtest with a place of its own, and takes some seconds. Where the harness
// has no Peer, all processes share one handle. How many writes per second the store
// says that it takes is not looked at: the harness's must take ten.
func Run(t *testing.T, h storetest.Harness) {
	t.Helper()
	if h.Limit == 0 {
		h.Limit = 10 * time.Second
	}
	for _, r := range []struct {
		name string
		run  func(w *world)
	}{
		{"LA3/lead, step down, lead again, take over a silent leader", elections},
		{"LA2/renewals", renewals},
		{"ST9/lost replies", losses},
		{"LA4/a write that arrives after a takeover", lateWrite},
		{"LA2/requests", requests},
		{"LA4/every chain, and a blob", everyChain},
		{"LA4/a stale proof is fenced", fenced},
		{"RF/reports and rounds", rounds},
		{"LA8/floor and prune", floors},
		{"LA5/damage is found", damage},
		{"CT/one catalog", catalogs},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w := &world{T: t, h: h, st: h.Open(t), ttl: 2 * time.Second}
			if h.Slow {
				w.ttl = 3 * time.Second
			}
			t.Cleanup(func() { _ = w.st.Close() })
			r.run(w)
		})
	}
}

// long is a TTL within which no test sees a renewal.
const long = 2 * time.Minute

// world is one place.
type world struct {
	*testing.T
	h     storetest.Harness
	st    store.Store
	ttl   time.Duration
	nodes int
}

// shared is a handle that its owner closes.
type shared struct{ store.Store }

// Close does nothing.
func (shared) Close() error { return nil }

// Info declares no power: those of the handle cannot be reached through it.
func (s shared) Info() store.Info { i := s.Store.Info(); i.Can = 0; return i }

// proc is one process: a client with a link of its own, joined as a node.
type proc struct {
	*authority.Authority
	w       *world
	link    *faultstore.Store
	client  *tenure.Client
	session *tenure.Session

	mu     sync.Mutex
	sent   []string // calls on the authority's keys
	failed bool     // one of them did
}

// proc starts a process, which ends with the test. rules are its link's.
func (w *world) proc(ttl time.Duration, rules ...faultstore.Rule) *proc {
	w.Helper()
	w.nodes++
	inner := store.Store(shared{w.st})
	if w.h.Peer != nil {
		inner = w.h.Peer(w.T, w.st)
	}
	p := &proc{w: w}
	p.link = faultstore.New(inner, faultstore.Options{
		Seed: 1, Rules: rules, Trace: p.trace, Info: func(i store.Info) store.Info { i.WritesPerSecond = 0; return i },
	})
	w.Cleanup(func() { _ = p.link.Close() })
	var err error
	// A quarter of the TTL for a call keeps a busy machine from failing the suite.
	p.client, err = tenure.New(w.Context(), p.link, tenure.WithTTL(ttl), tenure.WithRenewEvery(ttl/10), tenure.WithAttemptLimit(ttl/4),
		tenure.WithPollEvery(50*time.Millisecond), tenure.WithReleaseLimit(w.ttl/4), tenure.WithoutProbe())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.client.Close() })
	if p.session, err = p.client.Join(w.Context(), fmt.Sprintf("node %d", w.nodes)); err != nil {
		w.Fatalf("join: %v", err)
	}
	if p.Authority, err = authority.Open(w.Context(), p.session, name, authority.PruneEvery(-1)); err != nil {
		w.Fatalf("open: %v", err)
	}
	return p
}

// trace notes every call on the authority's keys, but for watches.
func (p *proc) trace(e faultstore.Event) {
	if e.Late || e.Op == faultstore.OpWatch || !strings.Contains(e.Key, "/authority") {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Done {
		p.failed = p.failed || e.Err != nil && !errors.Is(e.Err, store.ErrNotFound)
		return
	}
	p.sent = append(p.sent, string(e.Op)+" "+kindOf(e.Key))
}

// kindOf is what is kept at key: the head, or a kind of object of the log.
func kindOf(key string) string {
	if _, rest, ok := strings.Cut(key, "/authority-log/"); ok {
		return strings.Split(rest, "/")[1]
	}
	return "head"
}

// used are the calls on the authority's keys that f made, and whether none of them
// failed: what follows a call that took too long is no measure.
func (p *proc) used(f func()) (calls []string, sound bool) {
	p.mu.Lock()
	p.sent, p.failed = nil, false
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, !p.failed
}

// count is how often p made a call since the last used began.
func (p *proc) count(call string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.sent {
		if c == call {
			n++
		}
	}
	return n
}

// within is the test's context with a limit, so that a hang fails.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 2*w.ttl+w.h.Limit)
	w.Cleanup(cancel)
	return ctx
}

// die ends everything that p does without a word to the store, and closes the
// channel once nothing of it runs.
func (p *proc) die() <-chan struct{} {
	p.link.SetLink(faultstore.Dead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.client.Close() // it cannot give anything up
	}()
	return done
}

// lead campaigns without fail.
func (p *proc) lead() *authority.Leader {
	p.w.Helper()
	l, err := p.Lead(p.w.within())
	if err != nil {
		p.w.Fatalf("lead: %v", err)
	}
	return l
}

// leadNow leads and fails the test if that took an observation.
func (p *proc) leadNow() *authority.Leader {
	p.w.Helper()
	began := time.Now()
	l := p.lead()
	if d := time.Since(began); d >= p.w.ttl {
		p.w.Errorf("to lead took %v, as long as an observation", d)
	}
	return l
}

func (w *world) stepDown(l *authority.Leader) {
	w.Helper()
	if err := l.StepDown(w.Context()); err != nil {
		w.Fatalf("step down: %v", err)
	}
}

// snapshot reads the head without fail.
func (p *proc) snapshot() authority.Snapshot {
	p.w.Helper()
	s, err := p.Reader().Snapshot(p.w.Context())
	if err != nil {
		p.w.Fatalf("snapshot: %v", err)
	}
	return s
}

// audit fails the test unless n entries stand and all is sound.
func (p *proc) audit(n int) {
	p.w.Helper()
	if report, err := p.Reader().Audit(p.w.Context()); err != nil || report.Entries != n {
		p.w.Errorf("audit: %d entries, %v, want %d", report.Entries, err, n)
	}
}

// until waits for something that should happen soon.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(w.ttl + w.h.Limit); !ok(); time.Sleep(5 * time.Millisecond) { // poll
		if time.Now().After(end) {
			w.Fatalf("it did not happen: %s", what)
		}
	}
}

// want fails the test unless a decision was answered so.
func (w *world) want(what string, res authority.Result, err error, want authority.Answer) authority.Result {
	w.Helper()
	if err != nil || res.Answer != want {
		w.Fatalf("%s: %v, %v, want %v", what, res.Answer, err, want)
	}
	return res
}

// check fails the test unless err is of the kind; nil is no error.
func (w *world) check(what string, err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// keys are the keys of the log's objects of a kind.
func (w *world) keys(p *proc, kind string) (all []string) {
	w.Helper()
	for key, err := range w.st.List(w.Context(), p.Kit().Key(kind, ""), "") {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, key)
	}
	return all
}
