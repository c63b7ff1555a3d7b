package pgstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
)

// shared is the one cluster of this test process. It does not sync, for it is
// never crashed; those that are have clusters of their own, which do.
var shared struct {
	once   sync.Once
	server *testserver.PostgreSQL
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Remove()
	}
	if code == 0 {
		// The servers' own goroutines are gone with them.
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "goleak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// server is the shared cluster.
func server(t testing.TB) *testserver.PostgreSQL {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = testserver.StartPostgreSQL("max_connections=400", "fsync=off", "full_page_writes=off")
	})
	testserver.Need(t, "PostgreSQL", shared.err)
	return shared.server
}

// place is a schema of the test's own in the shared cluster, as a store URL.
func place(t testing.TB) string {
	t.Helper()
	p := server(t)
	schema := "t_" + strings.ToLower(rand.Text()[:12])
	admin(t, p.DSN, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { admin(t, p.DSN, "DROP SCHEMA "+schema+" CASCADE") })
	return with(p.DSN, "schema", schema, "durability", "trust")
}

// with sets parameters of a URL, in pairs.
func with(rawURL string, pairs ...string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// param is a parameter of a URL.
func param(rawURL, name string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err)
	}
	return u.Query().Get(name)
}

// bare is a store URL without this driver's own parameters.
func bare(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	for _, p := range append(ownParams, "pool_max_conns") {
		q.Del(p)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// admin runs SQL on a connection of its own and returns the last result's rows
// as text.
func admin(t testing.TB, rawURL, sql string) [][]string {
	t.Helper()
	rows, err := adminErr(t, rawURL, sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return rows
}

func adminErr(t testing.TB, rawURL, sql string) ([][]string, error) {
	t.Helper()
	ctx := t.Context()
	if ctx.Err() != nil { // in a clean-up
		ctx = contextWithoutEnd
	}
	c, err := pgconn.Connect(ctx, bare(rawURL))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	results, err := c.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	var out [][]string
	for _, r := range results[len(results)-1].Rows {
		var row []string
		for _, v := range r {
			row = append(row, string(v))
		}
		out = append(out, row)
	}
	return out, nil
}

// open opens a store that is closed with the test.
func open(t testing.TB, rawURL string) *Store {
	t.Helper()
	s, err := tryOpen(t, rawURL)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func tryOpen(t testing.TB, rawURL string) (*Store, error) {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Driver().Open(t.Context(), u)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s.(*Store), nil
}

const key = "ns/lease/k"

func kindIs(t testing.TB, err, want error, what string) {
	t.Helper()
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == want) {
			t.Fatalf("%s gave %v, want the kind %q and no other", what, err, want)
		}
	}
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("the error %v does not say %q", err, w)
		}
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func silentOf(t testing.TB, err error, secret string) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(fmt.Sprintf("%v %+v %#v", e, e, e), secret) {
			t.Errorf("the error shows the password: %#v", e)
		}
	}
}

// hostOf is the host:port of a URL.
func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		panic(err)
	}
	return u.Host
}
