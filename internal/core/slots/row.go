package slots

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1 (ST11, ST15).
const (
	MaxPast     = 8       // groups of former owners that a row carries
	MaxRow      = 1 << 18 // bytes of an encoded row of the rows form
	MaxEvidence = lease.MaxEvidence
)

// HowRaised is the end of an ownership whose holder itself took a new epoch, its old
// one not being above the floor. The other ends are those of package lease.
const HowRaised = "raised"

// Volume names the lock of the volume that a host serves from (SL3).
type Volume struct {
	// ID was drawn at random when the volume was first used.
	ID string `json:"id"`
	// Mark is the kernel's boot id, and the lock file: a copy of the volume, or the
	// same one elsewhere, has another.
	store.Mark
}

func (v *Volume) valid() error {
	switch {
	case v == nil:
		return nil
	case !record.IsID(v.ID):
		return fmt.Errorf("the volume %q is not an id", v.ID)
	case v.Boot == "" || tooLong(v.Boot):
		return errors.New("the volume's boot id is missing or too long")
	}
	return nil
}

// Host is one process that serves slots, and what keeps its rows alive.
type Host struct {
	// Owner is the stable name: the same after a restart.
	Owner string `json:"owner"`
	// Kind says what keeps the rows alive: their renewals, or a session.
	Kind lease.Kind `json:"kind"`
	// Incarnation is fresh for every start of a process; with Kind lease.Session it is
	// the session's.
	Incarnation string `json:"incarnation"`
	// Node and Term are the session's; a self host has none.
	Node string `json:"node,omitempty"`
	Term uint64 `json:"term,omitempty"`
	// TTLMS is how long a rival watches a self row, in milliseconds; with a session it
	// is the session's TTL.
	TTLMS int64 `json:"ttl_ms"`
	// Addr is where requests are sent; decides nothing.
	Addr string `json:"addr,omitempty"`
	// Volume, in a claim, says that the claimant holds that lock and no other process
	// does; in a row, what a restarted host must hold to go on with it (SL3).
	Volume *Volume `json:"volume,omitempty"`
}

// TTL is the host's time to live.
func (h *Host) TTL() time.Duration { return time.Duration(h.TTLMS) * time.Millisecond }

// Is reports whether h and o are the same process, under the same name and session.
func (h *Host) Is(o *Host) bool {
	return h != nil && o != nil && h.Owner == o.Owner && h.Kind == o.Kind && h.Incarnation == o.Incarnation &&
		h.Node == o.Node && h.Term == o.Term
}

// restarted reports whether o is h after a restart, proven by the lock that it holds.
func (h *Host) restarted(o *Host) bool {
	return h != nil && h.Owner == o.Owner && h.Volume != nil && o.Volume != nil && *h.Volume == *o.Volume
}

func (h *Host) equal(o *Host) bool {
	if h == nil || o == nil {
		return h == o
	}
	a, b := *h, *o
	a.Volume, b.Volume = nil, nil
	return a == b && (h.Volume == nil) == (o.Volume == nil) && (h.Volume == nil || *h.Volume == *o.Volume)
}

func (h *Host) copy() *Host {
	c := *h
	if h.Volume != nil {
		v := *h.Volume
		c.Volume = &v
	}
	return &c
}

// Valid checks the host by itself.
func (h *Host) Valid() error {
	switch {
	case h.Kind != lease.Self && h.Kind != lease.Session:
		return fmt.Errorf("unknown kind %q", h.Kind)
	case !record.IsID(h.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", h.Incarnation)
	case h.Kind == lease.Self && (h.Node != "" || h.Term != 0):
		return errors.New("a self host has a node or a term")
	case h.Kind == lease.Session && (h.Term < 1 || h.Term > record.MaxNumber):
		return fmt.Errorf("the session's term %d is out of bounds", h.Term)
	case tooLong(h.Addr):
		return fmt.Errorf("the address has more than %d bytes or is not UTF-8", lease.MaxWhy)
	}
	if h.Kind == lease.Session {
		if err := store.CheckName("node name", h.Node); err != nil {
			return err
		}
	}
	return errors.Join(store.CheckName("owner", h.Owner), lease.CheckTTL(h.TTL()), h.Volume.valid())
}

// Freed says how the last ownership of a row ended that nobody holds.
type Freed struct {
	// Owner held it last.
	Owner string `json:"owner"`
	// How it ended: lease.HowReleased, or as Steal says.
	How string `json:"how"`
	// At is the wall clock of whoever ended it, unix milliseconds, for people.
	At int64 `json:"at_ms"`
	// Successor may claim at once, everybody else after HoldMS milliseconds (LS10).
	Successor string `json:"successor,omitempty"`
	HoldMS    int64  `json:"hold_ms,omitempty"`
	// SupersededTTLMS is how long everybody watches after a forced end (LS11).
	SupersededTTLMS int64 `json:"superseded_ttl_ms,omitempty"`
	// Why and By are an operator's.
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
}

func (f *Freed) valid() error {
	switch {
	case !knownHow(f.How) || f.How == HowRaised:
		return fmt.Errorf("unknown end %q", f.How)
	case f.At < 0 || f.At > record.MaxNumber:
		return fmt.Errorf("the time of the end, %d, is out of bounds", f.At)
	case (f.Successor != "") != (f.HoldMS != 0):
		return errors.New("a successor needs a hold, and a hold a successor")
	case f.Successor != "" && f.How != lease.HowReleased:
		return errors.New("only a release names a successor")
	case f.SupersededTTLMS != 0 && f.How != lease.HowForced:
		return errors.New("only a forced end names a superseded TTL")
	case tooLong(f.Why) || tooLong(f.By):
		return errors.New("the reason of the end is too long or not UTF-8")
	}
	err := store.CheckName("owner", f.Owner)
	if f.Successor != "" {
		err = errors.Join(err, store.CheckName("successor", f.Successor), checkHold(f.HoldMS))
	}
	if f.SupersededTTLMS != 0 {
		err = errors.Join(err, lease.CheckTTL(time.Duration(f.SupersededTTLMS)*time.Millisecond))
	}
	return err
}

func checkHold(ms int64) error {
	if ms < 1 || ms > lease.MaxTTL.Milliseconds() {
		return fmt.Errorf("the hold of %d ms is out of bounds", ms)
	}
	return nil
}

// Past is one former owner of slots of a row, and how its ownership ended. Rows that
// fell together in the same way are told once.
type Past struct {
	Owner string `json:"owner"`
	// Epoch is the highest of those that fell, Rows how many rows there were.
	Epoch uint64 `json:"epoch"`
	Rows  int    `json:"rows"`
	// How it ended, Why and By as whoever ended it said.
	How string `json:"how"`
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
	// Evidence is what the end of a session was cited from (LS8).
	Evidence string `json:"evidence,omitempty"`
}

func (p *Past) valid() error {
	switch {
	case p.Epoch < 1 || p.Epoch > record.MaxNumber || p.Rows < 1 || p.Rows > Count:
		return fmt.Errorf("epoch %d or the number of rows, %d, of a former owner is out of bounds", p.Epoch, p.Rows)
	case !knownHow(p.How):
		return fmt.Errorf("unknown end %q of a former owner", p.How)
	case tooLong(p.Why) || tooLong(p.By):
		return errors.New("the reason of a former end is too long or not UTF-8")
	case len(p.Evidence) > MaxEvidence || !utf8.ValidString(p.Evidence):
		return fmt.Errorf("the evidence has more than %d bytes or is not UTF-8", MaxEvidence)
	}
	return store.CheckName("owner", p.Owner)
}

// Row is one range of slots and who owns it. Rows are values; what their pointers and
// slices point to is shared between tables and never changed. Invariants, checked by
// Valid:
//
//  1. the range is one; epoch, renewal and since are within bounds, the epoch at least
//     1; the attempt is an id;
//  2. either a host holds the row, or it says how it was freed;
//  3. a self host has no node and no term, a session host both; each has a name, an
//     incarnation and a TTL;
//  4. a successor comes with a hold, both only with a release; a superseded TTL only
//     with a forced end;
//  5. former owners are at most MaxPast, with epochs below the row's that fall;
//  6. every text is UTF-8 within its bound.
type Row struct {
	Range Range `json:"range"`
	// Epoch is the fencing token: given once in a table.
	Epoch uint64 `json:"epoch"`
	// Renewal counts the writes by the holder under this epoch, its signs of life.
	Renewal uint64 `json:"renewal"`
	// Since is when the ownership began, by the owner's wall clock, for people.
	Since int64 `json:"since_ms"`
	// Attempt is the id of the last write by the row's holder (ST9).
	Attempt string `json:"attempt"`
	// Host holds it; nil: nobody does.
	Host *Host `json:"host,omitempty"`
	// Freed is set exactly if Host is nil.
	Freed *Freed `json:"freed,omitempty"`
	// From tells whom the slots were taken from, by falling epoch.
	From []Past `json:"from,omitempty"`
}

// Owner is the name of the present or last owner.
func (r *Row) Owner() string {
	if r.Host != nil {
		return r.Host.Owner
	}
	return r.Freed.Owner
}

// Held reports whether the row names a host. It says nothing of whether that one lives.
func (r *Row) Held() bool { return r.Host != nil }

// Valid checks the invariants.
func (r *Row) Valid() error { return r.valid(nil) }

// valid is Valid, but for a host that is known to be.
func (r *Row) valid(known map[*Host]bool) error {
	if err := r.Range.Valid(); err != nil {
		return err
	}
	err := r.validNumbers()
	switch {
	case err != nil:
	case r.Host == nil:
		err = r.Freed.valid()
	case !known[r.Host]:
		err = r.Host.Valid()
		if known != nil {
			known[r.Host] = err == nil
		}
	}
	if err != nil {
		return fmt.Errorf("row %v: %w", r.Range, err)
	}
	return nil
}

func (r *Row) validNumbers() error {
	switch {
	case r.Epoch < 1 || r.Epoch > record.MaxNumber:
		return fmt.Errorf("epoch %d is out of bounds", r.Epoch)
	case r.Renewal > record.MaxNumber:
		return fmt.Errorf("renewal %d is out of bounds", r.Renewal)
	case r.Since < 0 || r.Since > record.MaxNumber:
		return fmt.Errorf("since %d is out of bounds", r.Since)
	case !record.IsID(r.Attempt):
		return fmt.Errorf("attempt %q is not an id", r.Attempt)
	case (r.Host == nil) == (r.Freed == nil):
		return errors.New("it must either have a host or say how it was freed")
	case len(r.From) > MaxPast || r.From != nil && len(r.From) == 0:
		return fmt.Errorf("it tells of %d former owners", len(r.From))
	}
	below := r.Epoch
	for i := range r.From {
		p := &r.From[i]
		if p.Epoch >= below {
			return fmt.Errorf("the former epoch %d is out of order", p.Epoch)
		}
		if err := p.valid(); err != nil {
			return err
		}
		below = p.Epoch
	}
	return nil
}

func knownHow(how string) bool {
	switch how {
	case lease.HowReleased, lease.HowObserved, lease.HowProven, lease.HowStoreClock, lease.HowForced, lease.HowVouched, lease.HowRevoked, HowRaised:
		return true
	}
	return false
}
