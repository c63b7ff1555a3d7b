package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

func watchMutants() []mutant {
	never := hook(func(h *hooked) {
		h.watch = func(ctx context.Context, key string, _ store.Version) error {
			<-ctx.Done()
			return store.CtxErr(ctx, "mem", "watch", key)
		}
	})
	return []mutant{
		{"watch never wakes", never, []string{"ST14/watch-wakes", "ST14/watch-wakes-for-others", "ST14/watch-by-many"}, "did not come within"},
		{"watch waits for the next change", hook(func(h *hooked) {
			h.watch = func(ctx context.Context, key string, _ store.Version) error {
				o, _ := h.Store.Get(ctx, key, 1<<20)
				return h.Store.Watch(ctx, key, o.Version)
			}
		}), []string{"ST14/watch-misses-nothing"}, "did not come within"},
		{"watch returns all the time", hook(func(h *hooked) {
			h.watch = func(context.Context, string, store.Version) error { return nil }
		}), []string{"ST14/watch-is-no-spinning"}, "although nothing changed"},
		{"watch ignores its context", hook(func(h *hooked) {
			h.watch = func(ctx context.Context, key string, v store.Version) error {
				return h.Store.Watch(context.WithoutCancel(ctx), key, v)
			}
		}), []string{"ST13/watch-ends-with-its-context"}, "did not come within"},
	}
}

// pushy is a ticket that never waits; sticky one that never leaves.
type pushy struct{ store.Ticket }

func (pushy) Wait(context.Context, time.Duration) error { return nil }

type sticky struct{ store.Ticket }

func (sticky) Leave() {}

// backwards is a ticket of a line that serves the last first: it waits for its
// successor to leave.
type backwards struct {
	store.Ticket
	next chan struct{}
	left chan struct{}
	once *sync.Once
}

func (b backwards) Leave() {
	b.once.Do(func() { close(b.left) })
	b.Ticket.Leave()
}

func (b backwards) Wait(ctx context.Context, _ time.Duration) error {
	select {
	case <-b.next:
		return nil
	case <-ctx.Done():
		return store.CtxErr(ctx, "mem", "wait in line", "")
	}
}

func queueMutants() []mutant {
	tickets := func(wrap func(store.Ticket) store.Ticket) Harness {
		return hook(func(h *hooked) {
			h.enqueue = func(ctx context.Context, key string) (store.Ticket, error) {
				t, err := h.Store.Enqueue(ctx, key)
				if err != nil {
					return nil, err
				}
				return wrap(t), nil
			}
		})
	}
	pushing := tickets(func(t store.Ticket) store.Ticket { return pushy{t} })
	sticking := tickets(func(t store.Ticket) store.Ticket { return sticky{t} })
	return []mutant{
		{"nobody waits", pushing, []string{"ST14/queue-of-many", "ST14/queue-among-handles"}, "was let through"},
		{"nobody waits", pushing, []string{"ST14/queue-patience"}, "passed the ticket before it after"},
		{"nobody waits", pushing, []string{"ST14/queue-cancel"}, "does not wrap context.Canceled"},
		{"nobody waits", pushing, []string{"ST14/queue-leave", "ST14/queue-member-gone"}, "while others stood before it"},
		{"nobody leaves", sticking, []string{"ST14/queue-leave"}, "did not come within"},
		{"nobody leaves", sticking, []string{"ST14/queue-leaves-nothing"}, "but all have left"},
		{"last come, first served", hook(func(h *hooked) {
			var last *backwards
			h.enqueue = func(ctx context.Context, key string) (store.Ticket, error) {
				t, err := h.Store.Enqueue(ctx, key)
				b := &backwards{Ticket: t, next: make(chan struct{}), left: make(chan struct{}), once: new(sync.Once)}
				if last != nil {
					last.next = b.left
				}
				last = b
				return b, err
			}
		}), []string{"ST14/queue-of-many"}, "did not come within"},
		{"one line for all keys", hook(func(h *hooked) {
			h.enqueue = func(ctx context.Context, _ string) (store.Ticket, error) { return h.Store.Enqueue(ctx, "one/line") }
		}), []string{"ST14/queue-per-key"}, "did not come within"},
		{"the dead stand in line", hook(func(h *hooked) { h.close = func() error { return nil } }),
			[]string{"ST14/queue-member-gone"}, "did not come within"},
	}
}

func clockMutants() []mutant {
	clock := func(edit func(r *store.Reading, calls int)) Harness {
		return hook(func(h *hooked) {
			calls := 0
			h.now = func(ctx context.Context) (store.Reading, error) {
				r, err := h.Store.Now(ctx)
				calls++
				edit(&r, calls)
				return r, err
			}
		})
	}
	return []mutant{
		{"the clock runs backwards", clock(func(r *store.Reading, calls int) { r.Time = r.Time.Add(-time.Duration(calls) * time.Second) }),
			[]string{"ST12/clock-runs-forward"}, "went back"},
		{"the clock has no name", clock(func(r *store.Reading, _ int) { r.Instance = "" }), []string{"ST12/clock-has-an-instance"}, `name its clock ""`},
		{"the clock is in another time zone", clock(func(r *store.Reading, _ int) { r.Time = r.Time.Add(time.Hour) }),
			[]string{"ST12/clock-stamps-writes"}, "is stamped"},
		{"the read is the modification", hook(func(h *hooked) {
			h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
				o, err := h.Store.Get(ctx, key, limit)
				o.Modified = time.Now()
				return o, err
			}
		}), []string{"ST3/modification-times"}, "without a write"},
	}
}

// prover is a reference driver with proofs of death among the handles of one
// process, and hooks to break them. In it nobody ever dies.
type prover struct {
	*memstore.Store
	marks     *marks
	gone      func(store.Mark) bool
	watchGone func(ctx context.Context) error
	mark      func(store.Mark) store.Mark
}

type marks struct {
	mu   sync.Mutex
	last uint64
}

type fakeWitness struct{ mark store.Mark }

func (w fakeWitness) Mark() store.Mark { return w.mark }
func (fakeWitness) Close() error       { return nil }

func (p *prover) Info() store.Info {
	i := p.Store.Info()
	i.Can |= store.CanProve
	return i
}

func (p *prover) NewWitness(context.Context) (store.Witness, error) {
	p.marks.mu.Lock()
	defer p.marks.mu.Unlock()
	p.marks.last++
	return fakeWitness{p.mark(store.Mark{Boot: "boot", Inode: p.marks.last})}, nil
}

func (p *prover) Gone(_ context.Context, m store.Mark) (bool, error) { return p.gone(m), nil }

func (p *prover) WatchGone(ctx context.Context, _ store.Mark) error { return p.watchGone(ctx) }

func proving(set func(p *prover)) Harness {
	wrap := func(m *memstore.Store, of *marks) store.Store {
		p := &prover{
			Store: m, marks: of,
			gone: func(store.Mark) bool { return false },
			mark: func(m store.Mark) store.Mark { return m },
			watchGone: func(ctx context.Context) error {
				<-ctx.Done()
				return store.CtxErr(ctx, "mem", "watch gone", "")
			},
		}
		set(p)
		return p
	}
	return Harness{
		Open: func(testing.TB) store.Store { return wrap(memstore.New(), &marks{}) },
		Peer: func(_ testing.TB, s store.Store) store.Store { p := s.(*prover); return wrap(p.Store.Peer(), p.marks) },
	}
}

func proofMutants() []mutant {
	return []mutant{
		{"everybody is gone", proving(func(p *prover) { p.gone = func(store.Mark) bool { return true } }), []string{
			"LS14/a-living-process-is-not-gone", "LS14/a-living-process-is-not-gone-for-others", "LS14/a-missing-witness-proves-nothing",
		}, "want false"},
		{"what is not there is gone", proving(func(p *prover) { p.gone = func(m store.Mark) bool { return m.Boot != "boot" } }),
			[]string{"LS14/a-missing-witness-proves-nothing"}, "the zero mark"},
		{"all witnesses are one", proving(func(p *prover) { p.mark = func(store.Mark) store.Mark { return store.Mark{Boot: "boot"} } }),
			[]string{"LS14/a-missing-witness-proves-nothing"}, "two witnesses have the mark"},
		{"the end of the context is not told", proving(func(p *prover) {
			p.watchGone = func(ctx context.Context) error { <-ctx.Done(); return nil }
		}), []string{"LS14/watching-a-living-process-ends-with-the-context"}, "does not wrap context.Canceled"},
	}
}
