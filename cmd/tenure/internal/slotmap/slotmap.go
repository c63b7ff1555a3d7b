// Package slotmap draws who owns which slots of a table (SL1): as an SVG picture, and as
// text for a terminal. It reads no store and no clock: the same map is drawn to the same
// bytes.
package slotmap

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Slots is how many slots a table has (SL1).
const Slots = 1 << 14

// State is what a row says of its slots.
type State string

// The states of a row.
const (
	// Held: a host owns them, which does not prove that it lives.
	Held State = "held"
	// Free: anybody may claim them.
	Free State = "free"
	// Kept: they are free for one successor first.
	Kept State = "kept"
	// Watched: they were ended by force, and everybody waits before a claim.
	Watched State = "watched"
)

// Row is a run of slots, both ends included.
type Row struct {
	First, Last int
	State       State
	// Owner holds them, or is the successor that they are kept for; Addr is its address.
	// Both are printed as they are: the caller has made them safe for people.
	Owner, Addr string
	Epoch       uint64
}

func (r *Row) slots() int { return r.Last - r.First + 1 }

// Map is a table at one instant. Slots that no row has are free.
type Map struct {
	// Table and Namespace are its names, At is when it was read.
	Table, Namespace string
	At               time.Time
	// Counter is the highest epoch ever given.
	Counter uint64
	// Rows are sorted and do not overlap.
	Rows []Row
}

// Share is what one owner holds.
type Share struct {
	// Owner is its name, Addr the address of its first row.
	Owner, Addr string
	// Slots and Ranges count what it holds, Low and High are the epochs of it.
	Slots, Ranges int
	Low, High     uint64
}

// Shares are the owners of held rows, who holds most first.
func (m *Map) Shares() []Share {
	at := map[string]int{}
	var all []Share
	for i := range m.Rows {
		r := &m.Rows[i]
		if r.State != Held {
			continue
		}
		k, known := at[r.Owner]
		if !known {
			k = len(all)
			at[r.Owner] = k
			all = append(all, Share{Owner: r.Owner, Addr: r.Addr, Low: r.Epoch})
		}
		s := &all[k]
		s.Slots += r.slots()
		s.Ranges++
		s.Low, s.High = min(s.Low, r.Epoch), max(s.High, r.Epoch)
	}
	slices.SortFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Slots, a.Slots), naturally(a.Owner, b.Owner))
	})
	return all
}

// naturally compares names as people count: host-2 is before host-10.
func naturally(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m > 0 && n > 0 {
			p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many decimal digits text begins with.
func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}

// Count is how many slots are in the state; those without a row are Free.
func (m *Map) Count(state State) int {
	n, rest := 0, Slots
	for i := range m.Rows {
		r := &m.Rows[i]
		rest -= r.slots()
		if r.State == state {
			n += r.slots()
		}
	}
	if state == Free {
		n += rest
	}
	return n
}

// ranges counts the held rows.
func (m *Map) ranges() int {
	n := 0
	for i := range m.Rows {
		if m.Rows[i].State == Held {
			n++
		}
	}
	return n
}

// owners is the holder of each slot; "" for one that nobody holds.
func (m *Map) owners() *[Slots]string {
	var all [Slots]string
	for i := range m.Rows {
		if r := &m.Rows[i]; r.State == Held {
			for s := r.First; s <= r.Last; s++ {
				all[s] = r.Owner
			}
		}
	}
	return &all
}
