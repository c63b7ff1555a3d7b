package etcdstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tenure-project/tenure/store"
)

const secret = "s3cr3t-p4ss"

// guarded is a server with users: root; "full" with readwrite on p/; "reader"
// with read on p/.
func guarded(t testing.TB) (*node, *clientv3.Client) {
	t.Helper()
	n := own(t, func(c *embed.Config) { c.BcryptCost = 4 })
	plain := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(plain.UserAdd(ctx, "root", secret))
	must(plain.UserGrantRole(ctx, "root", "root"))
	for role, kind := range map[string]clientv3.PermissionType{
		"full":   clientv3.PermissionType(clientv3.PermReadWrite),
		"reader": clientv3.PermissionType(clientv3.PermRead),
	} {
		must(plain.RoleAdd(ctx, role))
		must(plain.RoleGrantPermission(ctx, role, "p/", rangeEnd("p/"), kind))
		must(plain.UserAdd(ctx, role, secret))
		must(plain.UserGrantRole(ctx, role, role))
	}
	must(plain.AuthEnable(ctx))
	return n, client(t, clientv3.Config{Endpoints: []string{n.endpoint}, Username: "root", Password: secret})
}

func as(user, password string, n *node) Config {
	return Config{Client: clientv3.Config{Endpoints: []string{n.endpoint}, Username: user, Password: password}, Prefix: "p"}
}

// SPEC ST8 ST10
// CASE B65
func TestRights(t *testing.T) {
	t.Parallel()
	n, root := guarded(t)
	ctx := t.Context()

	_, err := Open(ctx, as("full", "wrong-password", n))
	kindIs(t, err, store.ErrDenied, "Open with a wrong password")
	if strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("the error %q shows the password", err)
	}
	nobody := openWith(t, as("", "", n))
	_, err = nobody.Get(ctx, key, 10)
	kindIs(t, err, store.ErrDenied, "Get without a user")

	// The right on the prefix is all that is needed, for the lines, too.
	full := openWith(t, as("full", secret, n))
	if _, err := store.Probe(ctx, full, store.ProbeOptions{Prefix: store.Prefix("n", "probe")}); err != nil {
		t.Errorf("Probe: %v", err)
	}
	first, err := full.Enqueue(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(ctx, 0); err != nil {
		t.Error(err)
	}
	first.Leave()
	v, err := full.Create(ctx, key, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}

	reader := openWith(t, as("reader", secret, n))
	if _, err := reader.Get(ctx, key, 10); err != nil {
		t.Errorf("Get with the right to read: %v", err)
	}
	for _, o := range operations {
		if err := o.call(ctx, reader); o.write {
			kindIs(t, err, store.ErrDenied, o.name+" without the right to write")
			if !strings.Contains(err.Error(), "readwrite") || !strings.Contains(err.Error(), "p/") {
				t.Errorf("%s: %q does not name the right that is missing", o.name, err)
			}
		}
	}
	_, err = reader.Enqueue(ctx, key)
	kindIs(t, err, store.ErrDenied, "Enqueue without the right to write")

	// Rights that end in the middle of a hold.
	if _, err := root.UserRevokeRole(ctx, "full", "full"); err != nil {
		t.Fatal(err)
	}
	kindIs(t, definite(ctx, func() error { _, err := full.Replace(ctx, key, []byte("2"), v); return err }), store.ErrDenied, "Replace after the rights were taken away")
	kindIs(t, definite(ctx, func() error { return full.Watch(ctx, key, v) }), store.ErrDenied, "Watch after the rights were taken away")
}

// definite repeats a call that certainly did nothing, as the layer above does.
func definite(ctx context.Context, call func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		err := call()
		if !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		sleep(ctx, 10*time.Millisecond) // poll
	}
}

// A login that the server forgot is renewed, and the call in between certainly
// did nothing.
//
// SPEC ST8
// CASE B65
func TestLoginExpires(t *testing.T) {
	t.Parallel()
	n, _ := guarded(t)
	s := openWith(t, as("full", secret, n))
	v, err := s.Create(t.Context(), key, []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	n.stop() // a server keeps simple tokens in memory
	if err := n.start(); err != nil {
		t.Fatal(err)
	}
	if err := n.ready(); err != nil {
		t.Fatal(err)
	}
	renewed := false
	err = definite(t.Context(), func() error {
		_, err := s.Replace(t.Context(), key, []byte("2"), v)
		renewed = renewed || err != nil && strings.Contains(err.Error(), "login had expired and was renewed")
		return err
	})
	if err != nil || !renewed {
		t.Errorf("Replace after the login expired: %v; renewed: %v", err, renewed)
	}
	if err := definite(t.Context(), func() error { return s.Watch(t.Context(), key, v) }); err != nil {
		t.Errorf("Watch after the login expired: %v", err)
	}
}

// A full database refuses writes with words that say what to do, keeps serving
// reads, and takes writes again afterwards.
//
// SPEC ST8
func TestNoSpace(t *testing.T) {
	t.Parallel()
	n := own(t, func(c *embed.Config) { c.QuotaBackendBytes, c.MaxRequestBytes = 2<<20, 600<<10 })
	s := openAt(t, "p", n.endpoint)
	ctx := t.Context()
	_, err := s.Create(ctx, "n/k/large", make([]byte, MaxBody))
	kindIs(t, err, store.ErrInvalid, "Create beyond what the server takes")
	v, err := s.Create(ctx, key, nil)
	for err == nil {
		v, err = s.Replace(ctx, key, make([]byte, 500<<10), v)
	}
	kindIs(t, err, store.ErrUnavailable, "Replace in a full database")
	if !strings.Contains(err.Error(), "etcdctl alarm disarm") {
		t.Errorf("%q does not say what to do", err)
	}
	if _, err := s.Get(ctx, key, MaxBody); err != nil {
		t.Errorf("Get from a full database: %v", err)
	}
	admin := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	got, err := admin.Get(ctx, "p/records/"+key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Compact(ctx, got.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Defragment(ctx, n.endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	o, err := s.Get(ctx, key, MaxBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(ctx, key, nil, o.Version); err != nil {
		t.Errorf("Replace after the alarm: %v", err)
	}
}
