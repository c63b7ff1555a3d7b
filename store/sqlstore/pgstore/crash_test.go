package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
)

// SPEC ST9 ST16
func TestServerCrash(t *testing.T) {
	t.Parallel()
	server(t)
	p, err := testserver.StartPostgreSQL("synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=0")
	testserver.Need(t, "PostgreSQL", err)
	t.Cleanup(p.Remove)
	// One after the other: each crashes the server.
	t.Run("durable whatever is set", func(t *testing.T) { durableWhateverIsSet(t, p) })
	t.Run("in traffic", func(t *testing.T) { crashInTraffic(t, p) })
	t.Run("lines are joined again", func(t *testing.T) { linesAfterCrash(t, p) })
}

// The server crashes in mid-traffic and comes back: what was acknowledged is
// there, what was refused is not, and what is unknown is either.
func crashInTraffic(t *testing.T, p *testserver.PostgreSQL) {
	s := open(t, p.DSN)
	const workers = 4
	type state struct{ acked, maybe int }
	states := make([]state, workers)
	var written atomic.Int64
	stop, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			st := &states[w]
			k := fmt.Sprintf("ns/lease/w%d", w)
			v, err := s.Create(t.Context(), k, []byte("0"))
			for err != nil && t.Context().Err() == nil {
				v, err = s.Create(t.Context(), k, []byte("0"))
			}
			for stop.Err() == nil {
				next := max(st.acked, st.maybe) + 1
				got, err := s.Replace(t.Context(), k, []byte(strconv.Itoa(next)), v)
				switch {
				case err == nil:
					st.acked, v = next, got
					written.Add(1)
				case errors.Is(err, store.ErrUnknown):
					st.maybe = next
					return
				case !errors.Is(err, store.ErrUnavailable):
					t.Errorf("Replace beside the crash: %v", err)
					return
				}
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); written.Load() < 200; time.Sleep(time.Millisecond) { // poll
		if time.Now().After(deadline) {
			t.Fatal("no traffic")
		}
	}
	p.Stop()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	cancel()
	wg.Wait()
	for w, st := range states {
		o, err := s.Get(t.Context(), fmt.Sprintf("ns/lease/w%d", w), 100)
		for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
			o, err = s.Get(t.Context(), fmt.Sprintf("ns/lease/w%d", w), 100)
		}
		n, _ := strconv.Atoi(string(o.Body))
		if err != nil || n != st.acked && n != st.maybe || n < st.acked {
			t.Errorf("worker %d: the record holds %q (%v), acknowledged %d, unknown %d", w, o.Body, err, st.acked, st.maybe)
		}
	}
}

// A write is durable although role, database and connection say that commits
// need not wait for the disk. The same write without the driver is lost, which
// shows that the crash would have shown it.
func durableWhateverIsSet(t *testing.T, p *testserver.PostgreSQL) {
	s := open(t, p.DSN)
	admin(t, p.DSN, "CREATE TABLE control (n int)")
	for i := range 5 {
		v := must(s.Create(t.Context(), fmt.Sprintf("ns/lease/a%d", i), []byte("0")))(t)
		v = must(s.Replace(t.Context(), fmt.Sprintf("ns/lease/a%d", i), []byte("1"), v))(t)
		if i > 2 {
			if err := s.DeleteIf(t.Context(), fmt.Sprintf("ns/lease/a%d", i), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	admin(t, p.DSN, "INSERT INTO control VALUES (1)")
	p.Stop()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		o, err := s.Get(t.Context(), fmt.Sprintf("ns/lease/a%d", i), 10)
		for errors.Is(err, store.ErrUnavailable) && t.Context().Err() == nil {
			o, err = s.Get(t.Context(), fmt.Sprintf("ns/lease/a%d", i), 10)
		}
		if i <= 2 && (err != nil || string(o.Body) != "1") {
			t.Errorf("record %d after the crash: %q, %v", i, o.Body, err)
		}
		if i > 2 && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("record %d was deleted; after the crash: %q, %v", i, o.Body, err)
		}
	}
	if n := admin(t, p.DSN, "SELECT count(*) FROM control")[0][0]; n != "0" {
		t.Errorf("the control write survived, so the crash has shown nothing")
	}
}

// The lines do not survive a crash of the server, and need not: those who stand
// in line join again, and nobody waits for ever.
func linesAfterCrash(t *testing.T, p *testserver.PostgreSQL) {
	s := open(t, p.DSN)
	a, b := must(s.Enqueue(t.Context(), key))(t), must(s.Enqueue(t.Context(), key))(t)
	if err := a.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	if n := admin(t, p.DSN, "SELECT count(*) FROM tenure_queue")[0][0]; n != "0" {
		t.Logf("%s tickets are in line right after the crash", n)
	}
	for deadline := time.Now().Add(20 * time.Second); ; { // poll
		if n, err := adminErr(t, p.DSN, "SELECT count(*) FROM tenure_queue"); err == nil && n[0][0] == "2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the tickets did not join again")
		}
	}
	a.Leave()
	for { // a wait may be told of the trouble
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		err := b.Wait(ctx, 0)
		cancel()
		if err == nil {
			break
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the turn did not come after the crash")
		}
	}
	b.Leave()
}
