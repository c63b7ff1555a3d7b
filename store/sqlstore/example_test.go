package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/sqlguard"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/sqlstore"
)

func folder() (dir string, remove func()) {
	dir, err := os.MkdirTemp("", "leases")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { _ = os.RemoveAll(dir) }
}

// A record changes only from the version that was read.
func ExampleOpenSQLite() {
	dir, remove := folder()
	defer remove()
	ctx := context.Background()

	s, err := sqlstore.OpenSQLite(ctx, filepath.Join(dir, "leases.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	key := store.Key("prod", "lease", "nightly-report")
	first, err := s.Create(ctx, key, []byte("a"))
	fmt.Println("create:", err)
	_, err = s.Replace(ctx, key, []byte("b"), first)
	fmt.Println("replace:", err)
	_, err = s.Replace(ctx, key, []byte("c"), first)
	fmt.Println("replace from the old version:", store.KindOf(err))
	// Output:
	// create: <nil>
	// replace: <nil>
	// replace from the old version: version conflict
}

// The token is checked in the user's own transaction. A holder with token 7 was
// asleep while its lease went to token 8.
func Example_sqlguard() {
	dir, remove := folder()
	defer remove()
	ctx := context.Background()

	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "accounts.db")+"?_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	g, err := sqlguard.New(db, sqlguard.SQLite(), "accounts", "prod", "billing")
	if err != nil {
		log.Fatal(err)
	}
	if err := g.Init(ctx); err != nil {
		log.Fatal(err)
	}
	write := func(token uint64) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := g.Check(ctx, tx, token); err != nil {
			return err // tx was rolled back
		}
		// The program's own statements come here.
		return tx.Commit()
	}
	fmt.Println("7 writes:", write(7))
	fmt.Println("8 raises, before its first read:", g.Raise(ctx, 8))
	fmt.Println("7 is refused:", errors.Is(write(7), guard.ErrFenced))
	// Output:
	// 7 writes: <nil>
	// 8 raises, before its first read: <nil>
	// 7 is refused: true
}
