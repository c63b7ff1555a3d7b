package bench

import (
	"database/sql"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	_ "modernc.org/sqlite" // the driver that the store uses
)

// body is about as long as a lease's record.
var body = make([]byte, 1200)

// fileFloor makes durable writes of the least kind that publishes a record
// exclusively: a temporary file, its fsync, a link to a name that nobody may
// have, the fsync of the folder, and the unlinks of the temporary name and of
// the record before the last.
type fileFloor struct {
	b    *testing.B
	path string
	dir  *os.File
	n    int
}

func newFileFloor(b *testing.B) *fileFloor {
	b.Helper()
	path := b.TempDir()
	dir, err := os.Open(path)
	check(b, err)
	b.Cleanup(func() { _ = dir.Close() })
	return &fileFloor{b: b, path: path, dir: dir}
}

func (f *fileFloor) write() {
	tmp := f.name("tmp")
	w, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	check(f.b, err)
	_, err = w.Write(body)
	check(f.b, err)
	check(f.b, w.Sync())
	f.n++
	check(f.b, os.Link(tmp, f.numbered(f.n)))
	check(f.b, f.dir.Sync())
	check(f.b, w.Close())
	check(f.b, os.Remove(tmp))
	if f.n > 2 {
		check(f.b, os.Remove(f.numbered(f.n-2)))
	}
}

// twice is what a change of hands needs: one write each to take and to free.
func (f *fileFloor) twice() {
	f.write()
	f.write()
}

func (f *fileFloor) name(s string) string { return filepath.Join(f.path, s) }

func (f *fileFloor) numbered(n int) string { return f.name(strconv.Itoa(n)) }

// sqlFloor makes the least transaction that changes a row if it is at a
// version, on the driver and with the durability of the store.
type sqlFloor struct {
	b                           *testing.B
	begin, read, update, commit *sql.Stmt
	at                          int64
}

func newSQLFloor(b *testing.B) *sqlFloor {
	b.Helper()
	ctx := b.Context()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "floor.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(0)")
	check(b, err)
	b.Cleanup(func() { _ = db.Close() })
	c, err := db.Conn(ctx)
	check(b, err)
	b.Cleanup(func() { _ = c.Close() })
	_, err = c.ExecContext(ctx, `CREATE TABLE r (key TEXT PRIMARY KEY, body BLOB, version INTEGER) STRICT, WITHOUT ROWID; INSERT INTO r VALUES ('job', x'00', 0)`)
	check(b, err)
	f := &sqlFloor{b: b}
	for query, into := range map[string]**sql.Stmt{
		"BEGIN IMMEDIATE": &f.begin, "COMMIT": &f.commit,
		"SELECT version FROM r WHERE key = ?":                                        &f.read,
		"UPDATE r SET body = ?, version = version + 1 WHERE key = ? AND version = ?": &f.update,
	} {
		*into, err = c.PrepareContext(ctx, query)
		check(b, err)
	}
	return f
}

func (f *sqlFloor) write() {
	_, err := f.begin.Exec()
	check(f.b, err)
	check(f.b, f.read.QueryRow("job").Scan(&f.at))
	_, err = f.update.Exec(body, "job", f.at)
	check(f.b, err)
	_, err = f.commit.Exec()
	check(f.b, err)
}

func (f *sqlFloor) twice() {
	f.write()
	f.write()
}
