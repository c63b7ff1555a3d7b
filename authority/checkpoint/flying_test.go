package checkpoint_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/internal/chaintest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A sweep leaves a capsule of its own process that was on its way when the sweep had
// listed it, though its decision came to its end before the sweep knew the head. It is
// on its way from before it is sent.
//
// SPEC CK LA8
func TestSweepLooksBeforeItReads(t *testing.T) {
	chaintest.Run(t, func(w *chaintest.World) {
		a := lead(w, "a", chaintest.Deployment)
		for epoch := uint64(1); epoch <= 3; epoch++ {
			a.commit(epoch, authority.Created)
		}
		a.advance(3)
		second := func(ops faultstore.Op, match func(key string) bool, skip int) {
			a.Link.Add(faultstore.Rule{Ops: []faultstore.Op{ops}, Match: func(c faultstore.Call) bool { return match(c.Key) }, Skip: skip, Times: 1,
				Fault: faultstore.DelayReply(time.Second, time.Second)})
		}
		second(faultstore.OpCreate, func(key string) bool { return strings.Contains(key, "/capsule/") }, 0)
		done := make(chan error, 1)
		go func() { // of an epoch below the horizon: it stands nowhere
			res, err := a.c.Commit(w.Context(), a.p, checkpoint.Capsule{Attempt: attempt(2), Fence: a.fence, Data: []byte("another state")})
			if err == nil && res.Stands() {
				t.Errorf("answer %v", res.Answer)
			}
			done <- err
		}()
		pause(500 * time.Millisecond)
		if n := len(w.Keys(a.A, "capsule")); n != 4 {
			t.Fatalf("%d capsules", n)
		}
		// The sweep reads the head twice, and the second answer takes until after the commit's.
		second(faultstore.OpGet, func(key string) bool { return key == store.Key("default", "authority", chaintest.Name) }, 1)
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 4, Deleted: 2, Kept: 2}) {
			t.Errorf("swept %+v", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := a.sweep(); got != (checkpoint.Swept{Examined: 2, Deleted: 1, Kept: 1}) {
			t.Errorf("the next one swept %+v", got)
		}
	})
}

// pause waits in bubble time.
func pause(d time.Duration) {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	<-c
}
