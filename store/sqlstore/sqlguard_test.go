package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/sqlguard"
	"github.com/tenure-project/tenure/store"
)

// userDB opens the database of a user's program, which has one table that is
// guarded.
func userDB(path, params string) (*sql.DB, *sqlguard.Guard, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?"+params)
	if err != nil {
		return nil, nil, err
	}
	g, err := sqlguard.New(db, sqlguard.SQLite(), "accounts", "prod", "billing")
	return db, g, err
}

func openUserDB(t *testing.T, params string) (*sql.DB, *sqlguard.Guard) {
	t.Helper()
	db, g, err := userDB(filepath.Join(t.TempDir(), "user.db"), params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := g.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE account (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL); INSERT INTO account VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	return db, g
}

const setOwner = "UPDATE account SET owner = ? WHERE id = 1"

// owner is who wrote the account last.
func owner(t *testing.T, db *sql.DB) (token uint64) {
	t.Helper()
	if err := db.QueryRow("SELECT owner FROM account WHERE id = 1").Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

// guarded writes under token in one transaction.
func guarded(ctx context.Context, db *sql.DB, g *sqlguard.Guard, token uint64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := g.Check(ctx, tx, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, setOwner, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func wantFenced(t *testing.T, err error, token, highest uint64) {
	t.Helper()
	var fenced *guard.FencedError
	if !errors.Is(err, guard.ErrFenced) || !errors.As(err, &fenced) || fenced.Token != token || fenced.Highest != highest {
		t.Fatalf("got %v, want token %d to be fenced by %d", err, token, highest)
	}
}

// SPEC GD1 GD2
func TestSQLGuardRefusesLowerTokens(t *testing.T) {
	t.Parallel()
	db, g := openUserDB(t, "")
	ctx := t.Context()
	if h, err := g.Highest(ctx); h != 0 || err != nil {
		t.Fatalf("Highest before any token: %d, %v", h, err)
	}
	for _, token := range []uint64{7, 7, 9} { // equal is admitted
		if err := guarded(ctx, db, g, token); err != nil {
			t.Fatalf("a write under token %d: %v", token, err)
		}
	}
	wantFenced(t, guarded(ctx, db, g, 8), 8, 9)
	if o := owner(t, db); o != 9 {
		t.Errorf("the account was written under %d", o)
	}
	if err := g.Raise(ctx, 12); err != nil {
		t.Fatal(err)
	}
	wantFenced(t, guarded(ctx, db, g, 9), 9, 12)
	wantFenced(t, g.Raise(ctx, 11), 11, 12)
	if err := g.Raise(ctx, 12); err != nil {
		t.Errorf("raising again to the same token: %v", err)
	}
	if h, err := g.Highest(ctx); h != 12 || err != nil {
		t.Errorf("Highest: %d, %v", h, err)
	}
	for _, token := range []uint64{0, guard.MaxToken + 1} {
		kindIs(t, guarded(ctx, db, g, token), guard.ErrInvalid, fmt.Sprintf("token %d", token))
	}
	if err := g.Raise(ctx, guard.MaxToken); err != nil {
		t.Errorf("raising to the largest token: %v", err)
	}
}

// A refused transaction cannot be committed, not even by a caller that does not
// look at the error.
//
// SPEC GD1
func TestSQLGuardEndsARefusedTransaction(t *testing.T) {
	t.Parallel()
	db, g := openUserDB(t, "")
	if err := guarded(t.Context(), db, g, 8); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(setOwner, 7); err != nil { // before the check
		t.Fatal(err)
	}
	_ = g.Check(t.Context(), tx, 7)
	if _, err := tx.Exec(setOwner, 7); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("a write after the refusal: %v", err)
	}
	if err := tx.Commit(); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("the commit after the refusal: %v", err)
	}
	if o := owner(t, db); o != 8 {
		t.Errorf("the account was written under %d", o)
	}
}

// The mark belongs to one lease. Another namespace's or resource's tokens are
// refused, whatever their numbers.
//
// SPEC GD1
func TestSQLGuardIsBoundToItsLease(t *testing.T) {
	t.Parallel()
	db, g := openUserDB(t, "")
	if err := guarded(t.Context(), db, g, 7); err != nil {
		t.Fatal(err)
	}
	for _, lease := range [][2]string{{"staging", "billing"}, {"prod", "billing2"}} {
		other, err := sqlguard.New(db, sqlguard.SQLite(), "accounts", lease[0], lease[1])
		if err != nil {
			t.Fatal(err)
		}
		kindIs(t, guarded(t.Context(), db, other, 500), guard.ErrInvalid, "a write under another lease's token")
		kindIs(t, other.Raise(t.Context(), 500), guard.ErrInvalid, "a raise to another lease's token")
		_, err = other.Highest(t.Context())
		kindIs(t, err, guard.ErrInvalid, "Highest by another lease's guard")
	}
	if err := guarded(t.Context(), db, g, 8); err != nil {
		t.Errorf("the guard took the foreign token for its own: %v", err)
	}
	if o := owner(t, db); o != 8 {
		t.Errorf("the account was written under %d", o)
	}
}

// modes are all ways in which a SQLite transaction can begin, on both kinds of
// journal.
var modes = []string{
	"_txlock=deferred&_pragma=journal_mode(WAL)", "_txlock=immediate&_pragma=journal_mode(WAL)", "_txlock=exclusive&_pragma=journal_mode(WAL)",
	"_txlock=deferred&_pragma=journal_mode(DELETE)", "_txlock=immediate&_pragma=journal_mode(DELETE)", "_txlock=exclusive&_pragma=journal_mode(DELETE)",
}

// levels are the isolation levels that database/sql can ask for. SQLite's is
// always the highest; other databases' tests share this list.
var levels = []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable}

// A transaction that was opened, and read, under token 7 does not commit once
// token 8 was granted and used, wherever in it the check stands.
//
// SPEC GD1 GD2
// CASE B16 B40
func TestSQLGuardZombieInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, level := range levels {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%v/early=%v", mode, level, early), func(t *testing.T) {
					t.Parallel()
					db, g := openUserDB(t, mode)
					if err := g.Raise(t.Context(), 7); err != nil {
						t.Fatal(err)
					}
					zombieInTransaction(t, db, g, level, early)
				})
			}
		}
	}
}

func zombieInTransaction(t *testing.T, db *sql.DB, g *sqlguard.Guard, level sql.IsolationLevel, early bool) {
	ctx := t.Context()
	seven, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	var seen int
	if err := seven.QueryRow("SELECT owner FROM account WHERE id = 1").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if early {
		if err := g.Check(ctx, seven, 7); err != nil {
			t.Fatal(err)
		}
	}
	eight := guarded(ctx, db, g, 8) // while 7 sleeps; it may have to wait for 7's end

	late := error(nil)
	if !early {
		late = g.Check(ctx, seven, 7)
	}
	_, write := seven.Exec(setOwner, 7)
	committed := seven.Commit()
	sevenWrote := write == nil && committed == nil
	switch {
	case eight == nil && sevenWrote:
		t.Fatalf("8 was used, and then 7 committed")
	case eight == nil && late == nil && early:
		t.Errorf("8 was used while 7 held the mark")
	case eight != nil && !sevenWrote:
		t.Errorf("neither got through: 8: %v; 7: check %v, write %v, commit %v", eight, late, write, committed)
	}

	// In the end 8 gets through, and 7 is told why it does not.
	if eight != nil {
		if err := guarded(ctx, db, g, 8); err != nil {
			t.Errorf("8 after 7 has ended: %v", err)
		}
	}
	wantFenced(t, guarded(ctx, db, g, 7), 7, 8)
	if o := owner(t, db); o != 8 {
		t.Errorf("the account was written last under %d", o)
	}
}

// Whatever the order, the last write is the one with the highest token, and no
// write under a lower token comes after one under a higher token.
//
// SPEC GD1 GD2
func TestSQLGuardRace(t *testing.T) {
	t.Parallel()
	db, g := openUserDB(t, "_txlock=deferred&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)")
	if _, err := db.Exec(`CREATE TABLE log (n INTEGER PRIMARY KEY, token INTEGER);
		CREATE TRIGGER t AFTER UPDATE ON account BEGIN INSERT INTO log (token) VALUES (new.owner); END`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 20 {
				err := guarded(t.Context(), db, g, uint64(1+i*8+worker))
				if err != nil && !errors.Is(err, guard.ErrFenced) && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var falls, writes int
	if err := db.QueryRow(`SELECT count(*) FILTER (WHERE token < before), count(*) FROM (SELECT token, lag(token) OVER (ORDER BY n) AS before FROM log)`).Scan(&falls, &writes); err != nil {
		t.Fatal(err)
	}
	if falls > 0 || writes == 0 {
		t.Errorf("of %d writes, %d came after one with a higher token", writes, falls)
	}
	if h, err := g.Highest(t.Context()); err != nil || h != owner(t, db) {
		t.Errorf("the highest token is %d (%v), the last write was under %d", h, err, owner(t, db))
	}
}

// childGuard writes under a token and says so, then waits to be killed.
func childGuard(path string, args []string) error {
	db, g, err := userDB(path, "_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	token, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	if err := guarded(context.Background(), db, g, token); err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Println("written")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A guard that was killed and starts again, or a second one, still refuses.
//
// SPEC GD3
// CASE B37
func TestSQLGuardAfterARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "user.db")
	db, g, err := userDB(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE account (id INTEGER PRIMARY KEY, owner INTEGER NOT NULL); INSERT INTO account VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	nine := start(t, "guard", path, "9")
	nine.says("written")
	nine.kill()
	start(t, "guard", path, "8").says("fenced: token 8 of prod/billing is refused, 9 was seen: this holder was superseded")
	start(t, "guard", path, "9").says("written")
}

// Programs that share one database without the table of marks are told so.
func TestSQLGuardWithoutItsTable(t *testing.T) {
	t.Parallel()
	db, g, err := userDB(filepath.Join(t.TempDir(), "user.db"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := g.Raise(t.Context(), 7); err == nil {
		t.Error("a guard without its table admitted a token")
	}
	if _, err := g.Highest(t.Context()); err == nil {
		t.Error("a guard without its table has a highest token")
	}
}
