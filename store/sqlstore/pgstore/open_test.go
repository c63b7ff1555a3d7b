package pgstore

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
)

// SPEC ST8 ST11
func TestURLs(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t/pass"
	for _, c := range []struct{ url, words string }{
		{"postgres://h/db?tabel=x", "unknown parameter"},
		{"postgres://h/db?search_path=x", "unknown parameter"},
		{"postgres://h/db?table=Records", "table="},
		{"postgres://h/db?table=x;drop", "malformed"},
		{"postgres://h/db?table=x%3Bdrop", "table="},
		{"postgres://h/db?table=lines_queue", "_queue"},
		{"postgres://h/db?schema=1a", "schema="},
		{"postgres://h/db?schema=a&schema=b", "given 2 times"},
		{"postgres://h/db?create=maybe", "create="},
		{"postgres://h/db?durability=off", "durability="},
		{"postgres://h/db?watch=1", "watch="},
		{"postgres://h/db?listen=h", "listen="},
		{"postgres://h/db?target_session_attrs=standby", "accepts writes"},
		{"postgres://h/db?target_session_attrs=nonsense", "target_session_attrs"},
		{"postgres://h/db?sslmode=nonsense", "sslmode"},
		{"postgres://h/db?pool_max_conns=1", "pool of 1"},
		{"postgres://h/db?pool_max_conns=x", "pool_max_conns"},
		{"postgres://h/db?connect_timeout=x", "connect_timeout"},
		{"postgres://h/db#x", "fragment"},
		{"postgres:db", "\"//\""},
		{"postgres://u:s3cr3t%2Fpass@h/db?sslmode=nonsense", "sslmode"},
		{"postgres://u@h/db?sslmode=nonsense&password=s3cr3t%2Fpass", "sslmode"},
		{"postgres://u@h/db?sslkey=/no/such&sslcert=/no/such&sslmode=require&sslpassword=s3cr3t%2Fpass", "TLS"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Driver().Open(t.Context(), u)
		kindIs(t, err, store.ErrInvalid, c.url)
		says(t, err, c.words)
		silentOf(t, err, secret)
		silentOf(t, err, "s3cr3t%2Fpass")
	}
	if _, err := Open(t.Context(), Config{}); err == nil {
		t.Error("a Config without a pool was accepted")
	}
}

// TLS is the default for servers elsewhere, and a server that accepts writes is
// asked for.
func TestURLDefaults(t *testing.T) {
	t.Setenv("PGSSLMODE", "")
	for _, c := range []struct {
		url   string
		plain bool // may fall back to a connection without TLS
	}{
		{"postgres://db.example.com/x", false},
		{"postgres://10.0.0.1,10.0.0.2/x", false},
		{"postgres://127.0.0.1/x", true},
		{"postgres://localhost/x", true},
		{"postgres://db.example.com/x?sslmode=prefer", true},
		{"postgres:///x?host=/run/postgresql", true},
	} {
		u, _ := url.Parse(c.url)
		cfg, err := ParseURL(u)
		if err != nil {
			t.Fatalf("%s: %v", c.url, err)
		}
		cc := cfg.Pool.ConnConfig
		plain := cc.TLSConfig == nil
		for _, f := range cc.Fallbacks {
			plain = plain || f.TLSConfig == nil
		}
		if plain != c.plain {
			t.Errorf("%s: connects without TLS: %v", c.url, plain)
		}
		if cc.ValidateConnect == nil || cc.ConnectTimeout != connectLimit || cfg.Pool.MaxConns != connections {
			t.Errorf("%s: a default is missing", c.url)
		}
	}
	if d := Drivers(); len(d) != 2 || d[0].Scheme != "postgres" || d[1].Scheme != "postgresql" {
		t.Errorf("Drivers: %v", d)
	}
}

// SPEC ST14
func TestIdentityHoldsNoSecretAndNoHost(t *testing.T) {
	t.Parallel()
	u := place(t)
	_, through := startProxy(t, with(u, "password", "very-secret-word"))
	here := open(t, u).Info()
	u2 := must(url.Parse(through))(t)
	u2.Scheme = "postgresql"
	st, err := Drivers()[1].Open(t.Context(), u2)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	there := st.Info()
	if here.Place == there.Place || here.Place == "" {
		t.Errorf("two ways to one place are both called %q", here.Place)
	}
	if here.Place, there.Place = "", ""; here != there {
		t.Errorf("one place, two names: %+v and %+v", here, there)
	}
	if strings.Contains(fmt.Sprintf("%+v", st.Info()), "secret") {
		t.Errorf("Info shows the password: %+v", st.Info())
	}
}

// SPEC ST10
func TestManyOpenAtOnce(t *testing.T) {
	t.Parallel()
	u := place(t)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			parsed, _ := url.Parse(with(u, "watch", "no"))
			s, err := Driver().Open(t.Context(), parsed)
			if err != nil {
				t.Errorf("Open beside others: %v", err)
				return
			}
			if !s.Info().Can.Has(store.CanQueue) {
				t.Error("opened without the waiting lines")
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// SPEC ST16
func TestOpenRefusesWhatCannotKeepTheContract(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, sql, words string }{
		{"unlogged", `CREATE UNLOGGED TABLE %s.tenure_records (key text COLLATE "C" PRIMARY KEY, body bytea, version uuid, modified timestamptz)`, "unlogged"},
		{"folding collation", `CREATE TABLE %s.tenure_records (key text COLLATE "und-x-icu" PRIMARY KEY, body bytea, version uuid, modified timestamptz)`, "collation C"},
		{"no unique key", `CREATE TABLE %s.tenure_records (key text COLLATE "C", body bytea, version uuid, modified timestamptz)`, "unique index"},
		{"another program's", `CREATE TABLE %s.tenure_records (key text PRIMARY KEY, value text)`, "another program's"},
		{"times without a zone", `CREATE TABLE %s.tenure_records (key text COLLATE "C" PRIMARY KEY, body bytea, version uuid, modified timestamp)`, "timestamp without time zone"},
		{"a view", `CREATE VIEW %s.tenure_records AS SELECT 'k'::text AS key, ''::bytea AS body, gen_random_uuid() AS version, now() AS modified`, "ordinary table"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			u := place(t)
			admin(t, u, fmt.Sprintf(c.sql, param(u, "schema")))
			_, err := tryOpen(t, u)
			kindIs(t, err, store.ErrInvalid, "Open")
			says(t, err, c.words)
		})
	}
	u := place(t)
	_, err := tryOpen(t, with(u, "create", "no"))
	kindIs(t, err, store.ErrInvalid, "Open with create=no of an absent table")
	says(t, err, "does not exist", "create=no")
	_, err = tryOpen(t, with(u, "schema", "no_such_schema"))
	kindIs(t, err, store.ErrInvalid, "Open in an absent schema")
	says(t, err, "CREATE SCHEMA")
	noDB := must(url.Parse(u))(t)
	noDB.Path = "/no_such_database"
	_, err = tryOpen(t, noDB.String())
	kindIs(t, err, store.ErrInvalid, "Open of an absent database")
	says(t, err, "database does not exist")
}

// SPEC ST16
func TestOpenNamesAServerThatForgets(t *testing.T) {
	t.Parallel()
	server(t)
	p, err := testserver.StartPostgreSQL()
	testserver.Need(t, "PostgreSQL", err)
	t.Cleanup(p.Remove)
	for _, setting := range []string{"fsync", "full_page_writes"} {
		admin(t, p.DSN, "ALTER SYSTEM SET "+setting+" = off")
		admin(t, p.DSN, "SELECT pg_reload_conf()")
		for deadline := time.Now().Add(10 * time.Second); admin(t, p.DSN, "SHOW "+setting)[0][0] == "on"; { // poll
			if time.Now().After(deadline) {
				t.Fatalf("%s did not change", setting)
			}
		}
		_, err = tryOpen(t, p.DSN)
		kindIs(t, err, store.ErrInvalid, "Open with "+setting+" off")
		says(t, err, setting+" is off", "durability=trust")
		open(t, with(p.DSN, "durability", "trust", "watch", "no"))
		admin(t, p.DSN, "ALTER SYSTEM RESET "+setting)
		admin(t, p.DSN, "SELECT pg_reload_conf()")
	}
}

// The statements of the documentation make tables that open, for a role with no
// other rights.
func TestDocumentedStatements(t *testing.T) {
	t.Parallel()
	u := place(t)
	schema := param(u, "schema")
	role := "d_" + schema
	page := string(must(os.ReadFile("../../../docs/stores/postgres.md"))(t))
	_, page, _ = strings.Cut(page, "## What it needs")
	page, _, ok := strings.Cut(page, "\n## ")
	if !ok {
		t.Fatal("the documentation has another shape")
	}
	var block strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "    ") && !strings.Contains(line, "CREATE SCHEMA") {
			block.WriteString(line)
		}
	}
	statements := strings.NewReplacer("tenure.", schema+".", "SCHEMA tenure", "SCHEMA "+schema, "TO app", "TO "+role).Replace(block.String())
	admin(t, u, "CREATE ROLE "+role+" LOGIN NOSUPERUSER")
	t.Cleanup(func() { admin(t, u, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	admin(t, u, statements)
	asRole := must(url.Parse(with(u, "create", "no")))(t)
	asRole.User = url.User(role)
	s := open(t, asRole.String())
	if can := store.CanQueue | store.CanWatch | store.CanClock | store.CanDeleteIf; !s.Info().Can.Has(can) {
		t.Errorf("the store can %b, want %b", s.Info().Can, can)
	}
	r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
	if err != nil || !r.Sound {
		t.Errorf("the probe: %v\n%s", err, r)
	}
}

// A role that may do nothing but read and write rows is enough, once the tables
// are there, and each missing right is named.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	u := place(t)
	schema := param(u, "schema")
	role := "r_" + schema
	admin(t, u, "CREATE ROLE "+role+" LOGIN NOSUPERUSER; GRANT USAGE ON SCHEMA "+schema+" TO "+role)
	t.Cleanup(func() { admin(t, u, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	asRole := must(url.Parse(u))(t)
	asRole.User = url.User(role)
	least := asRole.String()

	_, err := tryOpen(t, least)
	kindIs(t, err, store.ErrDenied, "Open without the right to make the table")
	says(t, err, "CREATE on the schema")

	owner := open(t, u)
	_, err = tryOpen(t, least)
	if err == nil {
		t.Log("opened without rights on the table, which shows at the first call")
	}
	admin(t, u, "GRANT SELECT ON "+schema+".tenure_records TO "+role)
	reader := open(t, least)
	if reader.Info().Can.Has(store.CanQueue) {
		t.Error("the waiting lines are declared without rights on their table")
	}
	_, err = reader.Get(t.Context(), key, 10)
	kindIs(t, err, store.ErrNotFound, "Get by a role that may read")
	for op, right := range map[string]string{"Create": "INSERT", "Replace": "UPDATE", "Delete": "DELETE", "DeleteIf": "DELETE", "Commit": "INSERT, UPDATE and DELETE"} {
		for _, w := range writes(reader) {
			if w.name == op {
				err := w.call(t.Context())
				kindIs(t, err, store.ErrDenied, op+" by a role that may read")
				says(t, err, right)
			}
		}
	}
	admin(t, u, "GRANT INSERT, UPDATE, DELETE ON "+schema+".tenure_records TO "+role+
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON "+schema+".tenure_queue TO "+role)
	s := open(t, least)
	if got, want := s.Info(), owner.Info(); got != want {
		t.Errorf("the least role sees %+v, the owner %+v", got, want)
	}
	r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("ns", "probe")})
	if err != nil || !r.Sound {
		t.Errorf("the probe of the least role: %v\n%s", err, r)
	}
	ticket, err := s.Enqueue(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := ticket.Wait(t.Context(), 0); err != nil {
		t.Error(err)
	}
	ticket.Leave()
}

// Settings of the session cannot change what is read or written.
//
// SPEC ST3 ST12
// CASE B36
func TestSessionSettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	u := place(t)
	plain := open(t, with(u, "watch", "no"))
	for i, options := range []string{
		"-c TimeZone=Pacific/Kiritimati -c DateStyle=SQL,DMY -c bytea_output=escape -c IntervalStyle=iso_8601",
		"-c default_transaction_isolation=serializable",
		"-c search_path=pg_temp -c extra_float_digits=-15 -c client_encoding=LATIN1",
		"-c plan_cache_mode=force_generic_plan -c jit=on -c enable_indexscan=off",
	} {
		s := open(t, with(u, "watch", "no", "options", options))
		k, body := fmt.Sprintf("%s%d", key, i), "\x00\xff\\body"
		before := must(plain.Now(t.Context()))(t)
		v := must(s.Create(t.Context(), k, []byte(body)))(t)
		here, there := must(s.Get(t.Context(), k, 100))(t), must(plain.Get(t.Context(), k, 100))(t)
		if string(here.Body) != body || here.Version != v || !here.Modified.Equal(there.Modified) || there.Version != v {
			t.Errorf("%s: %+v and %+v", options, here, there)
		}
		now := must(s.Now(t.Context()))(t)
		if here.Modified.Before(before.Time) || here.Modified.After(now.Time) || now.Instance != before.Instance {
			t.Errorf("%s: written at %v, between %v and %v", options, here.Modified, before, now)
		}
		for _, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Errorf("%s: %v", options, err)
			}
		}
	}
}

// A pool that the caller configured is copied, and its hooks do not get in the
// way.
func TestOpenWithAConfig(t *testing.T) {
	t.Parallel()
	u := place(t)
	pool := must(pgxpool.ParseConfig(bare(u)))(t)
	s, err := Open(t.Context(), Config{Pool: pool, Schema: param(u, "schema"), Table: "mine", TrustStorage: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if pool.ShouldPing != nil || pool.PrepareConn != nil {
		t.Error("Open changed the caller's configuration")
	}
	if _, err := s.Create(t.Context(), key, nil); err != nil {
		t.Error(err)
	}
	if n := admin(t, u, "SELECT count(*) FROM "+param(u, "schema")+".mine, "+param(u, "schema")+".mine_queue")[0][0]; n != "0" {
		t.Errorf("the tables hold %s", n)
	}
}
