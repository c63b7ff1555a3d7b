package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// consumer makes the script accept consumers, and says where they deliver.
func consumer(c *script) <-chan string {
	made := make(chan string, 10)
	c.api["$JS.API.CONSUMER.CREATE."] = func(body string) string {
		var request struct {
			Config struct {
				Deliver string `json:"deliver_subject"`
			} `json:"config"`
		}
		if err := json.Unmarshal([]byte(body), &request); err != nil {
			return refuse(400, 10025, "bad request")
		}
		made <- request.Config.Deliver
		return `{"type":"created","delivered":{"consumer_seq":0,"stream_seq":5}}`
	}
	c.api["$JS.API.CONSUMER.DELETE."] = func(string) string { return `{"success":true}` }
	c.message = func(string) string { return c.stored(key("k"), 5, "x") }
	return made
}

// SPEC ST14
func TestWhatBreaksAWatch(t *testing.T) {
	t.Parallel()
	deliver := func(key string, seq, nth int) *nats.Msg {
		return &nats.Msg{Reply: fmt.Sprintf("$JS.ACK.KV_x.c.1.%d.%d.1.0", seq, nth), Subject: key}
	}
	status := func(code string, pairs ...string) *nats.Msg {
		m := &nats.Msg{Header: nats.Header{"Status": []string{code}}}
		for i := 0; i < len(pairs); i += 2 {
			m.Header.Set(pairs[i], pairs[i+1])
		}
		return m
	}
	for _, row := range []struct {
		name string
		msgs []*nats.Msg
		want error // context.DeadlineExceeded: the watch goes on
	}{
		{"nothing", nil, context.DeadlineExceeded},
		{"a change", []*nats.Msg{deliver("k", 6, 1)}, nil},
		{"an old change", []*nats.Msg{deliver("k", 5, 1)}, context.DeadlineExceeded},
		{"another key's change", []*nats.Msg{deliver("other", 6, 1)}, context.DeadlineExceeded},
		{"a change after another key's", []*nats.Msg{deliver("other", 6, 1), deliver("k", 7, 2)}, nil},
		{"a gap", []*nats.Msg{deliver("other", 6, 1), deliver("other", 8, 3)}, store.ErrUnavailable},
		{"the first is left out", []*nats.Msg{deliver("other", 6, 2)}, store.ErrUnavailable},
		{"no delivery", []*nats.Msg{{Subject: "k"}}, store.ErrUnavailable},
		{"heartbeats", []*nats.Msg{deliver("other", 6, 1), status("100", "Nats-Last-Consumer", "1")}, context.DeadlineExceeded},
		{"a heartbeat after a gap", []*nats.Msg{status("100", "Nats-Last-Consumer", "1")}, store.ErrUnavailable},
		{"the consumer is deleted", []*nats.Msg{status("409", "Description", "Consumer Deleted")}, store.ErrUnavailable},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := newScript(t)
			made := consumer(c)
			s := c.open("")
			result := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
				if row.want != context.DeadlineExceeded {
					ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
				}
				defer cancel()
				result <- s.Watch(ctx, key("k"), s.place.version(5))
			}()
			inbox := <-made
			eventually(t, "comparison with the present state", func() bool { _, gets, _ := c.counts(); return gets > 0 })
			for _, m := range row.msgs {
				// Events carry the record's own subject, as a stream delivers them.
				out := &nats.Msg{Subject: inbox, Reply: m.Reply, Header: m.Header, Data: m.Data}
				if m.Subject == "" {
					if err := c.nc.PublishMsg(out); err != nil {
						t.Fatal(err)
					}
					continue
				}
				inject(t, s, m, key(m.Subject))
			}
			err := <-result
			switch {
			case row.want == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("Watch gave %v, want it to go on", err)
			case row.want != context.DeadlineExceeded && !sameKind(err, row.want):
				t.Errorf("Watch gave %v, want %v", err, row.want)
			}
			if sameKind(err, store.ErrUnavailable) && row.want == store.ErrUnavailable { // the next one begins anew
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if err := s.Watch(ctx, key("k"), s.place.version(5)); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the next Watch gave %v", err)
				}
				if len(made) != 1 {
					t.Errorf("the next Watch made %d consumers, want 1", len(made))
				}
			}
		})
	}
}

// inject gives the store's only consumer an event with the subject of key: a
// plain publisher cannot deliver one subject to another.
func inject(t *testing.T, s *Store, m *nats.Msg, key string) {
	t.Helper()
	s.hub.mu.Lock()
	sp := s.hub.spaces["test"]
	s.hub.mu.Unlock()
	if sp == nil {
		t.Fatal("there is no consumer")
	}
	sp.events <- &nats.Msg{Subject: s.place.subject(key), Reply: m.Reply, Header: m.Header}
}

// SPEC ST14
func TestAWatchWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	p := newProxy(t, shared.Addr().String())
	bucket := newBucket()
	s := openAt(t, p.url()+"/"+bucket)
	direct := openAt(t, shared.ClientURL()+"/"+bucket)
	v, err := s.Create(within(t, 10*time.Second), key("k"), nil)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	watch := func() { result <- s.Watch(within(t, 20*time.Second), key("k"), v) }
	go watch()
	eventually(t, "watch in place", func() bool { return ready(s) })
	p.cut()
	if err := <-result; !sameKind(err, store.ErrUnavailable) {
		t.Errorf("a Watch whose connection broke gave %v, want %v", err, store.ErrUnavailable)
	}
	eventually(t, "new connection", func() bool { _, err := s.Get(within(t, time.Second), key("k"), 100); return err == nil })
	go watch()
	eventually(t, "new watch in place", func() bool { return ready(s) })
	if _, err := direct.Replace(within(t, 10*time.Second), key("k"), nil, v); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("the watch after the reconnection gave %v", err)
	}
}

func ready(s *Store) bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, sp := range s.hub.spaces {
		select {
		case <-sp.ready:
			return true
		default:
		}
	}
	return false
}

// All watches of a namespace share one consumer, which goes when nobody needs
// it, and one that is behind the leader is found out.
//
// SPEC ST14
func TestConsumersAreSharedAndJudged(t *testing.T) {
	t.Parallel()
	s := freshStore(t)
	sp := &space{hub: s.hub, filter: s.place.root + "test.>", watches: map[string]map[*watch]struct{}{}}
	if _, err := s.Create(within(t, 10*time.Second), key("k"), nil); err != nil {
		t.Fatal(err)
	}
	if o := sp.look(t.Context()); o != nil {
		t.Fatalf("the first look gave %v", o.err)
	}
	if o := sp.look(t.Context()); o == nil || o.err != errBehind {
		t.Errorf("a consumer that did not bring the leader's newest message by the next look passes: %v", o)
	}
	sp.newest = sp.behind
	if o := sp.look(t.Context()); o != nil {
		t.Errorf("a consumer that is not behind gave %v", o.err)
	}
	sp.idle = time.Now()
	if sp.unneeded(sp.idle.Add(idleLimit / 2)) {
		t.Error("a consumer goes before it was idle for long")
	}
	if !sp.unneeded(sp.idle.Add(2 * idleLimit)) {
		t.Error("a consumer stays although nobody needs it")
	}
	ctx, cancel := context.WithCancel(within(t, 20*time.Second))
	ended := make(chan error, 50)
	for i := range 50 {
		go func() { ended <- s.Watch(ctx, key(fmt.Sprint("absent-", i)), "") }()
	}
	eventually(t, "fifty watches", func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.spaces["test"] != nil && len(s.hub.spaces["test"].watches) == 50
	})
	eventually(t, "consumer", func() bool { return ready(s) })
	var info struct {
		State struct {
			Consumers int `json:"consumer_count"`
		} `json:"state"`
	}
	if e, o := s.w.query(ctx, s.place.api+"STREAM.INFO."+s.place.stream, struct{}{}, &info); e != nil || o != nil || info.State.Consumers != 1 {
		t.Errorf("fifty watches have %d consumers (%v, %v), want 1", info.State.Consumers, e, o)
	}
	cancel()
	for range 50 {
		if err := <-ended; !sameKind(err, store.ErrUnavailable) || strings.Contains(err.Error(), "unknown") {
			t.Errorf("a Watch whose context ended gave %v", err)
		}
	}
}

// SPEC ST14
func TestDeliveries(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string][2]uint64{
		"$JS.ACK.KV_b.c.1.42.7.1700000000000000000.0":             {42, 7},
		"$JS.ACK.hub.acchash.KV_b.c.1.42.7.1700000000000000000.0": {42, 7},
		"$JS.ACK._.acchash.KV_b.c.1.42.7.1700000000000000000.0.x": {42, 7},
	} {
		if seq, nth, ok := delivery(reply); !ok || seq != want[0] || nth != want[1] {
			t.Errorf("%s gives %d, %d, %v", reply, seq, nth, ok)
		}
	}
	for _, reply := range []string{"", "_INBOX.x", "$JS.ACK.a.b.1.x.2.3.4", "$JS.FC.a.b.1.2.3.4.5"} {
		if _, _, ok := delivery(reply); ok {
			t.Errorf("%q passes for a delivery", reply)
		}
	}
}
