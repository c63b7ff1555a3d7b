package pgstore

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "postgres"
	opOpen = "open"

	defaultSchema = "public"
	defaultTable  = "tenure_records"

	// connections is how many connections the pool of one store has. A call
	// lasts about a millisecond, so four carry some thousand calls per second.
	connections = 4
	// connectLimit bounds the making of one connection, unless the URL says
	// connect_timeout.
	connectLimit = 5 * time.Second
)

// Config says which table of which database to use.
type Config struct {
	// Pool is made by pgxpool.ParseConfig. Open copies it. Its hooks
	// PrepareConn and ShouldPing and its ConnConfig's OnNotice, OnPgError and
	// OnNotification are replaced; DialFunc is wrapped.
	Pool *pgxpool.Config
	// Schema holds the table; empty is "public". It must exist.
	Schema string
	// Table is the table of the records; empty is "tenure_records". The waiting
	// lines are in a table beside it, whose name ends in "_queue" instead of
	// "_records".
	Table string
	// MustExist makes it an error that the table is absent, so that a misspelt
	// place does not become a second, empty world.
	MustExist bool
	// TrustStorage accepts a server whose fsync or full_page_writes is off,
	// because its storage makes acknowledged writes durable by other means.
	TrustStorage bool
	// Listen is the "host:port" for the connection that waits for changes; empty
	// is the same as for everything else. It leads past a pooler.
	Listen string
	// NoWatch declares no watch: callers poll.
	NoWatch bool
}

// Driver opens `postgres:` URLs, which are those of libpq and pgx:
// "postgres://user@host:5432/database?sslmode=verify-full". Parameters of its own
// are schema, table, create=no (MustExist), durability=trust (TrustStorage),
// listen=host:port and watch=no; see [Config]. Any other parameter must be one
// that pgx knows.
func Driver() store.Driver { return store.Driver{Scheme: scheme, Open: openURL} }

// Drivers is Driver for both schemes that PostgreSQL has: postgres and
// postgresql. The places are the same.
func Drivers() []store.Driver {
	return []store.Driver{Driver(), {Scheme: "postgresql", Open: openURL}}
}

// ownParams are taken out of the URL before pgx sees it.
var ownParams = []string{"schema", "table", "create", "durability", "listen", "watch"}

// pgParams are what pgx understands in a URL. It would send any other to the
// server as a setting, so that a misspelt one is an obscure error or none.
var pgParams = []string{
	"host", "port", "user", "password", "passfile", "dbname", "database", "connect_timeout",
	"sslmode", "ssl", "sslkey", "sslcert", "sslcertmode", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni",
	"krbspn", "krbsrvname", "target_session_attrs", "service", "servicefile", "min_protocol_version",
	"max_protocol_version", "channel_binding", "require_auth", "application_name", "options", "pool_max_conns",
}

// secretParams are never shown.
var secretParams = []string{"password", "sslpassword"}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	cfg, err := ParseURL(u)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return s, nil
}

// ParseURL makes a Config of a store URL, with the defaults of this package: TLS
// unless the server is on this machine or the URL says sslmode, servers that
// accept writes only, and a small pool. Bad input is ErrInvalid. It does no
// network I/O.
func ParseURL(u *url.URL) (Config, error) {
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		// Go would leave the malformed part out.
		return Config{}, invalid("the parameters of the store URL are malformed; write a semicolon as %%3B and a percent sign as %%25")
	}
	if err := store.CheckParams(u, slices.Concat(ownParams, pgParams)...); err != nil {
		return Config{}, err
	}
	q := u.Query()
	cfg := Config{Schema: q.Get("schema"), Table: q.Get("table"), Listen: q.Get("listen")}
	for _, p := range []struct {
		name, yes string // its values: "" and "yes" leave the default
		set       *bool
	}{{"create", "no", &cfg.MustExist}, {"durability", "trust", &cfg.TrustStorage}, {"watch", "no", &cfg.NoWatch}} {
		switch v := q.Get(p.name); v {
		case "", "yes":
		case p.yes:
			*p.set = true
		default:
			return Config{}, invalid("%s=%q in the store URL: leave it out or say %s=%s", p.name, v, p.name, p.yes)
		}
	}
	for _, p := range ownParams {
		q.Del(p)
	}
	var err error
	if cfg.Pool, err = parsePool(u, q); err != nil {
		return Config{}, err
	}
	return cfg, cfg.check()
}

func parsePool(u *url.URL, q url.Values) (*pgxpool.Config, error) {
	if u.Fragment != "" || u.Opaque != "" {
		return nil, invalid("a fragment or no \"//\" in the store URL; write postgres://user@host:5432/database")
	}
	plain := *u
	plain.Scheme, plain.RawQuery = scheme, q.Encode()
	// A space is %20 to PostgreSQL, never a plus.
	plain.RawQuery = strings.ReplaceAll(plain.RawQuery, "+", "%20")
	pool, err := pgxpool.ParseConfig(plain.String())
	if err != nil {
		return nil, invalid("the store URL: %s", parseProblem(u, err))
	}
	if !q.Has("pool_max_conns") {
		pool.MaxConns = connections
	}
	if pool.ConnConfig.ConnectTimeout <= 0 {
		pool.ConnConfig.ConnectTimeout = connectLimit
	}
	if err := sessionAttrs(pool, q.Get("target_session_attrs")); err != nil {
		return nil, err
	}
	sslmode := q.Has("sslmode") || q.Has("ssl") || os.Getenv("PGSSLMODE") != "" || q.Has("service") || os.Getenv("PGSERVICE") != ""
	if !sslmode {
		requireTLS(pool.ConnConfig.Config.Fallbacks, &pool.ConnConfig.Config)
	}
	return pool, nil
}

// parseProblem says what pgx found wrong, without the URL, which may hold a
// password.
func parseProblem(u *url.URL, err error) string {
	var parse *pgconn.ParseConfigError
	text := err.Error()
	if errors.As(err, &parse) {
		if _, after, ok := strings.Cut(text, "`: "); ok {
			text = after
		}
	}
	return hide(text, urlSecrets(u))
}

// urlSecrets are the passwords in u, as they stand there and decoded.
func urlSecrets(u *url.URL) []string {
	var out []string
	add := func(secret string) {
		if secret != "" {
			out = append(out, secret, url.QueryEscape(secret), url.PathEscape(secret))
		}
	}
	if pw, ok := u.User.Password(); ok {
		add(pw)
	}
	for _, name := range secretParams {
		add(u.Query().Get(name))
	}
	return out
}

// hide replaces every secret in text.
func hide(text string, secrets []string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "xxxxx")
		}
	}
	return text
}

// sessionAttrs lets the pool connect to servers that accept writes, which after
// a fail-over is another one of the URL's hosts.
func sessionAttrs(pool *pgxpool.Config, given string) error {
	switch given {
	case "":
		pool.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	case "any", "read-write", "primary":
	default:
		return invalid("target_session_attrs=%s: leases need a server that accepts writes; leave it out", given)
	}
	return nil
}

// requireTLS takes out the fallback to an unencrypted connection, which libpq's
// default has, for servers on other machines.
func requireTLS(fallbacks []*pgconn.FallbackConfig, c *pgconn.Config) {
	c.Fallbacks = slices.DeleteFunc(fallbacks, func(f *pgconn.FallbackConfig) bool {
		return f.TLSConfig == nil && !local(f.Host)
	})
}

// local reports whether host is this machine: a socket's folder or loopback.
func local(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// identifier is what schema and table may be called. Anything else is more
// likely a mistake than a wish.
var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

// check fills in the defaults and refuses what cannot be meant.
func (c *Config) check() error {
	if c.Pool == nil {
		return invalid("Config.Pool is nil; make it with pgxpool.ParseConfig")
	}
	if c.Schema == "" {
		c.Schema = defaultSchema
	}
	if c.Table == "" {
		c.Table = defaultTable
	}
	for _, n := range []struct{ what, name string }{{"schema", c.Schema}, {"table", c.Table}} {
		if !identifier.MatchString(n.name) {
			return invalid("%s=%q: use 1 to 50 of a-z, 0-9 and _, not a digit first", n.what, n.name)
		}
	}
	if strings.HasSuffix(c.Table, "_queue") {
		return invalid("table=%q: the ending _queue is for the waiting lines", c.Table)
	}
	if c.Listen != "" {
		if _, _, err := c.listenAddr(); err != nil {
			return err
		}
	}
	if n := c.Pool.MaxConns; n < 2 || n > 100 {
		return invalid("a pool of %d connections; give 2 to 100", n)
	}
	return nil
}

func (c *Config) listenAddr() (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(c.Listen)
	if err == nil {
		var n uint64
		n, err = strconv.ParseUint(p, 10, 16)
		port = uint16(n)
	}
	if err != nil || host == "" || port == 0 {
		return "", 0, invalid("listen=%q is not host:port", c.Listen)
	}
	return host, port, nil
}

// queueTable is the name of the table of the waiting lines.
func (c *Config) queueTable() string {
	return strings.TrimSuffix(c.Table, "_records") + "_queue"
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}
