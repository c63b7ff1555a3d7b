package authority

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// headWrites are the writes of the head.
func headWrites(c faultstore.Call) bool {
	return heads(c) && (c.Op == faultstore.OpCreate || c.Op == faultstore.OpReplace)
}

// A leadership lasts from before the first send of the last write that renewed it,
// and not from the answer: of its grant, of a renewal and of a decision, whether the
// answer is slow, or lost and found by reading back.
//
// SPEC DL4 LA7
func TestTrustCountsFromTheSend(t *testing.T) {
	slowly := faultstore.DelayReply(time.Second, time.Second)
	for what, renew := range map[string]func(p *proc) *Leader{
		"the grant":  func(p *proc) *Leader { return p.lead() },
		"a renewal":  nil,
		"a decision": nil,
	} {
		for how, first := range map[string]faultstore.Fault{"the answer is slow": slowly, "the answer is lost": faultstore.LoseReply()} {
			t.Run(what+", "+how, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					p := w.proc()
					var l *Leader
					if renew == nil {
						l = p.lead()
						rested(t, 100*time.Millisecond)
					}
					var sent time.Time
					p.link.Add(
						faultstore.Rule{Match: headWrites, Skip: 1, Fault: faultstore.Hang()},
						faultstore.Rule{Match: func(c faultstore.Call) bool {
							if sent.IsZero() && headWrites(c) {
								sent = time.Now()
							}
							return headWrites(c)
						}, Times: 1, Fault: first},
						faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Fault: slowly})
					switch what {
					case "the grant":
						l = renew(p)
					case "a decision":
						p.append(l, abort(1), Created)
					}
					<-l.own.Done()
					p.link.Clear()
					life := p.cfg.timing.Life()
					within(t, "the leadership", time.Since(sent), life-time.Millisecond, life+200*time.Millisecond)
				})
			})
		}
	}
}

// A grant that comes when the work would have to stop already is not handed out: the
// next one is, and its work stops in time.
//
// SPEC DL4 DL5 LA6
func TestGrantTooLateForTheWork(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const stop = 4 * time.Second
		p := w.proc(func(s *setup) { s.opts = []Option{Stop(stop)} })
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.HangApplied()},
			faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Skip: 1, Fault: faultstore.Hang()})
		time.AfterFunc(p.cfg.timing.Life()-stop+time.Second, p.link.Clear)
		l := p.lead()
		if l.Token() != 2 || l.Err() != nil || !l.work.Live() {
			t.Errorf("token %d, %v", l.Token(), l.Err())
		}
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		<-l.Done()
		if left := l.Remaining(); left < stop-100*time.Millisecond {
			t.Errorf("%v are left to stop", left)
		}
	})
}

// A jump that comes between a takeover and its answer ends that leadership before it
// is handed out: the one that is has a token above the jump.
//
// SPEC LS12 LA3
func TestJumpBeforeTheGrantIsKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		w.stepDown(p.lead())
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.HangApplied()})
		led := make(chan *Leader, 1)
		go func() { led <- p.lead() }()
		rested(t, 100*time.Millisecond)
		if _, err := Jump(t.Context(), q.client, theOne, JumpTo{Token: 50}); err != nil {
			t.Fatal(err)
		}
		if l := <-led; l.Token() != 51 {
			t.Errorf("token %d", l.Token())
		}
	})
}

// A decision renews: a renewal that came due while its write was on its way, and waits
// for it, is not sent as well.
//
// SPEC LA6 ST14
func TestADecisionIsARenewal(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		rested(t, p.cfg.timing.Renew*8/10)
		p.link.Add(faultstore.Rule{Match: headWrites, Times: 1, Fault: faultstore.DelayReply(time.Second, time.Second)})
		used := p.used(func() {
			p.append(l, abort(1), Created) // until after the tick
			rested(t, p.cfg.timing.Renew/4)
		})
		if n := strings.Count(used, "replace head"); n != 1 {
			t.Errorf("%d writes of the head: %s", n, used)
		}
		if at := p.clk.Boot() - p.Health().RenewedAt; at < p.cfg.timing.Renew/2 {
			t.Errorf("renewed %v ago", at)
		}
	})
}
