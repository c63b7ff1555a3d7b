package authority

import (
	"github.com/tenure-project/tenure/store"
)

// Advance returns the head in which p's leader raised the floor and the horizon of
// t's chain (LA8): entries below stay no longer, but for the anchors. Neither bound
// ever falls; a nil head means that both are as high already. t is a walk of h's
// chain that is done: so the chain is as it was when the caller chose the bounds
// and checked what must remain. The newest entry stays at or above the floor, and
// if a horizon is set, a marked entry at or above it; else it is ErrConflict.
func (t *Trail) Advance(h *Head, p Proof, attempt string, floor, horizon uint64) (*Head, error) {
	next, err := h.lead("advance the floor", attempt, p)
	if err != nil {
		return nil, err
	}
	switch c := t.chain; {
	case !t.Of(h) || !t.Done():
		return nil, store.Errorf(store.ErrConflict, "", "advance the floor", t.name, "the chain changed, or was not walked to its end: walk it again")
	case c == nil || floor > c.Head.Key:
		return nil, store.Errorf(store.ErrConflict, "", "advance the floor", t.name, "no entry would stay at or above the floor %d", floor)
	case horizon > 0 && (c.Mark == nil || c.Mark.Key < horizon):
		return nil, store.Errorf(store.ErrConflict, "", "advance the floor", t.name, "no marked entry would stay at or above the horizon %d", horizon)
	}
	c := t.bounds(max(floor, horizon), horizon)
	if c == nil {
		return nil, nil
	}
	*next.chain(t.name) = c
	return next, nil
}

// Linked are the objects that one head reaches.
type Linked struct {
	head  *Head
	names map[Name]bool
}

// Reached lists what h reaches, from walks of all its chains that are done. A walk
// of another state is ErrConflict: walk again (LA8).
func Reached(h *Head, trails ...*Trail) (Linked, error) {
	linked := Linked{head: h, names: map[Name]bool{}}
	walked := map[string]bool{}
	for _, t := range trails {
		if !t.Of(h) || !t.Done() {
			return Linked{}, store.Errorf(store.ErrConflict, "", "list what is linked", t.name, "the chain changed, or was not walked to its end: walk it again")
		}
		walked[t.name] = true
		for _, s := range t.steps {
			linked.names[s.Link.Name()] = true
			if b, ok := s.Entry.BlobName(); ok {
				linked.names[b] = true
			}
		}
	}
	for _, name := range ChainNames() {
		if h.Chain(name) != nil && !walked[name] {
			return Linked{}, store.Errorf(store.ErrInvalid, "", "list what is linked", name, "the chain was not walked")
		}
	}
	return linked, nil
}

// Flight is what one candidacy had on its way at one moment.
type Flight struct {
	token  uint64
	led    bool
	flying map[Name]bool
}

// Removable reports whether the entry or blob named n may be deleted (LA8): the
// head does not reach it, and none ever will (see [Head.Past]).
func (l Linked) Removable(n Name, f Flight) bool {
	return l.head != nil && !l.names[n] && l.head.Past(n, f)
}

// Past reports whether no head after h can come to link n, if h does not (LA8): its
// token is higher than the one that wrote n. The zero Flight is anybody's. Within a
// token only the leader's own process can tell, by a Flight that was taken after n
// was listed and before h was read: what was not on its way then and is not linked
// since never will be. No clock decides.
func (h *Head) Past(n Name, f Flight) bool {
	switch {
	case f.flying[n]:
		return false
	case n.Token < h.Token:
		return true
	}
	return f.led && n.Token == f.token && n.Token == h.Token
}
