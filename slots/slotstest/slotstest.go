// Package slotstest is the conformance suite of package slots over one driver: that every
// slot has one owner at a time under rising epochs on that store, in real time, in both
// homes where the store has both, and how many requests that takes. A driver's test is
// its harness of package storetest and one call:
//
//	func TestSlots(t *testing.T) { slotstest.Run(t, harness()) }
package slotstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/storetest"
)

// table is the table of most tests.
const table = "orders"

// ttl is the shortest that a host may have.
const ttl = slots.MinTTL

// rules are the suite's. Those that let time pass are many and idle, so that they run at
// the same time, however few tests run in parallel.
var rules = []struct {
	name  string
	waits bool
	run   func(w *world)
}{
	{"SL3/claim, wait, lapse, claim again", true, takeover},
	{"SL3/hosts race", false, races},
	{"SL3/a claim over many rows", true, manyRows},
	{"SL4/requests", false, requests},
	{"SL4/a renewal that arrives after a takeover", true, lateWrite},
	{"SL5/ranges under a session", true, sessions},
	{"SL7/a release wakes who waits", false, handOver},
	{"SL8/plan and pins", false, plans},
	{"ST9/lost replies", false, losses},
	{"LS11/steal", false, thefts},
	{"LS12/jump", false, jumps},
	{"SL9/watch", false, watches},
	{"SL2/tables", false, tables},
}

// Run holds the slots on the harness's store to their rules, each in a subtest with a
// place of its own, and takes some seconds. Where the harness has no Peer, all processes
// share one handle. How many writes per second the store says that it takes is not looked
// at: the harness's must take twenty.
func Run(t *testing.T, h storetest.Harness) {
	t.Helper()
	if h.Limit == 0 {
		h.Limit = 10 * time.Second
	}
	var all sync.WaitGroup
	for _, form := range []slots.Form{slots.RowsForm, slots.RegisterForm} {
		var swift []func()
		for _, r := range rules {
			play := func() {
				t.Run(string(form)+"/"+r.name, func(t *testing.T) { inWorld(t, h, form, r.run) })
			}
			if r.waits {
				all.Go(play)
			} else {
				swift = append(swift, play)
			}
		}
		all.Go(func() {
			for _, play := range swift {
				play()
			}
		})
	}
	all.Wait()
}

// inWorld runs f in a place of its own, unless the store has no home of that form.
func inWorld(t *testing.T, h storetest.Harness, form slots.Form, f func(w *world)) {
	w := &world{T: t, h: h, st: h.Open(t), form: form}
	t.Cleanup(func() { _ = w.st.Close() })
	if w.commits() || form == slots.RegisterForm {
		f(w)
	}
}

// commits reports whether the store commits several keys at once.
func (w *world) commits() bool {
	_, can := store.AsCommitter(w.st)
	return can
}

// world is one place.
type world struct {
	*testing.T
	h    storetest.Harness
	st   store.Store
	form slots.Form

	mu    sync.Mutex
	nodes int
}

// shared is a handle that its owner closes.
type shared struct{ store.Store }

// Close does nothing.
func (shared) Close() error { return nil }

// Info declares no power but transactions: others of the handle cannot be reached through
// it.
func (s shared) Info() store.Info { i := s.Store.Info(); i.Can &= store.CanCommit; return i }

// Commit is the handle's.
func (s shared) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	c, _ := store.AsCommitter(s.Store)
	return c.Commit(ctx, changes)
}

// Scan is the handle's.
func (s shared) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	c, _ := store.AsCommitter(s.Store)
	return c.Scan(ctx, r)
}

// proc is one process: a client with a link of its own, and the table.
type proc struct {
	*slots.Table
	w      *world
	link   *faultstore.Store
	client *tenure.Client

	mu     sync.Mutex
	sent   []string
	failed bool
}

// proc starts a process, which ends with the test.
func (w *world) proc() *proc {
	w.Helper()
	inner := store.Store(shared{w.st})
	if w.h.Peer != nil {
		inner = w.h.Peer(w.T, w.st)
	}
	w.mu.Lock()
	w.nodes++
	label := fmt.Sprint("process ", w.nodes)
	w.mu.Unlock()
	p := &proc{w: w}
	p.link = faultstore.New(inner, faultstore.Options{
		Seed: 1, Trace: p.trace, Info: func(i store.Info) store.Info { i.WritesPerSecond = 0; return i },
	})
	w.Cleanup(func() { _ = p.link.Close() })
	var err error
	if p.client, err = tenure.New(w.Context(), p.link, tenure.WithTTL(ttl), tenure.WithPollEvery(50*time.Millisecond), tenure.WithReleaseLimit(ttl/4),
		tenure.WithAttemptLimit(ttl/4), tenure.WithoutProbe(), tenure.WithLabel(label), tenure.WithLogger(slog.New(slog.DiscardHandler))); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = p.client.Close() })
	p.Table = w.open(p.client, table)
	return p
}

func (w *world) open(c *tenure.Client, name string, opts ...slots.Option) *slots.Table {
	w.Helper()
	if w.form == slots.RegisterForm {
		opts = append(opts, slots.Register())
	}
	t, err := slots.Create(w.within(), c, name, opts...)
	if err != nil || t.Form() != w.form {
		w.Fatalf("create: %v", err)
	}
	return t
}

// host makes a host that nobody refreshes yet; it is closed with the test.
func (p *proc) host(owner string, ranges ...slots.Range) *slots.Host {
	p.w.Helper()
	return p.hostOf(slots.HostConfig{Owner: owner, Addr: owner + ":80", Ranges: ranges, TTL: ttl})
}

func (p *proc) hostOf(cfg slots.HostConfig) *slots.Host {
	p.w.Helper()
	h, err := p.Host(cfg)
	if err != nil {
		p.w.Fatal(err)
	}
	p.w.Cleanup(h.Close)
	return h
}

// run lets h's loop run until the test ends or stop is called.
func (w *world) run(h *slots.Host) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	w.Cleanup(func() { _ = stop() })
	return stop
}

// die ends everything that p does without a word to the store.
func (p *proc) die() { p.link.SetLink(faultstore.Dead) }

// trace notes every call on tables but watches.
func (p *proc) trace(e faultstore.Event) {
	if e.Late || e.Op == faultstore.OpWatch || !strings.Contains(e.Key, "/slots") {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Done {
		p.failed = p.failed || e.Err != nil && !errors.Is(e.Err, store.ErrNotFound)
		return
	}
	p.sent = append(p.sent, string(e.Op)+" "+strings.Split(e.Key, "/")[1])
}

// used are the calls on tables that f made, and whether none of them failed: what follows
// a call that took too long is no measure.
func (p *proc) used(f func()) (calls string, sound bool) {
	p.mu.Lock()
	p.sent, p.failed = nil, false
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.sent, ", "), !p.failed
}

// within is the test's context with a limit, so that a hang fails.
func (w *world) within() context.Context {
	ctx, cancel := context.WithTimeout(w.Context(), 4*ttl+w.h.Limit)
	w.Cleanup(cancel)
	return ctx
}

// until waits for something that should happen soon.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	for end := time.Now().Add(4*ttl + w.h.Limit); !ok(); time.Sleep(5 * time.Millisecond) { // poll
		if time.Now().After(end) {
			w.Fatalf("it did not happen: %s", what)
		}
	}
}

// claim refreshes h until it serves n ranges.
func (w *world) claim(h *slots.Host, n int) {
	w.Helper()
	w.until(fmt.Sprintf("%s serves %d ranges", h.Owner(), n), func() bool {
		serving := 0
		for _, r := range h.Held() {
			if r.Serving {
				serving++
			}
		}
		if serving < n {
			h.Refresh(w.Context())
		}
		return serving >= n
	})
}

// serves wants h to serve slot, under an epoch if that is not 0, and returns it.
func (w *world) serves(h *slots.Host, slot uint16, want uint64) uint64 {
	w.Helper()
	e, ok := h.EpochFor(slot)
	if !ok || want != 0 && e != want {
		w.Fatalf("%s serves slot %d under epoch %d (%v), want %d", h.Owner(), slot, e, ok, want)
	}
	return e
}

// rows reads the table without fail.
func (p *proc) rows() []slots.Row {
	p.w.Helper()
	v, err := p.Read(p.w.within())
	if err != nil {
		p.w.Fatalf("read: %v", err)
	}
	return v.Rows
}

// check fails the test unless err is of the kind; nil is no error.
func (w *world) check(what string, err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%s: %v, want %v", what, err, kind)
	}
}

func rng(a, b uint16) slots.Range { return slots.Range{A: a, B: b} }

// writes are the calls that change something.
var writes = []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace, faultstore.OpCommit}

// onTables picks calls on tables and rows.
func onTables(c faultstore.Call) bool { return strings.Contains(c.Key, "/slots") }
