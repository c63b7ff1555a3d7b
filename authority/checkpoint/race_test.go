package checkpoint_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Readers that are slow see one consistent state each, while outcomes are appended,
// the history compacts itself, the horizon moves and what was given up is removed.
// What they were shown once stays true.
//
// SPEC CK LA8
func TestReadersAmongCompactions(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		done := make(chan struct{})
		var readers sync.WaitGroup
		for _, node := range []string{"r", "s"} {
			p := w.Start(node)
			p.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Delay(0, 20*time.Millisecond)})
			readers.Go(func() { follow(w, checkpoint.Read(p.A.Reader()), done) })
		}
		const epochs = 150
		for epoch := uint64(2); epoch <= epochs; epoch++ {
			if epoch%5 == 0 {
				a.commit(epoch, authority.Created)
			} else {
				a.abort(epoch, authority.Created)
			}
			if epoch%50 == 0 {
				a.advance(epoch - 20)
				a.sweep()
				if _, err := a.A.Prune(w.Context()); err != nil {
					t.Errorf("prune: %v", err)
				}
			}
			time.Sleep(20 * time.Millisecond) // poll of the readers goes on, in virtual time
		}
		close(done)
		readers.Wait()
		if h := a.history(); h.HighestTerminal().Epoch != epochs || h.HighestCommit().Epoch != epochs {
			t.Errorf("terminal %d, commit %d", h.HighestTerminal().Epoch, h.HighestCommit().Epoch)
		}
		w.Sound(a.A.Reader())
	})
}

// follow reads histories until done, and checks them against each other.
func follow(w *chaintest.World, r *checkpoint.Reader, done <-chan struct{}) {
	seen := map[uint64]authority.Link{}
	var commit, terminal uint64
	reads := 0
	for ; ; reads++ {
		select {
		case <-done:
			if reads < 10 {
				w.Errorf("only %d histories were read", reads)
			}
			return
		default:
		}
		h, err := r.History(w.Context())
		if err != nil {
			w.Errorf("history: %v", err)
			return
		}
		c, top := h.HighestCommit(), h.HighestTerminal()
		if c == nil || c.Epoch < commit || top.Epoch < terminal {
			w.Errorf("went back to commit %+v, terminal %d", c, top.Epoch)
			return
		}
		commit, terminal = c.Epoch, top.Epoch
		last := uint64(0)
		for _, o := range h.Inventory() {
			if was, known := seen[o.Epoch]; o.Epoch <= last || known && was != o.Link {
				w.Errorf("epoch %d is another outcome, or out of order", o.Epoch)
			}
			seen[o.Epoch], last = o.Link, o.Epoch
		}
		if b := h.Boundary(); c.Epoch < b.Horizon {
			w.Errorf("the newest commit %d is below the horizon %d", c.Epoch, b.Horizon)
		}
	}
}

// Newest is never an error for a reader that is overtaken by compactions.
//
// SPEC CK
func TestNewestAmongCompactions(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		slow := w.Start("r")
		slow.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Delay(10*time.Millisecond, 10*time.Millisecond)})
		r := checkpoint.Read(slow.A.Reader())
		a.commit(1, authority.Created)
		for epoch := uint64(2); epoch <= 40; epoch++ {
			a.abort(epoch, authority.Created)
			top, commit, err := r.Newest(w.Context())
			if err != nil || commit.Epoch != 1 || top.Epoch != epoch {
				t.Fatalf("newest %+v, %+v, %v", top, commit, err)
			}
		}
	})
}
