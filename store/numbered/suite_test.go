package numbered

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// createOnly is a store that knows no replace: who calls it, fails.
type createOnly struct{ store.Store }

func (createOnly) Replace(context.Context, string, []byte, store.Version) (store.Version, error) {
	panic("a numbered register must not call Replace")
}

func (createOnly) DeleteIf(context.Context, string, store.Version) error {
	panic("a numbered register must not call DeleteIf")
}

func (c createOnly) Watch(ctx context.Context, key string, v store.Version) error {
	w, _ := store.AsWatcher(c.Store)
	return w.Watch(ctx, key, v)
}

func (c createOnly) Now(ctx context.Context) (store.Reading, error) {
	clk, _ := store.AsClocker(c.Store)
	return clk.Now(ctx)
}

// handle is a register that remembers what it stands on, for its peers.
type handle struct {
	*Store
	place store.Store
}

// memory is the harness of registers in memory; under stands between them and
// the memory.
func memory(under func(store.Store) store.Store) storetest.Harness {
	open := func(m *memstore.Store) store.Store {
		return handle{New(under(createOnly{m})).(*Store), m}
	}
	return storetest.Harness{
		Open: func(testing.TB) store.Store { return open(memstore.New()) },
		Peer: func(_ testing.TB, s store.Store) store.Store { return open(s.(handle).place.(*memstore.Store).Peer()) },
	}
}

func plainly(s store.Store) store.Store { return s }

// The whole contract holds over a store that can only create.
//
// SPEC ST17 ST1 ST2 ST3 ST4 ST5 ST6
func TestSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, memory(plainly))
}

// SPEC ST17 ST9
func TestSuiteWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, memory(plainly))
}

// Requests and replies get lost below the register too, where one call of it is
// several; there they also arrive late and twice.
//
// SPEC ST17 ST9
func TestSuiteWithLossesBelow(t *testing.T) {
	t.Parallel()
	var seed atomic.Uint64
	storetest.Lost(t, memory(func(s store.Store) store.Store {
		rule := func(odds float64, f faultstore.Fault) faultstore.Rule {
			return faultstore.Rule{Odds: odds, Fault: f}
		}
		return faultstore.New(s, faultstore.Options{Seed: seed.Add(1), Rules: []faultstore.Rule{
			rule(0.08, faultstore.LoseReply()),
			rule(0.05, faultstore.LoseRequest()),
			rule(0.05, faultstore.LandLate(0, 20*time.Millisecond)),
			rule(0.08, faultstore.Duplicate(0, 20*time.Millisecond)),
			rule(0.05, faultstore.Fail(store.ErrUnavailable)),
		}})
	}))
}

// A register over a register is one too: nothing of the adapter depends on how
// the keys below are called.
//
// SPEC ST17
func TestSuiteOverItself(t *testing.T) {
	t.Parallel()
	storetest.Run(t, memory(func(s store.Store) store.Store { return New(s) }))
}
