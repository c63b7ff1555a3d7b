package pgstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

const (
	// topics is over how many channels the keys are spread. It bounds how often
	// writers of different keys take each other for watchers.
	topics = 4096
	// maxTopics is how many of them one store listens to. Each is a lock in the
	// server's table of locks, which all its users share.
	maxTopics = 64

	// listenLimit bounds each step of the listening connection but its waiting.
	listenLimit = 5 * time.Second
	// echoLimit is how long a notification to oneself may take. A pooler that
	// swallows notifications shows by it.
	echoLimit = 2 * time.Second
	// lifeEvery is how often an idle listening connection is asked whether it
	// lives.
	lifeEvery = 10 * time.Second
	// idleHub is how long the connection is kept when nobody needs it.
	idleHub = 10 * time.Second

	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// swallowBackoff is how long a pooler that swallows is left alone.
	swallowBackoff = time.Minute
)

// topic says how a change of a key is told: under which lock and on which
// channel its watchers are, and which of the channel's keys it is.
type topic struct {
	lock             int64
	channel, payload string
}

func (s *Store) topicOf(key string) topic {
	sum := sha256.Sum256([]byte(key))
	t := s.topicNamed(fmt.Sprint(binary.BigEndian.Uint64(sum[8:]) % topics))
	t.payload = fmt.Sprintf("%x", sum[:8])
	return t
}

// topicNamed hashes the table and a name; locks and channels are shared by all
// users of a database.
func (s *Store) topicNamed(name string) topic {
	sum := sha256.Sum256([]byte("tenure\x00" + s.cfg.Schema + "\x00" + s.cfg.Table + "\x00" + name))
	n := binary.BigEndian.Uint64(sum[:])
	return topic{lock: int64(n), channel: fmt.Sprintf("tenure_%016x", n)}
}

// hub is the one listening connection of a store and those who wait for it. A
// goroutine owns the connection, while somebody needs it.
type hub struct {
	s *Store

	mu        sync.Mutex
	running   bool
	lines     bool                           // the waiting lines need it
	watches   map[string]map[*watch]struct{} // by payload
	wanted    map[string]topic               // by channel: to be listened to
	heard     map[string]bool                // by channel: listened to
	users     map[string]int                 // by channel: its watches
	unwanted  []topic                        // to be listened to no more
	up        bool                           // connected, and notifications arrive
	until     time.Time                      // not tried again before
	why       error                          // what broke it last
	changed   chan struct{}                  // closed when any of this changes
	interrupt context.CancelFunc             // ends the goroutine's present waiting
	echo      string                         // the payload it waits for
	idleSince time.Time
}

// watch is one call of Watch.
type watch struct{ done chan error } // has room for one

func newHub(s *Store) *hub {
	return &hub{s: s, watches: map[string]map[*watch]struct{}{}, wanted: map[string]topic{}, heard: map[string]bool{}, users: map[string]int{}, changed: make(chan struct{})}
}

// turn tells those who wait for a change of the hub. Under mu.
func (h *hub) turn() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// wake starts the goroutine or ends its waiting. Under mu.
func (h *hub) wake() {
	if h.s.stop.Err() != nil {
		return
	}
	if !h.running {
		h.running = true
		h.s.running.Go(h.run)
	}
	if h.interrupt != nil {
		h.interrupt()
	}
}

var errTooMany = errors.New("this process watches very many keys; these are polled")

// listen waits until t is listened to, so that no later change is missed. An
// error says that watching is broken for now.
func (h *hub) listen(ctx context.Context, t topic) error {
	h.mu.Lock()
	for {
		switch {
		case h.heard[t.channel]:
			h.mu.Unlock()
			return nil
		case h.s.stop.Err() != nil:
			h.mu.Unlock()
			return errCut
		case time.Now().Before(h.until):
			defer h.mu.Unlock()
			return h.why
		case h.wanted[t.channel] == (topic{}) && !h.room():
			h.mu.Unlock()
			return errTooMany
		}
		if h.wanted[t.channel] == (topic{}) {
			h.wanted[t.channel] = topic{lock: t.lock, channel: t.channel}
			h.wake()
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.s.stop.Done():
		}
		h.mu.Lock()
	}
}

// room reports whether one more topic may be listened to. It gives one up that
// nobody watches any more, if need be. Under mu.
func (h *hub) room() bool {
	if len(h.wanted) < maxTopics {
		return true
	}
	for channel, t := range h.wanted {
		if h.users[channel] == 0 {
			delete(h.wanted, channel)
			delete(h.heard, channel)
			h.unwanted = append(h.unwanted, t)
			return true
		}
	}
	return false
}

func (h *hub) add(t topic) *watch {
	w := &watch{done: make(chan error, 1)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watches[t.payload] == nil {
		h.watches[t.payload] = map[*watch]struct{}{}
	}
	h.watches[t.payload][w] = struct{}{}
	h.users[t.channel]++
	return w
}

func (h *hub) remove(t topic, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.watches[t.payload], w); len(h.watches[t.payload]) == 0 {
		delete(h.watches, t.payload)
	}
	if h.users[t.channel]--; h.users[t.channel] == 0 {
		delete(h.users, t.channel)
	}
	if len(h.watches) == 0 {
		h.idleSince = time.Now()
	}
}

// forLines says whether the waiting lines need notifications, and reports
// whether they come.
func (h *hub) forLines(need bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s.cfg.NoWatch {
		return false
	}
	if h.lines = need; need && !h.up && !time.Now().Before(h.until) {
		h.wake()
	} else if !need {
		h.idleSince = time.Now()
	}
	return h.up
}

// run serves until the store is closed or nobody needs it.
func (h *hub) run() {
	backoff := firstBackoff
	for {
		start := time.Now()
		err := h.serve()
		if time.Since(start) > maxBackoff {
			backoff = firstBackoff
		}
		h.mu.Lock()
		clear(h.heard)
		clear(h.wanted)
		h.unwanted = nil
		h.up = false
		if err == nil || h.s.stop.Err() != nil {
			h.running = false
			h.turn()
			h.mu.Unlock()
			return
		}
		pause := backoff/2 + mrand.N(backoff/2+1)
		if errors.Is(err, errSwallowed) {
			pause = swallowBackoff
		}
		backoff = min(2*backoff, maxBackoff)
		h.why, h.until = err, time.Now().Add(pause)
		for _, ws := range h.watches {
			for w := range ws {
				w.end(err)
			}
		}
		h.turn()
		h.mu.Unlock()
		rest(h.s.stop, pause)
	}
}

func (w *watch) end(err error) {
	select {
	case w.done <- err:
	default:
	}
}

// rest waits for d or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// needed reports whether anybody needs the connection, or did lately.
func (h *hub) needed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines || len(h.watches) > 0 || len(h.wanted) > len(h.heard) || time.Since(h.idleSince) < idleHub
}

// serve connects and listens. It returns nil when nobody needs it any more.
func (h *hub) serve() error {
	if !h.needed() {
		return nil
	}
	pc, err := h.connect()
	if err != nil {
		return err
	}
	defer func() {
		limit, cancel := context.WithTimeout(context.Background(), closeGrace)
		defer cancel()
		_ = pc.Close(limit)
	}()
	if err := h.proveEcho(pc); err != nil {
		return err
	}
	h.mu.Lock()
	h.up = true
	h.turn()
	h.mu.Unlock()
	h.s.line.poke() // it may have missed something
	for h.needed() {
		if err := h.listenToNew(pc); err != nil {
			return err
		}
		if err := h.wait(pc); err != nil {
			return err
		}
	}
	return nil
}

func (h *hub) connect() (*pgconn.PgConn, error) {
	cc := h.s.cfg.Pool.ConnConfig.Copy()
	cc.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { h.heardOf(n) }
	if h.s.cfg.Listen != "" {
		host, port, err := h.s.cfg.listenAddr()
		if err != nil {
			return nil, err
		}
		cc.Host, cc.Port, cc.Fallbacks = host, port, nil
	}
	limit, cancel := context.WithTimeout(h.s.stop, listenLimit)
	defer cancel()
	return pgconn.ConnectConfig(limit, &cc.Config)
}

var errSwallowed = errors.New("a pooler in transaction mode swallows notifications; give the server's own address with listen=host:port, or be content with polling")

// proveEcho listens to the store's own channel and has a notification sent from
// another connection. Only if it arrives does listening work at all.
func (h *hub) proveEcho(pc *pgconn.PgConn) error {
	own := h.s.topicNamed("lines")
	if err := h.command(pc, "LISTEN "+quote(own.channel)); err != nil {
		return err
	}
	h.mu.Lock()
	h.echo = "echo " + rand.Text()
	echo := h.echo
	h.mu.Unlock()
	limit, cancel := context.WithTimeout(h.s.stop, listenLimit)
	defer cancel()
	if _, err := h.s.exec(limit, request{op: "watch"}, "SELECT pg_notify($1, $2)", textArg(own.channel), textArg(echo)); err != nil {
		return err
	}
	limit, cancelEcho := context.WithTimeout(h.s.stop, echoLimit)
	defer cancelEcho()
	for {
		err := pc.WaitForNotification(limit)
		h.mu.Lock()
		arrived := h.echo == ""
		h.mu.Unlock()
		switch {
		case arrived:
			return nil
		case limit.Err() != nil && h.s.stop.Err() == nil:
			return errSwallowed
		case err != nil:
			return err
		}
	}
}

// command runs statements without parameters.
func (h *hub) command(pc *pgconn.PgConn, sql string) error {
	limit, cancel := context.WithTimeout(h.s.stop, listenLimit)
	defer cancel()
	_, err := pc.Exec(limit, sql).ReadAll()
	return err
}

// listenToNew listens to what is wanted since, each with its lock; see tell.
// What is wanted no more goes first, for it may be wanted again.
func (h *hub) listenToNew(pc *pgconn.PgConn) error {
	h.mu.Lock()
	var sql strings.Builder
	var fresh []string
	for _, t := range h.unwanted {
		fmt.Fprintf(&sql, "UNLISTEN %s; SELECT pg_advisory_unlock_shared(%d);", quote(t.channel), t.lock)
	}
	h.unwanted = nil
	for channel, t := range h.wanted {
		if !h.heard[channel] {
			fresh = append(fresh, channel)
			fmt.Fprintf(&sql, "LISTEN %s; SELECT pg_advisory_lock_shared(%d);", quote(channel), t.lock)
		}
	}
	h.mu.Unlock()
	if sql.Len() == 0 {
		return nil
	}
	if err := h.command(pc, sql.String()); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range fresh {
		h.heard[channel] = true
	}
	h.turn()
	return nil
}

// wait waits for a notification, a new wish, or the time to ask whether the
// connection lives.
func (h *hub) wait(pc *pgconn.PgConn) error {
	waiting, cancel := context.WithTimeout(h.s.stop, lifeEvery)
	defer cancel()
	h.mu.Lock()
	h.interrupt = cancel
	more := len(h.wanted) > len(h.heard)
	h.mu.Unlock()
	if more {
		return nil
	}
	err := pc.WaitForNotification(waiting)
	h.mu.Lock()
	h.interrupt = nil
	h.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case h.s.stop.Err() != nil:
		return h.s.stop.Err()
	case waiting.Err() == nil || pc.IsClosed():
		return err
	case errors.Is(waiting.Err(), context.DeadlineExceeded):
		return h.command(pc, "SELECT 1")
	}
	return nil
}

// heardOf passes a notification on. It runs in the goroutine of the hub.
func (h *hub) heardOf(n *pgconn.Notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch n.Payload {
	case "": // a line moved
		h.s.line.poke()
		return
	case h.echo:
		h.echo = ""
		return
	}
	for w := range h.watches[n.Payload] {
		w.end(nil)
	}
}

// Watch returns nil once key may be at another version than v. It waits without
// polling for notifications that the server sends with each commit. Where they
// do not come it is ErrUnavailable, and callers poll.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	r := request{op: "watch", key: key}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return err
	}
	t := s.topicOf(key)
	w := s.hub.add(t)
	defer s.hub.remove(t, w)
	if err := s.hub.listen(ctx, t); err != nil {
		return s.failed(ctx, r, err)
	}
	// The watch is in place: what changes from now on is told, and what changed
	// before is seen here.
	switch now, err := s.present(ctx, r); {
	case err != nil:
		return err
	case now != v:
		return nil
	}
	select {
	case err := <-w.done:
		if err != nil {
			return s.failed(ctx, r, err)
		}
		return nil
	case <-ctx.Done():
		return store.CtxErr(ctx, s.label, r.op, key)
	case <-s.stop.Done():
		return s.errClosed(r.op, key)
	}
}
