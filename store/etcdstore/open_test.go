package etcdstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tenure-project/tenure/store"
)

func parse(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// SPEC UI4
func TestURLs(t *testing.T) {
	t.Setenv(passwordVariable, "")
	for _, row := range []struct {
		url, endpoints, prefix, user string
		secure                       bool
	}{
		{"etcd://localhost:2379", "http://localhost:2379", "", "", false},
		{"etcd://127.0.0.1:2379/a/b/", "http://127.0.0.1:2379", "a/b", "", false},
		{"etcd://[::1]:2379/a", "http://[::1]:2379", "a", "", false},
		{"etcd://[::1]/a", "http://[::1]:2379", "a", "", false},
		{"etcd://localhost:2379/a?tls=yes", "https://localhost:2379", "a", "", true},
		{"etcd://one", "https://one:2379", "", "", true},
		{"etcd://one:1,two,three:3/a", "https://one:1 https://two:2379 https://three:3", "a", "", true},
		{"etcd://localhost,two/a", "https://localhost:2379 https://two:2379", "a", "", true},
		{"etcd://one/a?tls=no", "http://one:2379", "a", "", false},
		{"etcd://ann:pw@one/a", "https://one:2379", "a", "ann", true},
		{"etcd://:pw@one/a?user=ann", "https://one:2379", "a", "ann", true},
	} {
		c, err := configOf(parse(t, row.url))
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}
		got := strings.Join(c.Client.Endpoints, " ")
		if got != row.endpoints || c.Prefix != row.prefix || c.Client.Username != row.user || (c.Client.TLS != nil) != row.secure {
			t.Errorf("%s: endpoints %s, prefix %q, user %q, TLS %v", row.url, got, c.Prefix, c.Client.Username, c.Client.TLS != nil)
		}
		if _, err := c.checked(); err != nil {
			t.Errorf("%s: %v", row.url, err)
		}
	}
}

// Bad input is refused before anything happens, and no message shows a secret.
//
// SPEC UI4 ST8
func TestBadURLs(t *testing.T) {
	t.Setenv(passwordVariable, "")
	dir := t.TempDir()
	noPEM := filepath.Join(dir, "text")
	if err := os.WriteFile(noPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"etcd:", "etcd:///a", "etcd:a", "etcd://one/a#x", "etcd://one,/a", "etcd://:2379/a", "etcd://one:/a",
		"etcd://one/a?tsl=no", "etcd://one/a?tls=off", "etcd://one/a?tls=no&ca=x", "etcd://one/a?tls=no&tls=no",
		"etcd://one/a?ca=" + dir + "/absent", "etcd://one/a?ca=" + noPEM, "etcd://one/a?cert=x", "etcd://one/a?key=x", "etcd://one/a?cert=x&key=x",
		"etcd://one/a?user=ann", "etcd://:" + secret + "@one/a", "etcd://ann:" + secret + "@one/a?user=bob",
		"etcd://ann:" + secret + "@one/a?tls=no", "etcd://ann:" + secret + "@one/a?nonsense=1", "etcd://ann:" + secret + "@one/a?tls=off",
		"etcd://ann:" + secret + "@one/a//b", "etcd://ann:" + secret + "@one/%20", "etcd://one/" + strings.Repeat("a", maxPrefix+1), "etcd://one/caf%C3%A9",
		"etcd://ann:" + secret + "@one/a#x",
	} {
		s, err := Driver().Open(t.Context(), parse(t, text))
		if err == nil {
			_ = s.Close()
		}
		kindIs(t, err, store.ErrInvalid, text)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error %q shows the password", text, err)
		}
	}
	for _, e := range []string{"one:2379", "ftp://one", "http://ann:" + secret + "@one"} {
		_, err := Open(t.Context(), Config{Client: clientv3.Config{Endpoints: []string{e}}})
		kindIs(t, err, store.ErrInvalid, e)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error %q shows the password", e, err)
		}
	}
	_, err := Open(t.Context(), Config{})
	kindIs(t, err, store.ErrInvalid, "no endpoints")
}

// Nothing that a store says holds its password.
//
// SPEC ST8
func TestSecretsAreNotShown(t *testing.T) {
	t.Setenv(passwordVariable, secret)
	free, err := freeURL()
	if err != nil {
		t.Fatal(err)
	}
	n, _ := guarded(t)
	host := strings.TrimPrefix(n.endpoint, "http://")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err = Driver().Open(ctx, parse(t, "etcd://"+free.Host+"/p?user=full")); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("Open of a server that is not there: %v", err)
	}
	kindIs(t, err, store.ErrUnavailable, "Open of a server that is not there")
	s, err := Driver().Open(t.Context(), parse(t, "etcd://"+host+"/p?user=full")) // the password of the environment works
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other, err := Driver().Open(t.Context(), parse(t, "etcd://full:"+secret+"@"+host+"/p"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if s.Info() != other.Info() {
		t.Errorf("%+v and %+v are one place", s.Info(), other.Info())
	}
	n.stop()
	for _, o := range operations {
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := o.call(short, s.(*Store))
		cancel()
		kindIs(t, err, store.ErrUnavailable, o.name+" of a server that stopped")
		if text := fmt.Sprintf("%v %+v %#v", err, s.Info(), err); strings.Contains(text, secret) {
			t.Errorf("%s shows the password", text)
		}
	}
}

// SPEC ST14
func TestIdentity(t *testing.T) {
	t.Parallel()
	id := func(prefix string, endpoints ...string) string {
		c, err := Config{Client: clientv3.Config{Endpoints: endpoints}, Prefix: prefix}.checked()
		if err != nil {
			t.Fatal(err)
		}
		return c.identity()
	}
	if a, b := id("p", "http://one:1", "http://Two:2"), id("p", "https://two:2", "http://one:1", "http://one:1"); a != b || a != "etcd://one:1,two:2/p" {
		t.Errorf("the same cluster is %q and %q", a, b)
	}
	if id("p", "http://one:1") == id("q", "http://one:1") {
		t.Error("two prefixes have one identity")
	}
}

// A certificate of the server's that is not trusted, and a missing one of the
// client's, are refused in words; with both in place the store works.
//
// SPEC ST8
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newCA(t, dir, "ca")
	newCA(t, dir, "stranger")
	ca.issue(t, dir, "server")
	ca.issue(t, dir, "client")
	file := func(name string) string { return filepath.Join(dir, name) }
	n := own(t, func(c *embed.Config) {
		for _, u := range [][]url.URL{c.ListenClientUrls, c.AdvertiseClientUrls} {
			u[0].Scheme = "https"
		}
		c.ClientTLSInfo = transport.TLSInfo{CertFile: file("server.crt"), KeyFile: file("server.key"), TrustedCAFile: file("ca.crt"), ClientCertAuth: true}
	})
	at := "etcd://" + strings.TrimPrefix(n.endpoint, "http://") + "/p?tls=yes"
	for _, row := range []struct {
		params string
		kind   error
	}{
		{"&ca=" + file("ca.crt") + "&cert=" + file("client.crt") + "&key=" + file("client.key"), nil},
		{"&ca=" + file("ca.crt"), store.ErrDenied},
		{"&ca=" + file("stranger.crt"), store.ErrUnavailable},
		{"", store.ErrUnavailable},
	} {
		s, err := Driver().Open(t.Context(), parse(t, at+row.params))
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Create(t.Context(), "n/k/a", nil)
		// In TLS 1.3 the client may meet the closed connection before it reads
		// why it was closed. Either way the request never left.
		if row.kind != store.ErrDenied || store.KindOf(err) != store.ErrUnavailable {
			kindIs(t, err, row.kind, "Create with the parameters "+row.params)
		}
		if row.kind == store.ErrUnavailable && err != nil && !strings.Contains(err.Error(), "certificate") {
			t.Errorf("the error %q does not speak of the certificate", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(t testing.TB, dir, name string) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.write(t, dir, name, a.cert, a.key)
	return a
}

func (a *authority) issue(t testing.TB, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, dir, name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, key)
}

func (a *authority) write(t testing.TB, dir, name string, c *x509.Certificate, key *ecdsa.PrivateKey) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(filepath.Join(dir, name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
