package checkpoint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

func (l *leading) sweep() checkpoint.Swept {
	l.W.Helper()
	s, err := l.c.Sweep(l.W.Context())
	if err != nil {
		l.W.Fatalf("sweep: %v", err)
	}
	return s
}

// Nothing is touched before a horizon was set, and nothing at or above it after.
//
// SPEC CK
func TestSweepNeedsAHorizon(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 4; epoch++ {
			a.commit(epoch, authority.Created)
		}
		if got := a.sweep(); got != (checkpoint.Swept{}) {
			t.Errorf("without a horizon: %+v", got)
		}
		a.advance(3)
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 4, Deleted: 2, Kept: 2}) {
			t.Errorf("with one: %+v", got)
		}
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 2, Kept: 2}) {
			t.Errorf("again: %+v", got)
		}
		if _, err := a.c.Capsule(w.Context(), a.history().HighestCommit()); err != nil {
			t.Error(err)
		}
		w.Sound(a.A.Reader())
	})
}

// A sweep looks at no more than a step, and any process goes on where it stopped; a
// capsule that landed late, behind the cursor, is found by the next pass.
//
// SPEC CK
func TestSweepGoesOn(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		const commits = checkpoint.SweepStep + 10
		for epoch := uint64(1); epoch <= commits; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.advance(commits)
		late := w.Keys(a.A, "capsule")[0]
		o, err := w.Store.Get(w.Context(), late, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.sweep(); got != (checkpoint.Swept{Examined: checkpoint.SweepStep, Deleted: checkpoint.SweepStep, More: true}) {
			t.Errorf("the first step: %+v", got)
		}
		w.Put(late, o.Body) // a duplicate of its write
		a.StepDown()
		b := lead(w, "b", chaintest.Deployment)
		if got := b.sweep(); got != (checkpoint.Swept{Examined: 10, Deleted: 9, Kept: 1}) {
			t.Errorf("the next leader's step: %+v", got)
		}
		if got := b.sweep(); got != (checkpoint.Swept{Examined: 2, Deleted: 1, Kept: 1}) {
			t.Errorf("the next pass: %+v", got)
		}
	})
}

// What is no capsule is set aside, never deleted, whatever is wrong with it.
//
// SPEC CK
func TestQuarantine(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		a.commit(1, authority.Created)
		a.commit(2, authority.Created)
		a.advance(2)
		k := a.A.Kit()
		one := w.Keys(a.A, "capsule")[0]
		w.Damage(one, []byte("<html>"))
		w.Put(k.Key("capsule", "zzz"), []byte("what is this"))
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 3, Quarantined: 2, Kept: 1}) {
			t.Errorf("sweep: %+v", got)
		}
		if left := w.Keys(a.A, "capsule"); len(left) != 1 {
			t.Errorf("left: %v", left)
		}
		var bodies []string
		for _, key := range w.Keys(a.A, "quarantine") {
			o, err := w.Store.Get(w.Context(), key, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, string(o.Body))
		}
		if got := strings.Join(bodies, "|"); got != "<html>|what is this" {
			t.Errorf("set aside: %s", got)
		}
	})
}

// One capsule that cannot be removed keeps nobody from the others, and is tried again
// in the next pass; a store without the right to delete costs space only.
//
// SPEC CK LA8
func TestSweepFailures(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 4; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.advance(4)
		stuck := w.Keys(a.A, "capsule")[1]
		a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Key: stuck, Fault: faultstore.Fail(store.ErrDenied)})
		got, err := a.c.Sweep(w.Context())
		if err == nil || got != (checkpoint.Swept{Examined: 4, Deleted: 2, Kept: 1, Failed: 1}) {
			t.Errorf("sweep: %+v, %v", got, err)
		}
		a.Link.Clear()
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 2, Deleted: 1, Kept: 1}) {
			t.Errorf("the next pass: %+v", got)
		}
		if !a.A.Leads(a.p) {
			t.Error("the leadership is gone")
		}
	})
}

// A process that does not lead removes only what earlier leaders wrote.
//
// SPEC CK LA8
func TestOutsiderSweeps(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 3; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.advance(3)
		out := w.Start("c")
		got, err := checkpoint.Read(out.A.Reader()).Sweep(w.Context())
		if err != nil || got != (checkpoint.Swept{Examined: 3, Kept: 3}) {
			t.Errorf("while their writer leads: %+v, %v", got, err)
		}
		a.StepDown()
		b := lead(w, "b", chaintest.Deployment)
		b.commit(4, authority.Created)
		got, err = checkpoint.Read(out.A.Reader()).Sweep(w.Context())
		if err != nil || got != (checkpoint.Swept{Examined: 4, Deleted: 2, Kept: 2}) {
			t.Errorf("after it: %+v, %v", got, err)
		}
	})
}

// A capsule whose commit is still on its way is never swept, however late the sweep.
//
// SPEC CK LA8
func TestSweepLeavesWhatIsOnItsWay(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 3; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.advance(3)
		a.sweep()
		// The head write of the next commit hangs while somebody sweeps.
		started, done := make(chan struct{}), make(chan error)
		headKey := store.Key("default", "authority", chaintest.Name)
		first := true
		a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Key: headKey, Match: func(faultstore.Call) bool {
			if first {
				first = false
				close(started)
			}
			return true
		}, Times: 1, Fault: faultstore.Delay(chaintest.TTL/20, chaintest.TTL/20)})
		go func() {
			res, err := a.c.Commit(w.Context(), a.p, a.capsule(4))
			if err == nil && !res.Stands() {
				err = fmt.Errorf("answer %v", res.Answer)
			}
			done <- err
		}()
		<-started
		if got := a.sweep(); got.Deleted != 0 {
			t.Errorf("swept %+v", got)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if c, err := a.c.Capsule(w.Context(), a.history().HighestCommit()); err != nil || c.Epoch != 4 {
			t.Errorf("capsule %+v, %v", c, err)
		}
	})
}
