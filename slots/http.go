package slots

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/tenure-project/tenure/guard"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// EpochSource is a host, as far as [Serve] needs it.
type EpochSource interface {
	// EpochFor returns the epoch under which this host may serve slot right now, from
	// memory (SL6).
	EpochFor(slot uint16) (epoch uint64, ok bool)
}

// ServeConfig says how [Serve] decides.
type ServeConfig struct {
	// Host is this host. Needed.
	Host EpochSource
	// Owner is this host's own name in the table, so that nobody is sent to a host that
	// has just said no. Needed.
	Owner string
	// Slot returns the slot that a request is for; false if it is for none, which is
	// served without a question; an error, which the client is shown, makes a 400.
	// Needed.
	Slot func(*http.Request) (slot uint16, ok bool, err error)
	// Router knows the other owners. Without it every refusal is a 503.
	Router *Router
	// Grant, if set, is asked instead of Host: it also returns a context that ends with
	// the grant, and the request's context ends then, with the same cause.
	Grant func(slot uint16) (grant context.Context, epoch uint64, ok bool)
	// RetryAfter is what a 503 asks for. Default 1 s, at most an hour.
	RetryAfter time.Duration
}

// Handler is what [Serve] returns. It is safe for concurrent use.
type Handler struct {
	c     ServeConfig
	next  http.Handler
	drain slotDrains
}

// Serve puts the question whether this host serves a request's slot before next
// (SL9). If it does, next runs, and finds slot and epoch by [SlotFrom]: what next
// writes must be guarded by that epoch, for the right can end while it runs. If not,
// the answer is 421 with the owner's address, or 503 while nobody else is known to own
// the slot, and next does not run. A bad configuration is ErrInvalid.
func Serve(c ServeConfig, next http.Handler) (*Handler, error) {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, "", "serve slots", "", format, args...)
	}
	switch {
	case c.Host == nil:
		return nil, bad("Host is nil; give what answers EpochFor")
	case c.Owner == "":
		return nil, bad("Owner is empty; give this host's name in the table")
	case c.Slot == nil:
		return nil, bad("Slot is nil; give what finds a request's slot")
	case next == nil:
		return nil, bad("the handler is nil")
	case c.RetryAfter < 0 || c.RetryAfter > time.Hour:
		return nil, bad("RetryAfter is %v; give 0 to 1h", c.RetryAfter)
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = time.Second
	}
	return &Handler{c: c, next: next}, nil
}

// ServeHTTP serves the request, or says who does (SL9).
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	slot, ok, err := h.c.Slot(r)
	switch {
	case err != nil:
		writeJSON(w, r, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	case !ok:
		h.next.ServeHTTP(w, r)
		return
	case slot > core.Last:
		writeJSON(w, r, http.StatusInternalServerError, map[string]string{"error": fmt.Sprintf("the request was given the slot %d; the last is %d", slot, core.Last)})
		return
	}
	known, err := knownEpoch(r.Header)
	if err != nil {
		writeJSON(w, r, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	grant, epoch, ok := h.grant(slot)
	switch {
	case !ok:
		h.refuse(w, r, slot, known)
	case known > epoch:
		h.refuse(w, r, slot, known)
	case !h.drain.begin(slot, epoch):
		h.later(w, r, slot, "this host gives the slot away and begins nothing new")
	default:
		defer h.drain.end(slot)
		h.serve(w, r, grant, Served{slot, epoch})
	}
}

// grant asks the host. The context is nil where nobody can tell when the grant ends.
func (h *Handler) grant(slot uint16) (context.Context, uint64, bool) {
	if h.c.Grant != nil {
		return h.c.Grant(slot)
	}
	epoch, ok := h.c.Host.EpochFor(slot)
	return nil, epoch, ok
}

// knownEpoch is the newest epoch that the client knows of; 0 if it says nothing.
func knownEpoch(h http.Header) (uint64, error) {
	text := h.Get(HeaderEpoch)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > guard.MaxToken {
		return 0, fmt.Errorf("the header %s is %.40q; it is a number from 1 to %d", HeaderEpoch, text, uint64(guard.MaxToken))
	}
	return n, nil
}

// Served is what a request is served under.
type Served struct {
	// Slot is the request's, Epoch the one that this host served it under when the
	// request began.
	Slot  uint16
	Epoch uint64
}

type servedKey struct{}

// SlotFrom returns what a request is served under; false if it did not come through
// [Serve], or is for no slot. Hand the epoch to the guard of what is written (GD1).
func SlotFrom(ctx context.Context) (Served, bool) {
	s, ok := ctx.Value(servedKey{}).(Served)
	return s, ok
}

// serve runs the handler under the grant.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, grant context.Context, s Served) {
	ctx := context.WithValue(r.Context(), servedKey{}, s)
	if grant != nil {
		bound, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stop := context.AfterFunc(grant, func() { cancel(context.Cause(grant)) })
		defer stop()
		ctx = bound
	}
	h.next.ServeHTTP(w, r.WithContext(ctx))
}

// refuse says who serves the slot: by 421 if that is another host under an epoch at
// least as new as known, else by 503. A 421 that names this host, or an owner whom the
// client knows to be superseded, would send the client in a circle.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, slot uint16, known uint64) {
	if h.c.Router == nil {
		h.later(w, r, slot, "this host does not serve the slot")
		return
	}
	route, ok := h.c.Router.Route(slot)
	if !ok || route.Owner == h.c.Owner || route.Epoch < known {
		h.c.Router.ring() // what it knows is of no use here
		h.later(w, r, slot, "this host does not serve the slot, and knows of nobody who does")
		return
	}
	Refusal{
		Error: "another host serves the slot", Slot: slot, Range: &route.Range,
		Owner: route.Owner, Address: route.Addr, Epoch: route.Epoch,
	}.write(w, r, http.StatusMisdirectedRequest)
}

// later asks the client to come back.
func (h *Handler) later(w http.ResponseWriter, r *http.Request, slot uint16, why string) {
	ms := max(h.c.RetryAfter.Milliseconds(), 1)
	Refusal{Error: why, Slot: slot, RetryAfterMS: ms}.write(w, r, http.StatusServiceUnavailable)
}

// Drain makes the slots of r begin nothing new under epoch and older ones, and returns
// nil once no request of them runs any more: the drain of a hand-over. New requests get
// 503 meanwhile. Under a later epoch the slots are served again by themselves; after a
// hand-over that is given up, call Resume. If ctx ends first the error is
// ErrUnavailable, and the slots stay drained.
func (h *Handler) Drain(ctx context.Context, r Range, epoch uint64) error {
	if err := r.Valid(); err != nil {
		return store.Wrap(store.ErrInvalid, "", "drain", r.String(), err)
	}
	return h.drain.drain(ctx, r, epoch)
}

// Resume serves the slots of r again that Drain stopped.
func (h *Handler) Resume(r Range) {
	if r.Valid() == nil {
		h.drain.resume(r)
	}
}
