package ledger_test

import (
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/core/ledger"
)

// host is one start of `once` for a run: look, acquire, raise, admit, check, effect,
// outcome. It may stop for ever before any request, or go on long after it lost its
// lease.
func (w *world) host(run ledger.RunID) {
	w.spawn(w.find(run, func(_ int, f *ledger.Found) {
		if yes, _ := f.Committed(); yes {
			w.count["already done"]++
			return
		}
		w.spawn(func() bool {
			w.now += int64(w.r.IntN(1500))
			l, err := w.reg.Acquire(fmt.Sprint("host-", w.ids), w.now, 1e9)
			w.id()
			if err != nil {
				w.count["held"]++
				return false
			}
			w.raise(run, ledger.Claim(l))
			return false
		})
	}))
}

func (w *world) raise(run ledger.RunID, c ledger.Claim) {
	w.spawn(func() bool {
		o := w.read(head)
		n, d, err := must(ledger.DecodeHead(head, job, o.body)).Raise(c, w.id())
		switch {
		case err != nil:
			w.t.Fatal(err)
		case d.Answer != ledger.Proceed:
			w.count["stale at raise"]++
		case n == nil:
			w.admit(run, c)
		default:
			w.spawn(w.replace(o.version, n, func() {
				w.write(ledger.Intent{Key: ledger.Key{Site: "paris"}, Status: ledger.Raised, Epoch: c.Epoch, Holder: c.Holder})
			}, func(applied bool) {
				if applied {
					w.admit(run, c)
				} else {
					w.raise(run, c)
				}
			}))
		}
		return false
	})
}

func (w *world) admit(run ledger.RunID, c ledger.Claim) {
	w.spawn(w.find(run, func(ver int, f *ledger.Found) {
		d := ledger.Detail{Write: w.id()}
		n, dec, err := f.Admit(c, d)
		if err == nil && dec.Answer == ledger.Unknown {
			n, dec, err = w.unknown(f, dec, c, d, run)
		}
		if err != nil {
			w.count["given up"]++ // too many attempts
			return
		}
		w.count[dec.Answer.String()]++
		if n == nil {
			return
		}
		w.spawn(w.replace(ver, n, func() { w.admitted(f, dec.Attempt, c, d) }, func(applied bool) {
			if applied {
				w.check(n, c, dec.Attempt)
			} else {
				w.admit(run, c)
			}
		}))
	}))
}

// unknown follows the world's policy.
func (w *world) unknown(f *ledger.Found, dec ledger.Decision, c ledger.Claim, d ledger.Detail, run ledger.RunID) (*ledger.Head, ledger.Decision, error) {
	over := !dec.Running && dec.Open.Site == "paris" || w.policy == ledger.Retry && dec.Open.Site == "lyon" && w.chance(50)
	switch step, _ := w.policy.Next(dec, over, ledger.NotAsked, "probe"); step {
	case ledger.StepRetry:
		w.count["retry"]++
		if dec.Open.Site == "lyon" {
			return f.Retry(c, d, dec.Open.Key)
		}
		return f.Retry(c, d)
	case ledger.StepHold, ledger.StepWait:
		w.count["held as unknown"]++
	default:
		w.t.Fatalf("step %v", step)
	}
	return nil, dec, nil
}

// admitted is the moment at which an admission takes effect: nothing may stand in its
// way then.
func (w *world) admitted(f *ledger.Found, k ledger.Key, c ledger.Claim, d ledger.Detail) {
	if at, ok := w.done[k.Run]; ok {
		w.t.Fatalf("step %d: %v is admitted and was committed at step %d", w.step, k, at)
	}
	if top := w.log.Agent(job).Epoch("paris"); c.Epoch != top {
		w.t.Fatalf("step %d: admitted at epoch %d, the highest is %d", w.step, c.Epoch, top)
	}
	for _, at := range f.Attempts() {
		if at.Open != nil {
			w.write(ledger.Intent{Key: at.Fact.Key, Status: ledger.Abandoned, Holder: c.Holder, Epoch: c.Epoch})
		}
	}
	known := w.bounds() // a merge that is not finished may have settled one of the other site
	for o := range w.open {
		settled := o.Site == "lyon" && !slices.ContainsFunc(known.Opens(), func(l ledger.Open) bool { return l.Key == o })
		if o.Run == k.Run && !settled {
			w.t.Fatalf("step %d: %v is admitted while attempt %d of %s is open", w.step, k, o.Attempt, o.Site)
		}
	}
	for _, at := range w.log.Agent(job).Attempts(k.Run) {
		if at.Site == k.Site && at.Fact.Key.Attempt >= k.Attempt {
			w.t.Fatalf("step %d: attempt %d comes after %d", w.step, k.Attempt, at.Fact.Key.Attempt)
		}
	}
	w.write(ledger.Intent{Key: k, Status: ledger.Pending, Holder: c.Holder, Epoch: c.Epoch, Detail: d})
}

func (w *world) check(admitted *ledger.Head, c ledger.Claim, k ledger.Key) {
	var now *ledger.Head
	w.spawn(func() bool {
		if now == nil {
			now = w.head()
			_, committed := w.done[k.Run]
			if committed && ledger.Check(admitted, now, ledger.Lease(c), c, k).Answer == ledger.Proceed {
				w.t.Fatalf("step %d: a committed run may proceed", w.step)
			}
			return true
		}
		dec := ledger.Check(admitted, now, w.reg.Current(), c, k)
		w.count["check: "+dec.Answer.String()]++
		switch {
		case dec.Answer != ledger.Proceed:
			w.settle(ledger.Outcome{Key: k, Status: ledger.Failed, NotStarted: true})
		case w.chance(15):
			w.count["crash before the effect"]++
		default:
			w.spawn(func() bool { return w.effect(k) })
		}
		return false
	})
}

func (w *world) effect(k ledger.Key) bool {
	if w.chance(15) {
		w.count["failed"]++
		w.settle(ledger.Outcome{Key: k, Status: ledger.Failed})
		return false
	}
	w.effects[k.Run]++
	w.count["effect"]++
	if w.chance(15) {
		w.count["crash after the effect"]++
		return false
	}
	w.settle(ledger.Outcome{Key: k, Status: ledger.Committed})
	return false
}

func (w *world) settle(o ledger.Outcome) {
	w.spawn(func() bool {
		at := w.read(head)
		n, err := must(ledger.DecodeHead(head, job, at.body)).Settle(o, w.id())
		switch {
		case err != nil: // full: it must be compacted first
			w.compact(nil)
			return true
		case n == nil:
			return false
		}
		w.spawn(w.replace(at.version, n, func() {
			w.write(ledger.Intent{Key: o.Key, Status: o.Status, NotStarted: o.NotStarted, Holder: o.By, Epoch: o.Epoch})
		}, func(applied bool) {
			if !applied {
				w.settle(o)
			}
		}))
		return false
	})
}
