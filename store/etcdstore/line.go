package etcdstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tenure-project/tenure/internal/standing"
)

// line is what this store sees of one line while it has a ticket in it.
type line struct {
	q      *queue
	key    string
	prefix string
	news   chan struct{} // look at the tickets, or at the watch
	end    context.CancelFunc

	tickets map[*ticket]bool // this store's; under queue.mu

	places map[string]int64 // of everybody: when each was created
	at     int64            // the revision up to which places is complete
}

// stand makes t a part of its line, so that it gets news of its place.
func (q *queue) stand(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[t.key]
	if l == nil {
		ctx, end := context.WithCancel(q.s.stop)
		l = &line{q: q, key: t.key, prefix: q.linePrefix(t.key), news: make(chan struct{}, 1), end: end, tickets: map[*ticket]bool{}}
		if !q.s.spawn(func() { l.follow(ctx) }) {
			end()
			return false
		}
		q.lines[t.key] = l
	}
	l.tickets[t] = true
	poke(l.news)
	return true
}

// leave takes t out of its line.
func (q *queue) leave(t *ticket) {
	q.mu.Lock()
	t.gone = true
	name := t.name
	if l := q.lines[t.key]; l != nil && l.tickets[t] {
		delete(l.tickets, t)
		if len(l.tickets) == 0 {
			l.end()
			delete(q.lines, t.key)
		}
	}
	q.mu.Unlock()
	q.remove(name, 0)
}

// follow keeps the tickets informed until the last one has left.
func (l *line) follow(ctx context.Context) {
	defer l.end()
	sight := time.Now()
	for ctx.Err() == nil {
		err := l.observe(ctx, &sight)
		if ctx.Err() != nil {
			return
		}
		if time.Since(sight) > l.q.ttl {
			l.tell(standing.At{Err: l.q.s.broken("wait in line", l.key, err)})
		}
		sleep(ctx, sweepPause)
	}
}

// observe reads the line and then watches it from there on, until that fails.
func (l *line) observe(ctx context.Context, sight *time.Time) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	w := l.q.s.hub.watch(l.prefix, rangeEnd(l.prefix), l.at+1, l.news)
	defer w.stop()
	for {
		if err := l.judge(ctx); err != nil {
			return err
		}
		*sight = time.Now()
		found, err := w.next(ctx)
		if err != nil {
			*sight = time.Now()
			return err
		}
		for _, e := range found {
			l.apply(e)
		}
	}
}

// load reads who stands in line.
func (l *line) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.q.ttl)
	defer cancel()
	places := map[string]int64{}
	from := l.prefix
	l.at = 0
	for {
		c := &call{op: "wait in line", key: l.key, method: methodRange}
		r, err := l.q.s.fetch(ctx, c, &pb.RangeRequest{
			Key: []byte(from), RangeEnd: []byte(rangeEnd(l.prefix)), KeysOnly: true, Limit: pageKeys, Revision: l.at,
		}, pageBytes)
		if err != nil {
			return causeOf(err)
		}
		for _, kv := range r.Kvs {
			places[string(kv.Key)] = kv.CreateRevision
			from = string(kv.Key) + "\x00"
		}
		if l.at == 0 {
			l.at = r.Header.Revision // the next pages are of this revision, too
		}
		if !r.More || len(r.Kvs) == 0 {
			break
		}
	}
	l.places = places
	return nil
}

// apply brings places up to date.
func (l *line) apply(e *mvccpb.Event) {
	name := string(e.Kv.Key)
	if e.Type == mvccpb.Event_DELETE {
		delete(l.places, name)
	} else {
		l.places[name] = e.Kv.CreateRevision
	}
	l.at = max(l.at, e.Kv.ModRevision)
}

// judge tells every ticket where it stands. One that is missing although the
// line is known up to its creation was lost with its lease, because this
// process was stopped or cut off: it goes to the end.
func (l *line) judge(ctx context.Context) error {
	names := slices.SortedFunc(maps.Keys(l.places), func(a, b string) int { return cmp.Compare(l.places[a], l.places[b]) })
	l.q.mu.Lock()
	mine := map[string]*ticket{}
	for t := range l.tickets {
		mine[t.name] = t
	}
	before := 0
	for _, name := range names {
		if t := mine[name]; t != nil {
			t.place.Move(standing.At{Before: before})
		} else if l.q.mine(name, l.prefix) {
			continue // it is being removed, or about to join
		}
		before++
	}
	var lost []*ticket
	for name, t := range mine {
		if _, there := l.places[name]; !there && t.created <= l.at {
			lost = append(lost, t)
		}
	}
	l.q.mu.Unlock()
	slices.SortFunc(lost, func(a, b *ticket) int { return cmp.Compare(a.created, b.created) })
	for _, t := range lost {
		if err := l.rejoin(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// rejoin puts a ticket at the end of the line.
func (l *line) rejoin(ctx context.Context, t *ticket) error {
	ctx, cancel := context.WithTimeout(ctx, l.q.ttl)
	defer cancel()
	l.q.mu.Lock()
	t.place.Move(standing.Unknown)
	l.q.mu.Unlock()
	if err := l.q.place(ctx, "wait in line", t); err != nil {
		return causeOf(err)
	}
	l.q.mu.Lock()
	gone, name := t.gone, t.name
	l.q.mu.Unlock()
	if gone { // it left meanwhile, perhaps under its old name
		l.q.remove(name, 0)
	}
	return nil
}

// tell gives all tickets the same news.
func (l *line) tell(now standing.At) {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	for t := range l.tickets {
		t.place.Move(now)
	}
}
