package natsstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// Driver opens `nats:` URLs: "nats://host1:4222,host2:4222/bucket". Give each
// host its port or none of them. Parameters:
//
//	create=no        an error, not a new bucket, if it is absent
//	replicas=3       of a new bucket; an existing one must have as many
//	max_bytes=N      of a new bucket, for accounts that demand a bound
//	domain=hub       the JetStream domain
//	reads=leader     Config.LeaderReads
//	memory=yes       Config.Memory
//	creds=FILE       user credentials; nkey=FILE an NKey seed
//	user=NAME        with the password in the environment's NATS_PASSWORD
//	tls=no           no TLS to another machine; tls=first for servers that
//	                 begin with the handshake; tls=yes on this machine too
//	ca=FILE          who signs the servers' certificates
//	cert=FILE key=FILE  the client's certificate
//	inbox=PREFIX     what reply subjects start with, where rights allow one only
//
// Without creds, nkey and user, the environment's NATS_CREDS, NATS_NKEY,
// NATS_USER (with NATS_PASSWORD) and NATS_TOKEN are used, as other tools do. A
// connection to another machine uses TLS unless tls=no.
func Driver() store.Driver {
	return store.Driver{Scheme: scheme, Open: openURL}
}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	err := store.CheckParams(u, "create", "replicas", "max_bytes", "domain", "reads", "memory",
		"creds", "nkey", "user", "tls", "ca", "cert", "key", "inbox")
	if err != nil {
		return nil, err
	}
	if err := store.CtxErr(ctx, scheme, opOpen, ""); err != nil {
		return nil, err
	}
	servers, local, err := serversOf(u)
	if err != nil {
		return nil, err
	}
	cfg, err := configOf(u)
	if err != nil {
		return nil, err
	}
	opts, err := optionsOf(u, local)
	if err != nil {
		return nil, err
	}
	nc, err := connect(ctx, servers, opts)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, nc, true, cfg)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return s, nil
}

func badURL(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}

// configOf reads the bucket and its parameters.
func configOf(u *url.URL) (Config, error) {
	q := u.Query()
	cfg := Config{Bucket: strings.Trim(u.Path, "/"), Domain: q.Get("domain")}
	one := func(name string, values ...string) (int, error) {
		for i, v := range values {
			if q.Get(name) == v {
				return i, nil
			}
		}
		return 0, badURL("%s=%q: say %s", name, q.Get(name), strings.Join(values[1:], " or "))
	}
	create, err := one("create", "", "yes", "no")
	memory, errMemory := one("memory", "", "no", "yes")
	reads, errReads := one("reads", "", "majority", "leader")
	if err := errors.Join(err, errMemory, errReads); err != nil {
		return cfg, firstOf(err)
	}
	cfg.MustExist, cfg.Memory, cfg.LeaderReads = create == 2, memory == 2, reads == 2
	if r := q.Get("replicas"); r != "" {
		if cfg.Replicas, err = strconv.Atoi(r); err != nil || cfg.Replicas < 1 {
			return cfg, badURL("replicas=%q: give 1 to 5", r)
		}
	}
	if m := q.Get("max_bytes"); m != "" {
		if cfg.MaxBytes, err = strconv.ParseInt(m, 10, 64); err != nil || cfg.MaxBytes < 1 {
			return cfg, badURL("max_bytes=%q: give a number of bytes", m)
		}
	}
	return cfg, cfg.check()
}

// firstOf is the first of joined errors.
func firstOf(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()[0]
	}
	return err
}

// serversOf reads the hosts. local says that all are this machine.
func serversOf(u *url.URL) (servers []string, local bool, err error) {
	if u.User != nil {
		return nil, false, badURL("the URL carries a user or a password, which ends up in logs; use creds=FILE, nkey=FILE or user=NAME, or the environment (NATS_CREDS, NATS_NKEY, NATS_USER, NATS_PASSWORD, NATS_TOKEN)")
	}
	if u.Opaque != "" || u.Fragment != "" || u.Host == "" {
		return nil, false, badURL("write nats://host1:4222,host2:4222/bucket")
	}
	local = true
	for host := range strings.SplitSeq(u.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name, port = strings.Trim(host, "[]"), strconv.Itoa(nats.DefaultPort)
		}
		if n, err := strconv.Atoi(port); name == "" || err != nil || n < 1 || n > 65535 {
			return nil, false, badURL("the host %q is not of the form name or name:port", host)
		}
		ip := net.ParseIP(name)
		local = local && (name == "localhost" || ip != nil && ip.IsLoopback())
		servers = append(servers, "nats://"+net.JoinHostPort(name, port))
	}
	return servers, local, nil
}

// optionsOf makes the options of a connection of the store's own: it keeps no
// message while it is broken, and comes back for as long as the store is open.
func optionsOf(u *url.URL, local bool) ([]nats.Option, error) {
	q := u.Query()
	opts := []nats.Option{
		nats.Name("tenure"),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the client's own one prints to standard error
		nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 400*time.Millisecond),
		nats.PingInterval(5 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.Timeout(5 * time.Second),
		nats.FlusherTimeout(5 * time.Second),
	}
	if inbox := q.Get("inbox"); inbox != "" {
		if strings.ContainsAny(inbox, " \t\r\n*>") || strings.HasSuffix(inbox, ".") || strings.HasPrefix(inbox, ".") {
			return nil, badURL("inbox=%q is no prefix of a subject", inbox)
		}
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	login, err := loginOf(q)
	if err != nil {
		return nil, err
	}
	secure, err := tlsOf(q, local)
	if err != nil {
		return nil, err
	}
	return append(append(opts, login...), secure...), nil
}

// loginOf says who the client is. Files are read again at each connection, so
// that credentials can be renewed in place.
func loginOf(q url.Values) ([]nats.Option, error) {
	creds, nkey, user := q.Get("creds"), q.Get("nkey"), q.Get("user")
	given := 0
	for _, v := range []string{creds, nkey, user} {
		if v != "" {
			given++
		}
	}
	if given > 1 {
		return nil, badURL("give one of creds, nkey and user")
	}
	if given == 0 {
		creds, nkey, user = os.Getenv("NATS_CREDS"), os.Getenv("NATS_NKEY"), os.Getenv("NATS_USER")
	}
	switch token := os.Getenv("NATS_TOKEN"); {
	case creds != "":
		if _, err := os.Stat(creds); err != nil {
			return nil, badURL("the credentials cannot be read: %v", err)
		}
		return []nats.Option{nats.UserCredentials(creds)}, nil
	case nkey != "":
		opt, err := nats.NkeyOptionFromSeed(nkey)
		if err != nil {
			return nil, badURL("the NKey seed in %s cannot be read", nkey)
		}
		return []nats.Option{opt}, nil
	case user != "":
		return []nats.Option{nats.UserInfo(user, os.Getenv("NATS_PASSWORD"))}, nil
	case token != "":
		return []nats.Option{nats.Token(token)}, nil
	}
	return nil, nil
}

// tlsOf says how the connection is protected.
func tlsOf(q url.Values, local bool) ([]nats.Option, error) {
	mode := q.Get("tls")
	switch mode {
	case "", "yes", "no", "first":
	default:
		return nil, badURL("tls=%q: say yes, no or first", mode)
	}
	files := q.Get("ca") + q.Get("cert") + q.Get("key")
	if mode == "no" && files != "" {
		return nil, badURL("tls=no together with ca, cert or key")
	}
	if mode == "no" || mode == "" && local && files == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := q.Get("ca"); ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, badURL("ca: %v", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, badURL("ca: %s holds no certificate", ca)
		}
	}
	if cert, key := q.Get("cert"), q.Get("key"); cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, badURL("cert and key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	opts := []nats.Option{nats.Secure(c)}
	if mode == "first" {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// connect connects, and gives up when ctx ends.
func connect(ctx context.Context, servers []string, opts []nats.Option) (*nats.Conn, error) {
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	dial := &dialer{ctx: ctx}
	go func() {
		nc, err := nats.Connect(strings.Join(servers, ","), append(opts, nats.SetCustomDialer(dial))...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		dial.over(false)
		if r.err != nil {
			return nil, connectError(servers, r.err)
		}
		return r.nc, nil
	case <-ctx.Done():
		dial.over(true)
		if r := <-done; r.nc != nil {
			r.nc.Close()
		}
		return nil, store.CtxErr(ctx, scheme, opOpen, "")
	}
}

func connectError(servers []string, err error) error {
	kind, why := store.ErrUnavailable, "no server can be reached"
	var unknown x509.UnknownAuthorityError
	switch {
	case isAuth(err):
		kind, why = store.ErrDenied, "the server refuses these credentials"
	case errors.Is(err, nats.ErrSecureConnWanted):
		kind, why = store.ErrInvalid, "the server offers no TLS; say tls=no if the network is trusted"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.As(err, &unknown):
		kind, why = store.ErrInvalid, "TLS fails; give the authority's certificate with ca=FILE"
	}
	return store.Errorf(kind, scheme, opOpen, "", "%s (%s): %v", why, strings.Join(servers, ", "), err)
}
