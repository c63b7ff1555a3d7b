package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Lease is the right to act on a named resource while it is kept alive. It is
// renewed in the background, or lives as long as its [Session], until it is
// released or lost; once lost it is over for good. All methods are safe for
// concurrent use.
type Lease struct {
	c      *Client
	s      *Session // that the lease lives by; nil: it renews itself
	name   string
	owner  lease.Owner
	token  uint64
	timing lease.Timing
	limit  time.Duration // how long to go on renewing while the work stops

	dl     *deadline.Deadline // until when the lease is held
	work   *deadline.Deadline // the same less the time that the work needs to stop
	ctx    context.Context    // ends with work
	cancel context.CancelCauseFunc
	leave  func() // lets the next caller in this process have the name

	keeping context.Context // ends when the keeper must return
	quit    context.CancelCauseFunc
	kept    chan struct{} // closed when the keeper has returned; nil before it starts

	mu      sync.Mutex // guards what follows, and is not held over store calls
	rec     *lease.Record
	ver     store.Version
	ids     []string // attempts of this handle that may be in the store
	doubt   *inDoubt // a write whose outcome is not known yet
	trouble error    // of the last renewal, nil once one succeeds
	archive uint64   // past tenures up to this token are archived
	end     endState

	stuck    atomic.Bool   // its work was asked to stop and did not in time
	ending   bool          // given up: no work begins any more
	working  bool          // Do's function has not returned yet
	finished chan struct{} // closed when Do returns; nil without Do
}

// inDoubt is a write that may have happened or may happen yet.
type inDoubt struct {
	rec  *lease.Record
	over store.Version
}

// endState is how far the handle's own release has come.
type endState struct {
	done bool // the store confirmed, or there is nothing to free
	err  error
	lock chan struct{} // held (capacity 1) by the caller that is releasing

	successor string // of a hand-over that was begun
	hold      time.Duration
}

func newLease(c *Client, name string, req request, rec *lease.Record) *Lease {
	l := &Lease{
		c: c, s: req.s, name: name, owner: *rec.Owner, token: rec.Token, timing: req.timing, limit: req.stopLimit,
		leave: func() {}, end: endState{lock: make(chan struct{}, 1)},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if l.s != nil {
		l.dl, l.work = deadline.NewUnder(l.s.m.Deadline()), deadline.NewUnder(l.s.stopDeadline(req.timing.Stop))
		return l
	}
	l.dl, l.work = deadline.New(c.clk, req.timing.Margin), deadline.New(c.clk, req.timing.Margin)
	l.keeping, l.quit = context.WithCancelCause(context.Background())
	return l
}

// Name is the lease's name.
func (l *Lease) Name() string { return l.name }

// Token is the fencing token: positive, higher than every earlier holder's, the
// same over all renewals. Hand it to the resource with every write.
func (l *Lease) Token() uint64 { return l.token }

// Owner identifies this handle; no other handle anywhere is the same owner.
func (l *Lease) Owner() string { return l.owner.Incarnation }

// Proof names this exact ownership: who holds it, and its token. Node and Term are
// those of the lease's session, empty and 0 without one.
func (l *Lease) Proof() Proof {
	p := Proof{Incarnation: l.owner.Incarnation, Term: l.owner.Term, Token: l.token}
	if l.s != nil {
		p.Node = l.owner.Node
	}
	return p
}

// TTL is the lease's time to live.
func (l *Lease) TTL() time.Duration { return l.timing.TTL }

// Context ends when the work must stop: the lease is lost, expired, released,
// or nearer to its end than the time that the work needs to stop. Its cause is
// an ErrLost, ErrExpired, ErrReleased or ErrShutdown; an ErrExpired says what the
// last renewal failed with, if it did. It ends by the clock, also while the store
// hangs.
func (l *Lease) Context() context.Context { return l.ctx }

// Done is Context().Done().
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err says why the lease's context ended, nil before that.
func (l *Lease) Err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// Live reports whether this process may act under the lease at this instant. It
// costs about one clock reading and allocates nothing. It is a local answer;
// Check asks the store.
func (l *Lease) Live() bool { return l.dl.Live() }

// Deadline is the instant on the clock's boot-time scale ([Clock].Boot) until
// which the lease is held unless it is renewed; ok is false once it is over. It
// moves with every renewal.
func (l *Lease) Deadline() (at time.Duration, ok bool) { return l.dl.T() }

// Remaining is the time left until Deadline, 0 if there is none.
func (l *Lease) Remaining() time.Duration { return l.dl.Remaining() }

// Check asks the store whether this handle is the holder, with one linearizable
// read. It returns nil if it is; an ErrLost, which also ends the lease, if it is
// not; and another error if the store did not answer.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.overErr(); err != nil {
		return err
	}
	f, err := l.c.read(ctx, l.name, l.timing.Attempt)
	if err != nil {
		return err
	}
	if f.rec == nil || !f.rec.SameOwner(l.owner, l.token) {
		return l.lose(lostTo(f.rec))
	}
	return l.overErr()
}

// overErr is why the lease is over, nil while it is live.
func (l *Lease) overErr() error {
	if l.dl.Live() {
		return nil
	}
	if err := l.dl.Cause(); err != nil && !errors.Is(err, deadline.ErrExpired) {
		return l.ended(err)
	}
	return fmt.Errorf("lease %q: %w", l.name, ErrExpired)
}

// lostTo is the error for a lease that now belongs to r.
func lostTo(r *lease.Record) error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: its record is gone from the store", ErrLost)
	case r.Held():
		return fmt.Errorf("%w: %s (owner %s) holds it with token %d", ErrLost, r.Owner.Node, r.Owner.Incarnation, r.Token)
	case r.Ended.Why != "" || r.Ended.By != "":
		return fmt.Errorf("%w: it was %s by %q: %s", ErrLost, r.Ended.How, r.Ended.By, r.Ended.Why)
	}
	return fmt.Errorf("%w: it was %s", ErrLost, r.Ended.How)
}

// lose ends the lease at once because it is certainly not ours any more.
func (l *Lease) lose(cause error) error {
	cause = fmt.Errorf("lease %q (token %d): %w", l.name, l.token, cause)
	if l.dl.End(cause) {
		l.tell(slog.LevelError, "lease: lost", cause)
	}
	l.endWork(cause)
	return cause
}

// stopWork ends the work's context with cause while the lease goes on.
func (l *Lease) stopWork(cause error) { l.endWork(fmt.Errorf("lease %q: %w", l.name, cause)) }

// endWork cancels the context before it returns.
func (l *Lease) endWork(cause error) {
	if l.work.End(cause) {
		l.cancel(cause)
	}
}

// adopt takes the outcome of the write that made or renewed the lease.
func (l *Lease) adopt(res settle.Result) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ver = res.Version
	l.doubt = nil
	if res.Found == nil {
		return nil
	}
	r, err := lease.Decode(l.c.leaseKey(l.name), l.name, res.Found.Body)
	if err != nil {
		return err
	}
	if !r.SameOwner(l.owner, l.token) {
		return l.loseLocked(r)
	}
	l.rec = r
	return nil
}

func (l *Lease) loseLocked(r *lease.Record) error {
	return l.lose(lostTo(r))
}

// extend publishes a grant or renewal that was first sent at sent (DL4).
func (l *Lease) extend(sent deadline.Stamp) bool {
	life := l.timing.Life()
	if !l.dl.Extend(sent, life) {
		return false
	}
	l.work.Extend(sent, life-l.timing.Stop)
	return l.dl.Live()
}

// write sends rec over version over and settles it, for as long as ctx lasts.
func (l *Lease) write(ctx context.Context, rec *lease.Record, over store.Version) (settle.Result, error) {
	w, err := l.prepare(rec, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	pace := l.c.pace(l.timing)
	if _, live := l.dl.T(); live && l.s == nil { // a renewal: its tries come closer as T does
		pace.Left, w.Failed = l.dl.Remaining, l.renewalFails
	}
	res, err := settle.Do(ctx, l.c.st, w, pace)
	if err == nil && l.s == nil { // ten thousand of a session would push out what is used again
		l.c.decoded.put(l.name, w.Body, rec)
	}
	l.note(rec, over, res)
	return res, err
}

// again goes on settling a write whose outcome was unknown.
func (l *Lease) again(ctx context.Context, rec *lease.Record, over store.Version, sent deadline.Stamp) (settle.Result, error) {
	w, err := l.prepare(rec, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	res, err := settle.Again(ctx, l.c.st, w, l.c.pace(l.timing), sent)
	l.note(rec, over, res)
	return res, err
}

func (l *Lease) prepare(rec *lease.Record, over store.Version) (settle.Write, error) {
	body, err := rec.Encode()
	if err != nil {
		return settle.Write{}, err
	}
	id := rec.WriterAttempt
	l.mu.Lock()
	l.ids = append(l.ids, id)
	if len(l.ids) > 64 { // far more than can be in flight at once
		l.ids = l.ids[1:]
	}
	l.mu.Unlock()
	key := l.c.leaseKey(l.name)
	return settle.Write{
		Key: key, Body: body, Over: over, Limit: lease.MaxBody,
		Mine: func(b []byte) bool {
			r, err := lease.Decode(key, l.name, b)
			return err == nil && (r.WriterAttempt == id || r.HolderAttempt == id)
		},
	}, nil
}

// note keeps the state that an applied write left, or the doubt.
func (l *Lease) note(rec *lease.Record, over store.Version, res settle.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch res.Outcome {
	case settle.Applied:
		l.rec, l.doubt = rec, nil
	case settle.Unknown:
		l.doubt = &inDoubt{rec: rec, over: over}
	case settle.Rejected:
		l.doubt = nil
	}
}

func (l *Lease) mine(attempt string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range l.ids {
		if id == attempt {
			return true
		}
	}
	return false
}

func (l *Lease) state() (*lease.Record, store.Version) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rec, l.ver
}
