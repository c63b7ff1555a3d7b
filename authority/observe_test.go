package authority

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/faultstore"
)

// told records events of authorities.
type told struct {
	mu  sync.Mutex
	all []tenure.Event
}

func (r *told) Observe(e tenure.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Authority == theOne {
		r.all = append(r.all, e)
	}
}

// take returns what was told since, without renewals that went well.
func (r *told) take() (kinds []tenure.EventKind, all []tenure.Event) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		if e.Kind != tenure.EventRenewed {
			kinds, all = append(kinds, e.Kind), append(all, e)
		}
	}
	r.all = nil
	return kinds, all
}

// At every stage of a term, and of the next one, what a metrics page reads is the
// truth of that instant: while it waits, after a wait that was called off, while it
// leads, in an outage, after a lapse and when it leads again.
//
// SPEC UI2 LA7
// CASE B86
func TestHealthIsTheTruth(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var rec told
		a := w.proc(func(s *setup) { s.more = []tenure.Option{tenure.WithObserver(&rec)} })
		b := w.proc()
		want := func(stage string, leading bool, token uint64, kinds ...tenure.EventKind) []tenure.Event {
			t.Helper()
			got, all := rec.take()
			h := a.Health()
			if h.Leading != leading || h.Leading != (a.Leader() != nil) || h.Token != token || (h.Remaining > 0) != leading {
				t.Errorf("%s: %+v", stage, h)
			}
			if !slices.Equal(got, kinds) {
				t.Errorf("%s: told %v, want %v", stage, got, kinds)
			}
			return all
		}
		want("at first", false, 0)

		rival := b.lead()
		ctx, stop := context.WithTimeout(t.Context(), ttl/2)
		if _, err := a.Lead(ctx); err == nil {
			t.Fatal("both lead")
		}
		stop()
		want("a wait that was called off", false, 0)

		w.stepDown(rival)
		l := a.lead()
		want("leads", true, 2, tenure.EventAcquired)
		a.append(l, abort(1), Created)
		if e := want("decides", true, 2, tenure.EventDecided)[0]; e.Chain != Checkpoint || e.Answer != "created" || e.Token != 2 || e.Err != nil {
			t.Errorf("told %+v", e)
		}
		time.Sleep(2 * ttl)
		want("renews", true, 2)
		if since := a.clk.Boot() - a.Health().RenewedAt; since > ttl/5 {
			t.Errorf("renewed %v ago", since)
		}

		from := a.Health().RenewedAt
		a.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		time.Sleep(ttl / 2)
		if h := a.Health(); !h.Leading || h.RenewErr == nil || h.RenewedAt < from || a.clk.Boot()-h.RenewedAt < ttl/4 {
			t.Errorf("in an outage: %+v", h)
		}
		<-l.own.Done()
		got, all := rec.take()
		if n := len(got); n < 2 || got[n-1] != tenure.EventLost || all[n-1].Err == nil || all[n-1].Token != 2 ||
			slices.ContainsFunc(got[:n-1], func(k tenure.EventKind) bool { return k != tenure.EventRenewFailed }) {
			t.Errorf("a lapse: told %v", got)
		}
		want("after the lapse", false, 2)
		if a.Health().RenewErr == nil {
			t.Error("healthy after renewals failed")
		}

		a.link.Clear()
		l = a.lead()
		want("leads again", true, 3, tenure.EventAcquired)
		if h := a.Health(); h.RenewErr != nil || h.InDoubt != 0 {
			t.Errorf("the last term's trouble: %+v", h)
		}
		w.stepDown(l)
		want("stepped down", false, 3, tenure.EventReleased)
	})
}

// asking asks at every event what is answered from memory.
type asking struct {
	mu   sync.Mutex
	p    *proc
	l    *Leader
	seen map[tenure.EventKind]bool
}

func (o *asking) Observe(e tenure.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.p == nil || e.Authority != theOne {
		return
	}
	h, l := o.p.Health(), o.p.Leader()
	if l != nil {
		o.l = l
	}
	if o.l == nil || h.Token != e.Token || h.Leading != (l != nil) || o.p.Leads(o.l.Proof()) != o.l.Live() || o.l.Live() != (o.l.Remaining() > 0) || o.l.Live() && o.l.Err() != nil {
		o.p.w.t.Errorf("%s: %+v", e.Kind, h)
	}
	o.seen[e.Kind] = true
}

// An observer may ask, in the middle of whatever it is told of, what is answered from
// memory, and gets the truth.
//
// SPEC UI2 LA7
func TestObserverMayAsk(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		o := &asking{seen: map[tenure.EventKind]bool{}}
		p := w.proc(func(s *setup) { s.more = []tenure.Option{tenure.WithObserver(o)} })
		o.mu.Lock()
		o.p = p
		o.mu.Unlock()
		l := p.lead()
		p.append(l, abort(1), Created)
		rested(t, ttl)
		p.link.Add(faultstore.Rule{Match: heads, Fault: faultstore.Hang()})
		<-l.own.Done()
		synctest.Wait()
		p.link.Clear()
		w.stepDown(p.lead())
		synctest.Wait()
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, k := range []tenure.EventKind{tenure.EventAcquired, tenure.EventDecided, tenure.EventRenewed, tenure.EventRenewFailed, tenure.EventLost, tenure.EventReleased} {
			if !o.seen[k] {
				t.Errorf("%s was not told", k)
			}
		}
	})
}
