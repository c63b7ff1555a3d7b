package pgstore

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
)

// A streaming standby refuses to be a store; once it is promoted, the processes
// whose URL names both hosts go on there: the same place, another clock.
//
// SPEC ST3 ST12 ST16
func TestFailOver(t *testing.T) {
	t.Parallel()
	server(t)
	p, err := testserver.StartPostgreSQL("wal_level=replica", "max_wal_senders=4", "synchronous_standby_names=*")
	testserver.Need(t, "PostgreSQL", err)
	t.Cleanup(p.Remove)
	standby := startStandby(t, p)

	u := must(url.Parse(p.DSN))(t)
	u.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", standby, p.Port)
	s := open(t, u.String()) // finds the primary, though it is the second
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	before := must(s.Now(t.Context()))(t)

	u.Host = fmt.Sprintf("127.0.0.1:%d", standby)
	alone := u.String()
	_, err = tryOpen(t, alone)
	kindIs(t, err, store.ErrUnavailable, "Open of a standby")
	says(t, err, "read-only standby")
	_, err = tryOpen(t, with(alone, "target_session_attrs", "any"))
	kindIs(t, err, store.ErrUnavailable, "Open of a standby as it is")
	says(t, err, "read-only standby")

	for i := range 20 {
		if v, err = s.Replace(t.Context(), key, []byte(strconv.Itoa(i)), v); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop()
	_, err = s.Replace(t.Context(), key, []byte("no server"), v)
	kindIs(t, err, store.ErrUnavailable, "Replace while there is only a standby")
	admin(t, alone, "ALTER SYSTEM RESET synchronous_standby_names")
	admin(t, alone, "SELECT pg_promote(true, 30)")
	var o store.Object
	eventually(t, "the fail-over", func() bool {
		o, err = s.Get(t.Context(), key, 100)
		return err == nil
	})
	if string(o.Body) != "19" || o.Version != v {
		t.Errorf("after the fail-over the record is %q at %s, want 19 at %s", o.Body, o.Version, v)
	}
	if _, err := s.Replace(t.Context(), key, []byte("after"), v); err != nil {
		t.Errorf("Replace after the fail-over: %v", err)
	}
	if now := must(s.Now(t.Context()))(t); now.Instance == before.Instance {
		t.Errorf("the clock of the new primary has the name of the old one: %q", now.Instance)
	}
	if other := open(t, alone).Info(); other.Identity != s.Info().Identity {
		t.Errorf("the place is called %q after the fail-over, %q before", other.Identity, s.Info().Identity)
	}
	ticket := must(s.Enqueue(t.Context(), key))(t) // the unlogged table is there, and empty
	if err := ticket.Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
	ticket.Leave()
}

// startStandby copies p's cluster and lets the copy follow it. It returns the
// copy's port once it follows synchronously.
func startStandby(t *testing.T, p *testserver.PostgreSQL) int {
	t.Helper()
	data := filepath.Join(filepath.Dir(p.Data), "standby")
	out, err := p.Command("pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(p.Port), "-U", "postgres", "-D", data, "-R", "-X", "stream", "-c", "fast", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	port := must(testserver.FreePort())(t)
	cmd := p.Command("postgres", "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	proc, err := testserver.Start(cmd, testserver.Dialable(fmt.Sprintf("127.0.0.1:%d", port)), 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proc.Stop)
	eventually(t, "following", func() bool {
		rows := admin(t, p.DSN, "SELECT sync_state FROM pg_stat_replication")
		return len(rows) == 1 && rows[0][0] == "sync"
	})
	return port
}
