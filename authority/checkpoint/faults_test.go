package checkpoint_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Lost replies and failing writes at every step of a commit converge: in the end one
// outcome stands, its capsule can be read, and the log is sound.
//
// SPEC CK LA4
func TestCommitThroughFaults(t *testing.T) {
	faults := map[string]faultstore.Fault{
		"lost reply": faultstore.LoseReply(), "lost request": faultstore.LoseRequest(),
		"refused": faultstore.Fail(store.ErrUnavailable), "twice": faultstore.Duplicate(0, chaintest.TTL/4),
	}
	for name, f := range faults {
		for skip := range 3 { // capsule, entry, head
			t.Run(fmt.Sprintf("%s at write %d", name, skip), func(t *testing.T) {
				chaintest.Run(t, func(w *chaintest.World) {
					a := lead(w, "a", chaintest.Deployment)
					a.commit(1, authority.Created)
					a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Skip: skip, Times: 1, Fault: f})
					res, err := a.c.Commit(w.Context(), a.p, a.capsule(2))
					for range 3 {
						if err == nil {
							break
						}
						res, err = a.c.Commit(w.Context(), a.p, a.capsule(2))
					}
					if len(a.Link.Fired()) != 1 {
						t.Errorf("faults %v", a.Link.Fired())
					}
					if err != nil || !res.Stands() {
						t.Fatalf("commit: %v, %v", res.Answer, err)
					}
					if c, err := a.c.Capsule(w.Context(), res.Outcome); err != nil || string(c.Data) != "state of 2" {
						t.Errorf("capsule %+v, %v", c, err)
					}
					w.Sound(a.A.Reader())
				})
			})
		}
	}
}

// A commit whose caller gave up while its head write was under way is settled: asking
// again tells what became of it, and the epoch has one outcome.
//
// SPEC CK LA4
func TestCommitInDoubt(t *testing.T) {
	for name, f := range map[string]faultstore.Fault{"applied": faultstore.HangApplied(), "not applied": faultstore.Hang(), "late": faultstore.LandLate(chaintest.TTL/4, chaintest.TTL/4)} {
		t.Run(name, func(t *testing.T) {
			chaintest.Run(t, func(w *chaintest.World) {
				a := lead(w, "a", chaintest.Deployment)
				a.commit(1, authority.Created)
				ctx, cancel := context.WithCancel(w.Context())
				a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Times: 1, Fault: f, Match: func(c faultstore.Call) bool {
					defer cancel() // the caller gives up
					return c.Key == store.Key("default", "authority", chaintest.Name)
				}})
				_, err := a.c.Commit(ctx, a.p, a.capsule(2))
				if err == nil {
					t.Fatal("the caller did not learn of its doubt")
				}
				res, err := a.c.Commit(w.Context(), a.p, a.capsule(2))
				if err != nil || !res.Stands() {
					t.Fatalf("asked again: %v, %v", res.Answer, err)
				}
				if c, err := a.c.Capsule(w.Context(), res.Outcome); err != nil || string(c.Data) != "state of 2" {
					t.Errorf("capsule %+v, %v", c, err)
				}
				a.commit(3, authority.Created)
				if got := len(a.history().Inventory()); got != 3 {
					t.Errorf("%d outcomes", got)
				}
				w.Sound(a.A.Reader())
			})
		})
	}
}

// A leader that dies at any step of a commit leaves either its whole outcome or none;
// the next leader goes on, and the dead one's writes that arrive late win nothing.
//
// SPEC CK LA2 LA8
func TestLeaderDiesWithinACommit(t *testing.T) {
	for skip := range 3 {
		t.Run(fmt.Sprint("write ", skip), func(t *testing.T) {
			chaintest.Run(t, func(w *chaintest.World) {
				a := lead(w, "a", chaintest.Deployment)
				a.commit(1, authority.Created)
				ctx, cancel := context.WithCancel(w.Context())
				a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Skip: skip, Times: 1, Fault: faultstore.LandOnCall()},
					faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace, faultstore.OpGet}, Skip: skip + 1, Fault: faultstore.Hang()})
				go func() {
					for a.Link.InFlight() == 0 {
						time.Sleep(time.Millisecond) // poll, in virtual time
					}
					cancel()
				}()
				if _, err := a.c.Commit(ctx, a.p, a.capsule(2)); err == nil {
					t.Fatal("it learned that its commit stands")
				}
				a.Die()
				b := lead(w, "b", chaintest.Deployment)
				if b.p.Token != 2 {
					t.Fatalf("token %d", b.p.Token)
				}
				if top := b.history().HighestTerminal(); top.Epoch != 1 {
					t.Fatalf("epoch %d stands", top.Epoch)
				}
				won := b.abort(2, authority.Created)
				b.commit(3, authority.Created)
				if n := a.Link.InFlight(); n != 1 {
					t.Errorf("%d writes are on their way", n)
				}
				a.Link.Land()
				if o, _ := b.history().Outcome(2); o.Link != won.Link || o.Verdict != checkpoint.Aborted {
					t.Errorf("epoch 2 is %+v", o)
				}
				b.advance(3)
				b.sweep()
				if left := w.Keys(b.A, "capsule"); len(left) != 1 {
					t.Errorf("capsules %v", left)
				}
				w.Sound(b.A.Reader())
			})
		})
	}
}
