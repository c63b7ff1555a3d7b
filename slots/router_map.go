package slots

import (
	"slices"
	"time"

	"github.com/tenure-project/tenure/guard"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// Route says who serves a range of slots, as the table had it at one instant (SL9).
type Route struct {
	// Range is what the owner holds.
	Range Range
	// Owner is the owner's stable name.
	Owner string
	// Addr is where the owner can be reached, as it announced it: host and port, or a
	// URL of scheme and host. Empty if it announced none.
	Addr string
	// Epoch is the epoch that the owner holds the range under.
	Epoch uint64
}

// same reports whether nothing moved between o and r.
func (r Route) same(o Route) bool {
	return r.Owner == o.Owner && r.Addr == o.Addr && r.Epoch == o.Epoch
}

// RouteMove is a run of slots whose owner, address or epoch changed. The zero Route
// stands for nobody.
type RouteMove struct {
	// Range is what moved: a part of a range, where its bounds changed too.
	Range Range
	// From and To are who served it before, and who serves it now.
	From, To Route
}

// routeMap is one state of the table, never changed once made. A look-up is two loads:
// the index has a place for every slot.
type routeMap struct {
	index  [Count]uint16 // 1 + the place in routes; 0 is nobody
	routes []Route       // in the order of slots
	slots  int           // how many have an owner
	seq    uint64        // which read it came from; 0 is none
	asOf   time.Duration // when that read began, on the boot clock
}

// newRouteMap checks routes: a table that breaks its own rules is ErrCorrupt, and is
// not used.
func newRouteMap(routes []Route, seq uint64, asOf time.Duration) (*routeMap, error) {
	m := &routeMap{routes: slices.Clone(routes), seq: seq, asOf: asOf}
	slices.SortFunc(m.routes, func(a, b Route) int { return int(a.Range.A) - int(b.Range.A) })
	for i, r := range m.routes {
		bad := func(format string, args ...any) error {
			return store.Errorf(store.ErrCorrupt, "", "route", r.Range.String(), format, args...)
		}
		switch {
		case r.Range.Valid() != nil:
			return nil, bad("%w", r.Range.Valid())
		case r.Owner == "":
			return nil, bad("the range has no owner")
		case r.Epoch < 1 || r.Epoch > guard.MaxToken:
			return nil, bad("%d is no epoch", r.Epoch)
		case i > 0 && m.routes[i-1].Range.Overlaps(r.Range):
			return nil, bad("it overlaps with %v", m.routes[i-1].Range)
		}
		for s := int(r.Range.A); s <= int(r.Range.B); s++ {
			m.index[s] = uint16(i + 1)
		}
		m.slots += r.Range.Len()
	}
	return m, nil
}

// route returns the route of slot.
func (m *routeMap) route(slot uint16) (Route, bool) {
	if slot > core.Last || m.index[slot] == 0 {
		return Route{}, false
	}
	return m.routes[m.index[slot]-1], true
}

// routeMoves lists the runs of slots that differ. Routes are compared once for each
// pair of ranges, not once for each slot.
func routeMoves(old, now *routeMap) []RouteMove {
	var moves []RouteMove
	for from := 0; from < Count; {
		to := from
		for to+1 < Count && old.index[to+1] == old.index[from] && now.index[to+1] == now.index[from] {
			to++
		}
		a, _ := old.route(uint16(from))
		b, _ := now.route(uint16(from))
		if !a.same(b) {
			moves = append(moves, RouteMove{Range: Range{A: uint16(from), B: uint16(to)}, From: a, To: b})
		}
		from = to + 1
	}
	return moves
}
