package pgstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// eventually polls until ok is true.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) { // poll
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// startWatch watches key from v in the background until it returns.
func startWatch(ctx context.Context, s *Store, v store.Version) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Watch(ctx, key, v) }()
	return done
}

// inPlace waits until s listens for key.
func inPlace(t testing.TB, s *Store) {
	t.Helper()
	eventually(t, "the watch", func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.heard[s.topicOf(key).channel]
	})
}

// The notifications of a server all wait for one lock. A lease that nobody
// watches must not make its renewals wait there.
func TestNobodyIsToldIfNobodyWatches(t *testing.T) {
	t.Parallel()
	u := place(t)
	s, watcher := open(t, u), open(t, u)
	cfg := must(pgconn.ParseConfig(bare(u)))(t)
	payload := ""
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { payload = n.Payload }
	ear := must(pgconn.ConnectConfig(t.Context(), cfg))(t)
	defer func() { _ = ear.Close(context.Background()) }()
	if _, err := ear.Exec(t.Context(), "LISTEN "+quote(s.topicOf(key).channel)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	// A mark through the same queue tells that nothing came before it.
	told := func() (n int) {
		admin(t, u, fmt.Sprintf("SELECT pg_notify('%s', 'mark')", s.topicOf(key).channel))
		for mark := false; !mark; {
			if err := ear.WaitForNotification(t.Context()); err != nil {
				t.Fatal(err)
			}
			mark = payload == "mark"
			n++
		}
		return n - 1
	}
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	for range 10 {
		v = must(s.Replace(t.Context(), key, []byte("1"), v))(t)
	}
	if n := told(); n != 0 {
		t.Errorf("11 writes that nobody watches sent %d notifications", n)
	}
	w := startWatch(t.Context(), watcher, v)
	inPlace(t, watcher)
	must(s.Replace(t.Context(), key, []byte("2"), v))(t)
	if err := <-w; err != nil {
		t.Errorf("Watch: %v", err)
	}
	if _, err := s.Replace(t.Context(), key, []byte("3"), "stale"); err == nil {
		t.Error("a stale Replace went through")
	}
	if n := told(); n != 1 {
		t.Errorf("one write that is watched, and one that was refused, sent %d notifications", n)
	}
}

// The listening connection breaks: those who watch are told, poll, and watch
// again when it is back.
//
// SPEC ST14
func TestWatchBreaksAndComesBack(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, with(u, "application_name", "watch-"+param(u, "schema")))
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	for round := range 2 {
		w := startWatch(t.Context(), s, v)
		inPlace(t, s)
		admin(t, u, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'watch-"+param(u, "schema")+"'")
		kindIs(t, <-w, store.ErrUnavailable, fmt.Sprintf("Watch number %d whose connection ended", round))
		eventually(t, "another try", func() bool {
			s.hub.mu.Lock()
			defer s.hub.mu.Unlock()
			return time.Now().After(s.hub.until)
		})
	}
	w := startWatch(t.Context(), s, v)
	inPlace(t, s)
	must(s.Replace(t.Context(), key, []byte("1"), v))(t)
	if err := <-w; err != nil {
		t.Errorf("Watch after the connection came back: %v", err)
	}
}

// A pooler that swallows notifications is recognised, and callers poll.
func TestSwallowedNotificationsAreNoticed(t *testing.T) {
	t.Parallel()
	u := place(t)
	_, through := startProxy(t, u)
	s := open(t, through)
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	err := s.Watch(t.Context(), key, v)
	kindIs(t, err, store.ErrUnavailable, "Watch through a pooler that swallows notifications")
	says(t, err, "transaction mode", "listen=host:port")

	// With the server's own address for listening, it works.
	direct := open(t, with(through, "listen", hostOf(u)))
	w := startWatch(t.Context(), direct, v)
	inPlace(t, direct)
	must(s.Replace(t.Context(), key, []byte("1"), v))(t)
	if err := <-w; err != nil {
		t.Errorf("Watch with listen=: %v", err)
	}
}

// A store that watches very many keys takes no more than its share of the
// server's locks, and gives up what it watches no more.
func TestWatchedKeysAreBounded(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, u)
	refused := 0
	for i := range 3 * maxTopics {
		ctx, cancel := context.WithCancel(t.Context())
		k := fmt.Sprintf("%s%d", key, i)
		done := make(chan error, 1)
		go func() { done <- s.Watch(ctx, k, "") }()
		channel := s.topicOf(k).channel
		eventually(t, "the watch", func() bool {
			s.hub.mu.Lock()
			defer s.hub.mu.Unlock()
			return s.hub.heard[channel] || len(done) > 0
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			refused++
		}
	}
	if refused > 0 {
		t.Errorf("%d watches were refused although the earlier ones were over", refused)
	}
	n := admin(t, u, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE query LIKE '%"+quote(s.topicOf(fmt.Sprintf("%s%d", key, 3*maxTopics-1)).channel)+"%' AND pid <> pg_backend_pid())")[0][0]
	if n != fmt.Sprint(maxTopics) {
		t.Errorf("%s locks are held, want %d", n, maxTopics)
	}
}
