package pgstore

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// The stamp is of an instant while the write ran, by the very clock that Now
// reads, to the microsecond.
//
// SPEC ST12
// CASE B36
func TestStampsAreOfTheWrite(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, with(u, "watch", "no"))
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	before := must(s.Now(t.Context()))(t)
	for i := range 20 {
		var err error
		if v, err = s.Replace(t.Context(), key, []byte{byte(i)}, v); err != nil {
			t.Fatal(err)
		}
		m := must(s.Get(t.Context(), key, 10))(t).Modified
		after := must(s.Now(t.Context()))(t)
		if m.Before(before.Time) || m.After(after.Time) {
			t.Fatalf("a write between %v and %v is stamped %v", before.Time, after.Time, m)
		}
		before = after
	}
}

// The clock's name changes when the server is started again, for that may be on
// another machine; a lease granted before is then observed, as without a clock.
//
// SPEC ST12 LS3
func TestRestartIsAnotherClock(t *testing.T) {
	t.Parallel()
	server(t)
	p, err := testserver.StartPostgreSQL()
	testserver.Need(t, "PostgreSQL", err)
	t.Cleanup(p.Remove)
	s := open(t, p.DSN)
	before := must(s.Now(t.Context()))(t)
	if again := must(s.Now(t.Context()))(t); again.Instance != before.Instance || again.Time.Before(before.Time) {
		t.Errorf("two readings of one clock: %v, %v", before, again)
	}
	p.Stop()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
	var after store.Reading
	eventually(t, "the restart", func() bool {
		after, err = s.Now(t.Context())
		return err == nil
	})
	if after.Instance == before.Instance || after.Instance == "" {
		t.Errorf("the clock is called %q after a restart, %q before", after.Instance, before.Instance)
	}
	other := open(t, p.DSN)
	if now := must(other.Now(t.Context()))(t); now.Instance != after.Instance || other.Info().Identity != s.Info().Identity {
		t.Errorf("a new process calls the clock %q and the place %q", now.Instance, other.Info().Identity)
	}
}

// Without the right to read the cluster's identifier, the start of the server
// still names the clock, and the host the place.
//
// SPEC ST12
func TestClockWithoutTheClustersIdentifier(t *testing.T) {
	t.Parallel()
	server(t)
	u := place(t)
	s := open(t, with(u, "watch", "no"))
	full := must(s.Now(t.Context()))(t)
	if err := s.identify(t.Context(), finding{database: "postgres"}); err != nil {
		t.Fatal(err)
	}
	plain := must(s.Now(t.Context()))(t)
	if plain.Instance == "" || plain.Instance == full.Instance || plain.Time.Before(full.Time) {
		t.Errorf("the clock is %+v, with the identifier %+v", plain, full)
	}
	says(t, errors.New(s.identity), "127.0.0.1", "postgres", param(u, "schema"))
}

// Where the operator enabled the store's clock, a lease whose holder fell silent
// before the rival came is taken over at once, by the server's clock, in whatever
// time zones the two sessions are.
//
// SPEC LS3 ST12
// CASE B36
func TestSilentLeaseIsTakenOverByTheServersClock(t *testing.T) {
	t.Parallel()
	const ttl, margin = time.Second, 100 * time.Millisecond
	for _, useClock := range []bool{true, false} {
		u := place(t)
		opts := []tenure.Option{tenure.WithTTL(ttl), tenure.WithStateDir(t.TempDir()), tenure.WithoutProbe()}
		if useClock {
			opts = append(opts, tenure.WithStoreClock())
		}
		st := open(t, with(u, "options", "-c TimeZone=America/Los_Angeles"))
		net := faultstore.New(st, faultstore.Options{})
		holder, err := tenure.New(t.Context(), net, opts...)
		if err != nil {
			t.Fatal(err)
		}
		lost, err := holder.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		net.SetLink(faultstore.Dead) // kill -9
		k := leaseKey(t, st)
		silent := must(st.Get(t.Context(), k, 1<<16))(t).Modified
		eventually(t, "the silence", func() bool {
			return must(st.Now(t.Context()))(t).Time.Sub(silent) > ttl+ttl/100+margin+200*time.Millisecond
		})
		// A rival that was never there before.
		opts[1] = tenure.WithStateDir(t.TempDir())
		rival, err := tenure.New(t.Context(), open(t, with(u, "options", "-c TimeZone=Pacific/Kiritimati")), opts...)
		if err != nil {
			t.Fatal(err)
		}
		l, err := rival.TryAcquire(t.Context(), "job")
		if useClock && (err != nil || l.Token() <= lost.Token()) {
			t.Errorf("the silent lease was not taken over at once: %v", err)
		}
		if !useClock && !errors.Is(err, tenure.ErrHeld) {
			t.Errorf("without the operator's leave it was not observed first: %v", err)
		}
		if err := rival.Close(); err != nil {
			t.Error(err)
		}
		_ = holder.Close()
	}
}

func leaseKey(t testing.TB, s *Store) string {
	t.Helper()
	for k, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if len(k) > 4 && k[len(k)-4:] == "/job" {
			return k
		}
	}
	t.Fatal("no lease's record")
	return ""
}
