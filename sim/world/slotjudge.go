package world

import (
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/slots"
)

// slotHost is one host of a table.
type slotHost struct {
	h  *slots.Host
	p  *Proc
	ts *tableState
	s  *Session // that it lives by, nil if it renews its ranges

	// Guarded by the oracle's mu.
	closing bool // it gives its ranges up, or its session does
	fenced  bool // it was told of an epoch that may not have been
}

// oneHost judges R42 at this instant. Under mu.
func (o *oracle) oneHost(ts *tableState) {
	for _, slot := range ts.slots {
		var first *slotHost
		for _, sh := range ts.hosts {
			e, ok := sh.h.EpochFor(slot)
			if !ok || !o.answers(ts, sh, slot, e) {
				continue
			}
			if first != nil {
				o.fail("R42", "%s: slot %d is served by %s and by %s, under epoch %d", ts.name, slot, first.p.name, sh.p.name, e)
			}
			first = sh
			if e < ts.answered[slot] {
				o.fail("R42", "%s: slot %d is served by %s under epoch %d after %d", ts.name, slot, sh.p.name, e, ts.answered[slot])
			}
			ts.answered[slot] = e
		}
	}
}

// answers judges one answer of a host, and reports whether it counts.
func (o *oracle) answers(ts *tableState, sh *slotHost, slot uint16, e uint64) bool {
	gv := ts.given[e]
	if gv == nil || !gv.rng.Contains(slot) {
		o.fail("R42", "%s: %s serves slot %d under epoch %d, which was never given for it", ts.name, sh.p.name, slot, e)
		return false
	}
	switch gv.how {
	case lease.HowVouched, lease.HowProven, lease.HowReleased:
		if sh.p.crashed.Load() {
			return false
		}
	}
	switch gv.how {
	case lease.HowObserved, lease.HowStoreClock, lease.HowProven, lease.HowReleased:
		o.fail("R42", "%s: %s serves slot %d under epoch %d, which ended: %s", ts.name, sh.p.name, slot, e, gv.how)
	}
	// A host stops two thirds of its TTL after it sent what was confirmed, by its own
	// clock; what was sent has arrived later.
	most := time.Duration(float64(gv.ttl*2/3)/(1-o.w.Plan.Rho)) + time.Microsecond
	if age := time.Since(gv.alive); gv.kind == lease.Self && gv.p == sh.p && age > most {
		o.fail("R42", "%s: %s serves slot %d under epoch %d, and its last sign of life arrived %v ago", ts.name, sh.p.name, slot, e, age)
	}
	return true
}

// hosted notes a host that may answer from now on.
func (o *oracle) hosted(sh *slotHost) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sh.ts.hosts = append(sh.ts.hosts, sh)
	o.stats["hosts"]++
}

// unhosted notes that a host was closed: it answers nothing any more (SL7).
func (o *oracle) unhosted(sh *slotHost) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, slot := range sh.ts.slots {
		if e, ok := sh.h.EpochFor(slot); ok {
			o.fail("R46", "%s: %s is closed, and serves slot %d under epoch %d", sh.ts.name, sh.p.name, slot, e)
		}
	}
	sh.ts.hosts = slices.DeleteFunc(sh.ts.hosts, func(x *slotHost) bool { return x == sh })
}

// claimed judges a grant that was given (R46).
func (sh *slotHost) claimed(g *slots.Grant) {
	o, ts := sh.p.w.oracle, sh.ts
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["grants"]++
	o.w.trace.add(sh.p.name, "%s: serves %v under epoch %d", ts.name, g.Range(), g.Epoch())
	if gv := ts.given[g.Epoch()]; gv == nil || gv.rng != g.Range() || gv.p != sh.p && gv.how == "" {
		o.fail("R46", "%s: %s was granted %v under epoch %d, which the table never gave to it", ts.name, sh.p.name, g.Range(), g.Epoch())
	}
	o.oneHost(ts)
}

// ended judges the end of a grant (R46): a range is lost only when it is, and in a calm
// world never.
func (sh *slotHost) ended(g *slots.Grant, cause error) {
	o, ts := sh.p.w.oracle, sh.ts
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w.trace.add(sh.p.name, "%s: serves %v under epoch %d no more: %s", ts.name, g.Range(), g.Epoch(), kind(cause))
	newer, taken := (*slots.NewerError)(nil), (*slots.LostError)(nil)
	switch {
	case errors.Is(cause, tenure.ErrReleased), errors.Is(cause, tenure.ErrShutdown):
		o.stats["grants given up"]++
		return
	case errors.As(cause, &newer):
		o.stats["grants fenced"]++
	case errors.As(cause, &taken):
		o.stats["grants lost"]++
		if gv := ts.given[g.Epoch()]; gv.how == "" && !sh.p.misled() && !sh.p.crashed.Load() {
			o.fail("R46", "%s: %s calls %v under epoch %d lost, and it is its own: %v", ts.name, sh.p.name, g.Range(), g.Epoch(), cause)
		}
	default:
		o.stats["grants lapsed"]++
	}
	if o.w.Plan.Calm && !sh.closing && !sh.fenced {
		o.fail("R46", "%s: %s lost %v under epoch %d, and all was well: %v", ts.name, sh.p.name, g.Range(), g.Epoch(), cause)
	}
}

// reported judges a report (R46): who only waits has written nothing meanwhile.
func (sh *slotHost) reported(r slots.Report, before int) {
	o, ts := sh.p.w.oracle, sh.ts
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["ranges waiting"] += len(r.Waiting)
	o.stats["ranges failed"] += len(r.Failed)
	quiet := len(r.Claimed)+len(r.Renewed)+len(r.Lost)+len(r.Failed) == 0 && len(r.Waiting) > 0
	if quiet && o.w.Plan.Calm && !o.w.Plan.Split {
		o.stats["refused in calm"]++
		if n := ts.made[sh.p] - before; n > 0 {
			o.fail("R46", "%s: %s was refused everything, and wrote %d times", ts.name, sh.p.name, n)
		}
	}
}

// effects is how often p changed the table.
func (o *oracle) effects(ts *tableState, p *Proc) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return ts.made[p]
}

// reaches judges a write of a host at the resource that the slots guard (R45), and returns
// the epoch that is in its way, 0 if none is.
func (o *oracle) reaches(sh *slotHost, slot uint16, e uint64) (newer uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ts := sh.ts
	high := ts.res[slot]
	if e < high && !o.w.mutation.openGuard {
		o.stats["writes refused"]++
		if now, ok := sh.h.EpochFor(slot); ok && now == e && !sh.p.crashed.Load() {
			o.fail("R45", "%s: epoch %d of slot %d was refused while %s serves it: %d came before", ts.name, e, slot, sh.p.name, high)
		}
		return high
	}
	o.stats["writes taken"]++
	if e < high {
		o.fail("R45", "%s: a write of slot %d under epoch %d was taken after %d", ts.name, slot, e, high)
	}
	if first := ts.writers[e]; first != nil && first != sh && (first.p.Slot() != sh.p.Slot() || first.ts != ts) {
		o.fail("R45", "%s: %s and %s both write under epoch %d", ts.name, first.p.name, sh.p.name, e)
	}
	ts.res[slot], ts.writers[e] = max(high, e), sh
	return 0
}
