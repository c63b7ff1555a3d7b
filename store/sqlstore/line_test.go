package sqlstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
)

// enqueue joins a line and leaves it with the test.
func enqueue(t *testing.T, s *SQLite, key string) store.Ticket {
	t.Helper()
	ticket, err := s.Enqueue(t.Context(), key)
	if err != nil {
		t.Fatalf("Enqueue: %v", err)
	}
	t.Cleanup(ticket.Leave)
	return ticket
}

// lineRows counts what the lines of the store at path hold.
func lineRows(t testing.TB, path string) (tickets, members int) {
	t.Helper()
	withConn(t, path+lineSuffix, func(c *conn) {
		if err := c.row("SELECT (SELECT count(*) FROM tenure_queue), (SELECT count(*) FROM tenure_waiter)", nil, &tickets, &members); err != nil {
			t.Error(err)
		}
	})
	return tickets, members
}

// ghost puts a member into the line for key that will never ping.
func ghost(t testing.TB, path, key string, ping int64) {
	t.Helper()
	withConn(t, path+lineSuffix, func(c *conn) {
		err := whileBusy(t.Context(), func() error {
			return c.atomically(func() error {
				if _, err := c.exec("INSERT INTO tenure_waiter VALUES ('ghost', ?)", ping); err != nil {
					return err
				}
				_, err := c.exec("INSERT INTO tenure_queue (key, member) VALUES (?, 'ghost')", key)
				return err
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A member that shows no sign of life is passed over after it was watched for
// deadAfter, and its rows are removed.
//
// SPEC LS9
func TestSilentMemberIsPassedOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "leases.db")
		s := deaf(t, path)
		enqueue(t, s, "suite/lease/other").Leave() // makes the database of the lines
		ghost(t, path, key, nowMillis())
		ticket := enqueue(t, s, key)
		begun := time.Now()
		if err := ticket.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d < deadAfter || d > deadAfter+2*judgeEvery {
			t.Errorf("the dead member was passed over after %v, want about %v", d, deadAfter)
		}
		<-time.After(time.Second)
		if tickets, members := lineRows(t, path); tickets != 1 || members != 1 {
			t.Errorf("%d tickets of %d members are left, want the one that waited", tickets, members)
		}
	})
}

// A member that pings is waited for, however long it takes.
//
// SPEC LS9
func TestLivingMemberIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "leases.db")
		head, s := deaf(t, path), deaf(t, path)
		first := enqueue(t, head, key)
		ticket := enqueue(t, s, key)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := ticket.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Wait behind a living member: %v", err)
		}
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Errorf("Wait of the head: %v", err)
		}
	})
}

// A process that was stopped for so long that it was taken for dead finds its
// place lost and stands at the end again.
//
// SPEC LS9
func TestLostPlaceIsTakenAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "leases.db")
		s, other := deaf(t, path), deaf(t, path)
		first := enqueue(t, s, key)
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		withConn(t, path+lineSuffix, func(c *conn) { // as another process that judged it dead
			if _, err := c.exec("DELETE FROM tenure_queue"); err != nil {
				t.Error(err)
			}
		})
		second := enqueue(t, other, key)
		if err := second.Wait(t.Context(), 0); err != nil {
			t.Fatalf("Wait of the one behind the lost place: %v", err)
		}
		<-time.After(time.Second) // the first one notices
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := first.Wait(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait of the one that lost its place: %v", err)
		}
		second.Leave()
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Errorf("Wait after the other one left: %v", err)
		}
	})
}

// What members left behind that died long ago is swept away by the next one
// that joins, and Waiting does not count it.
//
// SPEC LS9
// CASE B64
func TestOldRowsAreSweptAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	if yes, err := s.Waiting(t.Context(), key); yes || err != nil {
		t.Errorf("Waiting where nobody ever waited: %v, %v", yes, err)
	}
	if _, err := os.Stat(path + lineSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Waiting made a file: %v", err)
	}
	enqueue(t, s, "suite/lease/other").Leave()
	ghost(t, path, key, nowMillis()-2*staleMillis)
	if yes, err := s.Waiting(t.Context(), key); yes || err != nil {
		t.Errorf("Waiting beside the long dead: %v, %v", yes, err)
	}
	other := open(t, path)
	enqueue(t, other, "suite/lease/other")
	if tickets, members := lineRows(t, path); tickets != 1 || members != 1 {
		t.Errorf("%d tickets of %d members, want the one that joined", tickets, members)
	}
	if yes, err := s.Waiting(t.Context(), "suite/lease/other"); !yes || err != nil {
		t.Errorf("Waiting beside one that just joined: %v, %v", yes, err)
	}
}

// An Enqueue that nobody waits for any more leaves no ticket behind.
//
// SPEC LS9
// CASE B24
func TestAbandonedEnqueueLeavesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	enqueue(t, s, key).Leave()
	withConn(t, path+lineSuffix, func(c *conn) {
		_ = c.atomically(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			_, err := s.Enqueue(ctx, key)
			kindIs(t, err, store.ErrUnavailable, "Enqueue beside a holder of the write lock")
			return nil
		})
	})
	eventually(t, "an empty line", func() bool {
		tickets, members := lineRows(t, path)
		return tickets == 0 && members == 0
	})
}

// Closing the store takes its tickets out.
//
// SPEC LS9
func TestCloseLeavesTheLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	ticket := enqueue(t, s, key)
	enqueue(t, s, key)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kindIs(t, ticket.Wait(t.Context(), 0), store.ErrUnavailable, "Wait after Close")
	if tickets, members := lineRows(t, path); tickets != 0 || members != 0 {
		t.Errorf("%d tickets of %d members are left", tickets, members)
	}
	for _, name := range []string{path, path + lineSuffix} {
		for _, suffix := range companions {
			if _, err := os.Stat(name + suffix); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", name+suffix, err)
			}
		}
	}
}

// The lines' database may be thrown away; those in line join again.
//
// SPEC LS9
func TestLinesThrownAway(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := open(t, path)
	ticket := enqueue(t, s, key)
	for _, suffix := range append([]string{""}, companions...) {
		if err := os.Remove(path + lineSuffix + suffix); err != nil {
			t.Fatal(err)
		}
	}
	other := open(t, path)
	eventually(t, "the ticket to be in the new database", func() bool {
		yes, err := other.Waiting(t.Context(), key)
		return yes && err == nil
	})
	if err := ticket.Wait(t.Context(), 0); err != nil {
		t.Errorf("Wait: %v", err)
	}
}

// deaf opens a store that learns of other processes' writes by polling alone.
func deaf(t testing.TB, path string) *SQLite {
	s := open(t, path)
	s.newBell = func() *bell { return nil }
	return s
}
