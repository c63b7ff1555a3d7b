package natsstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// The headers that say what a message is.
const (
	headerOperation = "KV-Operation"       // of the bucket format: DEL or PURGE
	headerReason    = "Nats-Marker-Reason" // of markers that a server makes
	headerAttempt   = "Tenure-Attempt"     // which write made the message
)

// last is the last message of a subject. Its zero value says that there is
// none.
type last struct {
	seq     uint64
	marker  bool   // the key was deleted
	attempt string // which write it is of
	encoded string // the body in base64
	written time.Time
}

// present reports whether the key has a record.
func (l last) present() bool { return l.seq > 0 && !l.marker }

// Get returns the present state of key (ST3). The message reaches this process
// before its size is known, but the server bounds it (max_payload); nothing
// larger than limit is decoded (ST7).
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	const op = "get"
	if err := s.check(ctx, op, key, nil); err != nil {
		return store.Object{}, err
	}
	l, o := s.read(ctx, key)
	switch {
	case o != nil:
		return store.Object{}, s.failed(op, key, o)
	case !l.present():
		return store.Object{}, store.Errorf(store.ErrNotFound, s.w.identity, op, key, "no record")
	}
	size := base64.StdEncoding.DecodedLen(len(l.encoded)) - strings.Count(l.encoded[max(len(l.encoded)-2, 0):], "=")
	if size > limit {
		return store.Object{}, store.Errorf(store.ErrCorrupt, s.w.identity, op, key, "the record has %d bytes, at most %d were expected", size, limit)
	}
	body, err := base64.StdEncoding.DecodeString(l.encoded)
	if err != nil {
		return store.Object{}, store.Errorf(store.ErrUnavailable, s.w.identity, op, key, "the server's reply is damaged: %v", err)
	}
	return store.Object{Body: body, Version: s.place.version(l.seq), Modified: l.written}, nil
}

// read gives the last message of key, as of an instant after the call began.
func (s *Store) read(ctx context.Context, key string) (last, *outcome) {
	if o := s.fence.pass(ctx); o != nil {
		return last{}, o
	}
	return s.lastOf(ctx, s.place.subject(key))
}

// lastOf asks the leader of the stream for the last message of a subject.
func (s *Store) lastOf(ctx context.Context, subject string) (last, *outcome) {
	var reply struct {
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    string    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	e, o := s.w.query(ctx, s.place.api+"STREAM.MSG.GET."+s.place.stream, map[string]string{"last_by_subj": subject}, &reply)
	switch {
	case o != nil:
		return last{}, o
	case e != nil && e.ErrCode == codeNoMessage:
		return last{}, nil
	case e != nil:
		return last{}, &outcome{sent: true, kind: store.ErrUnavailable, err: s.explain(e)}
	}
	m := reply.Message
	if m == nil || m.Seq == 0 || m.Subject != subject && !strings.HasSuffix(subject, ">") {
		return last{}, &outcome{sent: true, kind: store.ErrUnavailable, err: errors.New("the reply names no message, or another one")}
	}
	l := last{seq: m.Seq, encoded: m.Data, written: m.Time}
	if len(m.Header) > 0 {
		h, err := headerOf(m.Header)
		if err != nil {
			return last{}, &outcome{sent: true, kind: store.ErrUnavailable, err: err}
		}
		l.marker, l.attempt = isMarker(h), h.Get(headerAttempt)
	}
	return l, nil
}

// explain adds to what the server said what it means here.
func (s *Store) explain(e *apiError) error {
	switch e.ErrCode {
	case codeNoStream:
		return fmt.Errorf("the bucket's stream %s is gone", s.place.stream)
	case codeNotEnabled, codeNotEnabledAccount:
		return errors.New("JetStream is no longer enabled for this account")
	}
	return e
}

func isMarker(h nats.Header) bool {
	op := h.Get(headerOperation)
	return op == "DEL" || op == "PURGE" || h.Get(headerReason) != ""
}

// headerOf decodes a message's headers as a server keeps them.
func headerOf(raw []byte) (nats.Header, error) {
	first, rest, found := strings.Cut(string(raw), "\r\n")
	if !found || !strings.HasPrefix(first, "NATS/1.0") {
		return nil, errors.New("the message's headers are damaged")
	}
	h := nats.Header{}
	for line := range strings.SplitSeq(rest, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h[name] = append(h[name], strings.TrimSpace(value))
		}
	}
	return h, nil
}

// A fence lets a read pass only after a majority of the bucket's servers took
// a write that was sent after the read began. A deposed leader gets no such
// write through. Reads that wait at the same time share one write.
//
// What is left is a leader that was stopped, and goes on in the very moment
// between this write and the read, before it hears that it is deposed, and
// whose reply is faster than its successor's.
type fence struct {
	s       *Store
	mu      sync.Mutex
	now     *crossing // under way: too late for those who come now
	next    *crossing // begins when now is over
	running sync.WaitGroup
}

type crossing struct {
	done chan struct{}
	o    *outcome
}

// fenceLimit bounds one write of a fence; it is shared by callers with
// contexts of their own.
const fenceLimit = 5 * time.Second

// pass waits for a write that begins after this call did.
func (f *fence) pass(ctx context.Context) *outcome {
	if !f.s.replicated || f.s.cfg.LeaderReads {
		return nil
	}
	f.mu.Lock()
	if f.next == nil {
		f.next = &crossing{done: make(chan struct{})}
		if f.now == nil {
			f.start()
		}
	}
	c := f.next
	if c == nil { // start made it the present one
		c = f.now
	}
	f.mu.Unlock()
	select {
	case <-c.done:
		return c.o
	case <-ctx.Done():
		return &outcome{sent: true, kind: store.ErrUnavailable, err: context.Cause(ctx)}
	case <-f.s.w.stop.Done():
		return &outcome{sent: true, kind: store.ErrUnavailable, err: errClosed}
	}
}

// start begins the next crossing. Under mu.
func (f *fence) start() {
	f.now, f.next = f.next, nil
	c := f.now
	f.running.Go(func() {
		ctx, cancel := context.WithTimeoutCause(f.s.w.stop, fenceLimit, errors.New("no majority of the bucket's servers answered"))
		defer cancel()
		_, c.o = f.s.publish(ctx, f.s.place.barrier(), nats.Header{}, nil)
		if c.o != nil && c.o.kind == store.ErrDenied {
			c.o.err = fmt.Errorf("%w; a reader without it must say reads=leader", c.o.err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		close(c.done)
		f.now = nil
		if f.next != nil {
			f.start()
		}
	})
}

func (f *fence) wait() { f.running.Wait() }
