package agent

import (
	"net"
	"sync"
	"time"
)

const (
	// writeLimit is how long one message may take to be written. The kernel buffers
	// thousands of them, so a peer that makes it longer has not read for hours.
	writeLimit = 2 * time.Second
	// maxQueue is how many messages wait at most; deadlines do not count.
	maxQueue = 32
)

// outbox sends the agent's messages on one connection. Putting one in never
// blocks. It knows the latest deadline that may have reached the peer.
//
// Invariant: told is at least every deadline of which a byte was ever written.
type outbox struct {
	conn *net.UnixConn
	wake chan struct{}
	done chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   []message
	newest  time.Duration // a deadline that waits to be sent; 0 for none
	told    time.Duration
	mute    bool // nothing is sent any more
	closing bool // nothing is added any more
}

func newOutbox(conn *net.UnixConn) *outbox {
	o := &outbox{conn: conn, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go o.write()
	return o
}

// send queues m. A queue that is full is the peer's fault: it is told no more.
func (o *outbox) send(m message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= maxQueue {
		o.mute = true
	}
	if !o.mute && !o.closing {
		o.queue = append(o.queue, m)
		o.told = max(o.told, m.Deadline)
	}
	o.poke()
}

// extend replaces the deadline that waits to be sent.
func (o *outbox) extend(t time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mute && !o.closing && t > o.told {
		o.newest = t
		o.poke()
	}
}

// silence sends nothing more and returns the latest deadline that the peer may
// know, 0 if there is none.
func (o *outbox) silence() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mute = true
	o.poke()
	return o.told
}

// silent says whether nothing is sent any more.
func (o *outbox) silent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mute
}

// finish sends what is queued and ends the writer. It waits for that for at most
// the limits of two writes.
func (o *outbox) finish() {
	o.mu.Lock()
	o.closing = true
	o.poke()
	o.mu.Unlock()
	t := time.AfterFunc(writeLimit, func() { o.silence() })
	defer t.Stop()
	<-o.done
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// write sends until the outbox is silenced or finished, or the peer cannot be
// written to. It then closes its side: a message that was cut off is never
// continued, and the peer learns that it will be told nothing more.
func (o *outbox) write() {
	defer close(o.done)
	defer func() { _ = o.conn.CloseWrite() }()
	for range o.wake {
		for {
			m, ok, over := o.next()
			if over {
				return
			}
			if !ok {
				break
			}
			b, err := m.encode()
			if err == nil {
				_ = o.conn.SetWriteDeadline(time.Now().Add(writeLimit))
				_, err = o.conn.Write(b)
			}
			if err != nil {
				o.silence()
				return
			}
		}
	}
}

// next takes what is to be sent now. A deadline in it counts as told.
func (o *outbox) next() (m message, ok, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.mute:
		return message{}, false, true
	case len(o.queue) > 0:
		m, o.queue = o.queue[0], o.queue[1:]
	case o.closing:
		return message{}, false, true
	case o.newest > 0:
		m, o.newest = message{Op: opDeadline, Deadline: o.newest}, 0
	default:
		return message{}, false, false
	}
	o.told = max(o.told, m.Deadline)
	return m, true, false
}
