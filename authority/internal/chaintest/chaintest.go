// Package chaintest is a world for the tests of the chains: one store in one bubble of
// virtual time, and processes that join, lead and die.
package chaintest

import (
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// Name is the authority of every test, TTL its and every session's time to live.
const (
	Name = "jobs"
	TTL  = 10 * time.Second
)

// World is one store and its processes.
type World struct {
	*testing.T
	Store *memstore.Store
}

// Run runs f in a world of its own, with virtual time.
func Run(t *testing.T, f func(w *World)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &World{T: t, Store: memstore.New()}
		t.Cleanup(func() { _ = w.Store.Close() })
		f(w)
	})
}

// shared is a handle that does not close the store of all.
type shared struct{ *memstore.Store }

// Close does nothing.
func (shared) Close() error { return nil }

// Process is one process start: a client with a link of its own, joined as a node.
type Process struct {
	W       *World
	Link    *faultstore.Store
	Client  *tenure.Client
	Session *tenure.Session
	A       *authority.Authority
}

// Start joins as node and opens the authority. What is open ends with the test.
func (w *World) Start(node string) *Process {
	w.Helper()
	p := &Process{W: w, Link: faultstore.New(shared{w.Store}, faultstore.Options{})}
	var err error
	p.Client, err = tenure.New(w.Context(), p.Link, tenure.WithTTL(TTL), tenure.WithClock(clock.NewVirtual(1)), tenure.WithoutProbe())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = p.Client.Close() // of a dead process, it cannot
		_ = p.Link.Close()
	})
	if p.Session, err = p.Client.Join(w.Context(), node); err != nil {
		w.Fatalf("join %s: %v", node, err)
	}
	if p.A, err = authority.Open(w.Context(), p.Session, Name); err != nil {
		w.Fatalf("open: %v", err)
	}
	return p
}

// Lead campaigns until p leads.
func (p *Process) Lead() tenure.Proof {
	p.W.Helper()
	l, err := p.A.Lead(p.W.Context())
	if err != nil {
		p.W.Fatalf("lead: %v", err)
	}
	return l.Proof()
}

// StepDown gives p's leadership up.
func (p *Process) StepDown() {
	p.W.Helper()
	if err := p.A.Leader().StepDown(p.W.Context()); err != nil {
		p.W.Fatalf("step down: %v", err)
	}
}

// Die ends everything that p does, as kill -9 would.
func (p *Process) Die() { p.Link.SetLink(faultstore.Dead) }

// Damage replaces the bytes of an object behind everybody's back; nil removes it.
func (w *World) Damage(key string, body []byte) {
	w.Helper()
	ctx := w.Context()
	o, err := w.Store.Get(ctx, key, 16<<20)
	if err != nil {
		w.Fatalf("no object to damage: %v", err)
	}
	if body == nil {
		err = w.Store.Delete(ctx, key)
	} else {
		_, err = w.Store.Replace(ctx, key, body, o.Version)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// Put creates an object behind everybody's back.
func (w *World) Put(key string, body []byte) {
	w.Helper()
	if _, err := w.Store.Create(w.Context(), key, body); err != nil {
		w.Fatal(err)
	}
}

// Keys lists the keys of one kind of object.
func (w *World) Keys(a *authority.Authority, kind string) []string {
	w.Helper()
	var keys []string
	for key, err := range w.Store.List(w.Context(), a.Kit().Key(kind, ""), "") {
		if err != nil {
			w.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// Sound fails the test unless an audit finds everything sound.
func (w *World) Sound(r *authority.Reader) {
	w.Helper()
	report, err := r.Audit(w.Context())
	if err != nil {
		w.Errorf("audit: %v (%d entries, %d breaks)", err, report.Entries, len(report.Breaks))
	}
}

// Want fails the test unless an answer is what it should be.
func (w *World) Want(what string, res authority.Result, err error, want authority.Answer) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v, want %v", what, err, want)
	}
	if res.Answer != want {
		w.Fatalf("%s: %v, want %v", what, res.Answer, want)
	}
}

// Deployment and its successor, after a wipe.
const (
	Deployment = "dddddddd-4444-4444-8444-444444444444"
	Rebuilt    = "eeeeeeee-5555-4555-8555-555555555555"
)

var _ store.Store = shared{}
