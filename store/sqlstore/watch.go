package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// lookEvery is about how often a process with watches asks whether the
	// database changed where no bell tells of writes. One look costs about 5 µs,
	// whatever the number of watches, so this is a thousandth of a processor and
	// makes a hand-over between processes take 2 to 3 ms.
	lookEvery = 5 * time.Millisecond

	// placeEvery is how often the poller makes sure that it polls the right file.
	placeEvery = 100 * time.Millisecond

	// sweepShare bounds what finding the changed keys may cost: after a sweep
	// that took d, the next one comes no sooner than sweepShare·d later.
	sweepShare = 10
)

// changes tells watches of changes. It polls the database's change counter on a
// connection of its own, while there is a watch, and compares the watched keys
// when it moved.
type changes struct {
	s     *SQLite
	nudge chan struct{} // a write of this process was committed

	mu      sync.Mutex
	watches map[string][]*watch // by key; the poller runs while there are any
	polling bool

	// The poller's own: nil until it first ran, when it last made sure, what tells
	// it of writes while it runs, and how often it looks.
	c      *conn
	placed time.Time
	bell   *bell
	pace   pace
}

// watch is one call of Watch. It ends with err.
type watch struct {
	at    version
	err   error
	ended chan struct{}
}

// absentVersion is the version of an absent key, for a watch.
var absentVersion version

func newChanges(s *SQLite) *changes {
	return &changes{s: s, nudge: make(chan struct{}, 1), watches: map[string][]*watch{}}
}

// kick lets the poller look at once.
func (h *changes) kick() {
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// Watch returns nil once key is at another version than v, a few milliseconds
// after the change. The watch is in place before the present version is read.
func (s *SQLite) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	w := &watch{ended: make(chan struct{})}
	if v != "" {
		w.at = parseVersion(v)
	}
	if err := s.changes.add(key, w); err != nil {
		return err
	}
	defer s.changes.remove(key, w)
	present, err := readQuick(ctx, s, op, key, func(c *conn) (version, error) { return presentVersion(c, key) })
	switch {
	case err != nil:
		return err
	case present != w.at:
		return nil
	}
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return store.CtxErr(ctx, s.identity, op, key)
	case <-s.stop.Done():
		return s.errClosed(op, key)
	}
}

func presentVersion(c *conn, key string) (v version, err error) {
	err = c.row(queryVersion, []any{key}, &v.number, &v.nonce)
	if errors.Is(err, sql.ErrNoRows) {
		return absentVersion, nil
	}
	return v, err
}

func (h *changes) add(key string, w *watch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s.stop.Err() != nil {
		return h.s.errClosed("watch", key)
	}
	h.watches[key] = append(h.watches[key], w)
	if !h.polling {
		h.polling = true
		h.s.running.Go(h.poll)
	}
	return nil
}

func (h *changes) remove(key string, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.watches[key][:0:0]
	for _, o := range h.watches[key] {
		if o != w {
			left = append(left, o)
		}
	}
	if h.watches[key] = left; len(left) == 0 {
		delete(h.watches, key)
	}
}

// end ends a watch. Under mu, or for a watch that is no longer in the map.
func (w *watch) end(err error) {
	select {
	case <-w.ended:
	default:
		w.err = err
		close(w.ended)
	}
}

// poll runs while there are watches.
func (h *changes) poll() {
	last := int64(-1) // so that the first look sweeps
	var err error
	h.bell, h.placed = h.s.newBell(), time.Time{}
	h.pace = pace{usual: lookEvery, bell: h.bell != nil}
	h.pace.hurry() // a commit under way now may have rung already
	defer h.bell.close()
	for h.goOn(err) {
		start, swept := time.Now(), false
		if last, swept, err = h.look(last); isBusy(err) {
			err = nil
		}
		rest := h.pace.next()
		dear := swept && sweepShare*time.Since(start) > lookEvery
		if dear {
			rest = sweepShare * time.Since(start)
		}
		h.sleep(rest, dear)
	}
}

// look sweeps if the database changed since its counter was last, and returns
// where the counter is now.
func (h *changes) look(last int64) (now int64, swept bool, err error) {
	if h.c == nil {
		if h.c, err = h.s.connect(); err != nil {
			return last, false, err
		}
	}
	if now, err = dataVersion(h.c); err != nil {
		return last, false, err
	}
	if now == last && time.Since(h.placed) < placeEvery {
		return last, false, nil
	}
	if err = h.s.inPlace("watch", ""); err != nil {
		h.close() // it may be one to another file
		return last, false, err
	}
	h.placed = time.Now()
	h.bell.hang(h.s.path + "-wal")
	if now == last {
		return last, false, nil
	}
	if err = h.sweep(h.c); err != nil {
		return last, true, err
	}
	return now, true, nil
}

// close frees the poller's connection. Only for the poller, or after its end.
func (h *changes) close() {
	h.c.closeIfOpen()
	h.c = nil
}

// goOn is false, and the poller's end settled, when nothing is left to do. An
// error ends all watches: their callers poll then.
func (h *changes) goOn(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		for key, ws := range h.watches {
			for _, w := range ws {
				w.end(h.s.failed("watch", key, err))
			}
		}
		clear(h.watches)
	}
	if len(h.watches) > 0 && h.s.stop.Err() == nil {
		return true
	}
	h.polling = false
	return false
}

// sleep waits for the next look. A commit of this process cuts it short, and a
// write of another one, unless it is as long as it is because sweeps are dear.
func (h *changes) sleep(d time.Duration, dear bool) {
	t := time.NewTimer(jitter(d))
	defer t.Stop()
	nudge, rings := h.nudge, h.bell.heard()
	if dear {
		nudge, rings = nil, nil
	}
	select {
	case <-t.C:
	case <-rings:
		h.pace.hurry()
	case <-nudge:
	case <-h.s.stop.Done():
	}
}

// sweep compares every watched key with what its watches know.
func (h *changes) sweep(c *conn) error {
	h.mu.Lock()
	keys := make([]string, 0, len(h.watches))
	for key := range h.watches {
		keys = append(keys, key)
	}
	h.mu.Unlock()
	for _, key := range keys {
		present, err := presentVersion(c, key)
		if err != nil {
			return err
		}
		h.mu.Lock()
		for _, w := range h.watches[key] {
			if w.at != present {
				w.end(nil)
			}
		}
		h.mu.Unlock()
	}
	return nil
}

// dataVersion is a number that differs after a commit of another connection.
func dataVersion(c *conn) (n int64, err error) {
	err = c.row("PRAGMA data_version", nil, &n)
	return n, err
}
