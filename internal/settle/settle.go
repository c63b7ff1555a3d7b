// Package settle brings every conditional write to one of three outcomes:
// applied, rejected, or still unknown (ST9). It is the only place that repeats
// a conditional write.
//
// A reply can be lost after its write took effect, and a request can land long
// after its caller gave up. Both are harmless because every attempt carries a
// fresh id in its body and a condition: reading back tells whether the id is
// there; while the key stands unchanged the same bytes are sent again under the
// same condition, so that at most one of the copies can ever take effect.
package settle

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/store"
)

// Outcome of a conditional write.
type Outcome int

// The three outcomes.
const (
	// Unknown: it may have happened, or may happen yet.
	Unknown Outcome = iota
	// Applied: it happened.
	Applied
	// Rejected: it did not happen and cannot happen any more, or nothing was
	// ever sent.
	Rejected
)

// Write is one attempt at a conditional write.
type Write struct {
	Key  string
	Body []byte
	// Over is the version to be replaced; the zero Version means create.
	Over store.Version
	// Mine reports whether a body found at the key proves that this attempt took
	// effect: its id is there.
	Mine func(body []byte) bool
	// Limit is the largest body that a read back may find.
	Limit int
	// Failed, if not nil, is told of each call that failed and will be followed by
	// another, as it happens: an outage ends many writes only with their contexts.
	Failed func(err error)
}

// Result of Do.
type Result struct {
	Outcome Outcome
	// Version is the key's version after an applied write. If the write was found
	// by reading back, Found is what was read, which another may have changed
	// since without taking the attempt's id out.
	Version store.Version
	// Found is the state that settled the outcome, nil if none was read.
	Found *store.Object
	// Sent is when the first send began: trust counts from here (DL4).
	Sent deadline.Stamp
	// Sends and Reads count store calls.
	Sends, Reads int
}

// Pace says how long calls and pauses are.
type Pace struct {
	Clock clock.Clock
	// Attempt limits one store call.
	Attempt time.Duration
	// Backoff is the first pause after a failure; pauses double up to 16 times
	// it and are jittered.
	Backoff time.Duration
	// Left, if not nil, is the time that is left for the whole write: pauses are at
	// most an eighth of it, so that the last tries come close together.
	Left func() time.Duration
	// Rand gives numbers in [0,1) for jitter; safe for concurrent use.
	Rand func() float64
}

// Jitter is a duration between d/2 and d.
func (p Pace) Jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(p.Rand()*float64(d/2))
}

// Do sends w and settles it, until ctx ends. The error is nil exactly if the
// outcome is Applied; otherwise it says why, with the kinds of package store:
// ErrConflict, ErrExists or ErrNotFound for a refusal, ErrUnknown where the
// outcome is, ErrUnavailable where nothing was ever sent with success.
func Do(ctx context.Context, s store.Store, w Write, p Pace) (Result, error) {
	t := try{s: s, w: w, p: p, wait: p.Backoff}
	t.res.Sent = deadline.Take(p.Clock)
	return t.run(ctx)
}

// Again goes on settling a write whose outcome was unknown: it reads first.
func Again(ctx context.Context, s store.Store, w Write, p Pace, sent deadline.Stamp) (Result, error) {
	t := try{s: s, w: w, p: p, wait: p.Backoff, doubt: true}
	t.res.Sent = sent
	return t.run(ctx)
}

type try struct {
	s     store.Store
	w     Write
	p     Pace
	wait  time.Duration
	res   Result
	doubt bool  // some send may have taken effect
	last  error // why the last call failed
}

func (t *try) run(ctx context.Context) (Result, error) {
	for ctx.Err() == nil {
		if !t.doubt || errors.Is(t.last, errUnchanged) {
			if done, err := t.send(ctx); done {
				return t.res, err
			}
		}
		if t.doubt {
			if done, err := t.readBack(ctx); done {
				return t.res, err
			}
		}
		if t.w.Failed != nil && ctx.Err() == nil && !errors.Is(t.last, errUnchanged) {
			t.w.Failed(t.last)
		}
		if !t.pause(ctx) {
			break
		}
	}
	return t.giveUp(ctx)
}

// errUnchanged: the read back found the key as it was, so the same bytes may
// and must be sent again.
var errUnchanged = errors.New("the key stands unchanged")

func (t *try) send(ctx context.Context) (done bool, err error) {
	call, cancel := t.limit(ctx)
	defer cancel()
	t.res.Sends++
	var v store.Version
	if t.w.Over == "" {
		v, err = t.s.Create(call, t.w.Key, t.w.Body)
	} else {
		v, err = t.s.Replace(call, t.w.Key, t.w.Body, t.w.Over)
	}
	if err == nil {
		t.res.Outcome, t.res.Version = Applied, v
		return true, nil
	}
	t.last = err
	switch store.KindOf(err) {
	case store.ErrUnknown:
		t.doubt = true
		return false, nil
	case store.ErrUnavailable:
		return false, nil
	case store.ErrConflict, store.ErrExists, store.ErrNotFound:
		if t.doubt {
			return false, nil // perhaps refused by one's own success: read back
		}
	default: // Denied, Invalid, Corrupt, Newer: a definite no
		if t.doubt {
			return false, nil
		}
	}
	t.res.Outcome = Rejected
	return true, err
}

func (t *try) readBack(ctx context.Context) (done bool, err error) {
	call, cancel := t.limit(ctx)
	defer cancel()
	t.res.Reads++
	o, err := t.s.Get(call, t.w.Key, t.w.Limit)
	switch {
	case err == nil && t.w.Mine(o.Body):
		t.res.Outcome, t.res.Version, t.res.Found = Applied, o.Version, &o
		return true, nil
	case err == nil && o.Version != t.w.Over:
		t.res.Outcome, t.res.Found = Rejected, &o
		return true, store.Errorf(refusal(t.w), "", "settle", t.w.Key, "another write came first")
	case errors.Is(err, store.ErrNotFound) && t.w.Over != "":
		t.res.Outcome = Rejected
		return true, err
	case err == nil || errors.Is(err, store.ErrNotFound):
		t.last = errUnchanged
	default:
		t.last = err
	}
	return false, nil
}

func refusal(w Write) error {
	if w.Over == "" {
		return store.ErrExists
	}
	return store.ErrConflict
}

func (t *try) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return Limit(ctx, t.p.Clock, t.p.Attempt)
}

// pause waits a jittered back-off and reports whether to go on.
func (t *try) pause(ctx context.Context) bool {
	d := t.wait
	if t.p.Left != nil {
		d = min(d, max(t.p.Left()/3, t.p.Backoff))
	}
	d = t.p.Jitter(d)
	t.wait = min(2*t.wait, 16*t.p.Backoff)
	return clock.Sleep(t.p.Clock, d, ctx.Done())
}

func (t *try) giveUp(ctx context.Context) (Result, error) {
	cause := t.last
	if cause == nil || errors.Is(cause, errUnchanged) {
		cause = context.Cause(ctx)
	}
	if !t.doubt {
		t.res.Outcome = Rejected
		return t.res, store.Wrap(store.ErrUnavailable, "", "write", t.w.Key, cause)
	}
	t.res.Outcome = Unknown
	return t.res, store.Wrap(store.ErrUnknown, "", "write", t.w.Key, cause)
}

// Limit is a context that ends d from now on c at the latest, for one store
// call.
func Limit(ctx context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return call, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}
