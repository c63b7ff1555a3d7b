package etcdstore

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// streamIdle is how long a stream without watches stays open, for the next one.
const streamIdle = 10 * time.Second

// errCompacted ends a watch whose revision the cluster no longer has.
var errCompacted = errors.New("the revision to watch from has been compacted")

// hub is the watches of one open store. They share one stream, which opens with
// the first. It does not reconnect by itself as the client's own watcher does:
// that one waits in silence for as long as the cluster is away, and the
// contract wants to hear of it.
type hub struct {
	s      *Store
	remote pb.WatchClient

	mu   sync.Mutex
	open *stream // nil if there is none
}

// stream is one gRPC stream of watches. All fields are under hub.mu.
type stream struct {
	h       *hub
	cancel  context.CancelFunc
	lastID  int64
	watches map[int64]*watch
	asked   []*watch           // in the order of their requests, until answered
	outbox  []*pb.WatchRequest // not yet sent
	mail    chan struct{}      // there is something in the outbox
	idle    *time.Timer
	failed  error
}

// watch is one watch of a key or a range.
type watch struct {
	st *stream
	id int64

	// Under hub.mu.
	news  chan struct{} // something below has changed
	found []*mvccpb.Event
	err   error
	over  bool
}

func newHub(s *Store) *hub {
	return &hub{s: s, remote: pb.NewWatchClient(s.client.ActiveConnection())}
}

// watch starts to watch [key, end), or key alone if end is empty, from revision
// from on. It pokes news, which the caller may poke, too. The caller stops it.
func (h *hub) watch(key, end string, from int64, news chan struct{}) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open == nil && !h.start() {
		w := &watch{st: &stream{h: h, failed: context.Canceled}, news: news}
		w.fail(context.Canceled)
		return w
	}
	st := h.open
	st.lastID++
	w := &watch{st: st, id: st.lastID, news: news}
	st.watches[w.id] = w
	st.asked = append(st.asked, w)
	st.idle.Stop()
	st.post(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(key), RangeEnd: []byte(end), StartRevision: from, WatchId: w.id,
	}}})
	return w
}

// start opens a stream, unless the store is closed. Under mu.
func (h *hub) start() bool {
	ctx, cancel := context.WithCancel(h.s.stop)
	st := &stream{h: h, cancel: cancel, watches: map[int64]*watch{}, mail: make(chan struct{}, 1)}
	if !h.s.spawn(func() { st.run(ctx) }) {
		cancel()
		return false
	}
	st.idle = time.AfterFunc(streamIdle, st.rest)
	h.open = st
	return true
}

// post puts q into the outbox. Under mu.
func (st *stream) post(q *pb.WatchRequest) {
	st.outbox = append(st.outbox, q)
	poke(st.mail)
}

// poke leaves a sign in a channel with room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run is the life of a stream.
func (st *stream) run(ctx context.Context) {
	defer st.cancel()
	remote, err := st.h.remote.Watch(clientv3.WithRequireLeader(ctx))
	if err == nil {
		sender := make(chan struct{})
		go func() {
			defer close(sender)
			st.send(ctx, remote)
		}()
		for err == nil {
			var r *pb.WatchResponse
			if r, err = remote.Recv(); err == nil {
				err = st.receive(r)
			}
		}
		st.cancel()
		<-sender
	}
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	st.end(err)
}

// send empties the outbox.
func (st *stream) send(ctx context.Context, remote pb.Watch_WatchClient) {
	for {
		st.h.mu.Lock()
		batch := st.outbox
		st.outbox = nil
		st.h.mu.Unlock()
		for _, q := range batch {
			if remote.Send(q) != nil {
				return // Recv tells why
			}
		}
		select {
		case <-st.mail:
		case <-ctx.Done():
			return
		}
	}
}

// receive hands a response to its watch. An error ends the stream.
func (st *stream) receive(r *pb.WatchResponse) error {
	if flaw := st.h.s.history.accept(r.GetHeader(), 0, false); flaw != "" {
		return errors.New(flaw)
	}
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	w := st.watches[r.WatchId]
	if r.Created {
		if len(st.asked) == 0 {
			return errors.New("the server answers a watch that was not asked for")
		}
		w, st.asked = st.asked[0], st.asked[1:]
	}
	switch {
	case w == nil || w.over:
		return nil
	case r.CompactRevision > 0:
		w.fail(errCompacted)
	case r.Canceled:
		// The server gives the text of an error, with or without its code.
		return rpctypes.Error(status.Error(codes.Unknown, bareReason(r.CancelReason)))
	case r.Created && r.WatchId != w.id:
		return errors.New("the server does not keep the number of a watch")
	case r.Created:
	default:
		w.found = append(w.found, r.Events...)
		poke(w.news)
	}
	return nil
}

// end fails all watches and forgets the stream. Under mu.
func (st *stream) end(err error) {
	st.failed = err
	st.idle.Stop()
	st.cancel()
	for _, w := range st.watches {
		w.fail(err)
	}
	if st.h.open == st {
		st.h.open = nil
	}
}

// rest ends a stream that nobody uses.
func (st *stream) rest() {
	st.h.mu.Lock()
	defer st.h.mu.Unlock()
	if len(st.watches) == 0 {
		st.end(context.Canceled)
	}
}

// fail ends one watch. Under mu.
func (w *watch) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	poke(w.news)
}

// stop gives the watch up.
func (w *watch) stop() {
	h := w.st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.over {
		return
	}
	w.over = true
	delete(w.st.watches, w.id)
	if w.st.failed != nil {
		return
	}
	if w.err == nil {
		w.st.post(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: w.id}}})
	}
	if len(w.st.watches) == 0 {
		w.st.idle.Reset(streamIdle)
	}
}

// next waits for news and returns the events since the last call, which may be
// none.
func (w *watch) next(ctx context.Context) ([]*mvccpb.Event, error) {
	select {
	case <-w.news:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	h := w.st.h
	h.mu.Lock()
	defer h.mu.Unlock()
	found := w.found
	w.found = nil
	if len(found) > 0 && w.err != nil {
		poke(w.news) // the error comes next
		return found, nil
	}
	return found, w.err
}

// broken makes the error of a watch that failed.
func (s *Store) broken(op, key string, cause error) error {
	return s.judge(s.stop, &call{op: op, key: key}, cause)
}
