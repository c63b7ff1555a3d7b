package pgstore

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/tenure-project/tenure/store"
)

// The right meaning of every answer to a statement.
//
// SPEC ST8 ST9
// CASE B20
func TestAnswersToAStatement(t *testing.T) {
	t.Parallel()
	u := place(t)
	for _, c := range []struct {
		name, severity, code string
		write, read          error
		words                string
	}{
		{"serialization failure", "ERROR", "40001", store.ErrUnavailable, store.ErrUnavailable, "rolled back"},
		{"deadlock", "ERROR", "40P01", store.ErrUnavailable, store.ErrUnavailable, "rolled back"},
		{"completion unknown", "ERROR", "40003", store.ErrUnknown, store.ErrUnavailable, ""},
		{"statement timeout", "ERROR", "57014", store.ErrUnavailable, store.ErrUnavailable, "statement_timeout"},
		{"lock not available", "ERROR", "55P03", store.ErrUnavailable, store.ErrUnavailable, ""},
		{"disk full", "ERROR", "53100", store.ErrUnavailable, store.ErrUnavailable, "short of disk"},
		{"out of locks", "ERROR", "53200", store.ErrUnavailable, store.ErrUnavailable, "memory"},
		{"notification queue full", "ERROR", "54000", store.ErrUnavailable, store.ErrUnavailable, "limit"},
		{"read-only transaction", "ERROR", "25006", store.ErrUnavailable, store.ErrUnavailable, "read-only standby"},
		{"no right", "ERROR", "42501", store.ErrDenied, store.ErrDenied, "this user needs SELECT"},
		{"table gone", "ERROR", "42P01", store.ErrCorrupt, store.ErrCorrupt, "the table is gone"},
		{"column gone", "ERROR", "42703", store.ErrCorrupt, store.ErrCorrupt, "not as this driver makes it"},
		{"damaged data", "ERROR", "XX001", store.ErrCorrupt, store.ErrCorrupt, "damaged"},
		{"internal error", "ERROR", "XX000", store.ErrUnknown, store.ErrUnavailable, ""},
		{"a pooler lost its server", "ERROR", "08P01", store.ErrUnknown, store.ErrUnavailable, ""},
		{"resolution unknown", "ERROR", "08007", store.ErrUnknown, store.ErrUnavailable, ""},
		{"i/o error", "ERROR", "58030", store.ErrUnknown, store.ErrUnavailable, ""},
		{"an error of the future", "ERROR", "99999", store.ErrUnknown, store.ErrUnavailable, ""},
		{"administrator's shutdown", "FATAL", "57P01", store.ErrUnknown, store.ErrUnavailable, "ended the session"},
		{"crash shutdown", "FATAL", "57P02", store.ErrUnknown, store.ErrUnavailable, "ended the session"},
		{"a collision that ends the session", "FATAL", "40001", store.ErrUnknown, store.ErrUnavailable, "ended the session"},
		{"database dropped", "FATAL", "57P04", store.ErrUnknown, store.ErrUnavailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, through := startProxy(t, u)
			s := open(t, with(through, "watch", "no"))
			a := action{answer_, []pgproto3.BackendMessage{errorReply(c.severity, c.code, "scripted"), ready}}
			if c.severity == "FATAL" {
				a = action{answerKill, []pgproto3.BackendMessage{errorReply(c.severity, c.code, "scripted")}}
			}
			p.on(s.sql.records, a)
			p.sent("")
			for _, op := range writes(s) {
				err := op.call(t.Context())
				kindIs(t, err, c.write, op.name)
				says(t, err, c.words, "postgres", key, "scripted")
			}
			if n := p.sent(s.sql.records); n != len(writes(s)) {
				t.Errorf("%d writes sent %d statements", len(writes(s)), n)
			}
			_, err := s.Get(t.Context(), key, 100)
			kindIs(t, err, c.read, "Get")
			for _, err := range s.List(t.Context(), "", "") {
				kindIs(t, err, c.read, "List")
			}
			_, err = s.Scan(t.Context(), store.ScanRange{To: "z", Most: 1, Limit: 100})
			kindIs(t, err, c.read, "Scan")
			_, err = s.Commit(t.Context(), []store.Change{{Key: key, Do: store.Keep}})
			kindIs(t, err, c.read, "Commit that changes nothing")
		})
	}
}

type namedCall struct {
	name string
	call func(ctx context.Context) error
}

// writes are all calls that change something. The versions match no row.
func writes(s *Store) []namedCall {
	const v = "00000000-0000-4000-8000-000000000000"
	return []namedCall{
		{"Create", func(ctx context.Context) error { _, err := s.Create(ctx, key, []byte("x")); return err }},
		{"Replace", func(ctx context.Context) error { _, err := s.Replace(ctx, key, []byte("x"), v); return err }},
		{"Delete", func(ctx context.Context) error { return s.Delete(ctx, key) }},
		{"DeleteIf", func(ctx context.Context) error { return s.DeleteIf(ctx, key, v) }},
		{"Commit", func(ctx context.Context) error {
			_, err := s.Commit(ctx, []store.Change{{Key: key, Body: []byte("x")}, {Key: key + "2", Over: v, Do: store.Remove}})
			return err
		}},
	}
}

// The right meaning of every refusal of a connection: nothing was sent, so
// nothing is unknown, and no message holds the password.
//
// SPEC ST8
func TestAnswersToAConnection(t *testing.T) {
	t.Parallel()
	const password = "hunter2-very-secret"
	u := place(t)
	for _, c := range []struct {
		name, code string
		want       error
		words      string
	}{
		{"wrong password", "28P01", store.ErrDenied, "check user, password"},
		{"no entry in pg_hba.conf", "28000", store.ErrDenied, "pg_hba.conf"},
		{"no such database", "3D000", store.ErrInvalid, "database does not exist"},
		{"no right to connect", "42501", store.ErrDenied, "CONNECT"},
		{"starting up", "57P03", store.ErrUnavailable, "starting, stopping or recovering"},
		{"shutting down", "57P01", store.ErrUnavailable, ""},
		{"too many connections", "53300", store.ErrUnavailable, "no free connection"},
		{"a pooler without a server", "08P01", store.ErrUnavailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, through := startProxy(t, with(u, "watch", "no", "password", password))
			s := open(t, through)
			p.refuse(errorReply("FATAL", c.code, "scripted refusal of "+password))
			p.cut()
			for _, op := range writes(s) {
				err := op.call(t.Context())
				kindIs(t, err, c.want, op.name)
				says(t, err, c.words, "scripted", key)
				silentOf(t, err, password)
			}
			_, err := s.Get(t.Context(), key, 100)
			kindIs(t, err, c.want, "Get")
			_, err = tryOpen(t, through)
			kindIs(t, err, c.want, "Open")
			silentOf(t, err, password)
		})
	}
}

// A server that cannot be reached did nothing.
//
// SPEC ST8
func TestNoServer(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	_ = p.listener.Close()
	p.cut()
	for _, op := range writes(s) {
		kindIs(t, op.call(t.Context()), store.ErrUnavailable, op.name+" without a server")
	}
	_, err := tryOpen(t, "postgres://no-such-host.invalid/db?connect_timeout=2")
	kindIs(t, err, store.ErrUnavailable, "Open of an unknown host")
}

// A commit that was acknowledged by the primary while the wait for its
// synchronous standby was cancelled is no acknowledged write.
//
// SPEC ST16 ST9
func TestCancelledWaitForTheStandbyIsUnknown(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	p.once("INSERT INTO", action{passAfter, []pgproto3.BackendMessage{&pgproto3.NoticeResponse{
		Severity: "WARNUNG", SeverityUnlocalized: "WARNING", Code: "01000", Message: "in whatever language", Routine: "SyncRepWaitForLSN",
	}}})
	_, err := s.Create(t.Context(), key, []byte("x"))
	kindIs(t, err, store.ErrUnknown, "Create with the warning")
	says(t, err, "synchronous standby")
	o, err := s.Get(t.Context(), key, 100)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Replace(t.Context(), key, []byte("y"), o.Version); err != nil {
		t.Errorf("the next write on the same connection: %v", err)
	}
}

// What a standby says may be old, so it is refused, whether it was asked by
// mistake or by a proxy that spreads reads.
//
// SPEC ST3
func TestStandbyIsRefused(t *testing.T) {
	t.Parallel()
	_, through := startProxy(t, place(t))
	s := open(t, with(through, "watch", "no"))
	v := must(s.Create(t.Context(), key, []byte("x")))(t)
	for _, sql := range []*string{&s.sql.get, &s.sql.list, &s.sql.present, &s.sql.now, &s.sql.waiting} {
		*sql = strings.ReplaceAll(*sql, "pg_is_in_recovery()", "true")
	}
	for name, call := range map[string]func() error{
		"Get":     func() error { _, err := s.Get(t.Context(), key, 100); return err },
		"Now":     func() error { _, err := s.Now(t.Context()); return err },
		"Waiting": func() error { _, err := s.Waiting(t.Context(), key); return err },
		"List": func() (err error) {
			for _, err = range s.List(t.Context(), "", "") {
			}
			return err
		},
	} {
		err := call()
		kindIs(t, err, store.ErrUnavailable, name+" answered by a standby")
		says(t, err, "read-only standby")
	}
	// A demoted server refuses to write, and its connection is given up.
	if _, err := s.Replace(t.Context(), key, []byte("y"), v); err != nil {
		t.Errorf("a write, which a standby refuses by itself: %v", err)
	}
}
