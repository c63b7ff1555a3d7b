package slots

import (
	"context"
	"maps"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// decision is a state of the table that is to follow the one that was read.
type decision struct {
	before  look
	after   *core.Table
	attempt string
}

// write makes a decision true, or finds out that it is not, until ctx ends (ST9). Package
// settle repeats it where that may be done. next is what stands then, if the answer came
// back; ok is false where it must be read: others may have changed it since.
func (f *files) write(ctx context.Context, d decision) (next look, ok bool, res settle.Result, err error) {
	if d.before.table.Form == core.RegisterForm {
		return f.writeRegister(ctx, d)
	}
	return f.writeRows(ctx, d)
}

func (f *files) writeRegister(ctx context.Context, d decision) (next look, ok bool, res settle.Result, err error) {
	body, err := d.after.Encode()
	if err != nil {
		return look{}, false, settle.Result{Outcome: settle.Rejected}, err
	}
	res, err = settle.Do(ctx, f.k.Store, settle.Write{
		Key: f.tableKey, Body: body, Over: d.before.ver, Limit: core.MaxTable,
		Mine: func(b []byte) bool { return f.wrote(b, d.attempt) },
	}, f.pace())
	return look{table: d.after, ver: res.Version, at: f.boot()}, err == nil && res.Found == nil, res, err
}

// wrote reports whether the record of a table shows that the write attempt took effect: it
// was the last, or a row is as it left it.
func (f *files) wrote(body []byte, attempt string) bool {
	t, err := core.DecodeTable(f.tableKey, f.name, body)
	if err != nil {
		return false
	}
	if t.Writer == attempt {
		return true
	}
	for i := range t.Rows {
		if t.Rows[i].Attempt == attempt {
			return true
		}
	}
	return false
}

// writeRows commits what the decision changed. One key stands for the whole commit: it
// shows whether the commit took effect as long as nobody else changed it since.
func (f *files) writeRows(ctx context.Context, d decision) (next look, ok bool, res settle.Result, err error) {
	changes, w, err := f.changes(d)
	if err != nil {
		return look{}, false, settle.Result{Outcome: settle.Rejected}, err
	}
	c, _ := store.AsCommitter(f.k.Store)
	all := &commit{Store: f.k.Store, c: c, key: w.Key, changes: changes}
	res, err = settle.Do(ctx, all, w, f.pace())
	if err != nil || res.Found != nil {
		return look{}, false, res, err
	}
	next = look{table: d.after, ver: d.before.ver, rows: maps.Clone(d.before.rows), at: f.boot()}
	for i, ch := range changes {
		switch {
		case ch.Key == f.tableKey:
			next.ver = all.made[i]
		case ch.Do == store.Remove:
			first, _ := f.firstOf(ch.Key)
			delete(next.rows, first)
		default:
			first, _ := f.firstOf(ch.Key)
			next.rows[first] = all.made[i]
		}
	}
	return next, true, res, nil
}

// changes are those of the commit, and the write that stands for it.
func (f *files) changes(d decision) (all []store.Change, w settle.Write, err error) {
	diff := core.Diff(d.before.table, d.after)
	for i := range diff.Put {
		r := &diff.Put[i]
		body, err := d.after.EncodeRow(r)
		if err != nil {
			return nil, w, err
		}
		key, first := f.rowKey(r.Range.A), r.Range.A
		ch := store.Change{Key: key, Over: d.before.rows[first], Body: body}
		all = append(all, ch)
		if w.Key == "" && r.Attempt == d.attempt {
			w = settle.Write{Key: key, Over: ch.Over, Body: body, Limit: core.MaxRow, Mine: func(b []byte) bool {
				now, err := f.decodeRow(key, first, b)
				return err == nil && now.Attempt == d.attempt
			}}
		}
	}
	if diff.Counter {
		body, err := d.after.Encode()
		if err != nil {
			return nil, w, err
		}
		ch := store.Change{Key: f.tableKey, Over: d.before.ver, Body: body}
		all = append(all, ch)
		if w.Key == "" {
			w = settle.Write{Key: f.tableKey, Over: ch.Over, Body: body, Limit: core.MaxTable, Mine: func(b []byte) bool { return f.wrote(b, d.attempt) }}
		}
	}
	for _, r := range diff.Remove {
		ch := store.Change{Key: f.rowKey(r.A), Over: d.before.rows[r.A], Do: store.Remove}
		all = append(all, ch)
		if w.Key == "" { // gone is gone, whoever did it: the next decision finds out
			w = settle.Write{Key: ch.Key, Over: ch.Over, Limit: core.MaxRow, Mine: func([]byte) bool { return false }}
		}
	}
	return all, w, nil
}

// size is how many changes a commit of the decision has.
func (d decision) size() int {
	diff := core.Diff(d.before.table, d.after)
	n := len(diff.Put) + len(diff.Remove)
	if diff.Counter {
		n++
	}
	return n
}

// commit is a store whose conditional write of one key is a whole commit, so that package
// settle stays the one place that repeats a write.
type commit struct {
	store.Store
	c       store.Committer
	key     string
	changes []store.Change
	made    []store.Version // of the commit that succeeded
}

// Create commits.
func (s *commit) Create(ctx context.Context, _ string, _ []byte) (store.Version, error) {
	return s.commit(ctx)
}

// Replace commits.
func (s *commit) Replace(ctx context.Context, _ string, _ []byte, _ store.Version) (store.Version, error) {
	return s.commit(ctx)
}

func (s *commit) commit(ctx context.Context) (store.Version, error) {
	made, err := s.c.Commit(ctx, s.changes)
	if err != nil {
		return "", err
	}
	s.made = made
	for i, ch := range s.changes {
		if ch.Key == s.key {
			return made[i], nil
		}
	}
	return "", nil
}

// change applies decide to the table until it sticks, within one TTL of the client. decide
// returns the very table if nothing is to change. doubted says that one of its writes may
// have happened before the state that it is shown. A counter that fell is shown to it too:
// a jump mends it.
func (f *files) change(ctx context.Context, part core.Range, decide func(t *core.Table, attempt string, doubted bool, fell error) (*core.Table, error)) (*core.Table, error) {
	ctx, cancel := settle.Limit(ctx, f.k.Clock, 2*f.k.Timing.TTL)
	defer cancel()
	p := f.pace()
	for doubted, wait := false, p.Backoff; ; wait = min(2*wait, 16*p.Backoff) {
		t, again, err := f.changeOnce(ctx, part, doubted, decide)
		if !again {
			return t, err
		}
		doubted = doubted || settle.LostRace(err)
		if !f.pause(ctx, wait) {
			return nil, err
		}
	}
}

func (f *files) changeOnce(ctx context.Context, part core.Range, doubted bool, decide func(t *core.Table, attempt string, doubted bool, fell error) (*core.Table, error)) (t *core.Table, again bool, err error) {
	l, fell, err := f.readForChange(ctx, part)
	if err != nil {
		return nil, retryable(err), err
	}
	id := f.k.NewID()
	next, err := decide(l.table, id, doubted, fell)
	if err != nil || next == l.table {
		return l.table, false, err
	}
	_, _, _, err = f.write(ctx, decision{before: l, after: next, attempt: id})
	return next, err != nil && settle.LostRace(err), err
}

// readForChange reads the part for an operator: what a jump mends does not stop it.
func (f *files) readForChange(ctx context.Context, part core.Range) (l look, fell, err error) {
	l, err = f.readPart(ctx, part)
	if fell = regressed(err); fell == nil {
		return l, nil, err
	}
	l, _, err = f.head(ctx)
	return l, fell, err
}
