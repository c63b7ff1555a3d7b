package faultstore_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// prover is a reference driver for which everybody is gone.
type prover struct {
	*memstore.Store
	closed chan struct{}
}

func (p prover) Info() store.Info {
	i := p.Store.Info()
	i.Can |= store.CanProve
	return i
}

func (p prover) NewWitness(context.Context) (store.Witness, error) { return p, nil }
func (p prover) Mark() store.Mark                                  { return store.Mark{Boot: "b", Inode: 1} }
func (p prover) Close() error                                      { close(p.closed); return nil }
func (p prover) Gone(context.Context, store.Mark) (bool, error)    { return true, nil }
func (p prover) WatchGone(context.Context, store.Mark) error       { return nil }

// SPEC LS14
func TestProofsMeetFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := prover{memstore.New(), make(chan struct{})}
		s := faultstore.New(inner, faultstore.Options{})
		p, ok := store.AsProver(s)
		if !ok {
			t.Fatal("the power to prove is out of reach")
		}
		w, err := p.NewWitness(t.Context())
		if err != nil || w.Mark().Inode != 1 {
			t.Errorf("NewWitness: %v, %v", w, err)
		}
		if gone, err := p.Gone(t.Context(), w.Mark()); !gone || err != nil {
			t.Errorf("Gone: %v, %v", gone, err)
		}
		if err := p.WatchGone(t.Context(), w.Mark()); err != nil {
			t.Errorf("WatchGone: %v", err)
		}
		// A proof whose answer is lost is no proof, and a witness that nobody knows
		// of is not kept.
		s.Add(faultstore.Rule{Fault: faultstore.LoseReply()})
		gone, err := p.Gone(t.Context(), w.Mark())
		is(t, err, store.ErrUnavailable)
		if gone {
			t.Error("an answer that was lost proved a death")
		}
		is(t, p.WatchGone(t.Context(), w.Mark()), store.ErrUnavailable)
		_, err = p.NewWitness(t.Context())
		is(t, err, store.ErrUnavailable)
		<-inner.closed
	})
}
