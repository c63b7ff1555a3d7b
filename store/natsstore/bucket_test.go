package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST3 ST10 ST16
// CASE B82
func TestUnfitBucketsAreRefused(t *testing.T) {
	t.Parallel()
	set := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	for _, row := range []struct {
		name   string
		change func(map[string]any)
		query  string
		says   string // empty: it is accepted
	}{
		{"as it should be", nil, "", ""},
		{"one message per subject", set("max_msgs_per_subject", 1), "", ""},
		{"a long history", set("max_msgs_per_subject", 64), "", ""},
		{"no limit to the history", set("max_msgs_per_subject", -1), "", ""},
		{"five replicas", set("num_replicas", 5), "", ""},
		{"full is full", func(c map[string]any) { c["max_bytes"] = 1 << 20 }, "", ""},
		{"direct gets", set("allow_direct", true), "", "--no-allow-direct"},
		{"direct gets from mirrors", set("mirror_direct", true), "", "--no-allow-mirror-direct"},
		{"a mirror", set("mirror", map[string]any{"name": "KV_other"}), "", "mirror or sources"},
		{"sources", set("sources", []any{map[string]any{"name": "KV_other"}}), "", "mirror or sources"},
		{"renamed subjects", set("subject_transform", map[string]any{"src": ">", "dest": "x.>"}), "", "subject_transform"},
		{"a time to live", set("max_age", int64(time.Hour)), "", "--max-age 0"},
		{"a work queue", set("retention", "workqueue"), "", "retention"},
		{"by interest", set("retention", "interest"), "", "retention"},
		{"the oldest go, by size", func(c map[string]any) { c["discard"], c["max_bytes"] = "old", 1<<20 }, "", "--discard new"},
		{"the oldest go, by number", func(c map[string]any) { c["discard"], c["max_msgs"] = "old", 1000 }, "", "--discard new"},
		{"the oldest would go, but there is no limit", set("discard", "old"), "", ""},
		{"no second message of a subject", set("discard_new_per_subject", true), "", "discard_new_per_subject"},
		{"no acknowledgements", set("no_ack", true), "", "no_ack"},
		{"sealed", set("sealed", true), "", "sealed"},
		{"counters", set("allow_msg_counter", true), "", "allow_msg_counter"},
		{"written later", set("persist_mode", "async"), "", "persist_mode"},
		{"in memory", set("storage", "memory"), "", "memory=yes"},
		{"in memory, and so wanted", set("storage", "memory"), "?memory=yes", ""},
		{"other replicas", nil, "?replicas=3", "--replicas 3"},
		{"other subjects", set("subjects", []string{"orders.>"}), "", "subjects"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			c.info = c.infoOf(row.change)
			s, err := openString(t, c.srv.ClientURL()+"/"+c.bucket+row.query)
			if err == nil {
				_ = s.Close()
			}
			switch {
			case row.says == "" && err != nil:
				t.Errorf("it was refused: %v", err)
			case row.says != "" && (!sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), row.says)):
				t.Errorf("it gave %v, want %v that says %q", err, store.ErrInvalid, row.says)
			}
		})
	}
}

// A bucket as other tools make it allows direct gets; mended as the message
// says, it is accepted.
//
// SPEC ST3
func TestABucketOfOtherToolsIsMended(t *testing.T) {
	t.Parallel()
	bucket := newBucket()
	js, err := jetstream.New(dial(t, shared.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 10*time.Second)
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := openString(t, shared.ClientURL()+"/"+bucket); !sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), "allow_direct") {
		t.Fatalf("a bucket with direct gets gave %v", err)
	}
	st, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	s := openAt(t, shared.ClientURL()+"/"+bucket) // one message per subject: a listing looks at each
	if _, err := s.Create(ctx, key("a"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, key("b"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, key("a")); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for k, err := range s.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	if len(keys) != 1 || keys[0] != key("b") {
		t.Errorf("the listing shows %q, want %q only", keys, key("b"))
	}
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(ctx, "test.lease.b"); err != nil || string(e.Value()) != "x" {
		t.Errorf("other tools read %v, %v", e, err)
	}
}

// Racing openers make one bucket, which has what the driver needs.
//
// SPEC ST10 ST16
func TestNewBuckets(t *testing.T) {
	t.Parallel()
	bucket := newBucket()
	if _, err := openString(t, shared.ClientURL()+"/"+bucket+"?create=no"); !sameKind(err, store.ErrInvalid) {
		t.Errorf("create=no of an absent bucket gave %v", err)
	}
	var wg sync.WaitGroup
	stores := make([]*Store, 8)
	for i := range stores {
		wg.Go(func() {
			s, err := openString(t, shared.ClientURL()+"/"+bucket)
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = s.(*Store)
		})
	}
	wg.Wait()
	for _, s := range stores {
		if s == nil {
			t.FailNow()
		}
		if s.Info() != stores[0].Info() {
			t.Errorf("racing openers see %+v and %+v", s.Info(), stores[0].Info())
		}
		defer func() { _ = s.Close() }()
	}
	js, err := jetstream.New(dial(t, shared.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(within(t, 10*time.Second), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	c := st.CachedInfo().Config
	if c.AllowDirect || c.Storage != jetstream.FileStorage || c.Discard != jetstream.DiscardNew || c.MaxAge != 0 || c.MaxMsgsPerSubject != 2 || c.FirstSeq < 1e15 {
		t.Errorf("the new bucket is %+v", c)
	}
}

// What a client cannot see is said, and what hurts is named.
//
// SPEC ST16
func TestInspect(t *testing.T) {
	t.Parallel()
	const always = "sync_interval: always"
	behind := map[string]any{"replicas": []any{map[string]any{"name": "n2", "current": false, "offline": true, "lag": 7}}}
	for _, row := range []struct {
		name, query string
		change      func(config map[string]any)
		cluster     any
		says        []string // beside the line on sync_interval
	}{
		{"one server", "", nil, nil, []string{"one server keeps"}},
		{"three", "", func(c map[string]any) { c["num_replicas"] = 3 }, nil, nil},
		{"three, one behind", "", func(c map[string]any) { c["num_replicas"] = 3 }, behind, []string{"n2"}},
		{"reads by the leader", "?reads=leader", func(c map[string]any) { c["num_replicas"] = 3 }, nil, []string{"reads=leader"}},
		{"four", "", func(c map[string]any) { c["num_replicas"] = 4 }, nil, []string{"4 replicas"}},
		{"in memory", "?memory=yes", func(c map[string]any) { c["storage"], c["num_replicas"] = "memory", 3 }, nil, []string{"in memory"}},
		{"no history", "", func(c map[string]any) { c["max_msgs_per_subject"], c["num_replicas"] = 1, 3 }, nil, []string{"--max-msgs-per-subject 2"}},
		{"long history", "", func(c map[string]any) { c["max_msgs_per_subject"], c["num_replicas"] = 10, 3 }, nil, []string{"cost space"}},
		{"almost full", "", func(c map[string]any) { c["max_bytes"], c["num_replicas"] = 1000, 3 }, nil, []string{"almost full"}},
		{"small records", "", func(c map[string]any) { c["max_msg_size"], c["num_replicas"] = 64<<10, 3 }, nil, []string{"largest record"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			c.info = c.infoOf(row.change)
			s := c.open(row.query)
			c.set(func(c *script) {
				var info map[string]any
				if err := json.Unmarshal([]byte(c.info), &info); err != nil {
					t.Fatal(err)
				}
				info["cluster"], info["state"] = row.cluster, map[string]any{"bytes": 900}
				c.info = encode(info)
			})
			notes, err := s.Inspect(within(t, 10*time.Second))
			if err != nil || len(notes) != 1+len(row.says) || !strings.Contains(notes[0], always) {
				t.Fatalf("gave %q and %v, want the line on %q and %q", notes, err, always, row.says)
			}
			for i, says := range row.says {
				if !strings.Contains(notes[i+1], says) {
					t.Errorf("note %d is %q, want one that says %q", i+1, notes[i+1], says)
				}
			}
			c.set(func(c *script) { c.info = refuse(404, codeNoStream, "stream not found") })
			if _, err := s.Inspect(within(t, 10*time.Second)); !sameKind(err, store.ErrUnavailable) {
				t.Errorf("of a bucket that is gone it gave %v", err)
			}
		})
	}
}

// A bucket that is deleted and made again gives none of its versions twice, and
// a store that was open all the time does not take the new one for the old.
//
// SPEC ST4
// CASE B42
func TestABucketThatIsMadeAgain(t *testing.T) {
	t.Parallel()
	bucket := newBucket()
	p := newProxy(t, shared.Addr().String())
	s := openAt(t, p.url()+"/"+bucket)
	ctx := within(t, 20*time.Second)
	js, err := jetstream.New(dial(t, shared.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	old, err := s.Create(ctx, key("k"), []byte("old"))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(ctx, "KV_"+bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, key("k"), 100); !sameKind(err, store.ErrUnavailable) {
		t.Errorf("Get in a bucket that is gone gave %v, want %v: it is not absence", err, store.ErrUnavailable)
	}
	if _, err := s.Replace(ctx, key("k"), []byte("x"), old); !sameKind(err, store.ErrUnavailable) {
		t.Errorf("Replace in a bucket that is gone gave %v, want %v", err, store.ErrUnavailable)
	}
	again := openAt(t, shared.ClientURL()+"/"+bucket)
	v, err := again.Create(ctx, key("k"), []byte("new"))
	if err != nil {
		t.Fatal(err)
	}
	if v == old || again.Info().Identity == s.Info().Identity {
		t.Errorf("the new bucket repeats version %s or identity %s", v, s.Info().Identity)
	}
	if _, err := again.Replace(ctx, key("k"), []byte("x"), old); !sameKind(err, store.ErrConflict) {
		t.Errorf("Replace from a version of the old bucket gave %v", err)
	}
	if _, err := s.Replace(ctx, key("k"), []byte("x"), old); !sameKind(err, store.ErrConflict) {
		t.Errorf("Replace through the store that was open all the time gave %v: the sequences repeat", err)
	}
	p.cut()
	eventually(t, "discovery that the bucket is another", func() bool {
		_, err := s.Get(within(t, time.Second), key("k"), 100)
		return sameKind(err, store.ErrCorrupt)
	})
}

// A bucket that is spoilt while it is open is noticed when the connection is
// made anew.
//
// SPEC ST10
func TestABucketThatIsSpoilt(t *testing.T) {
	t.Parallel()
	c := newScript(t)
	p := newProxy(t, c.srv.Addr().String())
	c.message = func(string) string { return c.stored(key("k"), 5, "x") }
	s := openAt(t, p.url()+"/"+c.bucket)
	if _, err := s.Get(within(t, 10*time.Second), key("k"), 100); err != nil {
		t.Fatal(err)
	}
	c.set(func(c *script) { c.info = c.infoOf(func(m map[string]any) { m["max_age"] = int64(time.Hour) }) })
	p.cut()
	eventually(t, "refusal of the spoilt bucket", func() bool {
		_, err := s.Get(within(t, time.Second), key("k"), 100)
		return sameKind(err, store.ErrUnavailable) && strings.Contains(err.Error(), "max_age")
	})
	c.set(func(c *script) { c.info = c.infoOf(nil) })
	if _, err := s.Get(within(t, 10*time.Second), key("k"), 100); err != nil {
		t.Errorf("after it was mended: %v", err)
	}
}

// A full bucket refuses what would grow it and loses nothing.
//
// SPEC ST16
func TestAFullBucket(t *testing.T) {
	t.Parallel()
	s := openAt(t, shared.ClientURL()+"/"+newBucket()+"?max_bytes=20000")
	ctx := within(t, 20*time.Second)
	written := 0
	for ; ; written++ {
		_, err := s.Create(ctx, key(fmt.Sprint(written)), make([]byte, 1000))
		if err != nil {
			if !sameKind(err, store.ErrUnavailable) {
				t.Fatalf("a full bucket gave %v of kind %v", err, store.KindOf(err))
			}
			break
		}
	}
	listed := 0
	for _, err := range s.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		listed++
	}
	if written < 10 || listed != written {
		t.Errorf("%d records were acknowledged and %d are listed", written, listed)
	}
}

// SPEC ST8
func TestConnectionsThatAreNotFit(t *testing.T) {
	t.Parallel()
	ctx := within(t, 10*time.Second)
	for name, opts := range map[string][]nats.Option{
		"nats.ReconnectBufSize(-1)": {nats.ReconnectBufSize(1 << 20)},
		"old request style":         {nats.UseOldRequestStyle()},
	} {
		_, err := Open(ctx, dial(t, shared.ClientURL(), opts...), Config{Bucket: newBucket()})
		if !sameKind(err, store.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: gave %v", name, err)
		}
	}
	if _, err := Open(ctx, nil, Config{Bucket: "b"}); !sameKind(err, store.ErrInvalid) {
		t.Errorf("no connection: gave %v", err)
	}
	for version, old := range map[string]bool{"2.11.9": true, "2.9.10": true, "1.4.0": true, "2.12.0": false, "2.15.2": false, "3.0.0": false, "2.12.0-RC.1": false, "odd": false} {
		if tooOld(version) != old {
			t.Errorf("server %s: too old is %v", version, !old)
		}
	}
}

// A connection that is the caller's outlives the store, and its error handler
// is called and restored.
//
// SPEC ST13
func TestACallersConnection(t *testing.T) {
	t.Parallel()
	heard := make(chan error, 10)
	nc := dial(t, shared.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { heard <- err }))
	s, err := Open(within(t, 10*time.Second), nc, Config{Bucket: newBucket(), Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	nc.ErrorHandler()(nc, nil, boom)
	if err := <-heard; err != boom {
		t.Errorf("the caller's handler heard %v", err)
	}
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	defer cancel()
	if _, err := s.Create(ctx, key("k"), nil); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if !nc.IsConnected() {
		t.Error("Close closed the caller's connection")
	}
}
