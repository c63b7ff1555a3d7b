package authority

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Valid checks the invariants.
func (h *Head) Valid() error {
	for _, check := range []func() error{h.validNames, h.validNumbers, h.validLed, h.validFree, h.validRecent,
		h.validChains, h.validSlots, h.validRound, h.validTexts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (h *Head) validNames() error {
	switch {
	case h.V < 1 || h.V > record.Level:
		return fmt.Errorf("format level %d", h.V)
	case !record.IsID(h.WriterAttempt):
		return fmt.Errorf("writer attempt %q is not an id", h.WriterAttempt)
	}
	if err := store.CheckName("authority name", h.Authority); err != nil {
		return err
	}
	return checkTTL(h.TTLMS)
}

func (h *Head) validNumbers() error {
	switch {
	case !isCount(h.Sequence):
		return fmt.Errorf("sequence %d is out of bounds", h.Sequence)
	case !isCount(h.Renewal) || h.Renewal > h.Sequence:
		return fmt.Errorf("renewal %d is not between 1 and the sequence %d", h.Renewal, h.Sequence)
	case !isCount(h.Began) || h.Began > h.Sequence:
		return fmt.Errorf("the leadership began at %d, which is not between 1 and the sequence %d", h.Began, h.Sequence)
	case !isCount(h.Token) || h.Token > h.Counter || h.Counter > record.MaxNumber:
		return fmt.Errorf("token %d with counter %d is out of bounds", h.Token, h.Counter)
	case !isTime(h.Since) || h.Dropped > record.MaxNumber:
		return errors.New("a time or a count is out of bounds")
	}
	return nil
}

func (h *Head) validLed() error {
	if !h.Led() {
		return nil
	}
	if !record.IsID(h.HolderAttempt) {
		return fmt.Errorf("holder attempt %q is not an id", h.HolderAttempt)
	}
	return h.Leader.Valid()
}

// Valid checks that an owner is complete and within bounds.
func (o Owner) Valid() error {
	switch {
	case !record.IsID(o.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", o.Incarnation)
	case !isCount(o.Term):
		return fmt.Errorf("term %d is out of bounds", o.Term)
	}
	return store.CheckName("node name", o.Node)
}

// Valid checks that a proof is complete and within bounds.
func (p Proof) Valid() error {
	if !isCount(p.Token) {
		return fmt.Errorf("token %d is out of bounds", p.Token)
	}
	return p.Owner().Valid()
}

func (h *Head) validFree() error {
	if h.Led() {
		return nil
	}
	if h.HolderAttempt != "" || h.Note != "" || h.SecretHash != "" {
		return errors.New("a head that nobody leads carries a leader's fields")
	}
	if len(h.Recent) == 0 {
		return errors.New("nobody leads and the head does not say why")
	}
	switch e := h.Ended(); {
	case e.Token != h.Token || e.First != h.Began || e.Since != h.Since || e.Last >= h.Sequence:
		return errors.New("the newest past leadership is not the one of the head's token")
	case e.How != lease.HowReleased && !byForce(e.How):
		return fmt.Errorf("a leadership that nobody followed does not end by %q", e.How)
	case byForce(e.How) && (h.Counter <= e.Token || e.SupersededTTLMS == 0):
		return errors.New("a forced end did not raise the counter, or names no superseded TTL")
	}
	return nil
}

func (h *Head) validRecent() error {
	if len(h.Recent) > RecentKept || h.Recent != nil && len(h.Recent) == 0 {
		return fmt.Errorf("it carries %d past leaderships", len(h.Recent))
	}
	var token, last uint64
	for _, l := range h.Recent {
		if err := l.valid(); err != nil {
			return err
		}
		if l.Token <= token || l.First <= last || l.Token > h.Token || l.Last > h.Sequence {
			return fmt.Errorf("the past leadership of token %d is out of order", l.Token)
		}
		token, last = l.Token, l.Last
	}
	if h.Led() && (token >= h.Token || last >= h.Began) {
		return errors.New("a past leadership overlaps the standing one")
	}
	return nil
}

func (l Leadership) valid() error {
	switch {
	case !isCount(l.Token) || !isCount(l.First) || l.Last < l.First || l.Last > record.MaxNumber:
		return errors.New("a past leadership has numbers out of bounds")
	case !isTime(l.Since) || !isTime(l.Until):
		return errors.New("a time of a past leadership is out of bounds")
	case !knownHow(l.How):
		return fmt.Errorf("a past leadership ended by %q", l.How)
	case l.SupersededTTLMS != 0 && !byForce(l.How):
		return errors.New("only an end by force names a superseded TTL")
	case l.SupersededTTLMS != 0 && l.Why == "":
		return errors.New("a forced end lacks its reason")
	}
	if l.SupersededTTLMS != 0 {
		if err := checkTTL(l.SupersededTTLMS); err != nil {
			return err
		}
	}
	return errors.Join(l.Owner.Valid(), lease.CheckWhy("reason", l.Why), lease.CheckWhy("name", l.By))
}

func (h *Head) validChains() error {
	for _, name := range ChainNames() {
		c := h.Chain(name)
		if c == nil {
			continue
		}
		if err := c.valid(h); err != nil {
			return fmt.Errorf("chain %s: %w", name, err)
		}
		if c.Mark != nil && name != Checkpoint {
			return fmt.Errorf("chain %s has marked entries", name)
		}
	}
	if c := h.Catalog; c != nil && (c.Live != 1 || c.Floor != 0 || c.Head.Key != 1) {
		return errors.New("a catalog is sealed once")
	}
	return nil
}

func (h *Head) validTexts() error {
	return errors.Join(lease.CheckNote(h.Note), lease.CheckWhy("secret's hash", h.SecretHash), lease.CheckWhy("MAC", h.MAC))
}

func knownHow(how string) bool {
	switch how {
	case lease.HowReleased, lease.HowObserved, lease.HowProven, lease.HowStoreClock, lease.HowForced, lease.HowVouched:
		return true
	}
	return false
}

// checkTTL is lease.CheckTTL for a number on the wire, which must not wrap.
func checkTTL(ms int64) error {
	if ms < 0 || ms > lease.MaxTTL.Milliseconds() {
		return fmt.Errorf("a TTL of %d ms is out of bounds", ms)
	}
	return lease.CheckTTL(millis(ms))
}
