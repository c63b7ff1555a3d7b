package storetest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// recorder is a testing.TB that keeps failures to itself.
type recorder struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Helper()                           {}
func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Error(args ...any)                 { r.fail("%s", fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(format, args...) }
func (r *recorder) FailNow()                          { runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.fail(format, args...); runtime.Goexit() }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// record runs a clause and returns its failures.
func record(t *testing.T, run func(t testing.TB)) []string {
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(r)
	}()
	<-done
	cancel()
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
	return r.failures
}

// hooked is the reference driver with some methods exchanged.
type hooked struct {
	*memstore.Store
	info    func(store.Info) store.Info
	get     func(ctx context.Context, key string, limit int) (store.Object, error)
	create  func(ctx context.Context, key string, body []byte) (store.Version, error)
	replace func(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error)
	delete  func(ctx context.Context, key string) error
	list    func(ctx context.Context, prefix, after string) iter.Seq2[string, error]
	watch   func(ctx context.Context, key string, v store.Version) error
	now     func(ctx context.Context) (store.Reading, error)
	enqueue func(ctx context.Context, key string) (store.Ticket, error)
	commit  func(ctx context.Context, changes []store.Change) ([]store.Version, error)
	scan    func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error)
	close   func() error
}

func (h *hooked) Info() store.Info {
	if h.info != nil {
		return h.info(h.Store.Info())
	}
	return h.Store.Info()
}

func (h *hooked) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	if h.get != nil {
		return h.get(ctx, key, limit)
	}
	return h.Store.Get(ctx, key, limit)
}

func (h *hooked) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	if h.create != nil {
		return h.create(ctx, key, body)
	}
	return h.Store.Create(ctx, key, body)
}

func (h *hooked) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	if h.replace != nil {
		return h.replace(ctx, key, body, v)
	}
	return h.Store.Replace(ctx, key, body, v)
}

func (h *hooked) Delete(ctx context.Context, key string) error {
	if h.delete != nil {
		return h.delete(ctx, key)
	}
	return h.Store.Delete(ctx, key)
}

func (h *hooked) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	if h.list != nil {
		return h.list(ctx, prefix, after)
	}
	return h.Store.List(ctx, prefix, after)
}

func (h *hooked) Watch(ctx context.Context, key string, v store.Version) error {
	if h.watch != nil {
		return h.watch(ctx, key, v)
	}
	return h.Store.Watch(ctx, key, v)
}

func (h *hooked) Now(ctx context.Context) (store.Reading, error) {
	if h.now != nil {
		return h.now(ctx)
	}
	return h.Store.Now(ctx)
}

func (h *hooked) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	if h.enqueue != nil {
		return h.enqueue(ctx, key)
	}
	return h.Store.Enqueue(ctx, key)
}

func (h *hooked) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	if h.commit != nil {
		return h.commit(ctx, changes)
	}
	return h.Store.Commit(ctx, changes)
}

func (h *hooked) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	if h.scan != nil {
		return h.scan(ctx, r)
	}
	return h.Store.Scan(ctx, r)
}

func (h *hooked) Close() error {
	if h.close != nil {
		return h.close()
	}
	return h.Store.Close()
}

// hook is a harness of hooked stores.
func hook(set func(h *hooked)) Harness {
	wrap := func(m *memstore.Store) store.Store {
		h := &hooked{Store: m}
		set(h)
		return h
	}
	return Harness{
		Open: func(testing.TB) store.Store { return wrap(memstore.New()) },
		Peer: func(_ testing.TB, s store.Store) store.Store { return wrap(s.(*hooked).Store.Peer()) },
	}
}

// Each clause fails for a driver that breaks it, for the reason that it states:
// no clause of the suite is there for show.
func TestEveryClauseCanFail(t *testing.T) {
	t.Parallel()
	for _, cl := range slices.Concat(Clauses(), lostClauses()) {
		if id := cl.Rule + "/" + cl.Name; !slices.ContainsFunc(mutants(), func(m mutant) bool { return slices.Contains(m.breaks, id) }) {
			t.Errorf("there is no broken driver for %s", id)
		}
	}
	for _, m := range mutants() {
		for _, cl := range slices.Concat(Clauses(), lostClauses()) {
			id := cl.Rule + "/" + cl.Name
			if !slices.Contains(m.breaks, id) {
				continue
			}
			t.Run(id+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				h := m.harness
				h.Limit = 300 * time.Millisecond
				failures := record(t, func(t testing.TB) {
					if cl.Rule == "ST9" {
						runLost(t, h, cl)
					} else {
						runClause(t, h, cl)
					}
				})
				if len(failures) == 0 {
					t.Fatalf("a driver that breaks the clause passes it")
				}
				for _, f := range failures {
					if !strings.Contains(f, cl.Rule+": the contract says: "+cl.Says) {
						t.Errorf("the failure does not quote the contract: %s", f)
					}
				}
				if all := strings.Join(failures, "\n"); !strings.Contains(all, m.seen) {
					t.Errorf("the failure does not say %q: %s", m.seen, all)
				}
			})
		}
	}
}

// A sound driver passes under the recorder too, so that the failures above are
// the drivers' and not the recorder's.
func TestRecorderPassesASoundDriver(t *testing.T) {
	t.Parallel()
	h := hook(func(*hooked) {})
	for _, cl := range Clauses() {
		if cl.Needs.Has(store.CanProve) {
			h = proving(func(*prover) {})
		}
		if failures := record(t, func(t testing.TB) { runClause(t, h, cl) }); len(failures) > 0 {
			t.Errorf("%s/%s: %q", cl.Rule, cl.Name, failures)
		}
	}
}
