// Package sqlguard guards what is in a SQL database (GD2).
//
// The mark, which is the highest token seen, is a row of the database that it
// guards. [Guard.Check] runs in the user's own transaction and writes that row,
// so that check and effect are committed together or not at all. Because it
// writes and does not only read, two transactions with different tokens collide
// in the database at every isolation level: one that began under an old token,
// and read, cannot commit after a newer token was used.
//
//	g, err := sqlguard.New(db, sqlguard.SQLite(), "accounts", "prod", "billing")
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	if err := g.Check(ctx, tx, lease.Token()); err != nil {
//		return err // tx is rolled back
//	}
//	// the writes
//	err = tx.Commit()
//
// A guard protects only against those who ask it: every program that writes the
// guarded tables must call Check in each of its transactions.
package sqlguard

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

// Dialect is the SQL of one kind of database.
type Dialect struct {
	name string
	// create makes the table of marks if it is absent.
	create string
	// lift sets the mark of a subject (1) that is bound to a namespace (2) and a
	// resource (3) to a token (4), if it is not higher. It must write the row,
	// and so lock it, whenever it matches, an equal token included.
	lift string
	// read gives namespace, resource and token of a subject.
	read string
}

// SQLite is the dialect of SQLite 3.37 and newer.
func SQLite() Dialect {
	return Dialect{
		name: "sqlite",
		create: `CREATE TABLE IF NOT EXISTS tenure_guard (
	subject   TEXT    NOT NULL PRIMARY KEY,
	namespace TEXT    NOT NULL,
	resource  TEXT    NOT NULL,
	token     INTEGER NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)
) STRICT, WITHOUT ROWID`,
		lift: `INSERT INTO tenure_guard (subject, namespace, resource, token) VALUES (?, ?, ?, ?)
ON CONFLICT (subject) DO UPDATE SET token = excluded.token
WHERE namespace = excluded.namespace AND resource = excluded.resource AND token <= excluded.token`,
		read: `SELECT namespace, resource, token FROM tenure_guard WHERE subject = ?`,
	}
}

// PostgreSQL is the dialect of PostgreSQL 10 and newer, through a driver whose
// parameters are $1, $2, such as pgx. The table is made in the first schema of
// the connection's search path: give all programs the same one.
func PostgreSQL() Dialect {
	return Dialect{
		name: "postgres",
		create: `CREATE TABLE IF NOT EXISTS tenure_guard (
	subject   text COLLATE "C" NOT NULL PRIMARY KEY,
	namespace text COLLATE "C" NOT NULL,
	resource  text COLLATE "C" NOT NULL,
	token     bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)
)`,
		lift: `INSERT INTO tenure_guard AS mark (subject, namespace, resource, token) VALUES ($1, $2, $3, $4)
ON CONFLICT (subject) DO UPDATE SET token = excluded.token
WHERE mark.namespace = excluded.namespace AND mark.resource = excluded.resource AND mark.token <= excluded.token`,
		read: `SELECT namespace, resource, token FROM tenure_guard WHERE subject = $1`,
	}
}

// Guard guards one subject of one database. It holds no state of its own: the
// mark is in the database, so a restart forgets nothing (GD3). It is safe for
// concurrent use.
type Guard struct {
	db                           *sql.DB
	d                            Dialect
	subject, namespace, resource string
}

// New returns the guard of subject, which names what is guarded in this
// database: a table, say, or the whole of it. The first use binds the subject
// to the lease; later, the tokens of another namespace or resource are
// guard.ErrInvalid, so that a program that was pointed at the wrong database is
// refused (GD1). New does no I/O; see [Guard.Init].
func New(db *sql.DB, d Dialect, subject, namespace, resource string) (*Guard, error) {
	if d.name == "" {
		return nil, store.Errorf(guard.ErrInvalid, "", "new guard", subject, "no dialect; use SQLite() or PostgreSQL()")
	}
	if err := store.CheckName("guard subject", subject); err != nil {
		return nil, err
	}
	if err := guard.CheckNames(namespace, resource); err != nil {
		return nil, err
	}
	return &Guard{db: db, d: d, subject: subject, namespace: namespace, resource: resource}, nil
}

// Init makes the table of marks, tenure_guard, if it is absent. Call it once
// when the database is set up; programs that may not create tables leave it to
// one that may.
func (g *Guard) Init(ctx context.Context) error {
	if _, err := g.db.ExecContext(ctx, g.d.create); err != nil {
		return g.failed("init", store.ErrUnavailable, "", err)
	}
	return nil
}

// Check admits token in tx, or refuses it and rolls tx back, so that nothing
// can be committed after a refusal whether or not the caller looks at the
// error. A lower token than the highest seen is a *guard.FencedError; a subject
// bound to another lease is guard.ErrInvalid. store.ErrUnavailable is a
// collision with another transaction, or a failure: begin a new transaction.
//
// Call it once in each transaction that writes, at its beginning if possible:
// until tx ends, transactions with other tokens wait or fail (GD1, GD2).
func (g *Guard) Check(ctx context.Context, tx *sql.Tx, token uint64) error {
	err := g.check(ctx, tx, token)
	if err != nil {
		// An error here leaves the transaction to end with its connection.
		_ = tx.Rollback()
	}
	return err
}

func (g *Guard) check(ctx context.Context, tx *sql.Tx, token uint64) error {
	if err := guard.CheckToken(token); err != nil {
		return err
	}
	r, err := tx.ExecContext(ctx, g.d.lift, g.subject, g.namespace, g.resource, int64(token))
	if err != nil {
		return g.failed("check", store.ErrUnavailable, "the mark could not be written; begin a new transaction", err)
	}
	n, err := r.RowsAffected()
	if err != nil {
		return g.failed("check", store.ErrUnavailable, "", err)
	}
	if n > 0 {
		return nil
	}
	return g.refusal(ctx, tx, token)
}

// refusal says why the mark did not match.
func (g *Guard) refusal(ctx context.Context, tx *sql.Tx, token uint64) error {
	m, err := g.mark(ctx, tx)
	if err != nil {
		return err
	}
	if err := guard.CheckBinding(g.subject, g.namespace, g.resource, m.namespace, m.resource); err != nil {
		return err
	}
	if m.token <= token {
		return store.Errorf(store.ErrUnavailable, g.d.name, "check", g.subject, "the mark changed meanwhile; begin a new transaction")
	}
	return &guard.FencedError{Namespace: g.namespace, Resource: g.resource, Token: token, Highest: m.token}
}

// Raise lifts the mark to token without any other write, so that lower tokens
// are refused from now on. A new holder raises before its first read (GD1). It
// may be repeated, and must be after store.ErrUnknown.
func (g *Guard) Raise(ctx context.Context, token uint64) error {
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return g.failed("raise", store.ErrUnavailable, "", err)
	}
	if err := g.Check(ctx, tx, token); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return g.failed("raise", store.ErrUnknown, "raise again", err)
	}
	return nil
}

// Highest returns the highest token seen, 0 if there was none yet.
func (g *Guard) Highest(ctx context.Context) (uint64, error) {
	m, err := g.mark(ctx, g.db)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if err := guard.CheckBinding(g.subject, g.namespace, g.resource, m.namespace, m.resource); err != nil {
		return 0, err
	}
	return m.token, nil
}

type mark struct {
	namespace, resource string
	token               uint64
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (g *Guard) mark(ctx context.Context, q querier) (m mark, err error) {
	if err := q.QueryRowContext(ctx, g.d.read, g.subject).Scan(&m.namespace, &m.resource, &m.token); err != nil {
		return mark{}, g.failed("read mark", store.ErrUnavailable, "", err)
	}
	return m, nil
}

func (g *Guard) failed(op string, kind error, detail string, cause error) error {
	e := store.Wrap(kind, g.d.name, op, g.subject, cause)
	e.Detail = detail
	return e
}
