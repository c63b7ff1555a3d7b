package slots

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Form says where a table's rows are. It is fixed when the table is made.
type Form string

// The forms of a table.
const (
	// RowsForm keeps a record for each row beside that of the counter.
	RowsForm Form = "rows"
	// RegisterForm keeps everything in one record.
	RegisterForm Form = "register"
)

// Table is who owns which slots: a counter, and rows that never overlap (SL2). It may
// be only a part of one: the rows that overlap Part. A table is never changed;
// decisions return another that shares what did not change. Invariants, checked by
// Valid:
//
//  1. v, name, form, birth, created and writer attempt are set and within bounds;
//  2. the counter is at most 2^53-1;
//  3. every row is valid, and no row's epoch is above the counter;
//  4. rows are sorted by range and never overlap; each overlaps Part;
//  5. no two rows have the same epoch.
type Table struct {
	V    int
	Name string
	Form Form
	// Birth is drawn when the table is made: one made anew has another.
	Birth string
	// Created is the wall clock of whoever made it, unix milliseconds, for people.
	Created int64
	// Counter is the highest epoch ever given or reserved; it never falls.
	Counter uint64
	// Writer is the id of the write that made this state of the record (ST9); of a table
	// of rows, of the counter's.
	Writer string
	// Part says which slots the rows are of: every row that overlaps it is there. A
	// decision about other slots is refused.
	Part Range
	// Rows are sorted. They and what they point to are not to be changed.
	Rows []Row
}

// nothing is the Part of a table of which only the counter was read: no range is in it.
var nothing = Range{1, 0}

// New is an empty table whose epochs are above floor, the namespace's at its birth
// (LS12). attempt is the id of the write that makes it, and its birth; nowMS is the
// wall clock, unix milliseconds. Bad input is ErrInvalid.
func New(name string, form Form, floor uint64, attempt string, nowMS int64) (*Table, error) {
	t := &Table{V: record.Level, Name: name, Form: form, Birth: attempt, Created: nowMS, Counter: floor, Writer: attempt, Part: All}
	if err := t.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "new table", "", err)
	}
	return t, nil
}

// Assemble is the part of the table of counter that the rows are: counter is what
// DecodeCounter returned, and rows hold at least every row that overlaps part, in any
// order. Rows that together make no table are ErrCorrupt: a counter below a row's
// epoch among them (SL4).
func Assemble(counter *Table, part Range, rows []Row) (*Table, error) {
	t := *counter
	t.Part, t.Rows = part, nil
	for _, r := range rows {
		if r.Range.Overlaps(part) {
			t.Rows = append(t.Rows, r)
		}
	}
	slices.SortFunc(t.Rows, func(a, b Row) int { return int(a.Range.A) - int(b.Range.A) })
	if err := t.Valid(); err != nil {
		return nil, corrupt(t.Name, err)
	}
	return &t, nil
}

// Valid checks the invariants.
func (t *Table) Valid() error {
	if err := t.validHead(); err != nil {
		return err
	}
	if t.Part == nothing {
		if len(t.Rows) > 0 {
			return errors.New("it has rows of no part")
		}
		return nil
	}
	if err := t.Part.Valid(); err != nil {
		return err
	}
	seen, known := make(map[uint64]Range, len(t.Rows)), map[*Host]bool{}
	for i := range t.Rows {
		r := &t.Rows[i]
		if err := r.valid(known); err != nil {
			return err
		}
		twin, twice := seen[r.Epoch]
		switch {
		case r.Epoch > t.Counter:
			return fmt.Errorf("row %v has epoch %d, above the counter %d", r.Range, r.Epoch, t.Counter)
		case i > 0 && t.Rows[i-1].Range.B >= r.Range.A:
			return fmt.Errorf("rows %v and %v overlap or are out of order", t.Rows[i-1].Range, r.Range)
		case !r.Range.Overlaps(t.Part):
			return fmt.Errorf("row %v is not of the part %v", r.Range, t.Part)
		case twice:
			return fmt.Errorf("rows %v and %v both have epoch %d", twin, r.Range, r.Epoch)
		}
		seen[r.Epoch] = r.Range
	}
	return nil
}

func (t *Table) validHead() error {
	switch {
	case t.V < 1 || t.V > record.Level:
		return fmt.Errorf("format level %d", t.V)
	case t.Form != RowsForm && t.Form != RegisterForm:
		return fmt.Errorf("unknown form %q", t.Form)
	case !record.IsID(t.Birth):
		return fmt.Errorf("the birth %q is not an id", t.Birth)
	case !record.IsID(t.Writer):
		return fmt.Errorf("writer attempt %q is not an id", t.Writer)
	case t.Created < 0 || t.Created > record.MaxNumber:
		return fmt.Errorf("created %d is out of bounds", t.Created)
	case t.Counter > record.MaxNumber:
		return fmt.Errorf("counter %d is out of bounds", t.Counter)
	}
	return store.CheckName("table", t.Name)
}

// overlapping is the run of rows that overlap r: t.Rows[i:j].
func (t *Table) overlapping(r Range) (i, j int) {
	i = sort.Search(len(t.Rows), func(k int) bool { return t.Rows[k].Range.B >= r.A })
	j = i + sort.Search(len(t.Rows)-i, func(k int) bool { return t.Rows[i+k].Range.A > r.B })
	return i, j
}

// Overlapping are the rows that share a slot with r. They are not to be changed.
func (t *Table) Overlapping(r Range) []Row {
	i, j := t.overlapping(r)
	return t.Rows[i:j:j]
}

// RowOf is the row that has slot, nil if none has: it was never claimed, or lay in a
// row that went.
func (t *Table) RowOf(slot uint16) *Row {
	if i, j := t.overlapping(Range{slot, slot}); i < j {
		return &t.Rows[i]
	}
	return nil
}

// RowAt is the row with exactly these bounds, nil if there is none.
func (t *Table) RowAt(r Range) *Row {
	if i, j := t.overlapping(r); j == i+1 && t.Rows[i].Range == r {
		return &t.Rows[i]
	}
	return nil
}

// Admits reports whether a write to slot by owner under epoch is the present owner's.
func (t *Table) Admits(slot uint16, owner string, epoch uint64) bool {
	r := t.RowOf(slot)
	return r != nil && r.Held() && r.Host.Owner == owner && r.Epoch == epoch
}

// Change is what a decision changed, for a home that keeps each row by itself: by the
// first slot of a row.
type Change struct {
	// Counter reports whether the record of the counter is to be written.
	Counter bool
	// Put are the rows to be written; one with the first slot of a former row takes its
	// place.
	Put []Row
	// Remove are the former rows whose first slot no row has any more.
	Remove []Range
}

// None reports whether there is nothing to write.
func (c Change) None() bool { return !c.Counter && len(c.Put) == 0 && len(c.Remove) == 0 }

// Diff is what a decision that turned before into after changed.
func Diff(before, after *Table) Change {
	c := Change{Counter: before.Counter != after.Counter}
	if before == after {
		return c
	}
	old, now := before.Rows, after.Rows
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].Range.A < now[0].Range.A:
			c.Remove = append(c.Remove, old[0].Range)
			old = old[1:]
		case len(old) == 0 || now[0].Range.A < old[0].Range.A:
			c.Put = append(c.Put, now[0])
			now = now[1:]
		default:
			if !old[0].same(&now[0]) {
				c.Put = append(c.Put, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
	return c
}

// same reports whether r and o are the same state of a row: decisions share what they
// do not change.
func (r *Row) same(o *Row) bool {
	return r.Range == o.Range && r.Epoch == o.Epoch && r.Renewal == o.Renewal && r.Since == o.Since && r.Attempt == o.Attempt &&
		r.Host == o.Host && r.Freed == o.Freed && len(r.From) == len(o.From) && (len(r.From) == 0 || &r.From[0] == &o.From[0])
}

func corrupt(key string, cause error) error {
	e := store.Wrap(store.ErrCorrupt, "", "read table", key, cause)
	e.Detail = "stop and look: two hosts could be given one epoch; see docs/design/0009-slots.md"
	return e
}
