package slots

import (
	"slices"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Hold names a range that a host holds.
type Hold struct {
	Range Range
	Epoch uint64
	// Renewal is the last that the holder saw confirmed: a row that shows less went back,
	// and is lost (ST9). 0 asks for nothing.
	Renewal uint64
}

// Answer is what a decision did about one range.
type Answer struct {
	// Row is the range's row after the decision; of an error the zero Row.
	Row Row
	// Fresh reports whether a claim gave a new epoch.
	Fresh bool
	// Err is a *HeldError of a claim, a *LostError of a renewal or release, or ErrInvalid of
	// a renewal beyond 2^53-1; then nothing was changed about the range.
	Err error
}

// Renewal is a sign of life of a host for ranges that it holds (SL4).
type Renewal struct {
	Host    *Host
	Holds   []Hold
	Attempt string // fresh id of this write
}

// Renew returns the table with one more renewal of each range that is exactly the host's,
// and an answer for each, in order. A session's row is only looked at. The very table
// means that there is nothing to write. Bad input is ErrInvalid.
func (t *Table) Renew(n Renewal) (*Table, []Answer, error) {
	return t.each("renew", n.Attempt, n.Holds, func(r *Row, h Hold) (Row, error) { return r.Renew(n.Host, h, n.Attempt) })
}

// Renew is the row with one more renewal by h, for a home that keeps each row by itself;
// a session's row as it is (SL4). A row that is not exactly h's is a *LostError.
func (r *Row) Renew(h *Host, hold Hold, attempt string) (Row, error) {
	if err := r.lost(h, hold); err != nil {
		return Row{}, err
	}
	if r.Host.Kind == lease.Session {
		return *r, nil
	}
	return r.alive(attempt)
}

// alive is one more renewal.
func (r *Row) alive(attempt string) (Row, error) {
	switch {
	case !record.IsID(attempt):
		return Row{}, invalid("renew", "the attempt %q is not an id", attempt)
	case r.Renewal >= record.MaxNumber:
		return Row{}, invalid("renew", "the renewals of %v are at their end, %d", r.Range, uint64(record.MaxNumber))
	}
	next := *r
	next.Renewal++
	next.Attempt = attempt
	return next, nil
}

// lost is a *LostError unless the row is h's under the hold's epoch and did not go back.
func (r *Row) lost(h *Host, hold Hold) error {
	if r != nil && r.Range == hold.Range && r.Host.Is(h) && r.Epoch == hold.Epoch && r.Renewal >= hold.Renewal {
		return nil
	}
	e := &LostError{Range: hold.Range, Epoch: hold.Epoch}
	if r != nil {
		now := *r
		e.Now = &now
	}
	return e
}

// Release is the end of ownerships by their holder (LS5).
type Release struct {
	Host  *Host
	Holds []Hold
	// Successor, if any, may claim at once; everybody else watches the free row for HoldMS
	// milliseconds, 1 to the host's TTL (LS10).
	Successor string
	HoldMS    int64
	Attempt   string // fresh id of this write
	NowMS     int64  // wall clock, for people
}

// Release returns the table with each range that is exactly the host's free, its row
// kept, and an answer for each, in order. To release again what this host released
// changes nothing and is no error. The very table means that there is nothing to
// write. Bad input is ErrInvalid.
func (t *Table) Release(l Release) (*Table, []Answer, error) {
	if err := l.check(); err != nil {
		return nil, nil, err
	}
	return t.each("release", l.Attempt, l.Holds, func(r *Row, h Hold) (Row, error) { return r.release(l, h) })
}

// Release is the row freed, for a home that keeps each row by itself: the hold is l's
// only one, and the row the one with its bounds, nil if there is none.
func (r *Row) Release(l Release) (Row, error) {
	if err := l.check(); err != nil {
		return Row{}, err
	}
	if len(l.Holds) != 1 {
		return Row{}, invalid("release", "one row is released of one hold, not of %d", len(l.Holds))
	}
	return r.release(l, l.Holds[0])
}

func (l *Release) check() error {
	if !record.IsID(l.Attempt) {
		return invalid("release", "the attempt %q is not an id", l.Attempt)
	}
	f := Freed{Owner: l.Host.Owner, How: lease.HowReleased, At: l.NowMS, Successor: l.Successor, HoldMS: l.HoldMS}
	switch err := f.valid(); {
	case err != nil:
		return store.Wrap(store.ErrInvalid, "", "release", "", err)
	case l.HoldMS > l.Host.TTLMS:
		return invalid("release", "the hold of %d ms is longer than the TTL of %d ms", l.HoldMS, l.Host.TTLMS)
	}
	return nil
}

func (r *Row) release(l Release, h Hold) (Row, error) {
	if r != nil && r.Range == h.Range && r.Epoch == h.Epoch && !r.Held() && r.Freed.How == lease.HowReleased && r.Freed.Owner == l.Host.Owner {
		return *r, nil // a release that is repeated
	}
	if err := r.lost(l.Host, h); err != nil {
		return Row{}, err
	}
	return r.end(l.Attempt, Freed{How: lease.HowReleased, At: l.NowMS, Successor: l.Successor, HoldMS: l.HoldMS}), nil
}

// end is the row with nobody holding it.
func (r *Row) end(attempt string, f Freed) Row {
	f.Owner = r.Host.Owner
	next := *r
	next.Host, next.Freed, next.Attempt = nil, &f, attempt
	return next
}

// each decides about rows that keep their bounds and epochs.
func (t *Table) each(op, attempt string, holds []Hold, decide func(*Row, Hold) (Row, error)) (*Table, []Answer, error) {
	if !record.IsID(attempt) {
		return nil, nil, invalid(op, "the attempt %q is not an id", attempt)
	}
	for _, h := range holds {
		if err := t.covers(op, h.Range); err != nil {
			return nil, nil, err
		}
	}
	next, answers := t, make([]Answer, len(holds))
	for k, h := range holds {
		i, j := t.overlapping(Range{h.Range.A, h.Range.A})
		var r *Row
		if i < j {
			r = &next.Rows[i]
		}
		row, err := decide(r, h)
		if answers[k].Err = err; err != nil {
			continue
		}
		if answers[k].Row = row; !row.same(r) {
			if next == t {
				next = t.next(attempt)
				next.Rows = slices.Clone(t.Rows)
			}
			next.Rows[i] = row
		}
	}
	if next != t {
		var err error
		if next, err = next.fit(op, 0); err != nil {
			return nil, nil, err
		}
	}
	return next, answers, nil
}

// next is a copy to change, by the write attempt.
func (t *Table) next(attempt string) *Table {
	n := *t
	if t.Form == RegisterForm {
		n.Writer = attempt
	}
	return &n
}

// raise is the counter of a copy, by the write attempt.
func (t *Table) raise(counter uint64, attempt string) { t.Counter, t.Writer = counter, attempt }

// covers returns ErrInvalid unless the table has every row that overlaps r.
func (t *Table) covers(op string, r Range) error {
	if err := r.Valid(); err != nil {
		return store.Wrap(store.ErrInvalid, "", op, "", err)
	}
	if !t.Part.Holds(r) {
		return invalid(op, "slots %v were not read: only %v were", r, t.Part)
	}
	return nil
}

func invalid(op, format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, "", op, "", format, args...)
}

// Theft is the end of an ownership by an operator.
type Theft struct {
	Range   Range
	Epoch   uint64 // of the ownership that is meant
	Why, By string
	NowMS   int64
	// Vouch says that the operator knows the holder to be gone.
	Vouch bool
	// Sight proves that the session of a session's row is over: such a row is renewed by
	// nobody, who could be refused.
	Sight *Sight
	// Attempt is the fresh id of this write.
	Attempt string
}

// Steal ends an ownership whether or not its holder lives, and raises the counter (LS11).
// A self row that is vouched for may be claimed at once, any other after everyone
// watched it for the superseded TTL. A session's row is freed only with a proof that
// its session is over, and then as that says. A row of another epoch, or a free one, is
// ErrConflict; bad input is ErrInvalid.
func (t *Table) Steal(s Theft) (*Table, Row, error) {
	if err := t.covers("steal", s.Range); err != nil {
		return nil, Row{}, err
	}
	r := t.RowAt(s.Range)
	switch {
	case !record.IsID(s.Attempt):
		return nil, Row{}, invalid("steal", "the attempt %q is not an id", s.Attempt)
	case r == nil:
		return nil, Row{}, store.Errorf(store.ErrConflict, "", "steal", s.Range.String(), "no row has these bounds")
	case !r.Held():
		return nil, Row{}, store.Errorf(store.ErrConflict, "", "steal", s.Range.String(), "nobody holds it (last epoch %d)", r.Epoch)
	case r.Epoch != s.Epoch:
		return nil, Row{}, store.Errorf(store.ErrConflict, "", "steal", s.Range.String(), "it is held under epoch %d, not %d", r.Epoch, s.Epoch)
	case t.Counter >= record.MaxNumber:
		return nil, Row{}, atEnd("steal")
	}
	f := Freed{Owner: r.Host.Owner, How: lease.HowForced, At: s.NowMS, Why: s.Why, By: s.By, SupersededTTLMS: r.Host.TTLMS}
	switch {
	case r.Host.Kind == lease.Session && (s.Sight == nil || !s.Sight.proves(r)):
		return nil, Row{}, store.Errorf(store.ErrInvalid, "", "steal", s.Range.String(),
			"a session holds it, whose process would not notice: end the session of node %q first, then steal", r.Host.Node)
	case r.Host.Kind == lease.Session:
		f.How, f.SupersededTTLMS = s.Sight.How, 0
	case s.Vouch:
		f.How, f.SupersededTTLMS = lease.HowVouched, 0
	}
	if err := f.valid(); err != nil {
		return nil, Row{}, store.Wrap(store.ErrInvalid, "", "steal", s.Range.String(), err)
	}
	next := t.next(s.Attempt)
	next.Rows = slices.Clone(t.Rows)
	row := r.end(s.Attempt, f)
	row.Attempt = r.Attempt // a foreign write leaves the holder's (ST9)
	i, _ := next.overlapping(s.Range)
	next.Rows[i] = row
	next.raise(t.Counter+1, s.Attempt)
	next, err := next.fit("steal", 0)
	return next, row, err
}

// Jump raises the counter to at least above (LS12). It gives nothing to anybody: rows keep
// their hosts and epochs. The very table means that there is nothing to do. A number
// without room above it is ErrInvalid.
func (t *Table) Jump(attempt string, above uint64) (*Table, error) {
	switch {
	case !record.IsID(attempt):
		return nil, invalid("jump", "the attempt %q is not an id", attempt)
	case above > record.MaxJump:
		return nil, invalid("jump", "%d leaves no room for later epochs: at most %d", above, uint64(record.MaxJump))
	case t.Counter >= above:
		return t, nil
	}
	next := t.next(attempt)
	next.raise(above, attempt)
	return next, nil
}

func atEnd(op string) error {
	return invalid(op, "the counter is at its end, %d", uint64(record.MaxNumber))
}

// Adoptable reports whether the holder of held, which meets now in the store instead, may
// go on from it: its own host, bounds and epoch, the last attempt one of its own, and no
// count fell (ST9).
func Adoptable(held, now *Row, mine func(attempt string) bool) bool {
	return held.Host.Is(now.Host) && now.Range == held.Range && now.Epoch == held.Epoch && mine(now.Attempt) && now.Renewal+1 >= held.Renewal
}
