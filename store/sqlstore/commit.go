package sqlstore

import (
	"context"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// quickRows is how many rows at most are read in the writer's goroutine.
	quickRows = 16

	// The rows of a range, in both directions. The length comes from the row's
	// header, so a body beyond the limit is not read (ST7).
	queryScan = `SELECT key, version, nonce, modified, length(body), CASE WHEN length(body) <= ?4 THEN body END
		FROM tenure_register WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3`
	queryScanBack = `SELECT key, version, nonce, modified, length(body), CASE WHEN length(body) <= ?4 THEN body END
		FROM tenure_register WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3`
)

// change is one change of a commit on its way through the writer.
type change struct {
	key  string
	do   store.ChangeKind
	body []byte
	at   version // absentVersion: it must be absent
	made version
}

// Commit makes all changes if each condition holds, and none otherwise (SL4). It
// shares the fsync of other calls of the same moment.
func (s *SQLite) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	w := &write{op: "commit", apply: (*tx).commit}
	if err := store.CheckChanges(changes, MaxBody); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, w.op, "", err)
	}
	w.key = changes[0].Key
	if err := s.alive(ctx, w.op, w.key); err != nil {
		return nil, err
	}
	for _, c := range changes {
		// The writer may outlive this call.
		own := change{key: c.Key, do: c.Do, body: append([]byte{}, c.Body...)}
		if c.Over != "" {
			own.at = parseVersion(c.Over)
		}
		w.changes = append(w.changes, own)
	}
	if err := s.submit(ctx, w); err != nil {
		return nil, err
	}
	made := make([]store.Version, len(w.changes))
	for i, c := range w.changes {
		if c.do == store.Put {
			made[i] = c.made.mark()
		}
	}
	return made, nil
}

// commit looks at every condition before it changes anything, so that a refusal
// leaves no trace in the transaction, which other calls share.
func (t *tx) commit(w *write) error {
	for _, c := range w.changes {
		there, err := presentVersion(t.c, c.key)
		if err != nil {
			return err
		}
		if there != c.at {
			return t.conflict(w, c, there)
		}
	}
	for i := range w.changes {
		if err := t.make(&w.changes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) conflict(w *write, c change, there version) error {
	if there == absentVersion {
		return store.Errorf(store.ErrConflict, t.s.identity, w.op, c.key, "it is absent")
	}
	return store.Errorf(store.ErrConflict, t.s.identity, w.op, c.key, "it is at version %s", there.mark())
}

// make makes a change whose condition holds. Statements still name what they
// change, and must find it: the alternative is half a commit.
func (t *tx) make(c *change) (err error) {
	n := int64(1)
	switch {
	case c.do == store.Keep:
		return nil
	case c.do == store.Remove:
		n, err = t.c.exec(execDeleteIf, c.key, c.at.number, c.at.nonce)
	case c.at == absentVersion:
		c.made = t.next()
		n, err = t.c.exec(execCreate, c.key, c.body, c.made.number, c.made.nonce, t.now)
	default:
		c.made = t.next()
		n, err = t.c.exec(execReplace, c.body, c.made.number, c.made.nonce, t.now, c.key, c.at.number, c.at.nonce)
	}
	if err == nil && n != 1 {
		err = store.Errorf(store.ErrCorrupt, t.s.identity, "commit", c.key, "a %v changed %d rows although its condition held: a trigger or another table is in place of the one that this program made", c.do, n)
	}
	t.changed = t.changed || err == nil
	return err
}

// Scan returns the objects in r from one snapshot, in the order of r. It waits
// for no writer.
func (s *SQLite) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	const op = "scan"
	if err := store.CheckScan(r); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, op, "", err)
	}
	scan := func(c *conn) ([]store.Keyed, error) { return s.scan(c, r) }
	if r.Most <= quickRows && r.Most*min(r.Limit, quickBody) <= quickBody {
		return readQuick(ctx, s, op, "", scan)
	}
	return read(ctx, s, op, "", scan)
}

// scan is one statement, and therefore one snapshot.
func (s *SQLite) scan(c *conn, r store.ScanRange) ([]store.Keyed, error) {
	query := queryScan
	if r.Backwards {
		query = queryScanBack
	}
	found := []store.Keyed{}
	err := c.rows(query, []any{r.From, r.To, r.Most, r.Limit}, func(into func(...any) error) error {
		var key string
		var v version
		var modified, size int64
		var body []byte
		if err := into(&key, &v.number, &v.nonce, &modified, &size, &body); err != nil {
			return err
		}
		if size > int64(r.Limit) {
			return store.Errorf(store.ErrCorrupt, s.identity, "scan", key, "the body has %d bytes, the caller accepts %d", size, r.Limit)
		}
		if body == nil {
			body = []byte{}
		}
		found = append(found, store.Keyed{Key: key, Object: store.Object{Body: body, Version: v.mark(), Modified: time.UnixMilli(modified)}})
		return nil
	})
	return found, err
}
