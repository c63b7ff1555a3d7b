package world

import (
	"reflect"
	"slices"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
)

// checkFaults judges what a write says of faults and of the round (R32).
func (o *oracle) checkFaults(as *authorityState, prev, next *core.Head, released *recovery.Release) {
	if prev == nil {
		return
	}
	changed := released != nil
	for _, s := range next.Slots {
		i := slices.IndexFunc(prev.Slots, func(p core.Slot) bool { return p.Node == s.Node })
		switch {
		case i >= 0 && prev.Slots[i].Report == s.Report:
			changed = o.checkCleared(as, prev.Slots[i], s, released) || changed
		case !as.written[s.Report] || as.made[s.Report] || !s.Active || s.Sequence != next.Sequence || released != nil:
			o.fail("R32", "%s: the fault %d of node %s was made out of nothing, twice, or by a release", as.name, s.Request, s.Node)
		case i >= 0 && (s.Term < prev.Slots[i].Term || s.Term == prev.Slots[i].Term && s.Request < prev.Slots[i].Request):
			o.fail("R32", "%s: an older fault of node %s took the place of a newer one", as.name, s.Node)
		default:
			as.made[s.Report], changed = true, true
			o.stats["faults made"]++
		}
	}
	for _, s := range prev.Slots {
		if !slices.ContainsFunc(next.Slots, func(n core.Slot) bool { return n.Node == s.Node }) {
			o.fail("R32", "%s: the fault of node %s is gone", as.name, s.Node)
		}
	}
	if changed != (next.Revision != prev.Revision) || changed && next.Revision != next.Sequence {
		o.fail("R32", "%s: the revision of the faults is %d after %d at sequence %d, and they changed: %v", as.name, next.Revision, prev.Revision, next.Sequence, changed)
	}
	o.checkRound(as, prev, next, released)
}

// checkCleared judges a fault whose report stayed, and returns whether it changed.
func (o *oracle) checkCleared(as *authorityState, was, is core.Slot, released *recovery.Release) bool {
	stopped := released != nil && slices.Contains(released.Stopped, assignment.Participant{Node: is.Node, Incarnation: is.Incarnation})
	switch {
	case is.Sequence != was.Sequence || is.Active && !was.Active:
		o.fail("R32", "%s: the fault %d of node %s was made twice", as.name, is.Request, is.Node)
	case was.Active && !is.Active && !stopped:
		o.fail("R32", "%s: the fault %d of node %s was cleared though its process did not stop", as.name, is.Request, is.Node)
	case was.Active && !is.Active && is.Sequence > released.Revision:
		o.fail("R32", "%s: the fault %d of node %s was cleared by a release that did not freeze it", as.name, is.Request, is.Node)
	case is.Active && stopped:
		o.fail("R32", "%s: the fault %d of node %s was not cleared though its process stopped", as.name, is.Request, is.Node)
	case was.Active && !is.Active:
		o.stats["faults cleared"]++
	}
	return is != was
}

// checkRound judges the beginning and the end of a recovery round.
func (o *oracle) checkRound(as *authorityState, prev, next *core.Head, released *recovery.Release) {
	was, is := prev.Round, next.Round
	switch {
	case released != nil:
		if is != nil || was == nil || was.ID != released.Round || was.Generation != released.Generation || was.Proof != prev.Last() ||
			was.Revision != released.Revision || prev.Revision != released.Revision {
			o.fail("R32", "%s: a release of generation %d at revision %d, and the faults are at %d", as.name, released.Generation, released.Revision, prev.Revision)
		}
	case reflect.DeepEqual(was, is):
	case is == nil:
		o.fail("R32", "%s: the round is gone", as.name)
	default:
		last := uint64(0)
		if was != nil {
			last = was.Generation
		}
		if prev.Recovery != nil {
			last = max(last, prev.Recovery.Head.Key)
		}
		if is.Generation != last+1 || is.Revision != prev.Revision || is.Began != next.Sequence || is.Proof != next.Last() {
			o.fail("R32", "%s: the round of generation %d at revision %d began after %d, and the faults are at %d", as.name, is.Generation, is.Revision, last, prev.Revision)
		}
		o.stats["rounds"]++
	}
}
