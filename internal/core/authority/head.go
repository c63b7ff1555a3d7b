// Package authority decides who leads one named authority and what enters its
// log. It is pure: state and input in, state out; no I/O, no clock, no goroutine,
// no randomness. Ids, wall times and boot-clock readings are arguments.
//
// An authority is one register, its [Head], which is replaced by compare-and-set
// and never deleted, and any number of immutable objects beside it: the [Entry]
// of each decision and the blobs of large ones. A decision stands exactly if it
// can be reached from the head. The rules of the four chains of entries are in
// the packages below this one.
package authority

import (
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1 (LA8, LA9, ST11, ST15).
const (
	MaxHead    = 256 << 10 // bytes of an encoded head
	Headroom   = 32 << 10  // bytes kept free while any fault is active
	MaxLive    = 4096      // live entries of a chain, and live marked ones
	MaxSlots   = 516       // fault slots
	RecentKept = 8         // past leaderships in the head
	// maxRest bounds everything of a head but its fault slots. The slots are held
	// below MaxHead - Headroom - maxRest, so that no other change of the head, a
	// takeover or a release above all, can be refused for its size.
	maxRest = 15 << 10
	// maxSlotBytes is the room for the encoded slots.
	maxSlotBytes = MaxHead - Headroom - maxRest
)

// Owner names one process start exactly (LA1).
type Owner struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	// Term is the node's process term.
	Term uint64 `json:"term"`
}

// Proof names one exact leadership: all four must match (LA1, LA4).
type Proof struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	Token       uint64 `json:"token"`
}

// Owner is whose leadership it is.
func (p Proof) Owner() Owner { return Owner{Node: p.Node, Incarnation: p.Incarnation, Term: p.Term} }

// Proof is o's leadership at token.
func (o Owner) Proof(token uint64) Proof {
	return Proof{Node: o.Node, Incarnation: o.Incarnation, Term: o.Term, Token: token}
}

// Leadership is one past leadership. Times are unix milliseconds by the wall
// clocks of those who wrote them: for people, never for decisions.
type Leadership struct {
	Token uint64 `json:"token"`
	Owner Owner  `json:"owner"`
	// First is the sequence at which it began, Last the last one at which it
	// stood: whatever it decided lies between them.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	Since int64  `json:"since_ms"`
	Until int64  `json:"until_ms"`
	// How is released, observed, proven, store-clock, forced or vouched (LS11).
	How string `json:"how"`
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
	// SupersededTTLMS is set exactly for an end by force: what its evidence must
	// wait.
	SupersededTTLMS int64 `json:"superseded_ttl_ms,omitempty"`
}

// Head is the register authority/<name>: the whole standing state of the log
// (LA2). Invariants, checked by Valid:
//
//  1. v, authority, writer attempt and ttl are set and within bounds;
//  2. 1 <= began <= sequence, 1 <= renewal <= sequence, 1 <= token <= counter, all
//     at most 2^53-1;
//  3. a led head has a complete leader and a holder attempt;
//  4. a head that nobody leads has neither, no note and no secret, and its newest
//     past leadership is the one of its token and says how it ended;
//  5. tokens and sequences of past leaderships rise; one that ended by force says
//     why and what must be waited, and if it is the newest of a head that nobody
//     leads, the counter was raised above it;
//  6. each chain is complete (see Chain), nothing in it is newer than the head,
//     only checkpoints are marked, and a catalog has at most one entry;
//  7. fault slots are sorted, one per node, at most 516 and within their room,
//     none newer than their revision, which is at most the sequence;
//  8. a round is of a leadership that was, freezes a revision that was, and is
//     above the last release.
type Head struct {
	V         int    `json:"v"`
	Authority string `json:"authority"`
	// Sequence rises by 1 with every change, and by more only with a jump.
	Sequence uint64 `json:"sequence"`
	// Leader is nil in a head that nobody leads.
	Leader *Owner `json:"leader,omitempty"`
	// Token is the present or last leader's.
	Token uint64 `json:"token"`
	// Counter is the highest token ever given or reserved.
	Counter uint64 `json:"counter"`
	// Renewal counts the leaders' own writes: their signs of life (LA2).
	Renewal uint64 `json:"renewal"`
	// Began is the sequence at which the token was given.
	Began         uint64 `json:"began"`
	TTLMS         int64  `json:"ttl_ms"`
	WriterAttempt string `json:"writer_attempt"`
	HolderAttempt string `json:"holder_attempt,omitempty"`
	Note          string `json:"note,omitempty"`
	Since         int64  `json:"since_ms"`
	SecretHash    string `json:"secret_hash,omitempty"`
	MAC           string `json:"mac,omitempty"`

	Checkpoint *Chain `json:"checkpoint,omitempty"`
	Assignment *Chain `json:"assignment,omitempty"`
	Recovery   *Chain `json:"recovery,omitempty"`
	Catalog    *Chain `json:"catalog,omitempty"`
	Round      *Round `json:"round,omitempty"`
	// Recent are the last leaderships, oldest first; Dropped counts older ones.
	Recent  []Leadership `json:"recent,omitempty"`
	Dropped uint64       `json:"dropped,omitempty"`
	// Revision is the sequence at which the fault slots last changed; 0: never.
	Revision uint64 `json:"revision,omitempty"`
	Slots    []Slot `json:"slots,omitempty"`
}

// TTL is the head's time to live: what a rival must observe (LA3).
func (h *Head) TTL() time.Duration { return millis(h.TTLMS) }

// Led reports whether the head names a leader. It says nothing of whether that
// leader lives.
func (h *Head) Led() bool { return h.Leader != nil }

// Last is the present or, in a head that nobody leads, the last leadership.
func (h *Head) Last() Proof {
	if h.Led() {
		return h.Leader.Proof(h.Token)
	}
	return h.Recent[len(h.Recent)-1].Owner.Proof(h.Token)
}

// Ended says how the last leadership ended; nil while one stands.
func (h *Head) Ended() *Leadership {
	if h.Led() {
		return nil
	}
	return &h.Recent[len(h.Recent)-1]
}

// Leads reports whether p names exactly the head's leadership (LA4).
func (h *Head) Leads(p Proof) bool { return h.Led() && h.Leader.Proof(h.Token) == p }

// Raised reports whether a jump raised the counter above the leader's token: such
// a leadership writes nothing any more, and its process begins again (LS12).
func (h *Head) Raised() bool { return h.Led() && h.Counter > h.Token }

// Decode reads a head strictly and checks that it is authority's (ST7).
func Decode(key, authority string, body []byte) (*Head, error) {
	if len(body) > MaxHead {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the head has %d bytes, at most %d are allowed", len(body), MaxHead)
	}
	var h Head
	if err := record.Decode(key, body, &h); err != nil {
		return nil, err
	}
	if h.Authority != authority {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the head says it belongs to authority %q, not to %q", h.Authority, authority)
	}
	return &h, nil
}

// Encode returns the head's canonical bytes.
func (h *Head) Encode() ([]byte, error) { return record.Encode(h, MaxHead) }

// copy shares nothing that a transition changes. Chains, rounds, owners and past
// leaderships are replaced, never changed in place.
func (h *Head) copy() *Head {
	next := *h
	next.V = max(h.V, record.Level) // no write lowers a record's level (ST15)
	next.Recent = append([]Leadership(nil), h.Recent...)
	next.Slots = append([]Slot(nil), h.Slots...)
	next.MAC = "" // of other bytes; who has the key signs anew
	return &next
}

// step is h's successor by attempt: sequence + 1 and nothing else (LA2).
func (h *Head) step(op, attempt string) (*Head, error) {
	if h.Sequence >= record.MaxNumber {
		return nil, store.Errorf(store.ErrInvalid, "", op, h.Authority, "the sequence is at its end")
	}
	if !record.IsID(attempt) {
		return nil, store.Errorf(store.ErrInvalid, "", op, h.Authority, "the attempt %q is not a UUID in lower case", attempt)
	}
	if attempt == h.WriterAttempt || attempt == h.HolderAttempt {
		return nil, store.Errorf(store.ErrInvalid, "", op, h.Authority, "attempt %s wrote this head already: every write needs a fresh id", attempt)
	}
	next := h.copy()
	next.Sequence++
	next.WriterAttempt = attempt
	return next, nil
}

// lead is step as a sign of life of the leader, who must be exactly p (LA2, LA4).
func (h *Head) lead(op, attempt string, p Proof) (*Head, error) {
	switch {
	case !h.Leads(p):
		return nil, h.notLeader(op, p)
	case h.Raised():
		return nil, store.Errorf(store.ErrConflict, "", op, h.Authority,
			"the counter was raised to %d above token %d: this leadership ended, begin again", h.Counter, h.Token)
	}
	next, err := h.step(op, attempt)
	if err != nil {
		return nil, err
	}
	next.Renewal++ // at most the sequence, by invariant 2
	next.HolderAttempt = attempt
	return next, nil
}

func (h *Head) notLeader(op string, p Proof) error {
	last := h.Last()
	if e := h.Ended(); e != nil {
		return store.Errorf(store.ErrConflict, "", op, h.Authority,
			"nobody leads (last token %d, %s), not incarnation %s with token %d", h.Token, e.How, p.Incarnation, p.Token)
	}
	return store.Errorf(store.ErrConflict, "", op, h.Authority, "node %q, incarnation %s leads with token %d, not %s with token %d",
		last.Node, last.Incarnation, last.Token, p.Incarnation, p.Token)
}

// end puts the standing leadership into the past. h is a copy, prev what it was
// copied from.
func (h *Head) end(prev *Head, e Leadership) {
	e.Token, e.Owner, e.First, e.Last, e.Since = prev.Token, *prev.Leader, prev.Began, prev.Sequence, prev.Since
	h.Recent = append(h.Recent, e)
	if n := len(h.Recent) - RecentKept; n > 0 {
		h.Recent = h.Recent[n:]
		h.Dropped += uint64(n)
	}
	h.Leader, h.HolderAttempt, h.Note, h.SecretHash = nil, "", "", ""
}

// byForce reports whether evidence of this kind must be waited for (LS11).
func byForce(how string) bool { return how == lease.HowForced || how == lease.HowVouched }

func isTime(ms int64) bool { return ms >= 0 && ms <= record.MaxNumber }

func isCount(n uint64) bool { return n >= 1 && n <= record.MaxNumber }

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
