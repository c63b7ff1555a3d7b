package etcdstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "etcd"
	opOpen = "open"

	// DefaultPrefix is what all keys start with if no other prefix is given.
	DefaultPrefix = "tenure"
	// maxPrefix bounds a prefix in bytes.
	maxPrefix = 200
	// defaultPort is added to an endpoint that has none.
	defaultPort = "2379"
	// passwordVariable is where etcdctl takes the password from, too.
	passwordVariable = "ETCDCTL_PASSWORD"

	// loginLimit bounds the login of Open where the caller sets no limit.
	loginLimit = 10 * time.Second
)

// Config says which cluster to use and how.
type Config struct {
	// Client is the client's configuration: endpoints, TLS, user and password.
	// Open sets what the store rests on whatever is given here: no retries, its
	// own connections, prompt reconnection. DialTimeout bounds the login.
	Client clientv3.Config
	// Prefix is what every key starts with, without a slash at its end; empty
	// means DefaultPrefix.
	Prefix string

	// memberTTL is for tests; 0 is memberTTL.
	memberTTL time.Duration
}

// Driver opens `etcd:` URLs (UI4):
//
//	etcd://host1:2379,host2:2379/prefix?user=NAME&ca=FILE&cert=FILE&key=FILE&tls=yes|no
//
// Connections use TLS, unless tls=no is given or every host is a loopback
// address. The password is taken from the URL (user:password@) or from
// ETCDCTL_PASSWORD, and is never sent in the clear to another machine.
func Driver() store.Driver {
	return store.Driver{Scheme: scheme, Open: openURL}
}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	c, err := configOf(u)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, c)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return s, nil
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}

// configOf reads a URL. It does no I/O but reading the named files.
func configOf(u *url.URL) (Config, error) {
	var none Config
	if err := store.CheckParams(u, "tls", "ca", "cert", "key", "user"); err != nil {
		return none, err
	}
	if u.Opaque != "" || u.Fragment != "" || u.Host == "" {
		return none, invalid("the URL names no host, or has a fragment; write etcd://host:2379/prefix")
	}
	hosts := strings.Split(u.Host, ",")
	secure, err := wantsTLS(u, hosts)
	if err != nil {
		return none, err
	}
	c := Config{Prefix: strings.Trim(u.Path, "/")}
	for _, h := range hosts {
		e, err := endpoint(h, secure)
		if err != nil {
			return none, err
		}
		c.Client.Endpoints = append(c.Client.Endpoints, e)
	}
	if c.Client.Username, c.Client.Password, err = login(u); err != nil {
		return none, err
	}
	if secure {
		c.Client.TLS, err = tlsConfig(u.Query().Get("ca"), u.Query().Get("cert"), u.Query().Get("key"))
	}
	return c, err
}

// wantsTLS is the URL's choice: on, but for loopback hosts.
func wantsTLS(u *url.URL, hosts []string) (bool, error) {
	q := u.Query()
	files := q.Get("ca") + q.Get("cert") + q.Get("key")
	switch q.Get("tls") {
	case "yes":
		return true, nil
	case "no":
		if files != "" {
			return false, invalid("tls=no contradicts ca, cert or key; drop one")
		}
		return false, nil
	case "":
		return files != "" || !allLoopback(hosts), nil
	}
	return false, invalid("tls=%q: say yes or no", q.Get("tls"))
}

func allLoopback(hosts []string) bool {
	for _, h := range hosts {
		if !loopback(h) {
			return false
		}
	}
	return true
}

// loopback reports whether host, with or without a port, is this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func endpoint(host string, secure bool) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), defaultPort
	}
	if name == "" || port == "" || strings.ContainsAny(name, " /@") {
		return "", invalid("%q is no host; write host1:2379,host2:2379", host)
	}
	proto := "https://"
	if !secure {
		proto = "http://"
	}
	return proto + net.JoinHostPort(name, port), nil
}

// login is the user and password of u.
func login(u *url.URL) (user, password string, err error) {
	user = u.Query().Get("user")
	if u.User != nil {
		if user != "" && u.User.Username() != "" && user != u.User.Username() {
			return "", "", invalid("the URL names two users; give one")
		}
		if u.User.Username() != "" {
			user = u.User.Username()
		}
		password, _ = u.User.Password()
	}
	if password == "" {
		password = os.Getenv(passwordVariable)
	}
	switch {
	case user == "":
		if u.User != nil {
			return "", "", invalid("the URL has a password but no user")
		}
		return "", "", nil
	case password == "" && u.Query().Get("cert") == "":
		return "", "", invalid("user %q has no password: set %s, or use a client certificate", user, passwordVariable)
	}
	return user, password, nil
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, store.Wrap(store.ErrInvalid, scheme, opOpen, "", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("the file %s (ca) holds no PEM certificate", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, invalid("cert and key belong together; give both or none")
	}
	if cert == "" {
		return t, nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return nil, invalid("the client certificate %s with its key %s cannot be used: %v", cert, key, err)
	}
	// Read anew at each connection, so that a renewed certificate is used.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return t, nil
}

// checked is c with its defaults, or why it cannot be used.
func (c Config) checked() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.memberTTL == 0 {
		c.memberTTL = memberTTL
	}
	if len(c.Prefix) > maxPrefix || strings.HasSuffix(c.Prefix, "/") || strings.Contains(c.Prefix, "//") || strings.ContainsFunc(c.Prefix, unprintable) {
		return c, invalid("the prefix %q is not usable: at most %d bytes, printable ASCII, no empty element, no slash at its end", c.Prefix, maxPrefix)
	}
	if len(c.Client.Endpoints) == 0 {
		return c, invalid("no endpoint is given")
	}
	for _, e := range c.Client.Endpoints {
		u, err := url.Parse(e)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
			return c, invalid("an endpoint is not of the form http://host:2379 or https://host:2379, without a user")
		}
		if c.Client.Password+c.Client.Token != "" && u.Scheme != "https" && !loopback(u.Host) {
			return c, invalid("the password or token would be sent to %s in the clear; use TLS", u.Host)
		}
	}
	return c, nil
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }

// identity names the place without secrets. It does not hold the cluster's own
// id: after a restore that id may be another one, and just then the tokens that
// a program remembers under this name are needed.
func (c Config) identity() string {
	hosts := []string{}
	for _, e := range c.Client.Endpoints {
		u, _ := url.Parse(e)
		hosts = append(hosts, strings.ToLower(u.Host))
	}
	slices.Sort(hosts)
	return scheme + "://" + strings.Join(slices.Compact(hosts), ",") + "/" + c.Prefix
}

// client connects. ctx ends the client.
func (c Config) client(ctx context.Context) (*clientv3.Client, error) {
	cfg := c.Client
	cfg.Context = ctx
	// One attempt per call. The client's default sends a write again when the
	// answer is a cancellation or a time-out that did not come from the caller.
	cfg.MaxUnaryRetries = 1
	if cfg.Logger == nil && cfg.LogConfig == nil {
		cfg.Logger = zap.NewNop() // the store's errors say it all
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = loginLimit
	}
	if cfg.DialKeepAliveTime == 0 {
		cfg.DialKeepAliveTime, cfg.DialKeepAliveTimeout = 10*time.Second, 3*time.Second
	}
	cfg.PermitWithoutStream = false // servers take such pings for abuse
	cfg.DialOptions = append(slices.Clone(cfg.DialOptions),
		grpc.WithStatsHandler(sendWatch{}),
		// gRPC's own default waits up to two minutes before it tries again.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}))
	return clientv3.New(cfg)
}
