package slots

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/tenure-project/tenure/internal/record"
)

// claimRoom is how many bytes of a register claims leave free, so that what is owned can
// be renewed, released and stolen whatever claims filled the table with.
const claimRoom = 3 << 19

// fit is a changed table that may be written with room bytes left free. If need be the
// oldest rows forget whom they were taken from and what an operator said, for history
// blocks nothing; what is left and too long is ErrInvalid.
func (t *Table) fit(op string, room int) (*Table, error) {
	limit := MaxTable - room
	if t.Form != RegisterForm || t.atMost() <= limit || t.size() <= limit {
		return t, nil
	}
	next := *t
	next.Rows = slices.Clone(t.Rows)
	order := make([]*Row, len(next.Rows))
	for i := range next.Rows {
		order[i] = &next.Rows[i]
	}
	slices.SortFunc(order, func(a, b *Row) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for _, forget := range []func(*Row) bool{forgetFormer, forgetWords} {
		for rest := order; len(rest) > 0; {
			half := (len(rest) + 1) / 2
			forgot := false
			for _, r := range rest[:half] {
				forgot = forget(r) || forgot
			}
			if rest = rest[half:]; forgot && next.size() <= limit {
				return &next, nil
			}
		}
	}
	return nil, invalid(op, "the table would have %d bytes, at most %d fit: use wider ranges, or fewer hosts with shorter names and addresses", next.size(), limit)
}

func forgetFormer(r *Row) bool {
	had := r.From != nil
	r.From = nil
	return had
}

func forgetWords(r *Row) bool {
	if r.Freed == nil || r.Freed.Why == "" && r.Freed.By == "" {
		return false
	}
	f := *r.Freed
	f.Why, f.By = "", ""
	r.Freed = &f
	return true
}

func (t *Table) size() int { return record.Size(t.pack()) }

// What a record, a host and a list of numbers take besides their texts and numbers, at
// most: names of fields, ids, signs. TestAtMost holds them to it.
const (
	frameOfTable = 1500
	frameOfHost  = 400
	frameOfList  = 12
)

// atMost is no less than the table's size, and cheaper: it counts every byte of a text as
// the most that JSON makes of one, and a text again unless the row before has it.
func (t *Table) atMost() int {
	n := frameOfTable
	places := digits(uint64(len(t.Rows)) * (2 + 5*MaxPast)) // no place of a text is above it
	var attempt, evidence string
	hosts := map[*Host]struct{}{}
	for i := range t.Rows {
		r := &t.Rows[i]
		n += frameOfList + 10 + digits(r.Epoch) + digits(r.Renewal) + digits(uint64(r.Since)) + 2*places
		if r.Attempt != attempt {
			attempt = r.Attempt
			n += len(attempt) + 3
		}
		if _, known := hosts[r.Host]; r.Host != nil && !known {
			hosts[r.Host] = struct{}{}
			n += frameOfHost + 6*(len(r.Host.Owner)+len(r.Host.Node)+len(r.Host.Addr))
			if v := r.Host.Volume; v != nil {
				n += 6 * (len(v.ID) + len(v.Boot))
			}
		}
		if f := r.Freed; f != nil {
			n += frameOfList + 5*(places+3) + digits(uint64(f.At)) + digits(uint64(f.HoldMS)) + digits(uint64(f.SupersededTTLMS)) +
				6*(len(f.Owner)+len(f.How)+len(f.Successor)+len(f.Why)+len(f.By))
		}
		for j := range r.From {
			p := &r.From[j]
			n += frameOfList + 5*(places+3) + digits(p.Epoch) + digits(uint64(p.Rows)) + 6*(len(p.Owner)+len(p.How)+len(p.Why)+len(p.By))
			if p.Evidence != evidence {
				evidence = p.Evidence
				n += 6*len(evidence) + 3
			}
		}
	}
	return n
}

// digits is at least how many decimal digits n has.
func digits(n uint64) int { return bits.Len64(n)*1233>>12 + 1 }
