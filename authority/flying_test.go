package authority

import (
	"fmt"
	"strings"
	"testing"
	"time"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store/faultstore"
)

// What a decision has written and no head links yet is left by the pruner of its own
// process, from before it is sent: an entry, and a blob.
//
// SPEC LA8 LA4
func TestPruneLeavesWhatIsBeingWritten(t *testing.T) {
	for what, x := range map[string]struct {
		held  core.Kind // the object whose write takes a second
		fault faultstore.Fault
		kind  core.Kind // what is there and not linked meanwhile
	}{
		"an entry, before its answer": {core.KindEntry, faultstore.DelayReply(time.Second, time.Second), core.KindEntry},
		"a blob, before its answer":   {core.KindBlob, faultstore.DelayReply(time.Second, time.Second), core.KindBlob},
		"a blob, before its entry":    {core.KindEntry, faultstore.Delay(time.Second, time.Second), core.KindBlob},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				l := p.lead()
				round := must(p.BeginRound(t.Context(), l.Proof(), nil))
				var stopped []Stopped // too much for an entry
				for i := range core.MaxSlots {
					stopped = append(stopped, Stopped{fmt.Sprintf("%s%03d", strings.Repeat("n", 120), i), p.c.NewID()})
				}
				p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate}, Match: func(c faultstore.Call) bool {
					return strings.Contains(c.Key, "/"+string(x.held)+"/")
				}, Times: 1, Fault: x.fault})
				done := make(chan error, 1)
				go func() {
					res, err := p.Release(t.Context(), l.Proof(), round, stopped)
					if err == nil && res.Answer != Created {
						err = fmt.Errorf("%v", res.Answer)
					}
					done <- err
				}()
				rested(t, 500*time.Millisecond)
				if n := len(w.keys(string(x.kind))); n != 1 {
					t.Fatalf("%d are written", n)
				}
				if d, err := p.Prune(t.Context()); err != nil || d.Removed != 0 || d.Kept == 0 {
					t.Errorf("%+v, %v", d, err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
				if n := len(w.audit(p.Reader()).Breaks); n != 0 {
					t.Errorf("%d breaks", n)
				}
			})
		})
	}
}

// litter puts objects there that no head reaches, of the present leader's token.
func (p *proc) litter(kind core.Kind, n int) {
	p.w.t.Helper()
	for range n {
		p.w.set(p.key(string(kind), core.Name{Kind: kind, Token: 1, Attempt: p.c.NewID()}.Element()), []byte("x"))
	}
}

// One pass of pruning judges every object, however the bound of deletions cuts its
// batches; the next one begins at the beginning.
//
// SPEC LA8
func TestPrunePassLeavesNothingOut(t *testing.T) {
	for what, entries := range map[string]int{"cut before the first blob": batchDeletes, "cut among the entries": batchDeletes + 44} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				p.lead()
				const blobs = batchNames/2 + 1
				p.litter(core.KindEntry, entries)
				p.litter(core.KindBlob, blobs)
				total := 0
				for more, calls := true, 0; more; calls++ {
					done, err := p.Prune(t.Context())
					if err != nil || done.Removed > batchDeletes || calls > 10 {
						t.Fatalf("%+v, %v", done, err)
					}
					total, more = total+done.Removed, done.More
				}
				if total != entries+blobs {
					t.Errorf("%d of %d were removed in one pass", total, entries+blobs)
				}
				for _, kind := range []core.Kind{core.KindEntry, core.KindBlob} { // before all that was seen
					w.set(p.key(string(kind), core.Name{Kind: kind, Token: 1, Attempt: "00000000-0000-4000-8000-000000000000"}.Element()), []byte("x"))
				}
				if done, err := p.Prune(t.Context()); err != nil || done.Removed != 2 || done.More {
					t.Errorf("the next pass: %+v, %v", done, err)
				}
			})
		})
	}
}
