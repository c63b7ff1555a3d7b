package slots

import (
	"context"
	"errors"
	"iter"
	"strings"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
	"time"
)

// Table is one table of slots in a client's namespace. It holds nothing between calls, and
// is safe for concurrent use; the client is the caller's to close.
type Table struct {
	*files
	c *tenure.Client
}

// Option sets something of a new table.
type Option func(*making)

type making struct {
	form   core.Form
	shards []core.Shard
	err    error
}

// Register keeps the table in one record, also on a store that could keep its rows by
// themselves.
func Register() Option { return func(m *making) { m.form = core.RegisterForm } }

// Shards cuts the slots into n shards of equal size, 1 to Count, which a balancer moves
// (SL8).
func Shards(n int) Option {
	return func(m *making) {
		if n < 1 || n > Count {
			m.err = invalid("create table", "", "%d shards: give 1 to %d", n, Count)
			return
		}
		for i := range n {
			m.shards = append(m.shards, core.Shard{Range: Range{A: uint16(i * Count / n), B: uint16((i+1)*Count/n - 1)}})
		}
	}
}

// ShardRanges are the shards that a balancer moves (SL8): ranges that do not overlap.
func ShardRanges(ranges ...Range) Option {
	return func(m *making) {
		for _, r := range ranges {
			m.shards = append(m.shards, core.Shard{Range: r})
		}
	}
}

// Create makes the table, whose epochs are above the namespace's floor. Where the store
// commits several keys at once and can scan them, each row is kept by itself, otherwise
// the table is one record. A table of that name and of the form that is asked for is
// opened as it is, with its first plan made if it has none; one of another form, or with
// other shards, is ErrExists. Bad input is ErrInvalid.
func Create(ctx context.Context, c *tenure.Client, name string, opts ...Option) (*Table, error) {
	f, err := newFiles(c.Kit(), name)
	if err != nil {
		return nil, err
	}
	m := &making{}
	for _, o := range opts {
		o(m)
	}
	if err := m.check(f); err != nil {
		return nil, err
	}
	t, err := f.create(ctx, m.form)
	if err != nil {
		return nil, err
	}
	if m.form != "" && t.Form != m.form {
		return nil, store.Errorf(store.ErrExists, f.identity(), "create table", f.tableKey, "there is a table %q of the form %q", name, t.Form)
	}
	f.form, f.birth = t.Form, t.Birth
	if m.shards != nil {
		if err := f.firstPlan(ctx, t, m.shards); err != nil {
			return nil, err
		}
	}
	return &Table{files: f, c: c}, nil
}

func (m *making) check(f *files) error {
	if m.err != nil {
		return m.err
	}
	if m.shards == nil {
		return nil
	}
	id := f.k.NewID()
	p := core.Plan{V: record.Level, Table: f.name, Birth: id, Seq: 1, Shards: sorted(m.shards), Attempt: id}
	if err := p.Valid(); err != nil {
		return store.Wrap(store.ErrInvalid, "", "create table", f.tableKey, err)
	}
	return nil
}

// create makes the table's record, or finds it.
func (f *files) create(ctx context.Context, form core.Form) (*core.Table, error) {
	if form == "" {
		form = core.RegisterForm
		if _, can := store.AsCommitter(f.k.Store); can {
			form = core.RowsForm
		}
	}
	ctx, cancel := settle.Limit(ctx, f.k.Clock, 2*f.k.Timing.TTL)
	defer cancel()
	for {
		l, fell, err := f.head(ctx)
		if fell != nil && !f.outlived(ctx, fell, err) {
			return nil, fell
		}
		if err == nil || !errors.Is(err, store.ErrNotFound) {
			return l.table, err
		}
		t, err := f.createOnce(ctx, form)
		if !errors.Is(err, store.ErrExists) {
			return t, err
		}
	}
}

// outlived reports whether a table that is gone, as err says, may be made anew although fell
// says that it was seen: the namespace's floor was raised above all its epochs (LS12).
func (f *files) outlived(ctx context.Context, fell, err error) bool {
	e := (*tenure.RegressedError)(nil)
	if !errors.Is(err, store.ErrNotFound) || !errors.As(fell, &e) {
		return false
	}
	floor, err := f.k.Floor(ctx)
	return err == nil && floor >= e.Seen
}

// createOnce makes the table where none is. The floor is read once the table is found
// absent, and again once it is there: who raised it in between did not see the table.
func (f *files) createOnce(ctx context.Context, form core.Form) (*core.Table, error) {
	floor, err := f.k.Floor(ctx)
	if err != nil {
		return nil, err
	}
	id := f.k.NewID()
	t, err := core.New(f.name, form, floor, id, f.k.NowMS())
	if err != nil {
		return nil, err
	}
	body, err := t.Encode()
	if err != nil {
		return nil, err
	}
	_, err = settle.Do(ctx, f.k.Store, settle.Write{Key: f.tableKey, Body: body, Limit: core.MaxTable, Mine: func(b []byte) bool {
		now, err := core.DecodeTable(f.tableKey, f.name, b)
		return err == nil && now.Birth == id
	}}, f.pace())
	if err != nil {
		return nil, err
	}
	if floor, err = f.k.Floor(ctx); err != nil {
		return nil, err
	}
	if floor <= t.Counter {
		return t, nil
	}
	return f.change(ctx, core.Range{}, func(t *core.Table, attempt string, _ bool, _ error) (*core.Table, error) {
		return t.Jump(attempt, floor)
	})
}

// Open opens a table that there is; an absent one is ErrNotFound (SL2): an empty one in its
// place would give its epochs again.
func Open(ctx context.Context, c *tenure.Client, name string) (*Table, error) {
	f, err := newFiles(c.Kit(), name)
	if err != nil {
		return nil, err
	}
	l, err := f.mustHead(ctx)
	if err != nil {
		return nil, err
	}
	f.form, f.birth = l.table.Form, l.table.Birth
	return &Table{files: f, c: c}, nil
}

// Name is the table's name.
func (t *Table) Name() string { return t.name }

// Form is where the table's rows are.
func (t *Table) Form() Form { return t.form }

// Tables yields the names of the tables in c's namespace, in the order of their keys. One
// that cannot be read is yielded as an error, and the listing goes on.
func Tables(ctx context.Context, c *tenure.Client) iter.Seq2[string, error] {
	k := c.Kit()
	return func(yield func(string, error) bool) {
		prefix := store.Prefix(k.Namespace, kindTable)
		for key, err := range settle.Keys(ctx, k.Store, k.Clock, k.Timing.Attempt, prefix, "") {
			if err != nil {
				yield("", err)
				return
			}
			name, err := tableOf(ctx, k, key, strings.TrimPrefix(key, prefix))
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if !yield(name, err) {
				return
			}
		}
	}
}

// tableOf is the table of a key: of a long name only the record tells it.
func tableOf(ctx context.Context, k *kit.Client, key, element string) (string, error) {
	name, exact, err := store.DecodeName(element)
	if err != nil || exact {
		return name, err
	}
	call, cancel := settle.Limit(ctx, k.Clock, k.Timing.Attempt)
	defer cancel()
	o, err := k.Store.Get(call, key, core.MaxTable)
	if err != nil {
		return "", err
	}
	t, err := core.DecodeAnyTable(key, o.Body)
	if err != nil {
		return "", err
	}
	if store.Key(k.Namespace, kindTable, t.Name) != key {
		return "", store.Errorf(store.ErrCorrupt, "", "read table", key, "the record says it is of table %q, which has another key", t.Name)
	}
	return t.Name, nil
}

// pause waits about d and reports whether ctx still lives.
func (f *files) pause(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(f.k.Clock, f.pace().Jitter(d), ctx.Done())
}

// regressed is err if it says that a counter fell.
func regressed(err error) error {
	if errors.Is(err, tenure.ErrRegressed) {
		return err
	}
	return nil
}
