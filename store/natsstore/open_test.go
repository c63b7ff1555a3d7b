package natsstore

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST8 ST11
func TestURLs(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, row := range []struct{ url, says string }{
		{"nats://h/bucket?colour=red", "colour"},
		{"nats://h/bucket?replicas=3&replicas=5", "replicas"},
		{"nats://h/", "bucket name"},
		{"nats://h/a/b", "bucket name"},
		{"nats://h/a.b", "bucket name"},
		{"nats://h/a%20b", "bucket name"},
		{"nats://h/a%3E", "bucket name"},
		{"nats:///bucket", "host"},
		{"nats:bucket", "host"},
		{"nats://h/bucket#x", "host"},
		{"nats://,h/bucket", "host"},
		{"nats://h:0/bucket", "host"},
		{"nats://h/bucket?create=maybe", "create"},
		{"nats://h/bucket?replicas=0", "replicas"},
		{"nats://h/bucket?replicas=6", "replicas"},
		{"nats://h/bucket?replicas=three", "replicas"},
		{"nats://h/bucket?max_bytes=-1", "max_bytes"},
		{"nats://h/bucket?memory=1", "memory"},
		{"nats://h/bucket?reads=stale", "reads"},
		{"nats://h/bucket?domain=a.b", "domain"},
		{"nats://h/bucket?tls=maybe", "tls"},
		{"nats://h/bucket?tls=no&ca=x", "tls=no"},
		{"nats://h/bucket?ca=" + missing, "ca"},
		{"nats://h/bucket?cert=" + missing, "cert"},
		{"nats://h/bucket?creds=" + missing, "credentials"},
		{"nats://h/bucket?nkey=" + missing, "NKey"},
		{"nats://h/bucket?creds=a&nkey=b", "one of"},
		{"nats://h/bucket?inbox=a.*", "inbox"},
		{"nats://user:hunter2-word@h/bucket", "creds=FILE"},
	} {
		s, err := openString(t, row.url)
		if err == nil {
			_ = s.Close()
		}
		if !sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s gave %v, want %v that says %q", row.url, err, store.ErrInvalid, row.says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestServersOfAURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"nats://a:4222,b:4223/x":         "nats://a:4222 nats://b:4223 false",
		"nats://a,b/x":                   "nats://a:4222 nats://b:4222 false",
		"nats://127.0.0.1:1/x":           "nats://127.0.0.1:1 true",
		"nats://[::1]:5/x":               "nats://[::1]:5 true",
		"nats://[::1]/x":                 "nats://[::1]:4222 true",
		"nats://localhost/x":             "nats://localhost:4222 true",
		"nats://localhost,elsewhere/x":   "nats://localhost:4222 nats://elsewhere:4222 false",
		"nats://localhost.example.com/x": "nats://localhost.example.com:4222 false",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		servers, local, err := serversOf(u)
		got := strings.Join(servers, " ") + map[bool]string{true: " true", false: " false"}[local]
		if err != nil || got != want {
			t.Errorf("%s gives %s and %v, want %s", raw, got, err, want)
		}
	}
}

// A server that cannot be reached surely did nothing.
//
// SPEC ST8
func TestNoServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for _, host := range []string{l.Addr().String(), "no-such-host.invalid:4222"} {
		if _, err := openString(t, "nats://"+host+"/b?tls=no"); !sameKind(err, store.ErrUnavailable) {
			t.Errorf("%s gave %v of kind %v, want %v", host, err, store.KindOf(err), store.ErrUnavailable)
		}
	}
	if err := plain(); err != nil {
		t.Fatal(err)
	}
	if _, err := openString(t, plainServer.ClientURL()+"/"+newBucket()); !sameKind(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "JetStream") {
		t.Errorf("a server without JetStream gave %v", err)
	}
}

// SPEC ST8
// Not parallel: it sets environment variables.
func TestCredentialsOfTheEnvironment(t *testing.T) {
	srv := ownServer(t, func(o *server.Options) { o.Username, o.Password = "app", "hunter2-word" })
	t.Setenv("NATS_USER", "app")
	t.Setenv("NATS_PASSWORD", "wrong-hunter2-word")
	_, err := openString(t, srv.ClientURL()+"/b")
	if !sameKind(err, store.ErrDenied) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a wrong password gave %v of kind %v", err, store.KindOf(err))
	}
	t.Setenv("NATS_PASSWORD", "hunter2-word")
	s := openAt(t, srv.ClientURL()+"/b")
	if i := s.Info(); strings.Contains(i.Identity+i.Driver+i.Scheme, "hunter2") {
		t.Errorf("the store shows the password: %+v", i)
	}
	if _, err := s.Replace(within(t, 10*time.Second), key("k"), nil, "v"); !sameKind(err, store.ErrNotFound) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Replace gave %v", err)
	}
	t.Setenv("NATS_PASSWORD", "")
	byURL := openWith(t, srv.ClientURL()+"/b?user=app")
	if !sameKind(byURL, store.ErrDenied) {
		t.Errorf("user= without a password gave %v", byURL)
	}
}

func openWith(t *testing.T, raw string) error {
	t.Helper()
	s, err := openString(t, raw)
	if err == nil {
		_ = s.Close()
	}
	return err
}

// A connection to another machine is never in the clear unless the URL says so.
//
// SPEC ST8
func TestTLS(t *testing.T) {
	t.Parallel()
	pair, ca := certificate(t)
	srv := ownServer(t, func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.TLS, o.TLSTimeout = true, 5
	})
	secured := "nats://" + srv.Addr().String() + "/b"
	if err := openWith(t, secured+"?ca="+url.QueryEscape(ca)); err != nil {
		t.Errorf("with the right authority: %v", err)
	}
	if err := openWith(t, secured+"?tls=yes"); !sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), "ca=FILE") {
		t.Errorf("with an unknown authority: %v of kind %v", err, store.KindOf(err))
	}
	if err := openWith(t, shared.ClientURL()+"/"+newBucket()+"?tls=yes"); !sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), "tls=no") {
		t.Errorf("tls=yes at a server without TLS: %v of kind %v", err, store.KindOf(err))
	}
	u, err := url.Parse("nats://elsewhere/b")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		local bool
		mode  string
		want  int
	}{{false, "", 1}, {false, "yes", 1}, {false, "first", 2}, {false, "no", 0}, {true, "", 0}, {true, "yes", 1}} {
		q := u.Query()
		q.Set("tls", row.mode)
		if opts, err := tlsOf(q, row.local); err != nil || len(opts) != row.want {
			t.Errorf("local %v, tls=%q: %d TLS options and %v, want %d", row.local, row.mode, len(opts), err, row.want)
		}
	}
}

// certificate makes one for 127.0.0.1 that signs itself, and a file with it.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, file
}
