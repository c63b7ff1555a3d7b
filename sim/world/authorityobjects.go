package world

import (
	"fmt"
	"slices"
	"strings"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store/faultstore"
)

// objectEffect judges what happens to the object of a kind and element (R34).
func (o *oracle) objectEffect(as *authorityState, place string, e effect) {
	kind, element, _ := strings.Cut(place, "/")
	switch e.op {
	case faultstore.OpCreate, faultstore.OpReplace:
		if e.op == faultstore.OpReplace && kind != "cursor" || kind == "quarantine" {
			o.fail("R34", "%s: %s by %s of an object of kind %s", as.name, e.op, who(e.from), kind)
		}
		as.objects[place] = e.body
		var p recovery.Pending
		if kind == "report" && record.Decode("", e.body, &p) == nil {
			as.written[p.Report] = true
		}
		o.stats["object "+kind]++
	default:
		if as.objects[place] == nil {
			return
		}
		o.stats["removed "+kind]++
		if why := as.needs(kind, element, place); why != "" {
			o.fail("R34", "%s: %s removed the %s %s: %s", as.name, who(e.from), kind, element[:min(len(element), 16)], why)
		}
		delete(as.objects, place)
	}
}

// needs says why an object may not be removed now; empty if it may.
func (as *authorityState) needs(kind, element, place string) string {
	for _, m := range as.chains {
		for _, a := range m.stands() {
			if slices.Contains(a.needed, place) {
				return fmt.Sprintf("the head reaches it by key %d of chain %s", a.link.Key, m.name)
			}
			if a.artful == place && a.link.Key >= m.horizon {
				return fmt.Sprintf("the commit of epoch %d stands, and the horizon is %d", a.link.Key, m.horizon)
			}
		}
	}
	switch kind {
	case "report":
		var p recovery.Pending
		if record.Decode("", as.objects[place], &p) == nil {
			if _, known := as.head.FateOf(p.Report); !known {
				return "the head does not show it"
			}
		}
	case "assignment", "proposal", "drain":
		m, version := as.chains[core.Assignment], uint64(0)
		_, _ = fmt.Sscanf(element, "%016d", &version)
		if version >= m.floor || !as.resolves(m) {
			return fmt.Sprintf("it is of version %d, the floor is %d, and what is current may rest on it", version, m.floor)
		}
	case "cursor":
		return "it is nobody's to remove"
	}
	return ""
}

// resolves reports whether the current assignment can be read from objects at or above
// the floor alone.
func (as *authorityState) resolves(m *chainModel) bool {
	for _, a := range slices.Backward(m.all) {
		d := a.value.(*assignment.Decision)
		switch v := a.link.Key; {
		case v < m.floor:
			return false
		case as.object("assignment", versionElement(v)) != nil:
			return true
		case d.Verdict != assignment.Abort:
			return as.object("proposal", versionElement(v)+"-"+d.Target.State()) != nil
		}
	}
	return false
}
