package slots

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// The kinds of keys.
const (
	kindTable = "slots"
	kindRow   = "slots-row"
	kindHost  = "slots-host"
	kindPlan  = "slots-plan"
)

// files is where one table is kept.
type files struct {
	k        *kit.Client
	name     string
	tableKey string
	rows     string // what a row's key starts with
	hosts    string // what a host's key starts with
	planKey  string
	// form and birth are what the table had when it was opened: one made anew is another.
	form  core.Form
	birth string
	// limit bounds one store call.
	limit time.Duration
}

func newFiles(k *kit.Client, name string) (*files, error) {
	if err := store.CheckName("table", name); err != nil {
		return nil, err
	}
	return &files{
		k: k, name: name, tableKey: store.Key(k.Namespace, kindTable, name), rows: store.Key(k.Namespace, kindRow, name) + "/",
		hosts: store.Key(k.Namespace, kindHost, name) + "/", planKey: store.Key(k.Namespace, kindPlan, name), limit: k.Timing.Attempt,
	}, nil
}

func (f *files) rowKey(first uint16) string     { return f.rows + core.RowName(first) }
func (f *files) hostKey(owner string) string    { return f.hosts + store.EncodeName(owner) }
func (f *files) identity() string               { return f.k.Store.Info().Identity }
func (f *files) boot() time.Duration            { return f.k.Clock.Boot() }
func (f *files) bounded(d time.Duration) *files { own := *f; own.limit = d; return &own }
func (f *files) pace() settle.Pace {
	return settle.Pace{Clock: f.k.Clock, Attempt: f.limit, Backoff: max(f.limit/32, time.Millisecond), Rand: f.k.Rand}
}

func (f *files) get(ctx context.Context, key string, limit int) (store.Object, error) {
	call, cancel := settle.Limit(ctx, f.k.Clock, f.limit)
	defer cancel()
	return f.k.Store.Get(call, key, limit)
}

// look is what was read of a table: the part of it, and the versions that a decision about
// it rests on.
type look struct {
	table *core.Table
	ver   store.Version            // of the table's record
	rows  map[uint16]store.Version // of the rows by first slot, in the rows form
	at    time.Duration            // the boot clock after the last response
}

// head reads the table's record: of the rows form the counter, otherwise everything. fell is
// a *tenure.RegressedError if the counter is below what was seen before (LS12).
func (f *files) head(ctx context.Context) (l look, fell, err error) {
	seen := f.k.Seen(kindTable, f.name)
	o, err := f.get(ctx, f.tableKey, core.MaxTable)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			fell = seen(0)
		}
		return look{}, fell, err
	}
	l.at = f.boot()
	if l.table, err = core.DecodeTable(f.tableKey, f.name, o.Body); err != nil {
		return look{}, nil, err
	}
	l.ver = o.Version
	if f.birth != "" && l.table.Birth != f.birth {
		return look{}, nil, store.Errorf(store.ErrCorrupt, f.identity(), "read table", f.tableKey,
			"the table was made anew (born as %s, not %s): stop every host of the old one for the largest TTL, then open it again", l.table.Birth, f.birth)
	}
	return l, seen(l.table.Counter), nil
}

// mustHead is head for whoever acts on it.
func (f *files) mustHead(ctx context.Context) (look, error) {
	l, fell, err := f.head(ctx)
	switch {
	case fell != nil:
		return look{}, fell
	case errors.Is(err, store.ErrNotFound):
		return look{}, store.Errorf(store.ErrNotFound, f.identity(), "read table", f.tableKey, "there is no table %q: make it with slots.Create (tenure slots init %s)", f.name, f.name)
	}
	return l, err
}

// readPart reads the rows that overlap part, for a decision. The counter comes first:
// whoever makes a row later raises it, so that a write over it finds out. It takes no
// write lock (SL4).
func (f *files) readPart(ctx context.Context, part core.Range) (look, error) {
	for tries := 0; ; tries++ {
		l, err := f.mustHead(ctx)
		if err != nil || l.table.Form == core.RegisterForm {
			return l, err
		}
		found, err := f.scanPart(ctx, part)
		if err != nil {
			return look{}, err
		}
		l.at = f.boot()
		whole, err := f.assemble(&l, part, found)
		if err == nil {
			l.table = whole
			return l, nil
		}
		switch moved, unread := f.moved(ctx, l); {
		case unread != nil: // then nothing is known of any damage
			return look{}, unread
		case !moved:
			return look{}, err
		case tries == 3:
			return look{}, store.Errorf(store.ErrUnavailable, f.identity(), "read table", f.tableKey, "it changed each of %d times while it was read", tries+1)
		}
	}
}

// moved reports whether the counter is another by now: then rows that do not fit to it are
// no damage.
func (f *files) moved(ctx context.Context, l look) (bool, error) {
	again, err := f.mustHead(ctx)
	return err == nil && again.ver != l.ver, err
}

// assemble makes the table of the rows found, and notes their versions.
func (f *files) assemble(l *look, part core.Range, found []store.Keyed) (*core.Table, error) {
	rows := make([]core.Row, 0, len(found))
	l.rows = make(map[uint16]store.Version, len(found))
	for _, o := range found {
		first, err := f.firstOf(o.Key)
		if err != nil {
			return nil, err
		}
		r, err := l.table.DecodeRow(o.Key, first, o.Body)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
		l.rows[first] = o.Version
	}
	return core.Assemble(l.table, part, rows)
}

func (f *files) firstOf(key string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(key, f.rows), 10, 16)
	if err != nil || n > core.Last || f.rowKey(uint16(n)) != key {
		return 0, store.Errorf(store.ErrCorrupt, f.identity(), "read table", key, "no row is kept under such a key")
	}
	return uint16(n), nil
}

// scanPart finds the rows that may overlap part: those that begin in it, and the last that
// begins before.
func (f *files) scanPart(ctx context.Context, part core.Range) ([]store.Keyed, error) {
	if part == core.All {
		return f.scan(ctx, store.ScanRange{From: f.rows, To: store.PrefixEnd(f.rows), Most: core.Count})
	}
	found, err := f.scan(ctx, store.ScanRange{From: f.rows, To: f.rows + core.RowName(part.A+1), Backwards: true, Most: 1})
	if err != nil || part.A == part.B || len(found) == 1 && f.reaches(found[0], part.B) {
		return found, err
	}
	more, err := f.scan(ctx, store.ScanRange{From: f.rows + core.RowName(part.A+1), To: f.rows + core.RowName(part.B+1), Most: core.Count})
	return append(found, more...), err
}

// reaches reports whether a row goes on to last, so that no other begins before.
func (f *files) reaches(o store.Keyed, last uint16) bool {
	first, err := f.firstOf(o.Key)
	if err != nil {
		return false
	}
	r, err := f.decodeRow(o.Key, first, o.Body)
	return err == nil && r.Range.B >= last
}

func (f *files) scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	c, can := store.AsCommitter(f.k.Store)
	if !can {
		return nil, store.Errorf(store.ErrInvalid, f.identity(), "read table", f.tableKey, "the table has rows of its own, which this store cannot keep: it was made on another kind of store")
	}
	r.Limit = core.MaxRow
	call, cancel := settle.Limit(ctx, f.k.Clock, f.limit)
	defer cancel()
	return c.Scan(call, r)
}

// readAll reads the whole table for whoever only looks. The counter comes last, so that no
// row is above it.
func (f *files) readAll(ctx context.Context) (look, error) {
	if f.form == core.RegisterForm {
		return f.mustHead(ctx)
	}
	found, err := f.scanPart(ctx, core.All)
	if err != nil {
		return look{}, err
	}
	l, err := f.mustHead(ctx)
	if err != nil {
		return look{}, err
	}
	l.table, err = f.assemble(&l, core.All, found)
	return l, err
}

// readRow reads one row of the rows form; nil if there is none.
func (f *files) readRow(ctx context.Context, first uint16) (*core.Row, store.Version, error) {
	key := f.rowKey(first)
	o, err := f.get(ctx, key, core.MaxRow)
	if errors.Is(err, store.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	r, err := f.decodeRow(key, first, o.Body)
	return r, o.Version, err
}

func (f *files) decodeRow(key string, first uint16, body []byte) (*core.Row, error) {
	t := core.Table{Name: f.name, Birth: f.birth}
	r, err := t.DecodeRow(key, first, body)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// retryable reports whether a call that failed with err may succeed later.
func retryable(err error) bool {
	k := store.KindOf(err)
	return k == store.ErrUnavailable || k == store.ErrUnknown
}
