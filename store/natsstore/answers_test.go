package natsstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// answerRow is what a server says to a write, and to the read after it, and
// what that means for Create, Replace and DeleteIf of the version at sequence 5.
type answerRow struct {
	name                      string
	ack                       string
	ackOf                     func(c *script, m *nats.Msg) string // instead of ack
	found                     func(c *script, m *nats.Msg) string // the last message when the driver looks; m is the write
	create, replace, deleteIf error
	reads                     bool // whether the driver looks
}

func answerRows() []answerRow {
	at := func(seq int, headers ...string) func(*script, *nats.Msg) string {
		return func(c *script, _ *nats.Msg) string { return c.stored(key("k"), seq, "x", headers...) }
	}
	none := func(*script, *nats.Msg) string { return refuse(404, codeNoMessage, "no message found") }
	own := func(c *script, m *nats.Msg) string {
		return c.stored(key("k"), 7, "x", headerAttempt, m.Header.Get(headerAttempt))
	}
	mute := func(*script, *nats.Msg) string { return "" }
	wrongLast, inFlight := refuse(400, codeWrongLast, "wrong last sequence: 9"), refuse(400, codeWrongLastInFlight, "wrong last sequence")
	exists, conflict, notFound := store.ErrExists, store.ErrConflict, store.ErrNotFound
	unavailable, unknown := store.ErrUnavailable, store.ErrUnknown
	all := func(name, ack string, kind error) answerRow {
		return answerRow{name: name, ack: ack, create: kind, replace: kind, deleteIf: kind}
	}
	return []answerRow{
		{name: "acknowledged", ackOf: func(c *script, _ *nats.Msg) string { return c.acked(7) }},
		{name: "wrong sequence, a newer record", ack: wrongLast, found: at(9), create: exists, replace: conflict, deleteIf: conflict, reads: true},
		{name: "wrong sequence, a newer marker", ack: wrongLast, found: at(9, headerOperation, "DEL"), create: unknown, replace: notFound, deleteIf: notFound, reads: true},
		{name: "wrong sequence, a marker by purge", ack: wrongLast, found: at(9, headerOperation, "PURGE"), create: unknown, replace: notFound, deleteIf: notFound, reads: true},
		{name: "wrong sequence, a marker of the server", ack: wrongLast, found: at(9, headerReason, "MaxAge"), create: unknown, replace: notFound, deleteIf: notFound, reads: true},
		{name: "wrong sequence, nothing there", ack: wrongLast, found: none, create: unknown, replace: notFound, deleteIf: notFound, reads: true},
		{name: "wrong sequence, but still at that version", ack: wrongLast, found: at(5), create: exists, replace: unknown, deleteIf: unknown, reads: true},
		{name: "wrong sequence, an older record", ack: wrongLast, found: at(4), create: exists, replace: unknown, deleteIf: unknown, reads: true},
		{name: "wrong sequence, but another leader took it", ack: wrongLast, found: own, reads: true},
		{name: "wrong sequence, no answer to the read", ack: wrongLast, found: mute, create: unknown, replace: unknown, deleteIf: unknown, reads: true},
		{name: "another write in flight, which wins", ack: inFlight, found: at(9), create: exists, replace: conflict, deleteIf: conflict, reads: true},
		{name: "another write in flight, which does not end", ack: inFlight, found: at(5), create: exists, replace: unknown, deleteIf: unknown, reads: true},
		{name: "in flight, but another leader took it", ack: inFlight, found: own, reads: true},
		all("no answer", "", unknown),
		all("insufficient resources", refuse(503, codeInsufficient, "insufficient resources"), unavailable),
		all("account resources", refuse(400, codeAccountResources, "resource limits exceeded for account"), unavailable),
		all("storage exceeded", refuse(500, codeStorageResources, "insufficient storage resources available"), unavailable),
		all("memory exceeded", refuse(500, codeMemoryResources, "insufficient memory resources available"), unavailable),
		all("bucket full", refuse(400, codeStoreFailed, "maximum bytes exceeded"), unavailable),
		all("bucket full of messages", refuse(400, codeStoreFailed, "maximum messages exceeded"), unavailable),
		all("broken disk", refuse(500, codeStoreFailed, "write /data/1.blk: input/output error"), unknown),
		all("message too large", refuse(400, codeTooLarge, "message size exceeds maximum allowed"), store.ErrInvalid),
		all("headers too large", refuse(400, codeHeaderTooLarge, "header size exceeds maximum allowed of 64k"), store.ErrInvalid),
		all("sealed", refuse(400, codeSealed, "invalid operation on sealed stream"), unavailable),
		all("another stream takes the subject", refuse(400, codeOtherStream, "expected stream does not match"), unavailable),
		all("no stream", refuse(404, codeNoStream, "stream not found"), unavailable),
		all("JetStream not enabled", refuse(503, codeNotEnabled, "JetStream not enabled"), unavailable),
		all("JetStream not enabled for the account", refuse(503, codeNotEnabledAccount, "JetStream not enabled for account"), unavailable),
		all("cluster without a leader", refuse(503, codeClusterNotAvail, "JetStream system temporarily unavailable"), unavailable),
		all("an error nobody knows", refuse(500, 19999, "something new"), unknown),
		all("sequence mismatch inside the server", refuse(503, 10063, "expected stream sequence does not match"), unknown),
		all("not JSON", "+OK", unknown),
		all("cut off", `{"stream":"KV_te`, unknown),
		all("empty object", "{}", unknown),
		all("acknowledged by another stream", `{"stream":"OTHER","seq":7}`, unknown),
		{name: "a duplicate", ackOf: func(c *script, _ *nats.Msg) string {
			return `{"stream":"KV_` + c.bucket + `","seq":7,"duplicate":true}`
		}, create: unknown, replace: unknown, deleteIf: unknown},
	}
}

// SPEC ST1 ST2 ST8 ST9 ST13
// CASE B02
func TestAnswersToWrites(t *testing.T) {
	t.Parallel()
	for _, row := range answerRows() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, op := range []struct {
				name string
				want error
				call func(ctx context.Context, s *Store, v store.Version) error
			}{
				{"create", row.create, func(ctx context.Context, s *Store, _ store.Version) error {
					_, err := s.Create(ctx, key("k"), []byte("x"))
					return err
				}},
				{"replace", row.replace, func(ctx context.Context, s *Store, v store.Version) error {
					_, err := s.Replace(ctx, key("k"), []byte("x"), v)
					return err
				}},
				{"delete-if", row.deleteIf, func(ctx context.Context, s *Store, v store.Version) error { return s.DeleteIf(ctx, key("k"), v) }},
			} {
				t.Run(op.name, func(t *testing.T) {
					t.Parallel()
					sends := 1
					if op.name == "create" && strings.Contains(row.name, "marker") {
						sends = 2 // the second on the marker
					}
					row.try(t, op.want, sends, op.call)
				})
			}
		})
	}
}

func (row answerRow) try(t *testing.T, want error, sends int, call func(context.Context, *Store, store.Version) error) {
	c := newScript(t)
	c.ack = func(m *nats.Msg) string {
		if row.ackOf != nil {
			return row.ackOf(c, m)
		}
		return row.ack
	}
	c.message = func(string) string {
		if row.found == nil {
			t.Error("the driver looks although there is nothing to learn")
			return ""
		}
		return row.found(c, c.writes[len(c.writes)-1])
	}
	s := c.open("")
	s.judgeDelays = s.judgeDelays[:3]
	err := call(c.patient, s, s.place.version(5))
	if !sameKind(err, want) {
		t.Errorf("gave %v of kind %v, want %v", err, store.KindOf(err), want)
	}
	writes, gets, _ := c.counts()
	if writes != sends {
		t.Errorf("%d writes were sent, want %d", writes, sends)
	}
	if (gets > 0) != row.reads {
		t.Errorf("the driver looked %d times, want it to look: %v", gets, row.reads)
	}
}

// sameKind reports whether err is of exactly one kind, or nil if want is.
func sameKind(err, want error) bool {
	if want == nil || err == nil {
		return err == want
	}
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == want) {
			return false
		}
	}
	return true
}

// SPEC ST3 ST6 ST7 ST8 ST13
func TestAnswersToReads(t *testing.T) {
	t.Parallel()
	k := key("k")
	rows := []struct {
		name  string
		reply func(c *script) string
		want  error
	}{
		{"a record", func(c *script) string { return c.stored(k, 5, "body") }, nil},
		{"a record with headers", func(c *script) string { return c.stored(k, 5, "body", headerAttempt, "A", "Other", "x:y") }, nil},
		{"no message", func(*script) string { return refuse(404, codeNoMessage, "no message found") }, store.ErrNotFound},
		{"a marker", func(c *script) string { return c.stored(k, 5, "", headerOperation, "DEL") }, store.ErrNotFound},
		{"a purge marker", func(c *script) string { return c.stored(k, 5, "", headerOperation, "PURGE") }, store.ErrNotFound},
		{"a server's marker", func(c *script) string { return c.stored(k, 5, "", headerReason, "Purge") }, store.ErrNotFound},
		{"too large", func(c *script) string { return c.stored(k, 5, "123456789") }, store.ErrCorrupt},
		{"no stream", func(*script) string { return refuse(404, codeNoStream, "stream not found") }, store.ErrUnavailable},
		{"no leader", func(*script) string {
			return refuse(503, codeClusterNotAvail, "JetStream system temporarily unavailable")
		}, store.ErrUnavailable},
		{"not enabled", func(*script) string { return refuse(503, codeNotEnabledAccount, "JetStream not enabled for account") }, store.ErrUnavailable},
		{"any other error", func(*script) string { return refuse(404, 19999, "something new") }, store.ErrUnavailable},
		{"no answer", func(*script) string { return "" }, store.ErrUnavailable},
		{"another key", func(c *script) string { return c.stored(key("other"), 5, "body") }, store.ErrUnavailable},
		{"no sequence", func(c *script) string { return c.stored(k, 0, "body") }, store.ErrUnavailable},
		{"neither message nor error", func(*script) string { return "{}" }, store.ErrUnavailable},
		{"cut off", func(c *script) string { return c.stored(k, 5, "body")[:40] }, store.ErrUnavailable},
		{"damaged body", func(c *script) string {
			return `{"message":{"subject":"$KV.` + c.bucket + `.test.lease.k","seq":5,"data":"*"}}`
		}, store.ErrUnavailable},
		{"damaged headers", func(c *script) string {
			return `{"message":{"subject":"$KV.` + c.bucket + `.test.lease.k","seq":5,"data":"","hdrs":"AAAA"}}`
		}, store.ErrUnavailable},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			c.message = func(string) string { return row.reply(c) }
			s := c.open("")
			o, err := s.Get(c.patient, k, 8)
			if !sameKind(err, row.want) {
				t.Fatalf("gave %v of kind %v, want %v", err, store.KindOf(err), row.want)
			}
			if err == nil && (string(o.Body) != "body" || o.Version != s.place.version(5) || !o.Modified.Equal(created)) {
				t.Errorf("gave %+v", o)
			}
			if writes, gets, barriers := c.counts(); writes != 0 || gets != 1 || barriers != 0 {
				t.Errorf("sent %d writes, %d reads and %d fences, want one read", writes, gets, barriers)
			}
		})
	}
}

// A read of a replicated bucket passes the fence first, and a closed fence is
// not a read.
//
// SPEC ST3
func TestReadsPassTheFence(t *testing.T) {
	t.Parallel()
	replicated := func(config map[string]any) { config["num_replicas"] = 3 }
	for _, row := range []struct {
		name, query, ack string
		want             error
		barriers         int
	}{
		{"open", "", "ack", nil, 1},
		{"closed", "", "", store.ErrUnavailable, 1},
		{"full bucket", "", refuse(400, codeStoreFailed, "maximum bytes exceeded"), store.ErrUnavailable, 1},
		{"not wanted", "?reads=leader", "", nil, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			c.info = c.infoOf(replicated)
			c.message = func(string) string { return c.stored(key("k"), 5, "body") }
			c.api["barrier"] = func(string) string {
				if row.ack == "ack" {
					return c.acked(6)
				}
				return row.ack
			}
			s := c.open(row.query)
			_, err := s.Get(c.patient, key("k"), 100)
			if !sameKind(err, row.want) {
				t.Errorf("gave %v, want %v", err, row.want)
			}
			wantGets := 1
			if row.want != nil {
				wantGets = 0
			}
			if writes, gets, barriers := c.counts(); writes != 0 || gets != wantGets || barriers != row.barriers {
				t.Errorf("sent %d writes, %d reads and %d fences, want 0, %d and %d", writes, gets, barriers, wantGets, row.barriers)
			}
		})
	}
}

// A fence that was sent before a read began proves nothing to it: two reads
// one after the other take two, many at a time share few.
//
// SPEC ST3
func TestFencesAreShared(t *testing.T) {
	t.Parallel()
	c := newScript(t)
	c.info = c.infoOf(func(config map[string]any) { config["num_replicas"] = 3 })
	c.message = func(string) string { return c.stored(key("k"), 5, "body") }
	hold := make(chan struct{})
	entered := make(chan struct{}, 100)
	c.api["barrier"] = func(string) string {
		entered <- struct{}{}
		<-hold
		return c.acked(6)
	}
	s := c.open("")
	results := make(chan error, 51)
	read := func() {
		_, err := s.Get(within(t, 10*time.Second), key("k"), 100)
		results <- err
	}
	go read()
	<-entered
	for range 50 { // all come while the first fence is under way
		go read()
	}
	eventually(t, "second fence that is waited for", func() bool {
		s.fence.mu.Lock()
		defer s.fence.mu.Unlock()
		return s.fence.next != nil
	})
	close(hold)
	for range 51 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if _, _, barriers := c.counts(); barriers < 2 || barriers > 51 {
		t.Errorf("51 reads took %d fences, want at least 2: the first was under way when the others began", barriers)
	}
}
