package natsstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

const (
	// beatEvery is how often a server says that a quiet consumer lives, and
	// beatLimit how long it may be silent.
	beatEvery = 2 * time.Second
	beatLimit = 7 * time.Second

	// lagEvery is how often the leader is asked whether the consumer, which may
	// be on any server, is behind.
	lagEvery = 5 * time.Second

	// idleLimit is how long a consumer is kept that nobody needs, and
	// orphanLimit how long a server keeps one whose process is gone.
	idleLimit   = 10 * time.Second
	orphanLimit = 30 * time.Second

	// backlog is how many events wait in this process.
	backlog = 8192
)

var (
	errSilent = errors.New("the server has been silent for too long")
	errGap    = errors.New("events were left out")
	errBehind = errors.New("the server that sends the events is behind the leader")
)

// Watch returns nil once key is at another version than v. One consumer per
// process and namespace serves all watches; it exists before the present
// version is read. If anything about it is not as it should be, all of them end
// with ErrUnavailable, and the next Watch begins anew.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	w := &watch{ended: make(chan struct{})}
	w.past, _ = s.place.sequence(v)
	sp := s.hub.join(key, w)
	defer sp.leave(key, w)
	select {
	case <-sp.ready:
	case <-w.ended:
		return s.ended(op, key, w)
	case <-ctx.Done():
		return store.CtxErr(ctx, s.w.identity, op, key)
	}
	l, o := s.read(ctx, key)
	switch {
	case o != nil:
		return s.failed(op, key, o)
	case l.present() && s.place.version(l.seq) != v, !l.present() && v != "":
		return nil
	}
	select {
	case <-w.ended:
		return s.ended(op, key, w)
	case <-ctx.Done():
		return store.CtxErr(ctx, s.w.identity, op, key)
	}
}

func (s *Store) ended(op, key string, w *watch) error {
	if w.o == nil {
		return nil
	}
	return s.failed(op, key, w.o)
}

// hub has the consumers of a store, by namespace.
type hub struct {
	s       *Store
	mu      sync.Mutex
	spaces  map[string]*space
	closed  bool
	running sync.WaitGroup
}

// space is one consumer and the watches that it serves.
type space struct {
	hub     *hub
	name    string
	ready   chan struct{} // closed when the consumer is in place
	filter  string
	watches map[string]map[*watch]struct{} // by key, under the hub's mutex
	over    *outcome                       // set when it is of no use any more
	idle    time.Time                      // since when nobody needs it

	events chan *nats.Msg // what the consumer sends

	// For the goroutine of run only.
	consumer string
	received uint64 // how many messages came from the consumer
	newest   uint64 // the newest sequence that they had
	beat     time.Time
	looked   time.Time
	behind   uint64 // the newest sequence at the last look, if it had not come
}

// watch is one call of Watch. It ends with o.
type watch struct {
	past  uint64 // what the caller knows: messages up to this one are no news
	o     *outcome
	ended chan struct{}
}

// end ends a watch. Under the hub's mutex.
func (w *watch) end(o *outcome) {
	select {
	case <-w.ended:
	default:
		w.o = o
		close(w.ended)
	}
}

// join adds a watch to its namespace's space.
func (h *hub) join(key string, w *watch) *space {
	name, _, _ := strings.Cut(key, "/")
	filter := h.s.place.subject(name) + ".>"
	if name == key { // a key outside every namespace
		name, filter = "/"+key, h.s.place.subject(key)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	sp := h.spaces[name]
	if sp == nil {
		sp = &space{hub: h, name: name, filter: filter, ready: make(chan struct{}), events: make(chan *nats.Msg, backlog), watches: map[string]map[*watch]struct{}{}}
		if h.closed {
			w.end(&outcome{kind: store.ErrUnavailable, err: errClosed})
			return sp
		}
		h.spaces[name] = sp
		h.running.Go(sp.run)
	}
	if sp.watches[key] == nil {
		sp.watches[key] = map[*watch]struct{}{}
	}
	sp.watches[key][w] = struct{}{}
	return sp
}

func (sp *space) leave(key string, w *watch) {
	sp.hub.mu.Lock()
	defer sp.hub.mu.Unlock()
	delete(sp.watches[key], w)
	if len(sp.watches[key]) == 0 {
		delete(sp.watches, key)
	}
	if len(sp.watches) == 0 {
		sp.idle = time.Now()
	}
}

// close ends all watches.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, sp := range h.spaces {
		sp.finish(&outcome{kind: store.ErrUnavailable, err: errClosed})
	}
}

// wait waits for the goroutines; the wire is closed before, which ends them.
func (h *hub) wait() { h.running.Wait() }

// finish ends the watches of a space, which serves no new ones. Under the
// hub's mutex.
func (sp *space) finish(o *outcome) {
	if sp.over == nil {
		sp.over = o
	}
	if sp.hub.spaces[sp.name] == sp {
		delete(sp.hub.spaces, sp.name)
	}
	for _, ws := range sp.watches {
		for w := range ws {
			w.end(o)
		}
	}
}

// run makes the consumer, serves the watches, and removes the consumer.
func (sp *space) run() {
	w := sp.hub.s.w
	w.mu.Lock()
	epoch := w.epoch
	w.mu.Unlock()
	sub, o := sp.begin(epoch)
	if o == nil {
		close(sp.ready)
		o = sp.serve(epoch)
	}
	sp.hub.mu.Lock()
	sp.finish(o)
	sp.hub.mu.Unlock()
	if sub == nil {
		return
	}
	_ = sub.Unsubscribe()
	if epoch.Err() == nil { // else the server does it, after orphanLimit
		ctx, cancel := context.WithTimeout(epoch, time.Second)
		defer cancel()
		var reply struct{}
		p := sp.hub.s.place
		_, _ = w.query(ctx, p.api+"CONSUMER.DELETE."+p.stream+"."+sp.consumer, struct{}{}, &reply)
	}
}

// begin makes a consumer of what is written from now on. It sends headers
// only: the events say which key changed.
func (sp *space) begin(epoch context.Context) (*nats.Subscription, *outcome) {
	s := sp.hub.s
	inbox := s.w.nc.NewInbox()
	sub, err := s.w.nc.ChanSubscribe(inbox, sp.events)
	if err != nil {
		return nil, s.w.outcome(epoch, err)
	}
	ctx, cancel := context.WithTimeoutCause(epoch, beatLimit, errSilent)
	defer cancel()
	sp.consumer = "tenure-" + inbox[strings.LastIndexByte(inbox, '.')+1:]
	request := map[string]any{
		"stream_name": s.place.stream,
		"action":      "create",
		"config": map[string]any{
			"name": sp.consumer, "description": "Tenure watches", "deliver_subject": inbox, "deliver_policy": "new",
			"ack_policy": "none", "replay_policy": "instant", "filter_subject": sp.filter, "headers_only": true,
			"mem_storage": true, "num_replicas": 1, "max_deliver": 1, "idle_heartbeat": beatEvery, "inactive_threshold": orphanLimit,
		},
	}
	var reply struct {
		Delivered struct {
			StreamSeq uint64 `json:"stream_seq"`
		} `json:"delivered"`
	}
	e, o := s.w.query(ctx, s.place.api+"CONSUMER.CREATE."+s.place.stream+"."+sp.consumer+"."+sp.filter, request, &reply)
	if o == nil && e != nil {
		o = &outcome{kind: store.ErrUnavailable, err: s.explain(e)}
	}
	if o != nil {
		_ = sub.Unsubscribe()
		return nil, o
	}
	sp.newest = reply.Delivered.StreamSeq // what is older never comes
	return sub, nil
}

// serve wakes watches until the consumer is of no use any more.
func (sp *space) serve(epoch context.Context) *outcome {
	broken := func(err error) *outcome { return &outcome{kind: store.ErrUnavailable, err: err} }
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	sp.beat, sp.looked = time.Now(), time.Now()
	for {
		select {
		case <-epoch.Done():
			return broken(context.Cause(epoch))
		case m := <-sp.events:
			sp.beat = time.Now()
			if err := sp.event(m); err != nil {
				return broken(err)
			}
		case now := <-tick.C:
			if now.Sub(sp.beat) > beatLimit {
				return broken(errSilent)
			}
			if sp.unneeded(now) {
				return broken(errClosed)
			}
			if now.Sub(sp.looked) > lagEvery {
				sp.looked = now
				if o := sp.look(epoch); o != nil {
					return o
				}
			}
		}
	}
}

// unneeded reports whether nobody needed the space for a while; it then serves
// no new watches.
func (sp *space) unneeded(now time.Time) bool {
	sp.hub.mu.Lock()
	defer sp.hub.mu.Unlock()
	if len(sp.watches) > 0 || now.Sub(sp.idle) < idleLimit {
		return sp.over != nil
	}
	delete(sp.hub.spaces, sp.name)
	return true
}

// event handles one message of the consumer: a heartbeat or a change.
func (sp *space) event(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") != "" {
		if m.Header.Get("Status") != "100" {
			return errors.New("the consumer ended: " + m.Header.Get("Description"))
		}
		if n := m.Header.Get("Nats-Last-Consumer"); n != "" && n != strconv.FormatUint(sp.received, 10) {
			return errGap
		}
		return nil
	}
	seq, nth, ok := delivery(m.Reply)
	if sp.received++; !ok || nth != sp.received {
		return errGap
	}
	sp.newest = max(sp.newest, seq)
	key, ok := sp.hub.s.place.key(m.Subject)
	if !ok {
		return nil
	}
	sp.hub.mu.Lock()
	defer sp.hub.mu.Unlock()
	for w := range sp.watches[key] {
		if seq > w.past {
			w.end(nil)
		}
	}
	return nil
}

// delivery reads from the reply subject of a message which sequence it has in
// the stream, and the how many-th of its consumer it is.
func delivery(reply string) (seq, nth uint64, ok bool) {
	tokens := strings.Split(reply, ".")
	switch {
	case len(tokens) < 9 || tokens[0] != "$JS" || tokens[1] != "ACK":
		return 0, 0, false
	case len(tokens) >= 11: // with domain and account
		tokens = tokens[2:]
	}
	seq, errSeq := strconv.ParseUint(tokens[5], 10, 64)
	nth, errNth := strconv.ParseUint(tokens[6], 10, 64)
	return seq, nth, errSeq == nil && errNth == nil
}

// look asks the leader for the newest message of the namespace. If that of the
// last look has not come by now, the consumer is behind.
func (sp *space) look(epoch context.Context) *outcome {
	ctx, cancel := context.WithTimeoutCause(epoch, beatLimit, errSilent)
	defer cancel()
	if sp.behind > sp.newest {
		return &outcome{kind: store.ErrUnavailable, err: errBehind}
	}
	l, o := sp.hub.s.lastOf(ctx, sp.filter)
	if o != nil {
		return o
	}
	sp.behind = l.seq
	return nil
}
