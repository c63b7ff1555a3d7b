package sqlstore

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
)

// commit commits in the background.
func commit(t *testing.T, s *SQLite, changes ...store.Change) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Commit(t.Context(), changes)
		done <- err
	}()
	return done
}

// Commits share an fsync with other calls, and each has an outcome of its own: one
// that is refused leaves no trace in the transaction of those that are not, nor
// does it see a part of another.
//
// SPEC SL4
func TestCommitsShareCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(dir, "leases.db"))
		g := gateCommits(s)
		first := create(t.Context(), s, "suite/lease/first")
		<-g.reached
		var good, bad, single []<-chan error
		for i := range 20 {
			k := func(part string) string { return fmt.Sprintf("suite/lease/%d-%s", i, part) }
			good = append(good, commit(t, s, store.Change{Key: k("a")}, store.Change{Key: k("b")}))
			// Refused for its last change, behind two that hold.
			bad = append(bad, commit(t, s, store.Change{Key: k("c")}, store.Change{Key: k("d")}, store.Change{Key: "suite/lease/first"}))
			made := make(chan error, 1)
			go func() {
				_, err := s.Create(t.Context(), k("e"), nil)
				made <- err
			}()
			single = append(single, made)
		}
		synctest.Wait()
		close(g.open)
		if r := <-first; r.err != nil {
			t.Error(r.err)
		}
		for i := range good {
			if err := errors.Join(<-good[i], <-single[i]); err != nil {
				t.Error(err)
			}
			kindIs(t, <-bad[i], store.ErrConflict, "Commit over a key that is there")
		}
		if n := g.commits.Load(); n != 2 {
			t.Errorf("60 calls took %d commits of the database, want 1 after the first", n)
		}
		found, err := s.Scan(t.Context(), store.ScanRange{To: "z", Most: 1000, Limit: 10})
		if err != nil || len(found) != 61 {
			t.Errorf("%d keys are there, want 61 (%v)", len(found), err)
		}
		for _, k := range found {
			if part := k.Key[len(k.Key)-1]; part == 'c' || part == 'd' {
				t.Errorf("a refused commit left %s", k.Key)
			}
		}
	})
}

// A failed commit of the database leaves a Commit that was made in doubt as a
// whole, and one that was refused certain.
//
// SPEC SL4 ST9
func TestFailedCommitOfManyIsUnknown(t *testing.T) {
	t.Parallel()
	for _, lands := range []bool{false, true} {
		t.Run(fmt.Sprintf("lands=%v", lands), func(t *testing.T) {
			t.Parallel()
			s := open(t, filepath.Join(t.TempDir(), "leases.db"))
			s.commit = func(do func() error) error {
				if lands {
					if err := do(); err != nil {
						t.Error(err)
					}
				}
				return errors.New("the reply was lost")
			}
			_, err := s.Commit(t.Context(), []store.Change{{Key: "n/k/a"}, {Key: "n/k/b"}})
			kindIs(t, err, store.ErrUnknown, "Commit")
			found, err := s.Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 9})
			if want := map[bool]int{true: 2}[lands]; err != nil || len(found) != want {
				t.Errorf("%d keys are there, want %d (%v)", len(found), want, err)
			}
			s.commit = func(do func() error) error { return do() }
			if _, err := s.Commit(t.Context(), []store.Change{{Key: "n/k/c"}, {Key: "n/k/d"}}); err != nil {
				t.Errorf("the next commit: %v", err)
			}
		})
	}
}

// A table that swallows one change takes all of them back, and nothing else that
// was in the same transaction happened either.
//
// SPEC SL4 ST8
func TestCommitThatATriggerSwallowsInPart(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	made, err := s.Commit(t.Context(), []store.Change{{Key: "n/k/a"}, {Key: "n/k/b"}})
	if err != nil {
		t.Fatal(err)
	}
	c := mustConnect(t, s)
	defer func() { _ = c.close() }()
	if err := c.script("CREATE TRIGGER no BEFORE DELETE ON tenure_register BEGIN SELECT RAISE(IGNORE); END"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Commit(t.Context(), []store.Change{{Key: "n/k/a", Over: made[0], Body: []byte("new")}, {Key: "n/k/b", Over: made[1], Do: store.Remove}})
	kindIs(t, err, store.ErrCorrupt, "Commit of which a trigger swallows a part")
	o, err := s.Get(t.Context(), "n/k/a", 9)
	if err != nil || o.Version != made[0] {
		t.Errorf("it left %+v, %v", o, err)
	}
}

// A scan goes on while another connection holds the write lock, and sees what was
// committed.
//
// SPEC SL4 ST3
func TestScanWaitsForNoWriter(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	if _, err := s.Commit(t.Context(), []store.Change{{Key: "n/k/a", Body: []byte("old")}, {Key: "n/k/b", Body: []byte("old")}}); err != nil {
		t.Fatal(err)
	}
	c := mustConnect(t, s)
	defer func() { _ = c.close() }()
	if err := c.script("BEGIN IMMEDIATE; UPDATE tenure_register SET body = x'6e6577'"); err != nil {
		t.Fatal(err)
	}
	waiting := commit(t, s, store.Change{Key: "n/k/c"})
	for _, most := range []int{2, 1000} { // in the writer's goroutine, if it may, and in a reader's
		found, err := s.Scan(t.Context(), store.ScanRange{To: "z", Most: most, Limit: 1000})
		if err != nil || len(found) != 2 || !bytes.Equal(found[0].Body, []byte("old")) || !bytes.Equal(found[1].Body, []byte("old")) {
			t.Errorf("beside an open transaction a Scan gives %+v, %v", found, err)
		}
	}
	if err := c.script("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Error(err)
	}
}

// BenchmarkCommit compares a commit of two keys with the transaction that it
// cannot do without, on the same settings and in turn. The ratio is that of the
// medians.
func BenchmarkCommit(b *testing.B) {
	body := make([]byte, 600)
	bare, s := open(b, filepath.Join(b.TempDir(), "bare.db")), open(b, filepath.Join(b.TempDir(), "store.db"))
	keys := []string{"suite/slots/counter", "suite/slots/row"}
	changes := []store.Change{{Key: keys[0], Body: body}, {Key: keys[1], Body: body}}
	if _, err := bare.Commit(b.Context(), changes); err != nil {
		b.Fatal(err)
	}
	c := mustConnect(b, bare)
	defer func() { _ = c.close() }()
	var took [2][]time.Duration
	for b.Loop() {
		start := time.Now()
		bareUpserts(b, c, keys, body)
		between := time.Now()
		made, err := s.Commit(b.Context(), changes)
		if err != nil {
			b.Fatal(err)
		}
		took[0], took[1] = append(took[0], between.Sub(start)), append(took[1], time.Since(between))
		changes[0].Over, changes[1].Over = made[0], made[1]
	}
	reportRatio(b, took)
}

// bareUpserts is BEGIN IMMEDIATE, two upserts, COMMIT.
func bareUpserts(b *testing.B, c *conn, keys []string, body []byte) {
	const upsert = `INSERT INTO tenure_register (key, body, version, nonce, modified) VALUES (?, ?, 1, 1, 1)
		ON CONFLICT (key) DO UPDATE SET body = excluded.body, version = version + 1`
	_, begin := c.exec("BEGIN IMMEDIATE")
	_, first := c.exec(upsert, keys[0], body)
	_, second := c.exec(upsert, keys[1], body)
	_, end := c.exec("COMMIT")
	if err := errors.Join(begin, first, second, end); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCommitMany is what a process with many ranges sees: its decisions share
// commits of the database.
func BenchmarkCommitMany(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "leases.db"))
	body := make([]byte, 600)
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		changes := []store.Change{}
		for _, k := range []string{"counter", "row"} {
			changes = append(changes, store.Change{Key: store.Key("suite", "slots", fmt.Sprintf("%p-%s", &changes, k)), Body: body})
		}
		for pb.Next() {
			made, err := s.Commit(b.Context(), changes)
			if err != nil {
				b.Error(err)
				return
			}
			changes[0].Over, changes[1].Over = made[0], made[1]
		}
	})
}

// BenchmarkScan finds the greatest of 4,096 keys, in the writer's goroutine and on
// a connection of its own, and compares it with the bare query.
func BenchmarkScan(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "leases.db"))
	body := make([]byte, 600)
	for i := 0; i < 4096; {
		changes := []store.Change{}
		for ; i < 4096 && len(changes) < store.MaxChanges; i++ {
			changes = append(changes, store.Change{Key: fmt.Sprintf("suite/slots/row-%05d", i), Body: body})
		}
		if _, err := s.Commit(b.Context(), changes); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("bare", func(b *testing.B) {
		c := mustConnect(b, s)
		defer func() { _ = c.close() }()
		for b.Loop() {
			var k string
			var body []byte
			if err := c.row("SELECT key, body FROM tenure_register WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT 1", []any{"suite/slots/", "suite/slots0"}, &k, &body); err != nil {
				b.Fatal(err)
			}
		}
	})
	for name, limit := range map[string]int{"quick": 1000, "reader": quickBody + 1} {
		b.Run(name, func(b *testing.B) {
			r := store.ScanRange{From: "suite/slots/", To: "suite/slots0", Backwards: true, Most: 1, Limit: limit}
			for b.Loop() {
				if found, err := s.Scan(b.Context(), r); err != nil || len(found) != 1 || found[0].Key != "suite/slots/row-04095" {
					b.Fatal(found, err)
				}
			}
		})
	}
}
