package natsstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// leastRights are those of docs/stores/nats.md, for the bucket "leases".
func leastRights() *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{
			"$KV.leases.>",
			"$JS.API.STREAM.INFO.KV_leases",
			"$JS.API.STREAM.MSG.GET.KV_leases",
			"$JS.API.CONSUMER.CREATE.KV_leases.>",
			"$JS.API.CONSUMER.DELETE.KV_leases.>",
		}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
}

// without takes a right away.
func without(p *server.Permissions, subject string) *server.Permissions {
	var left []string
	for _, s := range p.Publish.Allow {
		if s != subject {
			left = append(left, s)
		}
	}
	p.Publish.Allow = left
	return p
}

// guarded is a server with a user who may do everything and one who has the
// given rights, and a bucket "leases". reload changes the second's password.
func guarded(t *testing.T, rights *server.Permissions) (srv *server.Server, reload func(password string)) {
	t.Helper()
	users := func(password string) []*server.User {
		return []*server.User{{Username: "admin", Password: "all-powerful"}, {Username: "app", Password: password, Permissions: rights}}
	}
	var options *server.Options
	srv = ownServer(t, func(o *server.Options) {
		o.Users = users("s3cret-word")
		options = o.Clone()
	})
	admin, err := Open(within(t, 10*time.Second), dial(t, srv.ClientURL(), nats.UserInfo("admin", "all-powerful")), Config{Bucket: "leases"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	return srv, func(password string) {
		t.Helper()
		changed := options.Clone()
		changed.Users = users(password)
		if err := srv.ReloadOptions(changed); err != nil {
			t.Fatal(err)
		}
	}
}

func openAs(t *testing.T, srv *server.Server, user, password string) (*Store, error) {
	t.Helper()
	s, err := Open(within(t, 10*time.Second), dial(t, srv.ClientURL(), nats.UserInfo(user, password)), Config{Bucket: "leases"})
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
	}
	return s, err
}

// SPEC ST8 ST10
func TestLeastRightsSuffice(t *testing.T) {
	t.Parallel()
	srv, _ := guarded(t, leastRights())
	s, err := openAs(t, srv, "app", "s3cret-word")
	if err != nil {
		t.Fatal(err)
	}
	r, err := store.Probe(within(t, time.Minute), s, store.ProbeOptions{Prefix: store.Prefix("test", "probe")})
	if err != nil || !r.Sound || !r.DeleteIfSound {
		t.Fatalf("the probe with the least rights gave %v:\n%s", err, r)
	}
	v, err := s.Create(within(t, 10*time.Second), key("k"), []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() { woken <- s.Watch(within(t, 10*time.Second), key("k"), v) }()
	if _, err := s.Replace(within(t, 10*time.Second), key("k"), []byte("1"), v); err != nil {
		t.Error(err)
	}
	if err := <-woken; err != nil {
		t.Errorf("Watch with the least rights gave %v", err)
	}
}

// A message without rights is dropped without a reply. Each call must say at
// once, and not at its deadline, which right is missing.
//
// SPEC ST8
func TestMissingRights(t *testing.T) {
	t.Parallel()
	write := func(ctx context.Context, s *Store) error { _, err := s.Create(ctx, key("new"), nil); return err }
	read := func(ctx context.Context, s *Store) error { _, err := s.Get(ctx, key("k"), 100); return err }
	list := func(ctx context.Context, s *Store) error {
		for _, err := range s.List(ctx, "", "") {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, row := range []struct {
		missing, names string
		call           func(ctx context.Context, s *Store) error
		at             string // "open" where opening already fails
	}{
		{"$KV.leases.>", "$KV.leases.test.lease.new", write, ""},
		{"$JS.API.STREAM.MSG.GET.KV_leases", "$JS.API.STREAM.MSG.GET.KV_leases", read, ""},
		{"$JS.API.STREAM.MSG.GET.KV_leases", "$JS.API.STREAM.MSG.GET.KV_leases", func(ctx context.Context, s *Store) error { return s.Delete(ctx, key("k")) }, ""},
		{"$JS.API.CONSUMER.CREATE.KV_leases.>", "$JS.API.CONSUMER.CREATE.KV_leases.", func(ctx context.Context, s *Store) error { return s.Watch(ctx, key("k"), "") }, ""},
		{"$JS.API.STREAM.INFO.KV_leases", "$JS.API.STREAM.INFO.KV_leases", list, "open"},
		{"replies", "subscribe to _INBOX.", read, "open"},
	} {
		t.Run(row.missing, func(t *testing.T) {
			t.Parallel()
			rights := without(leastRights(), row.missing)
			if row.missing == "replies" {
				rights.Subscribe = &server.SubjectPermission{Allow: []string{"nothing"}}
			}
			srv, _ := guarded(t, rights)
			start := time.Now()
			s, err := openAs(t, srv, "app", "s3cret-word")
			if row.at != "open" {
				if err != nil {
					t.Fatal(err)
				}
				err = row.call(within(t, 20*time.Second), s)
			}
			if !sameKind(err, store.ErrDenied) || !strings.Contains(err.Error(), row.names) {
				t.Errorf("gave %v of kind %v, want %v that names %s", err, store.KindOf(err), store.ErrDenied, row.names)
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v: it waited for a reply that never comes", took)
			}
		})
	}
}

// SPEC ST8
func TestRightsThatEndWhileItIsOpen(t *testing.T) {
	t.Parallel()
	srv, reload := guarded(t, leastRights())
	s, err := openAs(t, srv, "app", "s3cret-word")
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Create(within(t, 10*time.Second), key("k"), []byte("0"))
	if err != nil {
		t.Fatal(err)
	}
	watching := make(chan error, 1)
	go func() { watching <- s.Watch(within(t, 20*time.Second), key("k"), v) }()
	reload("another")
	if err := <-watching; err == nil || errors.Is(err, store.ErrUnknown) {
		t.Errorf("a Watch whose credentials ended gave %v", err)
	}
	eventually(t, "refusal for want of credentials", func() bool {
		_, err := s.Replace(within(t, time.Second), key("k"), []byte("1"), v)
		switch {
		case err == nil:
			t.Fatal("a write with ended credentials succeeded")
		case strings.Contains(err.Error(), "s3cret-word"):
			t.Fatalf("the error shows the password: %v", err)
		}
		return sameKind(err, store.ErrDenied)
	})
	if _, err := s.Get(within(t, time.Second), key("k"), 100); !sameKind(err, store.ErrDenied) && !sameKind(err, store.ErrUnavailable) {
		t.Errorf("a read with ended credentials gave %v", err)
	}
	reload("s3cret-word")
	eventually(t, "write with the credentials restored", func() bool {
		_, err := s.Replace(within(t, time.Second), key("k"), []byte("1"), v)
		return err == nil
	})
}

// A listing that may not sweep says nothing of it: it is a courtesy.
//
// SPEC ST5 ST6
func TestMarkersAreSwept(t *testing.T) {
	t.Parallel()
	for _, denied := range []bool{false, true} {
		c := newScript(t)
		var purges []string
		c.api["$JS.API.STREAM.PURGE."] = func(body string) string {
			purges = append(purges, body)
			if denied {
				return refuse(403, 10110, "not allowed")
			}
			return `{"success":true,"purged":2}`
		}
		subjects := map[string]int{}
		for _, name := range []string{"a", "b", "c"} {
			subjects["$KV."+c.bucket+".test.lease."+name] = 2
		}
		info := encode(map[string]any{"created": created, "total": 3, "state": map[string]any{"subjects": subjects}})
		c.message = func(request string) string {
			for _, name := range []string{"a", "b"} {
				if strings.Contains(request, ".lease."+name) {
					return c.stored(key(name), 9, "", headerOperation, "DEL")
				}
			}
			return c.stored(key("c"), 9, "x")
		}
		s := c.open("")
		c.set(func(c *script) { c.info = info })
		for range 2 {
			var keys []string
			for k, err := range s.List(within(t, 10*time.Second), "", "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, k)
			}
			if len(keys) != 1 || keys[0] != key("c") {
				t.Errorf("the listing shows %q, want %q only", keys, key("c"))
			}
		}
		c.set(func(*script) {
			want := 4
			if denied {
				want = 1
			}
			if len(purges) != want {
				t.Errorf("denied %v: two listings of two old markers sent the purges %q, want %d", denied, purges, want)
			} else if !strings.Contains(purges[0], `"seq":10`) || !strings.Contains(purges[0], ".test.lease.a") {
				t.Errorf("the purge %s is not bounded by the marker and its key", purges[0])
			}
		})
	}
}
