package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/sqlguard"
	"github.com/tenure-project/tenure/store"
)

// guardedDB is the database of a user's program with one guarded row.
func guardedDB(t *testing.T) (*sql.DB, *sqlguard.Guard) {
	t.Helper()
	u := place(t)
	db := must(sql.Open("pgx", with(bare(u), "search_path", param(u, "schema"))))(t)
	t.Cleanup(func() { _ = db.Close() })
	g := must(sqlguard.New(db, sqlguard.PostgreSQL(), "accounts", "prod", "billing"))(t)
	if err := g.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE account (id int PRIMARY KEY, owner bigint NOT NULL); INSERT INTO account VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	return db, g
}

// guardedWrite writes under token in one transaction, and lets the caller act
// between its first read and the check.
func guardedWrite(ctx context.Context, db *sql.DB, g *sqlguard.Guard, level sql.IsolationLevel, token uint64, between func() error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var owner uint64
	if err := tx.QueryRowContext(ctx, "SELECT owner FROM account WHERE id = 1").Scan(&owner); err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	if err := g.Check(ctx, tx, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET owner = $1 WHERE id = 1", token); err != nil {
		return err
	}
	return tx.Commit()
}

// A zombie that read under token 7, while 8 was granted and used, cannot write,
// at any isolation level.
//
// SPEC GD1 GD2 GD3
func TestSQLGuardOnPostgreSQL(t *testing.T) {
	t.Parallel()
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			db, g := guardedDB(t)
			ctx := t.Context()
			for _, token := range []uint64{7, 7} { // equal is admitted
				if err := guardedWrite(ctx, db, g, level, token, nil); err != nil {
					t.Fatal(err)
				}
			}
			err := guardedWrite(ctx, db, g, level, 7, func() error { return guardedWrite(ctx, db, g, level, 8, nil) })
			if !errors.Is(err, guard.ErrFenced) && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("the zombie's write gave %v", err)
			}
			var fenced *guard.FencedError
			if err := guardedWrite(ctx, db, g, level, 7, nil); !errors.As(err, &fenced) || fenced.Token != 7 || fenced.Highest != 8 {
				t.Errorf("a write under a lower token gave %v", err)
			}
			var owner uint64
			if err := db.QueryRow("SELECT owner FROM account WHERE id = 1").Scan(&owner); err != nil || owner != 8 {
				t.Errorf("the row was written last under %d (%v)", owner, err)
			}
			if err := g.Raise(ctx, 12); err != nil {
				t.Fatal(err)
			}
			again := must(sqlguard.New(db, sqlguard.PostgreSQL(), "accounts", "prod", "billing"))(t)
			if h, err := again.Highest(ctx); h != 12 || err != nil {
				t.Errorf("after a restart the highest token is %d, %v", h, err)
			}
			foreign := must(sqlguard.New(db, sqlguard.PostgreSQL(), "accounts", "staging", "billing"))(t)
			if err := foreign.Raise(ctx, 99); !errors.Is(err, guard.ErrInvalid) {
				t.Errorf("a token of another namespace gave %v", err)
			}
			if err := g.Raise(ctx, guard.MaxToken); err != nil {
				t.Errorf("the largest token: %v", err)
			}
		})
	}
}

// Racing transactions under different tokens: the row never goes back to a lower
// one.
//
// SPEC GD1
func TestSQLGuardRaceOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db, g := guardedDB(t)
	if _, err := db.Exec("CREATE TABLE history (n bigserial, token bigint)"); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 15 {
				token := uint64(i*4 + w + 1)
				err := func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					if err := g.Check(ctx, tx, token); err != nil {
						return err
					}
					if _, err := tx.ExecContext(ctx, "INSERT INTO history (token) VALUES ($1)", token); err != nil {
						return err
					}
					return tx.Commit()
				}()
				if err != nil && !errors.Is(err, guard.ErrFenced) && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("token %d: %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	var back int
	query := "SELECT count(*) FROM history a JOIN history b ON a.n < b.n AND a.token > b.token"
	if err := db.QueryRow(query).Scan(&back); err != nil || back != 0 {
		t.Error(fmt.Errorf("%d writes went through after one under a higher token (%w)", back, err))
	}
}
