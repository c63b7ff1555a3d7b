package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// The types of arrays that are used here, by their fixed numbers. That of int8
// is oidInt8Array.
const (
	oidByteaArray = 1001
	oidTextArray  = 1009
	oidUUIDArray  = 2951
)

// commitSQL is the SQL of transactions over several keys.
//
// A commit is one transaction of up to three statements, sent in one message
// that also ends it; each sees what those before it did. claim inserts the keys
// that must be absent, also those which are only a condition, for an absent row
// cannot be locked. hold locks the others. settle counts the conditions that
// hold: only if all do, it makes the changes, and either way it takes away what
// was inserted for nothing. It fails, and with it the transaction, if the server
// did not change every row that it was to.
//
// Callers never wait for each other in a circle: each inserts in the order of
// keys, then locks in the order of keys, and whoever has done both waits for
// nobody. A row that is inserted and not yet committed is invisible to those who
// lock.
type commitSQL struct {
	claim, hold, settle, compare, scan, scanBack string
}

func newCommitSQL(fill func(string) string) commitSQL {
	var q commitSQL
	q.claim = fill(`INSERT INTO {records} (key, body, version, modified) SELECT key, body, made, clock_timestamp()
		FROM unnest($1, $2, $3) AS w (key, body, made) ORDER BY key COLLATE "C" ON CONFLICT (key) DO NOTHING`)
	q.hold = fill(`SELECT FROM {records} WHERE key = ANY($1) ORDER BY key COLLATE "C" FOR UPDATE`)
	q.settle = fill(`WITH want AS MATERIALIZED
		(SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8) WITH ORDINALITY AS w (key, act, at, made, body, lock, channel, payload, ord)),
		met AS MATERIALIZED (SELECT count(*) = (SELECT count(*) FROM want) AS every FROM want w
			JOIN {records} r ON r.key = w.key AND r.version = coalesce(w.at, w.made)),
		put AS (UPDATE {records} r SET body = w.body, version = w.made, modified = clock_timestamp() FROM want w, met
			WHERE met.every AND w.act = 'put' AND r.key = w.key AND r.version = w.at RETURNING r.key),
		gone AS (DELETE FROM {records} r USING want w, met WHERE r.key = w.key AND
			(met.every AND w.act = 'remove' AND r.version = w.at OR w.at IS NULL AND r.version = w.made AND (w.act = 'keep' OR NOT met.every)) RETURNING r.key)
		SELECT met.every, r.version,
			CASE WHEN met.every THEN 1 / (CASE WHEN (SELECT count(*) FROM put) + (SELECT count(*) FROM gone) = $9 THEN 1 ELSE 0 END) END,
			CASE WHEN met.every AND w.act <> 'keep' THEN {durable} END,
			CASE WHEN met.every AND w.act <> 'keep' AND NOT pg_try_advisory_xact_lock(w.lock) THEN pg_notify(w.channel, w.payload) END
		FROM met CROSS JOIN want w LEFT JOIN {records} r ON r.key = w.key ORDER BY w.ord`)
	q.compare = fill(`SELECT pg_is_in_recovery(), r.version FROM unnest($1) WITH ORDINALITY AS w (key, ord)
		LEFT JOIN {records} r ON r.key = w.key ORDER BY w.ord`)
	const scan = `SELECT pg_is_in_recovery(), r.key, r.version, r.modified, octet_length(r.body), CASE WHEN octet_length(r.body) <= $4 THEN r.body END
		FROM (SELECT 1) one LEFT JOIN LATERAL (SELECT * FROM {records} WHERE key COLLATE "C" >= $1 AND key COLLATE "C" < $2
		ORDER BY key COLLATE "C" {order} LIMIT $3) r ON true ORDER BY r.key COLLATE "C" {order}`
	q.scan = fill(strings.ReplaceAll(scan, "{order}", ""))
	q.scanBack = fill(strings.ReplaceAll(scan, "{order}", "DESC"))
	return q
}

// Commit makes all changes if each condition holds, and none otherwise (SL4), in
// one round trip.
func (s *Store) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	r := request{op: "commit"}
	if err := store.CheckChanges(changes, MaxBody); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.label, r.op, "", err)
	}
	r.key = changes[0].Key
	if err := s.alive(ctx, r.op, r.key); err != nil {
		return nil, err
	}
	w := wishes{}
	for _, c := range changes {
		if c.Over != "" && versionArg(c.Over).value == nil {
			return nil, s.conflict(r, c, "it is not at version %q, which this store never gave", c.Over)
		}
		w.add(c, s.topicOf(c.Key))
		r.write = r.write || c.Do != store.Keep
	}
	if !r.write {
		return s.compare(ctx, r, changes)
	}
	rows, err := s.transact(ctx, r, w.statements(s.sql.commitSQL)...)
	if code(err) == "22012" { // the division by zero in settle
		return nil, store.Errorf(store.ErrDenied, s.label, r.op, r.key,
			"the server did not write every row although all were at their versions: a row-level security policy or a trigger on %s prevents it; nothing was changed", s.sql.records)
	}
	if err != nil {
		return nil, err
	}
	return s.outcome(r, changes, w.made, rows)
}

// outcome reads the answer of settle, a row for each change.
func (s *Store) outcome(r request, changes []store.Change, made [][]byte, rows []row) ([]store.Version, error) {
	versions := make([]store.Version, len(changes))
	if len(rows) != len(changes) || len(rows[0]) != 5 {
		return nil, store.Errorf(store.ErrUnknown, s.label, r.op, r.key, "the server answered with %d rows: is it PostgreSQL?", len(rows))
	}
	if !rows[0].bool(0) {
		for i, c := range changes {
			there := rows[i].version(1)
			if c.Over == "" && there == versionMark(made[i]) {
				there = "" // inserted and taken away again
			}
			if there != c.Over {
				return nil, s.conflict(r, c, "it is at version %q, not %q", there, c.Over)
			}
		}
		return nil, store.Errorf(store.ErrConflict, s.label, r.op, r.key, "it or another key of the commit was just changed")
	}
	for i, c := range changes {
		if c.Do == store.Put {
			versions[i] = versionMark(made[i])
		}
	}
	return versions, nil
}

func (s *Store) conflict(r request, c store.Change, format string, args ...any) error {
	return store.Errorf(store.ErrConflict, s.label, r.op, c.Key, format, args...)
}

// compare is a commit of conditions only, by one read.
func (s *Store) compare(ctx context.Context, r request, changes []store.Change) ([]store.Version, error) {
	keys := make([][]byte, len(changes))
	for i, c := range changes {
		keys[i] = []byte(c.Key)
	}
	rows, err := s.exec(ctx, r, s.sql.compare, arrayArg(oidTextArray, oidText, keys))
	if err != nil {
		return nil, err
	}
	if len(rows) != len(changes) || len(rows[0]) != 2 {
		return nil, store.Errorf(store.ErrCorrupt, s.label, r.op, r.key, "the server answered with %d rows: is it PostgreSQL?", len(rows))
	}
	if err := s.fromPrimary(r.op, r.key, rows[0].bool(0)); err != nil {
		return nil, err
	}
	for i, c := range changes {
		if there := rows[i].version(1); there != c.Over {
			return nil, s.conflict(r, c, "it is at version %q, not %q", there, c.Over)
		}
	}
	return make([]store.Version, len(changes)), nil
}

// wishes are the columns of a commit's parameters, an element for each change.
type wishes struct {
	keys, does, at, made, bodies     [][]byte
	locks, channels, payloads        [][]byte
	absent, absentBodies, absentMade [][]byte // of the keys that must be absent
	present                          [][]byte // the keys that must be there
	changed                          int64    // rows that settle updates and deletes
}

func (w *wishes) add(c store.Change, t topic) {
	made := newVersion()
	body := bytesArg(c.Body).value
	w.keys, w.does = append(w.keys, []byte(c.Key)), append(w.does, []byte(c.Do.String()))
	w.made = append(w.made, made)
	w.locks = append(w.locks, binary.BigEndian.AppendUint64(nil, uint64(t.lock)))
	w.channels, w.payloads = append(w.channels, []byte(t.channel)), append(w.payloads, []byte(t.payload))
	if c.Over == "" {
		w.absent, w.absentMade, w.absentBodies = append(w.absent, []byte(c.Key)), append(w.absentMade, made), append(w.absentBodies, body)
		w.at, w.bodies = append(w.at, nil), append(w.bodies, nil)
	} else {
		w.present = append(w.present, []byte(c.Key))
		w.at, w.bodies = append(w.at, versionArg(c.Over).value), append(w.bodies, body)
	}
	if c.Over != "" && c.Do != store.Keep || c.Over == "" && c.Do == store.Keep {
		w.changed++
	}
}

// newVersion is a random UUID, as gen_random_uuid makes them.
func newVersion() []byte {
	v := make([]byte, 16)
	_, _ = rand.Read(v) // never fails
	v[6], v[8] = v[6]&0x0f|0x40, v[8]&0x3f|0x80
	return v
}

func (w *wishes) statements(q commitSQL) []statement {
	var out []statement
	if len(w.absent) > 0 {
		out = append(out, statement{q.claim, []arg{
			arrayArg(oidTextArray, oidText, w.absent), arrayArg(oidByteaArray, oidBytea, w.absentBodies), arrayArg(oidUUIDArray, oidUUID, w.absentMade),
		}})
	}
	if len(w.present) > 0 {
		out = append(out, statement{q.hold, []arg{arrayArg(oidTextArray, oidText, w.present)}})
	}
	return append(out, statement{q.settle, []arg{
		arrayArg(oidTextArray, oidText, w.keys), arrayArg(oidTextArray, oidText, w.does),
		arrayArg(oidUUIDArray, oidUUID, w.at), arrayArg(oidUUIDArray, oidUUID, w.made), arrayArg(oidByteaArray, oidBytea, w.bodies),
		arrayArg(oidInt8Array, oidInt8, w.locks), arrayArg(oidTextArray, oidText, w.channels), arrayArg(oidTextArray, oidText, w.payloads),
		intArg(w.changed),
	}})
}

// arrayArg is an array of one dimension in the server's binary format; a nil
// element is NULL.
func arrayArg(oid, element uint32, values [][]byte) arg {
	b := binary.BigEndian.AppendUint32(nil, 1) // dimensions
	b = binary.BigEndian.AppendUint32(b, 1)    // there may be NULLs
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(len(values)))
	b = binary.BigEndian.AppendUint32(b, 1) // the first index
	for _, v := range values {
		if v == nil {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32) // -1
			continue
		}
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return arg{oid, 1, b}
}

// Scan returns the objects in r from one snapshot, in the order of r, by one
// statement that takes no lock of a row.
func (s *Store) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	q := request{op: "scan"}
	if err := store.CheckScan(r); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.label, q.op, "", err)
	}
	sql := s.sql.scan
	if r.Backwards {
		sql = s.sql.scanBack
	}
	rows, err := s.exec(ctx, q, sql, textArg(r.From), textArg(r.To), intArg(int64(r.Most)), intArg(min(int64(r.Limit), math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	found := make([]store.Keyed, 0, len(rows))
	for _, got := range rows {
		if len(got) != 6 {
			return nil, store.Errorf(store.ErrCorrupt, s.label, q.op, "", "the server answered with %d columns: is it PostgreSQL?", len(got))
		}
		if err := s.fromPrimary(q.op, "", got.bool(0)); err != nil {
			return nil, err
		}
		if got[1] == nil {
			break // the row that stands for none
		}
		k := store.Keyed{Key: string(got[1]), Object: store.Object{Version: got.version(2), Modified: got.time(3), Body: got[5]}}
		if k.Body == nil {
			return nil, store.Errorf(store.ErrCorrupt, s.label, q.op, k.Key, "the body has %d bytes, the caller accepts %d", got.int(4), r.Limit)
		}
		found = append(found, k)
	}
	return found, nil
}
