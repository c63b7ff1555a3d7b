package pgstore

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// startPgBouncer starts one in transaction mode, with two connections to the
// server for everybody, and returns its host:port.
func startPgBouncer(t *testing.T) string {
	t.Helper()
	p := server(t)
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if _, err = os.Stat("/usr/sbin/pgbouncer"); err != nil {
			testserver.Need(t, "PgBouncer in transaction mode", fmt.Errorf("%w (no pgbouncer)", testserver.ErrMissing))
		}
		program = "/usr/sbin/pgbouncer"
	}
	port := must(testserver.FreePort())(t)
	config := filepath.Join(filepath.Dir(p.Data), fmt.Sprintf("pgbouncer-%d.ini", port))
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
`, p.Port, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, config)
	cmd.SysProcAttr = p.Command("postgres").SysProcAttr // it refuses root, too
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	proc, err := testserver.Start(cmd, testserver.Dialable(addr), 20*time.Second)
	testserver.Need(t, "PgBouncer", err)
	t.Cleanup(proc.Stop)
	return addr
}

func through(t testing.TB, rawURL, host string) string {
	u := must(url.Parse(rawURL))(t)
	u.Host = host
	return u.String()
}

// Everything but watching works through a pooler in transaction mode; watching
// says that it does not, and works with the server's own address.
//
// SPEC ST1 ST2 ST9 ST10 LS9
// CASE B83
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	bouncer := startPgBouncer(t)
	t.Run("suite with losses", func(t *testing.T) {
		t.Parallel()
		urls := &byStore{}
		storetest.Lost(t, storetest.Harness{
			Open: func(t testing.TB) store.Store {
				u := through(t, with(place(t), "watch", "no"), bouncer)
				s := open(t, u)
				urls.put(s, u)
				return s
			},
			Peer: func(t testing.TB, s store.Store) store.Store { return open(t, urls.get(s)) },
		})
	})
	t.Run("probe", func(t *testing.T) {
		t.Parallel()
		s := open(t, through(t, place(t), bouncer))
		r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("ns", "probe"), Deep: true, Limit: time.Minute})
		if err != nil || !r.Sound || !r.DeleteIfSound {
			t.Errorf("the deep probe: %v\n%s", err, r)
		}
	})
	t.Run("line", func(t *testing.T) {
		t.Parallel()
		u := through(t, place(t), bouncer)
		a, b := open(t, u), open(t, u)
		first, second := must(a.Enqueue(t.Context(), key))(t), must(b.Enqueue(t.Context(), key))(t)
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		turn := make(chan error, 1)
		go func() { turn <- second.Wait(t.Context(), 0) }()
		first.Leave()
		if err := <-turn; err != nil {
			t.Error(err)
		}
		second.Leave()
	})
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		u := place(t)
		pooled := open(t, through(t, u, bouncer))
		v := must(pooled.Create(t.Context(), key, []byte("0")))(t)
		err := pooled.Watch(t.Context(), key, v)
		kindIs(t, err, store.ErrUnavailable, "Watch through the pooler")
		says(t, err, "listen=host:port")
		direct := open(t, with(through(t, u, bouncer), "listen", hostOf(u)))
		w := startWatch(t.Context(), direct, v)
		inPlace(t, direct)
		must(pooled.Replace(t.Context(), key, []byte("1"), v))(t)
		if err := <-w; err != nil {
			t.Errorf("Watch with listen=: %v", err)
		}
	})
}
