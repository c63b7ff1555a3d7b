package ledger

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// dying is the store of a process that dies at its n-th call: before the call arrives,
// or after it took effect and before its answer.
type dying struct {
	*memstore.Store
	calls atomic.Int64
	n     int64
	after bool
	dead  func()
	last  atomic.Value // what it died at
}

func (d *dying) call(op, key string, do func() error) error {
	if d.calls.Add(1) != d.n {
		return do()
	}
	d.last.Store(op + " " + strings.Split(key, "/")[1])
	if d.after {
		_ = do()
	}
	d.dead()
	return store.Errorf(store.ErrUnknown, "", op, key, "the process is gone")
}

func (d *dying) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = d.call("get", key, func() error { o, err = d.Store.Get(ctx, key, limit); return err })
	return o, err
}

func (d *dying) Create(ctx context.Context, key string, body []byte) (v store.Version, err error) {
	err = d.call("create", key, func() error { v, err = d.Store.Create(ctx, key, body); return err })
	return v, err
}

func (d *dying) Replace(ctx context.Context, key string, body []byte, over store.Version) (v store.Version, err error) {
	err = d.call("replace", key, func() error { v, err = d.Store.Replace(ctx, key, body, over); return err })
	return v, err
}

// crashed runs the run on a host that dies at call n, and reports whether it had so
// many.
func (w *world) crashed(run Run, n int64, after bool) (died bool, at string) {
	d := &dying{Store: w.st.Peer()}
	h := w.host(func(s *setup) { s.inner = d })
	d.dead = h.die
	d.n, d.after = d.calls.Load()+n, after
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*ttl)
	defer cancel()
	_, err := h.Once(ctx, run, func(ctx context.Context, a *Attempt) (Result, error) {
		return Result{Output: []byte("done")}, w.act(a)
	}, OnUnknown(Hold), SettleLimit(ttl))
	died = d.calls.Load() >= d.n
	if !died && err != nil {
		w.t.Errorf("call %d: %v", n, err)
	}
	if died {
		at, _ = d.last.Load().(string)
	}
	h.die() // what it has in the background ends, too
	return died, at
}

// A process dies at any of its requests, before or after it takes effect; another goes
// on. With retry the effect is there, once where the thing that is acted on keeps the
// run's id; with hold nothing is ever repeated, and what is not known is listed.
//
// SPEC EX4 EX3
// CASE B13
func TestEveryCrashPoint(t *testing.T) {
	seen := map[string]bool{}
	defer func() {
		for _, at := range []string{"get ledger", "replace lease", "replace ledger", "get lease", "create ledger-log"} {
			if !seen[at] {
				t.Errorf("no process died at %q: %v", at, seen)
			}
		}
	}()
	t.Run("all", func(t *testing.T) {
		for _, policy := range []Policy{Retry, Hold} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprint(policy, after), func(t *testing.T) {
					inWorldNow(t, func(t *testing.T, w *world) {
						w.host().do(at(0)) // so that there is a ledger
						died := true
						for n := int64(1); died; n++ {
							var where string
							died, where = w.crashed(at(int(n)), n, after)
							seen[where] = true
							w.goOn(at(int(n)), policy, fmt.Sprintf("call %d (%s)", n, where))
						}
					})
				})
			}
		}
	})
}

// goOn is what another host does about a run whose host may have died.
func (w *world) goOn(run Run, policy Policy, where string) {
	w.t.Helper()
	before, _ := w.effects(run)
	began := time.Now()
	h := w.host()
	defer h.c.Close()
	out := h.do(run, OnUnknown(policy), Wait(5*ttl))
	if d := time.Since(began); d > 2*ttl {
		w.t.Errorf("%s: the next host went on after %v", where, d)
	}
	plain, guarded := w.effects(run)
	info := w.info(run)
	switch {
	case out.State == Done || out.State == Ran:
		if guarded != 1 || !info.Committed || policy == Hold && plain != 1 || plain > 1+before {
			w.t.Errorf("%s: %s: %d effects, %d guarded, %+v", where, out.State, plain, guarded, info)
		}
		if plain > 1 && !abandoned(info) {
			w.t.Errorf("%s: %d effects, and nothing shows it: %+v", where, plain, info)
		}
	case out.State == Held && policy == Hold:
		open, err := h.Unsettled(w.t.Context())
		if err != nil || plain != before || plain > 1 || !info.Unknown || !lists(open, run) {
			w.t.Errorf("%s: held, %d effects, %+v, %v", where, plain, info, err)
		}
	default:
		w.t.Errorf("%s: %s", where, out.State)
	}
}

// abandoned reports whether the run shows an attempt that was given up.
func abandoned(r RunInfo) bool {
	for _, at := range r.Attempts {
		if at.Abandoned != nil {
			return true
		}
	}
	return false
}

func lists(all []RunInfo, run Run) bool {
	for _, r := range all {
		if r.ID == run.ID && r.Unknown {
			return true
		}
	}
	return false
}
