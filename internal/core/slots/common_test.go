package slots

import (
	"fmt"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// id is a valid id that tells n.
func id(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", n, n) }

const ttlMS = 30_000

// self is one start of a host that renews its own rows.
func self(owner string, start int) *Host {
	return &Host{Owner: owner, Kind: lease.Self, Incarnation: id(start), TTLMS: ttlMS, Addr: owner + ":80"}
}

// sessionHost is one start of a host that hangs on a session.
func sessionHost(owner string, start int) *Host {
	return &Host{Owner: owner, Kind: lease.Session, Incarnation: id(start), Node: "node-" + owner, Term: uint64(start), TTLMS: ttlMS, Addr: owner + ":80"}
}

// on is the host with the lock of a volume.
func (h *Host) on(volume int) *Host {
	c := h.copy()
	c.Volume = &Volume{ID: id(volume), Mark: store.Mark{Boot: id(9), Dev: 2049, Inode: uint64(volume)}}
	return c
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// desk decides about one table, for tests that tell a story.
type desk struct {
	t  testing.TB
	at *Table
	n  int
}

func newDesk(t testing.TB, form Form) *desk {
	return &desk{t: t, at: must(New("orders", form, 0, id(1), 1))}
}

func (d *desk) attempt() string { d.n++; return id(1000 + d.n) }

// claim claims one range, and sees that the table stays as it is after a refusal.
func (d *desk) claim(h *Host, r Range, floor uint64, sights ...Sight) (Answer, error) {
	d.t.Helper()
	next, answers, err := d.at.Claim(Claim{Ranges: []Range{r}, Host: h, Floor: floor, Sights: sights, Attempt: d.attempt(), NowMS: 1000})
	if err != nil {
		d.t.Fatal(err)
	}
	if answers[0].Err != nil && next != d.at {
		d.t.Fatal("a refused claim changed the table")
	}
	d.set(next)
	return answers[0], answers[0].Err
}

func (d *desk) got(h *Host, r Range, floor uint64, sights ...Sight) Row {
	d.t.Helper()
	a, err := d.claim(h, r, floor, sights...)
	if err != nil {
		d.t.Fatal(err)
	}
	return a.Row
}

func (d *desk) renew(h *Host, r Range, epoch uint64) error {
	d.t.Helper()
	next, answers, err := d.at.Renew(Renewal{Host: h, Holds: []Hold{{Range: r, Epoch: epoch}}, Attempt: d.attempt()})
	if err != nil {
		d.t.Fatal(err)
	}
	if answers[0].Err != nil && next != d.at {
		d.t.Fatal("a refused renewal changed the table")
	}
	d.set(next)
	return answers[0].Err
}

func (d *desk) release(h *Host, r Range, epoch uint64, successor string, hold int64) error {
	d.t.Helper()
	next, answers, err := d.at.Release(Release{Host: h, Holds: []Hold{{Range: r, Epoch: epoch}}, Successor: successor, HoldMS: hold, Attempt: d.attempt(), NowMS: 2000})
	if err != nil {
		d.t.Fatal(err)
	}
	if answers[0].Err != nil && next != d.at {
		d.t.Fatal("a refused release changed the table")
	}
	d.set(next)
	return answers[0].Err
}

func (d *desk) set(next *Table) {
	d.t.Helper()
	if err := next.Valid(); err != nil {
		d.t.Fatal(err)
	}
	d.at = next
}

// sight is what a rival proves after it watched the row of slot for as long as it must.
func (d *desk) sight(slot uint16) Sight {
	return Sight{State: d.at.RowOf(slot).State(), How: lease.HowObserved}
}

func r(a, b uint16) Range { return Range{a, b} }
