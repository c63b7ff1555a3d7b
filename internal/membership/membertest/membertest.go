// Package membertest is the conformance suite of package membership over one
// driver: that a node's name is one live process, on that store, in real time. A
// driver's test is its harness of package storetest and one call:
//
//	func TestIdentities(t *testing.T) { membertest.Run(t, harness()) }
package membertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/storetest"
)

const node = "node 1"

// Run holds the identities on the harness's store to their rules, each in a
// parallel subtest with a place of its own. Where the harness has no Peer, all
// processes share one handle.
func Run(t *testing.T, h storetest.Harness) {
	t.Helper()
	if h.Limit == 0 {
		h.Limit = 10 * time.Second
	}
	for _, r := range []struct {
		name string
		run  func(w *world)
	}{
		{"PL1/join, renew, release, join again", joinAndRelease},
		{"PL2/takeover after silence", takeover},
		{"PL3/the certificate stands under both names", certificates},
		{"PL4/a crash before sealing heals", healing},
		{"PL5/missing evidence and folded evidence", evidence},
		{"PL6/fence", fence},
		{"PL8/lost replies", losses},
		{"PL9/one winner", races},
		{"LS8/many wait for one end", waiters},
		{"LS11/force and revocation", operators},
		{"LS12/jump", jump},
		{"LS3/silent by the store's clock", storeClock},
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

// world is one place.
type world struct {
	*testing.T
	h   storetest.Harness
	st  store.Store
	ttl time.Duration
}

// proc is a process with a handle of its own, if the harness can help it.
type proc struct {
	*membership.Identities
	w      *world
	timing lease.Timing
	joined []*membership.Member

	life   context.Context
	bg     sync.WaitGroup
	mu     sync.Mutex
	closed bool
}

// background is what a client's is: nothing begins once it is closed.
func (p *proc) background(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.bg.Go(func() { f(p.life) })
	}
}

// proc starts a process; over, if not nil, stands between it and its store.
func (w *world) proc(over func(store.Store) store.Store, opts ...func(*membership.Config)) *proc {
	w.Helper()
	s := store.Store(shared{w.st})
	if w.h.Peer != nil {
		s = w.h.Peer(w.T, w.st)
	}
	if over != nil {
		s = over(s)
	}
	// Half a second for a call keeps a busy machine from failing the suite.
	p := &proc{w: w, timing: lease.Timing{TTL: w.ttl, Renew: w.ttl / 10, Attempt: w.ttl / 4}.Defaults()}
	if err := p.timing.Check(); err != nil {
		w.Fatal(err)
	}
	var end context.CancelFunc
	p.life, end = context.WithCancel(context.Background())
	cfg := membership.Config{
		Store: s, Namespace: "ns", Clock: clock.NewSystem(), Rand: mathrand.Float64, NewID: newID, Timing: p.timing,
		Poll: 50 * time.Millisecond, Floor: func(context.Context) (uint64, error) { return 0, nil }, PruneEvery: -1,
		Background: p.background,
	}
	for _, o := range opts {
		o(&cfg)
	}
	p.Identities = membership.New(cfg)
	w.Cleanup(func() {
		for _, m := range p.joined {
			m.Abandon(errors.New("the test is over"))
		}
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		end()
		p.bg.Wait()
		_ = s.Close()
	})
	return p
}

// shared is a handle that its owner closes.
type shared struct{ store.Store }

func (shared) Close() error { return nil }

// Info declares no power: those of the handle cannot be reached through it.
func (s shared) Info() store.Info { i := s.Store.Info(); i.Can = 0; return i }

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

func (p *proc) try(wait bool) (*membership.Member, error) {
	ctx, cancel := context.WithTimeout(p.w.Context(), p.w.ttl+p.w.h.Limit)
	defer cancel()
	return p.Join(ctx, membership.Claim{Node: node, Timing: p.timing}, wait)
}

func (p *proc) join() *membership.Member {
	p.w.Helper()
	m, err := p.try(true)
	if err != nil {
		p.w.Fatalf("join: %v", err)
	}
	p.joined = append(p.joined, m)
	return m
}

// joinNow joins and fails the test if that took an observation.
func (p *proc) joinNow() *membership.Member {
	p.w.Helper()
	began := time.Now()
	m := p.join()
	if d := time.Since(began); d >= p.w.ttl {
		p.w.Errorf("the join took %v, as long as an observation", d)
	}
	return m
}

func (w *world) release(m *membership.Member) {
	w.Helper()
	if err := m.Release(w.Context()); err != nil {
		w.Fatalf("release: %v", err)
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

// judged fails the test unless o is over, by how.
func (p *proc) judged(o identity.Owner, how string) {
	p.w.Helper()
	if v, _, err := p.Judge(p.w.Context(), node, o); err != nil || v.State != identity.Over || v.How != how {
		p.w.Errorf("%+v: %+v, %v, want %q", o, v, err, how)
	}
}

// check fails the test unless err is of the kind; nil is no error.
func (w *world) check(what string, err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// faulty puts faults between a process and its store.
func faulty(rules ...faultstore.Rule) func(store.Store) store.Store {
	return func(s store.Store) store.Store { return faultstore.New(s, faultstore.Options{Seed: 1, Rules: rules}) }
}
