package pgstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// A trigger that keeps the server from one of several changes keeps it from all.
//
// SPEC SL4 ST8
func TestCommitThatTheServerSwallowsInPart(t *testing.T) {
	t.Parallel()
	for _, event := range []string{"UPDATE", "DELETE"} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			u := place(t)
			s := open(t, with(u, "watch", "no"))
			made := must(s.Commit(t.Context(), []store.Change{{Key: "n/k/a"}, {Key: "n/k/b"}}))(t)
			schema := param(u, "schema")
			admin(t, u, "CREATE FUNCTION "+schema+".no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "+
				"CREATE TRIGGER no BEFORE "+event+" ON "+s.sql.records+" FOR EACH ROW EXECUTE FUNCTION "+schema+".no()")
			_, err := s.Commit(t.Context(), []store.Change{
				{Key: "n/k/a", Over: made[0], Do: store.Remove}, {Key: "n/k/b", Over: made[1], Body: []byte("new")}, {Key: "n/k/c"},
			})
			kindIs(t, err, store.ErrDenied, "Commit of which a trigger swallows a part")
			says(t, err, "trigger")
			found := must(s.Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 9}))(t)
			if len(found) != 2 || found[0].Version != made[0] || found[1].Version != made[1] {
				t.Errorf("it left %+v", found)
			}
		})
	}
}

// Commits over the same keys in any order, there or not, kept or changed, beside
// single writes: nobody waits in a circle, so no transaction is ever rolled back
// for another, and each call has an outcome of its own.
//
// SPEC SL4
func TestCommitsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	u := place(t)
	const callers, keys, rounds = 8, 5, 40
	flaws := make([]error, callers)
	won := make([]int, callers)
	var wg sync.WaitGroup
	for i := range callers {
		s := open(t, with(u, "watch", "no", "pool_max_conns", "2"))
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				found, err := s.Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 9})
				if err != nil {
					flaws[i] = err
					return
				}
				if err = randomCommit(t, s, r, found, keys); err == nil {
					won[i]++
				} else if !errors.Is(err, store.ErrConflict) {
					flaws[i] = err
					return
				}
				if k := fmt.Sprintf("n/k/%d", r.IntN(keys)); r.IntN(4) == 0 {
					if err := s.Delete(t.Context(), k); err != nil {
						flaws[i] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(flaws...); err != nil {
		t.Error(err)
	}
	total := 0
	for _, n := range won {
		total += n
	}
	if total == 0 {
		t.Error("no commit succeeded")
	}
	left := must(open(t, u).Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 9}))(t)
	for _, k := range left {
		if string(k.Body) != "x" {
			t.Errorf("%s holds %q: what was inserted to hold a place is still there", k.Key, k.Body)
		}
	}
}

// randomCommit names every key, in any order, to change or to keep.
func randomCommit(t *testing.T, s *Store, r *rand.Rand, found []store.Keyed, keys int) error {
	at := map[string]store.Version{}
	for _, k := range found {
		at[k.Key] = k.Version
	}
	changes := []store.Change{}
	for _, n := range r.Perm(keys) {
		ch := store.Change{Key: fmt.Sprintf("n/k/%d", n), Do: store.ChangeKind(r.IntN(3))}
		ch.Over = at[ch.Key]
		if ch.Do == store.Remove && ch.Over == "" {
			ch.Do = store.Keep
		}
		if ch.Do == store.Put {
			ch.Body = []byte("x")
		}
		changes = append(changes, ch)
	}
	_, err := s.Commit(t.Context(), changes)
	return err
}

// A server that isolates transactions more than asked refuses one that met
// another, and then certainly nothing happened.
//
// SPEC SL4 ST8
func TestCommitsUnderStricterIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable\\ read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			u := with(place(t), "watch", "no", "options", "-c default_transaction_isolation="+level)
			a, b := open(t, u), open(t, u)
			v := must(a.Create(t.Context(), key, []byte("0")))(t)
			const rounds = 30
			var won [2]int
			for n := range rounds {
				var wg sync.WaitGroup
				var made [2][]store.Version
				var errs [2]error
				for i, s := range []*Store{a, b} {
					wg.Go(func() {
						made[i], errs[i] = s.Commit(t.Context(), []store.Change{{Key: fmt.Sprintf("%s-%d", key, n), Body: []byte{byte(i)}}, {Key: key, Over: v, Body: []byte{byte(i)}}})
					})
				}
				wg.Wait()
				for i, err := range errs {
					switch {
					case err == nil:
						won[i]++
						v = made[i][1]
					case !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrUnavailable):
						t.Fatal(err)
					}
				}
				if (errs[0] == nil) == (errs[1] == nil) {
					t.Fatalf("round %d: %v, %v", n, errs[0], errs[1])
				}
			}
			if found := must(a.Scan(t.Context(), store.ScanRange{To: "z", Most: 99, Limit: 9}))(t); len(found) != rounds+1 {
				t.Errorf("%d rounds left %d keys", rounds, len(found))
			}
		})
	}
}

// A commit that waited for another writer goes by what is there after the wait.
//
// SPEC SL4
func TestCommitAfterAWaitTellsTheTruth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		want      error
	}{
		{"the other one changed it", "UPDATE %t SET version = gen_random_uuid() WHERE key = '%k'; COMMIT", store.ErrConflict},
		{"the other one removed it", "DELETE FROM %t WHERE key = '%k'; COMMIT", store.ErrConflict},
		{"the other one made it", "INSERT INTO %t VALUES ('%k2', '', gen_random_uuid(), now()); COMMIT", store.ErrConflict},
		{"the other one gave up making it", "INSERT INTO %t VALUES ('%k2', '', gen_random_uuid(), now()); ROLLBACK", nil},
		{"the other one gave up", "UPDATE %t SET version = gen_random_uuid() WHERE key = '%k'; ROLLBACK", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := place(t)
			s := open(t, with(u, "watch", "no"))
			v := must(s.Create(t.Context(), key, []byte("0")))(t)
			other := must(pgconn.Connect(t.Context(), bare(u)))(t)
			defer func() { _ = other.Close(contextWithoutEnd) }()
			run := func(sql string) {
				t.Helper()
				if _, err := other.Exec(t.Context(), sql).ReadAll(); err != nil {
					t.Fatal(err)
				}
			}
			sql, end, _ := strings.Cut(c.sql, ";")
			run("BEGIN; " + fill(sql, s.sql.records))
			done := make(chan error, 1)
			go func() {
				_, err := s.Commit(t.Context(), []store.Change{{Key: key, Over: v, Body: []byte("1")}, {Key: key + "2"}, {Key: key + "3"}})
				done <- err
			}()
			eventually(t, "the wait for the row", func() bool {
				return admin(t, u, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+param(u, "schema")+"%'")[0][0] == "1"
			})
			run(end)
			err := <-done
			want := map[bool]int{true: 3}[c.want == nil]
			if c.want == nil && err != nil {
				t.Fatal(err)
			} else if c.want != nil {
				kindIs(t, err, c.want, "Commit")
			}
			got := 0
			for _, k := range must(s.Scan(t.Context(), store.ScanRange{To: "z", Most: 9, Limit: 9}))(t) {
				if k.Key == key && string(k.Body) == "1" || k.Key == key+"3" || k.Key == key+"2" && c.want == nil {
					got++
				}
			}
			if got != want {
				t.Errorf("%d of its changes are there, want %d", got, want)
			}
		})
	}
}
