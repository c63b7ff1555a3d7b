package slots

import (
	"context"
	"errors"
	"strings"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// View is what a table says at one instant. It is not to be changed.
type View struct {
	// Table is its name, Form where its rows are.
	Table string
	Form  Form
	// Birth is fresh for each making of the table; CreatedMS is the wall clock of its
	// maker in unix milliseconds, for people.
	Birth     string
	CreatedMS int64
	// Counter is the highest epoch ever given.
	Counter uint64
	// Rows are sorted by range. A row that is held may have lapsed.
	Rows []Row
	// Plan is which owner each shard is meant for; nil if there is none.
	Plan *Plan
	// Hosts are what hosts announced of themselves, by owner.
	Hosts []Announced
}

// RowOf is the row that has slot, nil if none has.
func (v *View) RowOf(slot uint16) *Row {
	t := core.Table{Rows: v.Rows}
	return t.RowOf(slot)
}

// Read reads the table, its plan and what hosts announced. It takes no write lock, and rows
// and counter fit together; plan and announcements are read after them.
func (t *Table) Read(ctx context.Context) (View, error) {
	l, err := t.readAll(ctx)
	if err != nil {
		return View{}, err
	}
	v := View{
		Table: t.name, Form: t.form, Birth: t.birth, CreatedMS: l.table.Created, Counter: l.table.Counter, Rows: l.table.Rows,
	}
	if v.Plan, err = t.Plan(ctx); err != nil {
		return View{}, err
	}
	v.Hosts, err = t.Announced(ctx)
	return v, err
}

// Announced are what hosts tell of themselves, by owner (SL8). A host that is gone may be
// among them.
func (t *Table) Announced(ctx context.Context) ([]Announced, error) { return t.announced(ctx) }

func (f *files) announced(ctx context.Context) ([]Announced, error) {
	found, err := f.announcements(ctx)
	if err != nil {
		return nil, err
	}
	var all []Announced
	for _, o := range found {
		if a := f.decodeAnnounce(o.Key, o.Body); a != nil && a.Birth == f.birth {
			all = append(all, *a)
		}
	}
	return all, nil
}

// decodeAnnounce is the announcement; nil if it cannot be read. That of one host, of a newer
// program perhaps, holds up nobody else.
func (f *files) decodeAnnounce(key string, body []byte) *core.Announce {
	a, err := core.DecodeAnnounce(key, f.name, body, f.hostKey)
	if err != nil {
		f.k.Log.Warn("slots: an announcement cannot be read, it is left out", "table", f.name, "key", key, "error", err)
		return nil
	}
	return a
}

// announcements are the records, in one request where the store can scan.
func (f *files) announcements(ctx context.Context) ([]store.Keyed, error) {
	if c, can := store.AsCommitter(f.k.Store); can {
		call, cancel := settle.Limit(ctx, f.k.Clock, f.limit)
		defer cancel()
		return c.Scan(call, store.ScanRange{From: f.hosts, To: store.PrefixEnd(f.hosts), Most: store.MaxScan, Limit: core.MaxAnnounce})
	}
	var all []store.Keyed
	for key, err := range settle.Keys(ctx, f.k.Store, f.k.Clock, f.limit, f.hosts, "") {
		if err != nil {
			return nil, err
		}
		o, err := f.get(ctx, key, core.MaxAnnounce)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, store.Keyed{Key: key, Object: o})
	}
	return all, nil
}

// StealOptions say which ownership an operator ends, and why.
type StealOptions struct {
	// Range and Epoch are those of the ownership that is meant.
	Range Range
	Epoch uint64
	// Why is kept in the row; required. By is who did it; the client's label if empty.
	Why, By string
	// Vouch says that you know the host to be gone: the range may be claimed at once.
	// Otherwise everybody waits the superseded TTL first.
	Vouch bool
}

// Steal ends an ownership whether or not its host lives (LS11): the host's next renewal
// fails. A row of a session is freed only once that session is over: end the session
// first. Another epoch, or a free row, is ErrConflict.
func (t *Table) Steal(ctx context.Context, o StealOptions) (Row, error) {
	if o.By == "" {
		o.By = t.k.Label
	}
	if err := errors.Join(o.Range.Valid(), lease.CheckWhy("reason", o.Why), lease.CheckWhy("operator", o.By)); err != nil || strings.TrimSpace(o.Why) == "" {
		return Row{}, invalid("steal", o.Range.String(), "a range and a reason are required, which is kept: %v", err)
	}
	var row core.Row
	_, err := t.change(ctx, o.Range, func(now *core.Table, attempt string, doubted bool, fell error) (*core.Table, error) {
		if fell != nil {
			return nil, fell
		}
		r := now.RowAt(o.Range)
		if doubted && r != nil && !r.Held() && r.Epoch == o.Epoch && r.Freed.Why == o.Why && r.Freed.By == o.By {
			row = *r // it was this one, whose answer was lost
			return now, nil
		}
		theft := core.Theft{Range: o.Range, Epoch: o.Epoch, Why: o.Why, By: o.By, NowMS: t.k.NowMS(), Vouch: o.Vouch, Attempt: attempt}
		if r != nil && r.Held() && r.Host.Kind == lease.Session {
			sight, err := t.over(ctx, r)
			if err != nil {
				return nil, err
			}
			theft.Sight = sight
		}
		next, freed, err := now.Steal(theft)
		row = freed
		return next, err
	})
	if err != nil {
		return Row{}, err
	}
	return row, nil
}

// over is the proof that the session of a row is over; nil if there is none.
func (t *Table) over(ctx context.Context, r *core.Row) (*core.Sight, error) {
	if r.Host.Kind != lease.Session {
		return nil, nil
	}
	e, _, err := t.k.Identities.Over(ctx, r.Host.Node, identity.Owner{Incarnation: r.Host.Incarnation, Term: r.Host.Term})
	switch {
	case errors.Is(err, tenure.ErrMissingEvidence):
		return nil, nil
	case e == nil || err != nil:
		return nil, err
	}
	return &core.Sight{State: r.State(), How: e.How, Evidence: e.Cite, Why: e.Why, By: e.By}, nil
}

// Jump raises the table's counter to at least above, so that every later epoch is higher
// (LS12): after a restore, give more than anything has seen. It gives nothing to anybody,
// and holders keep their ranges. changed is false if the counter was as high.
func (t *Table) Jump(ctx context.Context, above uint64) (changed bool, err error) {
	_, err = t.change(ctx, core.Range{}, func(now *core.Table, attempt string, _ bool, fell error) (*core.Table, error) {
		if e := (*tenure.RegressedError)(nil); errors.As(fell, &e) && above < e.Seen {
			return nil, invalid("jump", t.tableKey, "this host has seen epoch counter %d of table %q: give at least that, not %d", e.Seen, t.name, above)
		}
		next, err := now.Jump(attempt, above)
		changed = changed || err == nil && next != now
		return next, err
	})
	return changed && err == nil, err
}

// JumpAll is [Table.Jump] of every table in c's namespace, beside tenure.Client.JumpAll,
// which raises the floor that new tables begin above. It goes on past tables that it
// cannot raise and returns their errors joined.
func JumpAll(ctx context.Context, c *tenure.Client, above uint64) (raised int, err error) {
	var errs []error
	for name, err := range Tables(ctx, c) {
		var changed bool
		if err == nil {
			changed, err = JumpTable(ctx, c, name, above)
		}
		if changed {
			raised++
		}
		errs = append(errs, err)
	}
	return raised, errors.Join(errs...)
}

// JumpTable is [Table.Jump] of a table that may show less than was seen, which Open
// refuses.
func JumpTable(ctx context.Context, c *tenure.Client, name string, above uint64) (bool, error) {
	t, err := openFallen(ctx, c, name)
	if err != nil {
		return false, err
	}
	return t.Jump(ctx, above)
}

// openFallen opens a table also if its counter fell.
func openFallen(ctx context.Context, c *tenure.Client, name string) (*Table, error) {
	f, err := newFiles(c.Kit(), name)
	if err != nil {
		return nil, err
	}
	l, _, err := f.head(ctx)
	if err != nil {
		return nil, err
	}
	f.form, f.birth = l.table.Form, l.table.Birth
	return &Table{files: f, c: c}, nil
}
