package sqlstore

import (
	"errors"
	"time"

	"github.com/tenure-project/tenure/store"
)

const (
	// batchCalls and batchBytes bound one transaction, so that it stays short.
	batchCalls = 128
	batchBytes = MaxBody + 64<<10

	// hogLimit is how long the writer keeps taking the write lock without a
	// rest, and hogRest how long it then leaves it alone. SQLite's lock has no
	// queue: without a rest, a busy process would starve all others.
	hogLimit = 25 * time.Millisecond
	hogRest  = time.Millisecond
)

// writer is the one goroutine that writes. Calls that arrive while it is in a
// commit share the next one, so a process pays for one fsync at a time however
// many calls it has in flight. It also is the one that hangs if the disk does:
// callers leave it alone when their contexts end.
type writer struct {
	s       *SQLite
	c       *conn
	pending []*write
	numbers numbers
	highest int64 // the highest counter seen; a lower one means an older database
	stuck   bool  // the connection may be in the middle of something
	// state is how the connection sees the database since its own last commit;
	// 0 if that is not known. While it is the same, nobody else wrote.
	state uint32
	// busySince is when the present run of transactions without a pause began.
	busySince, lastEnd time.Time
}

// loop runs until the store is closed.
func (w *writer) loop() {
	defer func() { _ = w.c.close() }()
	wait := busyFirst
	for w.collect() {
		w.rest()
		switch err := w.begin(); {
		case err == nil:
			w.transact()
			wait = busyFirst
		case isBusy(err):
			w.pauseBusy(wait)
			wait = min(2*wait, busyMost)
		default:
			w.answer(w.take(), func(c *write) error { return w.s.failed(c.op, c.key, err) })
			w.renew()
		}
	}
	for _, c := range w.pending {
		c.finish(version{}, w.s.errClosed(c.op, c.key))
	}
}

// collect waits until a call is pending that somebody still waits for, and adds
// those that are there already. It is false when the store was closed.
func (w *writer) collect() bool {
	live := w.pending[:0]
	for _, c := range w.pending {
		if c.state.Load() == waiting {
			live = append(live, c)
		}
	}
	w.pending = live
	for len(w.pending) == 0 {
		select {
		case c := <-w.s.calls:
			w.pending = append(w.pending, c)
		case read := <-w.reads():
			read(w.c)
		case <-w.s.stop.Done():
			return false
		}
	}
	for len(w.pending) < batchCalls {
		select {
		case c := <-w.s.calls:
			w.pending = append(w.pending, c)
		case <-w.s.stop.Done():
			return false
		default:
			return true
		}
	}
	return w.s.stop.Err() == nil
}

// reads are what others want to read. There are none in the middle of a
// transaction, which would show what is not committed.
func (w *writer) reads() <-chan func(*conn) {
	if w.stuck {
		return nil
	}
	return w.s.idle
}

// pauseBusy waits a little for the write lock.
func (w *writer) pauseBusy(d time.Duration) {
	pause(w.s.stop, d)
	w.busySince = time.Time{}
}

// rest leaves the write lock to others after a long run of transactions.
func (w *writer) rest() {
	now := time.Now()
	if now.Sub(w.lastEnd) > hogRest {
		w.busySince = now
	}
	if now.Sub(w.busySince) > hogLimit {
		pause(w.s.stop, hogRest)
		w.busySince = time.Now()
	}
}

func (w *writer) begin() error {
	_, err := w.c.exec("BEGIN IMMEDIATE")
	return err
}

// take makes the outcome of the pending calls that of the transaction at hand,
// as many as it may have.
func (w *writer) take() []*write {
	var batch []*write
	size := 0
	for len(w.pending) > 0 && size < batchBytes {
		c := w.pending[0]
		w.pending = w.pending[1:]
		if c.state.CompareAndSwap(waiting, taken) {
			batch = append(batch, c)
			size += c.size()
		}
	}
	return batch
}

// transact applies a batch in the open transaction and ends it. No answer is
// given before the end: a refusal may rest on a write of the same batch.
func (w *writer) transact() {
	defer func() { w.lastEnd = time.Now() }()
	t := &tx{s: w.s, c: w.c, numbers: w.numbers, now: nowMillis()}
	batch := w.take()
	err := w.apply(t, batch)
	switch {
	case err != nil:
		w.answer(batch, func(c *write) error { return w.s.failed(c.op, c.key, err) })
		w.rollback()
	case !t.changed:
		w.answer(batch, func(c *write) error { return c.err })
		w.rollback()
	default:
		w.finish(t, batch)
	}
}

// apply runs the batch's statements. An error means that nothing of the batch
// happens; refusals are noted on the calls.
func (w *writer) apply(t *tx, batch []*write) (err error) {
	if state := w.c.state(); state != 0 && state == w.state {
		t.counter = w.highest
	} else if t.counter, err = w.s.counter(w.c, "write"); err != nil {
		return err
	}
	if t.counter < w.highest {
		return store.Errorf(store.ErrCorrupt, w.s.identity, "write", "",
			"the counter fell from %d to %d: an older copy of the database was put in place while it was open", w.highest, t.counter)
	}
	for _, c := range batch {
		if err := c.apply(t, c); err != nil && !refusal(err) {
			return err
		} else if err != nil {
			c.err = err
		}
	}
	if t.changed && t.reserved {
		if _, err := w.c.exec("UPDATE tenure_meta SET counter = ? WHERE id = 1", t.counter); err != nil {
			return err
		}
	}
	return w.s.inPlace("write", "")
}

// finish commits. From here on an error leaves the outcome of every change in
// the batch unknown (ST9); what was refused certainly did not happen.
func (w *writer) finish(t *tx, batch []*write) {
	err := w.s.commit(func() error {
		_, err := w.c.exec("COMMIT")
		return err
	})
	broken := err != nil
	w.numbers, w.state = numbers{}, 0 // in doubt: neither the numbers used nor a new block are known to be ours
	if !broken {
		w.highest, w.numbers, w.state = t.counter, t.numbers, w.c.state()
		// Moved in between, the write may be in a file that nobody will read.
		err = w.s.inPlace("write", "")
	}
	w.answer(batch, func(c *write) error {
		if err == nil {
			return c.err
		}
		kind := store.ErrUnknown
		if c.err != nil {
			kind = store.ErrUnavailable
		}
		return store.Wrap(kind, w.s.identity, c.op, c.key, errors.New(err.Error())) // text only: its kind would be a second one
	})
	if broken {
		w.renew()
	}
	w.s.changes.kick()
}

func (w *writer) rollback() {
	if _, err := w.c.exec("ROLLBACK"); err != nil {
		w.renew()
	}
}

// renew replaces a connection that may be in the middle of something. The new
// one is opened first: without any, another process could take the log away.
func (w *writer) renew() {
	c, err := w.s.connect()
	if err != nil {
		// Keep the old one; at worst each call on it fails, and this is tried again.
		_, _ = w.c.exec("ROLLBACK")
		w.stuck = true
		return
	}
	_ = w.c.close()
	w.c, w.stuck, w.state = c, false, 0
}

func (w *writer) answer(batch []*write, outcome func(*write) error) {
	for _, c := range batch {
		c.finish(c.made, outcome(c))
	}
}

func (c *write) finish(made version, err error) {
	c.made, c.err = made, err
	close(c.done)
}
