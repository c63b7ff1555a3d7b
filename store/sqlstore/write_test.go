package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
)

const key = "suite/lease/k"

// gate holds commits back until it is opened.
type gate struct {
	reached, open chan struct{}
	commits       atomic.Int32
}

// gateCommits lets every commit of s wait at a gate.
func gateCommits(s *SQLite) *gate {
	g := &gate{reached: make(chan struct{}, 100), open: make(chan struct{})}
	s.commit = func(do func() error) error {
		g.commits.Add(1)
		g.reached <- struct{}{}
		<-g.open
		return do()
	}
	return g
}

// result is the outcome of a write in the background.
type result struct {
	v   store.Version
	err error
}

func create(ctx context.Context, s store.Store, key string) <-chan result {
	done := make(chan result, 1)
	go func() {
		v, err := s.Create(ctx, key, []byte("x"))
		done <- result{v, err}
	}()
	return done
}

// A commit that hangs keeps nobody beyond its context: the call in it has an
// unknown outcome, those behind it certainly did nothing, and reads go on.
//
// SPEC ST9 ST13
// CASE B83
func TestHungCommitKeepsNobody(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	g := gateCommits(s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stuck := create(ctx, s, "suite/lease/stuck")
	<-g.reached
	behind := create(ctx, s, "suite/lease/behind")
	if _, err := s.Get(t.Context(), key, 10); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get beside a hung commit: %v", err)
	}
	cancel()
	kindIs(t, (<-stuck).err, store.ErrUnknown, "the call in the hung commit")
	kindIs(t, (<-behind).err, store.ErrUnavailable, "the call behind it")
	close(g.open)
	// The unknown one lands late, as it may; the other one never does.
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "suite/lease/stuck", 10); err != nil {
		t.Errorf("the commit went through, but the record is not there: %v", err)
	}
	_, err := s.Get(t.Context(), "suite/lease/behind", 10)
	kindIs(t, err, store.ErrNotFound, "Get of what was given up")
}

// A caller whose context ends in the middle of a commit that a healthy disk
// finishes gets the real outcome.
//
// SPEC ST9
func TestCommitThatEndsSoonIsNotUnknown(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	ctx, cancel := context.WithCancel(t.Context())
	s.commit = func(do func() error) error {
		cancel()
		return do()
	}
	if _, err := s.Create(ctx, key, nil); err != nil {
		t.Errorf("Create: %v", err)
	}
}

// Calls that arrive during a commit share the next one, and each gets its own
// outcome.
//
// SPEC ST1 ST2
func TestCallsShareCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(dir, "leases.db"))
		g := gateCommits(s)
		first := create(t.Context(), s, "suite/lease/first")
		<-g.reached
		var calls []<-chan result
		for i := range 60 {
			calls = append(calls, create(t.Context(), s, fmt.Sprintf("suite/lease/k%d", i/2)))
		}
		synctest.Wait() // all of them wait behind the first
		close(g.open)
		if r := <-first; r.err != nil {
			t.Error(r.err)
		}
		won := map[store.Version]bool{}
		for _, done := range calls {
			switch r := <-done; {
			case r.err == nil:
				won[r.v] = true
			case !errors.Is(r.err, store.ErrExists):
				t.Error(r.err)
			}
		}
		if len(won) != 30 || g.commits.Load() != 2 {
			t.Errorf("60 racers for 30 keys: %d won, in %d commits; want 30 in 1 after the first", len(won), g.commits.Load())
		}
	})
}

// An error of the commit leaves the outcome of the changes unknown; what was
// refused in the same transaction certainly did not happen, but the refusal
// rested on a state that may never have been.
//
// SPEC ST8 ST9
func TestFailedCommitIsUnknown(t *testing.T) {
	t.Parallel()
	for _, lands := range []bool{false, true} {
		t.Run(fmt.Sprintf("lands=%v", lands), func(t *testing.T) {
			t.Parallel()
			s := open(t, filepath.Join(t.TempDir(), "leases.db"))
			w := &writer{s: s, c: mustConnect(t, s)}
			defer func() { _ = w.c.close() }()
			s.commit = func(do func() error) error {
				if lands {
					if err := do(); err != nil {
						t.Error(err)
					}
				}
				return errors.New("the reply was lost")
			}
			a := &write{op: "create", key: key, apply: (*tx).create, body: []byte("a"), done: make(chan struct{})}
			b := &write{op: "create", key: key, apply: (*tx).create, body: []byte("b"), done: make(chan struct{})}
			w.pending = []*write{a, b}
			if err := w.begin(); err != nil {
				t.Fatal(err)
			}
			w.transact()
			kindIs(t, a.err, store.ErrUnknown, "the change")
			kindIs(t, b.err, store.ErrUnavailable, "the refusal")
			o, err := s.Get(t.Context(), key, 10)
			if lands && string(o.Body) != "a" || !lands && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("afterwards the key is %q, %v", o.Body, err)
			}
			// The connection was replaced, so the next write is not in doubt.
			s.commit = func(do func() error) error { return do() }
			if _, err := s.Create(t.Context(), "suite/lease/next", nil); err != nil {
				t.Errorf("the next write: %v", err)
			}
		})
	}
}

func mustConnect(t testing.TB, s *SQLite) *conn {
	t.Helper()
	c, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A statement that fails takes nothing of its transaction with it into the
// database, and every call in it is told that nothing happened.
//
// SPEC ST8
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	w := &writer{s: s, c: mustConnect(t, s)}
	defer func() { _ = w.c.close() }()
	var pages int
	if err := w.c.row("PRAGMA page_count", nil, &pages); err != nil {
		t.Fatal(err)
	}
	if err := w.c.row(fmt.Sprintf("PRAGMA max_page_count(%d)", pages), nil, &pages); err != nil {
		t.Fatal(err)
	}
	small := &write{op: "create", key: "suite/lease/small", apply: (*tx).create, done: make(chan struct{}), body: []byte{}}
	large := &write{op: "create", key: key, apply: (*tx).create, done: make(chan struct{}), body: make([]byte, 50000)}
	w.pending = []*write{small, large}
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	w.transact()
	kindIs(t, small.err, store.ErrUnavailable, "the call before the failure")
	kindIs(t, large.err, store.ErrUnavailable, "the call that failed")
	for _, k := range []string{key, "suite/lease/small"} {
		_, err := s.Get(t.Context(), k, 100)
		kindIs(t, err, store.ErrNotFound, "Get("+k+")")
	}
}

// SPEC ST8
func TestReadOnlyDatabaseIsDenied(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "leases.db"))
	w := &writer{s: s, c: mustConnect(t, s)}
	defer func() { _ = w.c.close() }()
	if _, err := w.c.exec("PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	err := s.failed("create", key, w.begin())
	kindIs(t, err, store.ErrDenied, "a write without the right to")
	if !strings.Contains(err.Error(), "write access to "+s.path) {
		t.Errorf("the error %q does not name what is missing", err)
	}
}

// Close waits for a disk that hangs, but not for ever, and says so.
//
// SPEC ST13
func TestCloseBesideAHungCommit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := OpenSQLite(t.Context(), filepath.Join(dir, "leases.db"))
		if err != nil {
			t.Fatal(err)
		}
		g := gateCommits(s)
		stuck := create(t.Context(), s, key)
		<-g.reached
		begun := time.Now()
		kindIs(t, s.Close(), store.ErrUnavailable, "Close beside a hung commit")
		if d := time.Since(begun); d != closeLimit {
			t.Errorf("Close took %v, want %v", d, closeLimit)
		}
		close(g.open)
		if r := <-stuck; r.err != nil {
			t.Errorf("the call in flight ended with %v", r.err)
		}
		synctest.Wait()
	})
}

// A process with much to write leaves the lock alone now and then.
//
// SPEC ST13
func TestWriterRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stop, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &writer{s: &SQLite{stop: stop}}
		rested := time.Duration(0)
		const transactions, length = 200, time.Millisecond
		for range transactions {
			before := time.Now()
			w.rest()
			rested += time.Since(before)
			<-time.After(length) // the transaction
			w.lastEnd = time.Now()
		}
		least := hogRest / 2 * (transactions * length / (hogLimit + 2*hogRest))
		if rested < least || rested > transactions*length/5 {
			t.Errorf("in %v of transactions the writer rested for %v, want at least %v", transactions*length, rested, least)
		}
	})
}

// Versions that this store never gave are no version.
//
// SPEC ST4
func TestForeignVersionsMatchNothing(t *testing.T) {
	t.Parallel()
	v := version{12, 345}
	if parseVersion(v.mark()) != v {
		t.Errorf("%s was read as %v", v.mark(), parseVersion(v.mark()))
	}
	for _, mark := range []store.Version{"", "-", "12", "12-", "-9l", "012-9l", "12-09l", "12-9L", "12-9l ", "+12-9l", "12-9l-1", "99999999999999999999-1"} {
		if got := parseVersion(mark); got != noVersion {
			t.Errorf("%q was read as %v", mark, got)
		}
	}
}

// The log stays small however long the renewals go on, beside readers that come
// and go.
//
// SPEC ST14
// CASE B64
func TestLogStaysSmall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	stop, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for stop.Err() == nil {
				if _, err := s.Get(t.Context(), key, 1000); err != nil && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
				pause(stop, time.Millisecond)
			}
		})
	}
	v, err := s.Create(t.Context(), key, make([]byte, 600))
	for range 2500 {
		if err != nil {
			t.Fatal(err)
		}
		v, err = s.Replace(t.Context(), key, make([]byte, 600), v)
	}
	cancel()
	wg.Wait()
	if size := fileSize(t, path+"-wal"); size > 6<<20 {
		t.Errorf("after 2500 renewals the log has %d bytes", size)
	}
	if size := fileSize(t, path); size > 100<<10 {
		t.Errorf("after 2500 renewals of one key the database has %d bytes", size)
	}
}

// Names that are used once and removed do not make the database grow.
//
// SPEC LS15
// CASE B64
func TestRemovedKeysLeaveNoSpaceBehind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 250 {
				k := fmt.Sprintf("suite/lease/job-%d-%d", worker, i)
				v, err := s.Create(t.Context(), k, make([]byte, 600))
				if err == nil {
					err = s.DeleteIf(t.Context(), k, v)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for k, err := range s.List(t.Context(), "", "") {
		t.Errorf("left behind: %s, %v", k, err)
	}
	if size := fileSize(t, path); size > 200<<10 {
		t.Errorf("after 2000 names that came and went the database has %d bytes", size)
	}
}
