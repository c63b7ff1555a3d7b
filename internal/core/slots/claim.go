package slots

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Claim is what a host wants to own.
type Claim struct {
	// Ranges do not overlap each other.
	Ranges []Range
	// Host is the claimant.
	Host *Host
	// Floor is below every epoch that the claimant may be given: what it saw used where
	// epochs are checked, or the namespace's floor.
	Floor uint64
	// Sights are what the claimant saw dead, or watched long enough.
	Sights  []Sight
	Attempt string // fresh id of this write
	NowMS   int64  // wall clock, for people
}

// Claim returns the table with each range owned by the host where that may be, and an
// answer for each, in order (SL3). The host's own row of the same bounds keeps its epoch,
// if that is above the floor; its own after a restart, too, if it holds the lock of the
// row's volume. Otherwise the rows that overlap the range go, all of them being free or
// proven dead, and a new one has the epoch max(counter, floor) + 1. A row in the way is
// a *HeldError in the range's answer. The very table means that there is nothing to write:
// every range was refused, or is the session's already. Bad input is ErrInvalid, and
// so is a counter at its end.
func (t *Table) Claim(c Claim) (*Table, []Answer, error) {
	order, err := t.checkClaim(&c)
	if err != nil {
		return nil, nil, err
	}
	d := &draft{t: t, c: &c, counter: t.Counter, gone: make([]bool, len(t.Rows)), kept: map[int]Row{}, sights: make(map[State]*Sight, len(c.Sights))}
	for i := range c.Sights {
		d.sights[c.Sights[i].State] = &c.Sights[i]
	}
	answers := make([]Answer, len(c.Ranges))
	for _, k := range order {
		if answers[k], err = d.claim(c.Ranges[k]); err != nil {
			return nil, nil, err
		}
	}
	next := d.done()
	if next != t {
		if next, err = next.fit("claim", claimRoom); err != nil {
			return nil, nil, err
		}
	}
	return next, answers, nil
}

// checkClaim refuses bad input, and sorts the ranges.
func (t *Table) checkClaim(c *Claim) (order []int, err error) {
	switch {
	case !record.IsID(c.Attempt):
		return nil, invalid("claim", "the attempt %q is not an id", c.Attempt)
	case c.Floor > record.MaxJump: // one wrong number must not end the table for everybody
		return nil, invalid("claim", "the floor %d leaves no room for later epochs: at most %d", c.Floor, uint64(record.MaxJump))
	case c.NowMS < 0 || c.NowMS > record.MaxNumber:
		return nil, invalid("claim", "the time %d is out of bounds", c.NowMS)
	}
	if err := c.Host.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "claim", "", err)
	}
	c.Host = c.Host.copy() // what a table points to never changes
	for i := range c.Sights {
		if s := &c.Sights[i]; len(s.Evidence) > MaxEvidence || !utf8.ValidString(s.Evidence) || tooLong(s.Why) || tooLong(s.By) {
			return nil, invalid("claim", "a text of the sight of %v is too long or not UTF-8", s.State.Range)
		}
	}
	order = make([]int, len(c.Ranges))
	for i, r := range c.Ranges {
		if err := t.covers("claim", r); err != nil {
			return nil, err
		}
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(c.Ranges[a].A) - int(c.Ranges[b].A) })
	for i := 1; i < len(order); i++ {
		if a, b := c.Ranges[order[i-1]], c.Ranges[order[i]]; a.Overlaps(b) {
			return nil, invalid("claim", "the claimed ranges %v and %v overlap", a, b)
		}
	}
	return order, nil
}

// draft is a table while a claim of several ranges, in order, is decided: rows that go,
// rows that stay changed, and new ones.
type draft struct {
	t       *Table
	c       *Claim
	counter uint64
	gone    []bool
	kept    map[int]Row
	fresh   []Row
	sights  map[State]*Sight
}

func (d *draft) claim(want Range) (Answer, error) {
	var over []int
	i, j := d.t.overlapping(want)
	for ; i < j; i++ {
		if !d.gone[i] {
			over = append(over, i)
		}
	}
	own := -1
	if len(over) == 1 {
		if r := &d.t.Rows[over[0]]; r.Range == want && (r.Host.Is(d.c.Host) || r.Host.restarted(d.c.Host)) {
			own = over[0]
		}
	}
	if own >= 0 && d.t.Rows[own].Epoch > d.c.Floor {
		return d.keep(own)
	}
	if held := d.inTheWay(want, over, own); held != nil {
		return Answer{Err: held}, nil
	}
	return d.take(want, over, own)
}

// inTheWay is a *HeldError if a row of over is neither own nor free for the host nor
// proven dead.
func (d *draft) inTheWay(want Range, over []int, own int) error {
	var rows []Row
	for _, i := range over {
		if r := &d.t.Rows[i]; i != own && !d.mayGo(r) {
			rows = append(rows, *r)
		}
	}
	if rows == nil {
		return nil
	}
	return &HeldError{Range: want, Rows: rows}
}

func (d *draft) mayGo(r *Row) bool {
	if !r.Held() {
		if wait, _ := r.Wait(d.c.Host.Owner); wait == 0 {
			return true
		}
	}
	s := d.sights[r.State()]
	return s != nil && s.proves(r)
}

// keep lets the host go on with its row: one more sign of life, and after a restart
// another incarnation.
func (d *draft) keep(i int) (Answer, error) {
	r := &d.t.Rows[i]
	host := d.c.Host.watched(r.Host.TTLMS)
	if r.Host.equal(host) {
		host = r.Host
	}
	if host == r.Host && host.Kind == lease.Session {
		return Answer{Row: *r}, nil
	}
	row, err := r.alive(d.c.Attempt)
	if err != nil {
		return Answer{}, err
	}
	row.Host = host
	d.kept[i] = row
	return Answer{Row: row}, nil
}

// watched is the host with a TTL of at least ms: what rivals watch never becomes shorter
// while the slots stay the host's, for one of its processes may trust the longer one yet.
func (h *Host) watched(ms int64) *Host {
	if h.TTLMS >= ms {
		return h
	}
	longer := *h
	longer.TTLMS = ms
	return &longer
}

// take puts a new row in the place of those that overlap it.
func (d *draft) take(want Range, over []int, own int) (Answer, error) {
	base := max(d.counter, d.c.Floor)
	if base >= record.MaxNumber {
		return Answer{}, atEnd("claim")
	}
	d.counter = base + 1
	host := d.c.Host
	if own >= 0 {
		host = host.watched(d.t.Rows[own].Host.TTLMS)
	}
	row := Row{Range: want, Epoch: d.counter, Since: d.c.NowMS, Attempt: d.c.Attempt, Host: host, From: d.past(over, own)}
	for _, i := range over {
		d.gone[i] = true
	}
	d.fresh = append(d.fresh, row)
	return Answer{Row: row, Fresh: true}, nil
}

// past tells whom the rows of over were taken from.
func (d *draft) past(over []int, own int) []Past {
	var taken, free []Past
	for _, i := range over {
		r := &d.t.Rows[i]
		p := Past{Owner: r.Owner(), Epoch: r.Epoch, Rows: 1}
		switch s := d.sights[r.State()]; {
		case !r.Held():
			p.How, p.Why, p.By = r.Freed.How, r.Freed.Why, r.Freed.By
			free = tell(free, p)
			continue
		case i == own:
			p.How = HowRaised
		default:
			p.How, p.Evidence, p.Why, p.By = s.How, s.Evidence, s.Why, s.By
		}
		taken = tell(taken, p)
	}
	// Where not all can be told, it is those whom something was taken from, the latest
	// first.
	latest := func(a, b Past) int { return cmp.Compare(b.Epoch, a.Epoch) }
	slices.SortFunc(taken, latest)
	slices.SortFunc(free, latest)
	all := append(taken, free...)
	all = slices.Clip(all[:min(len(all), MaxPast)])
	slices.SortFunc(all, latest)
	return all
}

// tell adds p to those that fell in the same way.
func tell(all []Past, p Past) []Past {
	for i := range all {
		q := &all[i]
		if q.Owner == p.Owner && q.How == p.How && q.Why == p.Why && q.By == p.By && q.Evidence == p.Evidence {
			q.Epoch = max(q.Epoch, p.Epoch)
			q.Rows++
			return all
		}
	}
	return append(all, p)
}

// done is the table that was decided on.
func (d *draft) done() *Table {
	if len(d.kept) == 0 && len(d.fresh) == 0 {
		return d.t
	}
	next := d.t.next(d.c.Attempt)
	if d.counter != d.t.Counter {
		next.raise(d.counter, d.c.Attempt)
	}
	next.Rows = make([]Row, 0, len(d.t.Rows)+len(d.fresh))
	fresh := d.fresh
	for i := range d.t.Rows {
		if d.gone[i] {
			continue
		}
		for len(fresh) > 0 && fresh[0].Range.A < d.t.Rows[i].Range.A {
			next.Rows = append(next.Rows, fresh[0])
			fresh = fresh[1:]
		}
		if row, ok := d.kept[i]; ok {
			next.Rows = append(next.Rows, row)
		} else {
			next.Rows = append(next.Rows, d.t.Rows[i])
		}
	}
	next.Rows = append(next.Rows, fresh...)
	return next
}

// Clear returns the table without up to most of the free rows that overlap r and that me
// need not wait for, and how many went: a claim over more rows than a store changes at
// once begins with it. The counter stays, so no epoch comes again. The very table means
// that there is nothing to write. Bad input is ErrInvalid.
func (t *Table) Clear(r Range, me string, most int, attempt string) (*Table, int, error) {
	if err := t.covers("clear", r); err != nil {
		return nil, 0, err
	}
	if !record.IsID(attempt) {
		return nil, 0, invalid("clear", "the attempt %q is not an id", attempt)
	}
	n, rows := 0, make([]Row, 0, len(t.Rows))
	for i := range t.Rows {
		row := &t.Rows[i]
		if wait, _ := row.Wait(me); n < most && !row.Held() && wait == 0 && row.Range.Overlaps(r) {
			n++
			continue
		}
		rows = append(rows, *row)
	}
	if n == 0 {
		return t, 0, nil
	}
	next := t.next(attempt)
	next.Rows = rows
	return next, n, nil
}
