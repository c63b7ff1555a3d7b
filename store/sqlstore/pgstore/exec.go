package pgstore

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// arg is one parameter of a statement with its type, so that nothing rests on
// what the server or a pooler remembers of an earlier statement.
type arg struct {
	oid    uint32
	format int16 // 0 text, 1 binary
	value  []byte
}

// The types of the server that are used here, by their fixed numbers.
const (
	oidBytea     = 17
	oidInt8      = 20
	oidText      = 25
	oidInt8Array = 1016
	oidUUID      = 2950
)

func textArg(s string) arg { return arg{oidText, 0, []byte(s)} }

func intArg(n int64) arg { return arg{oidInt8, 0, strconv.AppendInt(nil, n, 10)} }

func bytesArg(b []byte) arg {
	if b == nil {
		b = []byte{} // nil is NULL
	}
	return arg{oidBytea, 1, b}
}

// versionArg is NULL, which equals nothing, for a mark that no row can have.
func versionArg(v store.Version) arg {
	raw, err := hex.DecodeString(strings.ReplaceAll(string(v), "-", ""))
	if err != nil || len(raw) != 16 || versionMark(raw) != v {
		raw = nil
	}
	return arg{oidUUID, 1, raw}
}

func idsArg(ids []int64) arg {
	var b strings.Builder
	b.WriteByte('{')
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	b.WriteByte('}')
	return arg{oidInt8Array, 0, []byte(b.String())}
}

// row is one row of an answer in the server's binary format, which no setting
// of a session changes: not DateStyle, TimeZone, bytea_output nor any other.
type row [][]byte

func (r row) bool(i int) bool { return len(r[i]) == 1 && r[i][0] != 0 }

func (r row) int(i int) int64 {
	switch b := r[i]; len(b) {
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// time reads a timestamptz: microseconds since the year 2000.
func (r row) time(i int) time.Time {
	const year2000 = 946_684_800_000_000
	if len(r[i]) != 8 {
		return time.Time{}
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(r[i])) + year2000).UTC()
}

// version is "" for NULL.
func (r row) version(i int) store.Version {
	if len(r[i]) != 16 {
		return ""
	}
	return versionMark(r[i])
}

// versionMark writes a version as PostgreSQL writes a UUID.
func versionMark(raw []byte) store.Version {
	return store.Version(fmt.Sprintf("%x-%x-%x-%x-%x", raw[:4], raw[4:6], raw[6:8], raw[8:10], raw[10:]))
}

// check is what every call does before it touches anything.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.label, op, key, err)
	}
	if len(body) > MaxBody {
		return store.Errorf(store.ErrInvalid, s.label, op, key, "the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.alive(ctx, op, key)
}

// alive is an error if the store is closed or nobody waits for the call.
func (s *Store) alive(ctx context.Context, op, key string) error {
	if s.stop.Err() != nil {
		return s.errClosed(op, key)
	}
	return store.CtxErr(ctx, s.label, op, key)
}

func (s *Store) errClosed(op, key string) error {
	return store.Errorf(store.ErrUnavailable, s.label, op, key, "the store is closed")
}

// exec sends one statement, once, in one round trip: unnamed, with its types,
// and with the commit in the same message. It returns when the server says that
// the commit is done, and soon after ctx ends (ST13).
func (s *Store) exec(ctx context.Context, r request, sql string, args ...arg) ([]row, error) {
	return s.transact(ctx, r, statement{sql, args})
}

// statement is one statement with its parameters.
type statement struct {
	sql  string
	args []arg
}

// transact is exec for statements that are one transaction. It returns the rows
// of the last one.
func (s *Store) transact(ctx context.Context, r request, statements ...statement) ([]row, error) {
	if err := s.alive(ctx, r.op, r.key); err != nil {
		return nil, err
	}
	call, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.stop, func() { cancel(errCut) })()
	c, err := s.pool.Acquire(call)
	if err != nil {
		return nil, s.failed(ctx, r, err)
	}
	defer c.Release()
	pc := c.Conn().PgConn()
	r.sent = true
	rows, err := send(call, pc, statements...)
	if err != nil {
		if code(err) == "25006" {
			_ = pc.Close(call) // the next connection leads to the primary
		}
		return nil, s.failed(ctx, r, err)
	}
	if r.write && unconfirmed(pc) {
		return nil, store.Errorf(store.ErrUnknown, s.label, r.op, r.key,
			"the write was committed on the primary, but the wait for its synchronous standby was cancelled")
	}
	return rows, nil
}

// send runs statements on a connection, in one message: the server ends the
// transaction at its end.
func send(ctx context.Context, pc *pgconn.PgConn, statements ...statement) ([]row, error) {
	if len(statements) == 1 {
		values, oids, formats := statements[0].encode()
		return read(pc.ExecParams(ctx, statements[0].sql, values, oids, formats, []int16{1}).Read())
	}
	batch := &pgconn.Batch{}
	for _, st := range statements {
		values, oids, formats := st.encode()
		batch.ExecParams(st.sql, values, oids, formats, []int16{1})
	}
	results, err := pc.ExecBatch(ctx, batch).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != len(statements) {
		return nil, fmt.Errorf("%d answers to %d statements", len(results), len(statements))
	}
	return read(results[len(results)-1])
}

// encode takes the parameters apart.
func (st statement) encode() (values [][]byte, oids []uint32, formats []int16) {
	values, oids, formats = make([][]byte, len(st.args)), make([]uint32, len(st.args)), make([]int16, len(st.args))
	for i, a := range st.args {
		values[i], oids[i], formats[i] = a.value, a.oid, a.format
	}
	return values, oids, formats
}

// read makes rows of a whole answer. Whoever reads it goes on until the server is
// ready again: the commit comes after the statement's own success, and may fail.
func read(res *pgconn.Result) ([]row, error) {
	if res.Err != nil {
		return nil, res.Err
	}
	rows := make([]row, len(res.Rows))
	for i, r := range res.Rows {
		rows[i] = r
	}
	return rows, nil
}

// unconfirmedMark is kept with a connection whose commit did not wait for the
// synchronous standby to the end.
const unconfirmedMark = "tenure unconfirmed"

// notice looks for the one warning that takes an acknowledgement back.
func notice(pc *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		pc.CustomData()[unconfirmedMark] = true
	}
}

func unconfirmed(pc *pgconn.PgConn) bool {
	marks := pc.CustomData()
	_, is := marks[unconfirmedMark]
	delete(marks, unconfirmedMark)
	return is
}

// first is the only row of an answer that always has one.
func (s *Store) first(r request, rows []row, columns int) (row, error) {
	if len(rows) != 1 || len(rows[0]) != columns {
		kind := store.ErrCorrupt
		if r.write {
			kind = store.ErrUnknown
		}
		return nil, store.Errorf(kind, s.label, r.op, r.key, "the server answered with %d rows: is it PostgreSQL?", len(rows))
	}
	return rows[0], nil
}

// fromPrimary refuses what a standby says: it may be old (ST3).
func (s *Store) fromPrimary(op, key string, inRecovery bool) error {
	if !inRecovery {
		return nil
	}
	return store.Errorf(store.ErrUnavailable, s.label, op, key,
		"a read-only standby answered, whose data may be old; give the primary's address, or all hosts in one URL")
}
