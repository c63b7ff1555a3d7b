package authority

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Leader is one leadership of this process, with one token. It is renewed in the
// background until it is given up, lost or lapses; then it is over for good, and
// the Authority may lead again with another one (LA6). All methods are safe for
// concurrent use.
type Leader struct {
	a     *Authority
	proof tenure.Proof
	since time.Time

	own   *deadline.Deadline // of this leadership alone: a new one for each (LA6)
	under *deadline.Deadline // lives by the session's (DL6)
	work  *deadline.Deadline // ends Stop earlier

	ctx    context.Context // ends when the work must stop
	cancel context.CancelCauseFunc

	keeping context.Context // ends when keeper and helpers must return
	quit    context.CancelFunc
	kept    chan struct{} // closed when the keeper has returned

	left atomic.Bool // given up: nothing acts under it any more

	mu      sync.Mutex
	walking map[string]bool // chains that are walked beside the keeper, or failed to be lately
	running chan struct{}   // closed when the function of Run returned; nil without one
	trouble error           // of the last renewal
	until   time.Duration   // boot clock until which the last grant lasts

	ending chan struct{} // held (capacity 1) by whoever gives it up
	done   bool          // guarded by ending: the store confirmed
	err    error
}

func newLeader(a *Authority, h *core.Head) *Leader {
	l := &Leader{
		a: a, proof: tenure.Proof(h.Last()), since: time.UnixMilli(h.Since), own: deadline.New(a.c.Clock, a.cfg.timing.Margin), work: deadline.New(a.c.Clock, a.cfg.timing.Margin),
		under: deadline.NewUnder(a.session.Deadline), kept: make(chan struct{}), ending: make(chan struct{}, 1), walking: map[string]bool{},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.keeping, l.quit = context.WithCancel(context.Background())
	return l
}

// start begins the renewals and everything that lives by the leadership.
func (l *Leader) start() {
	a := l.a
	l.under.OnEnd(func() { l.end(l.under.Cause()) })
	l.own.OnEnd(func() { l.end(l.own.Cause()) })
	l.work.OnEnd(l.overdue)
	go l.keep()
	// Whoever closes the client waits for the keeper, however the leadership ends.
	l.own.OnEnd(func() { a.c.Background(func(context.Context) { <-l.kept }) })
	a.c.Background(func(context.Context) { l.collect() })
	if a.cfg.pruneEvery > 0 {
		a.c.Background(func(context.Context) { l.prune() })
	}
}

// end ends the leadership at once, for good, and reports whether this call did. The
// work's context ends before it returns.
func (l *Leader) end(cause error) bool {
	cause = l.inWords(cause)
	first := l.own.End(cause)
	l.work.End(cause)
	l.cancel(cause)
	l.quit()
	l.under.End(cause)
	return first
}

// inWords is the cause of an end in the words of package tenure.
func (l *Leader) inWords(cause error) error {
	say := func(err error) error { return fmt.Errorf("authority %q (token %d): %w", l.a.name, l.proof.Token, err) }
	switch {
	case errors.Is(cause, deadline.ErrExpired):
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.trouble != nil {
			return say(fmt.Errorf("%w; the last try: %w", tenure.ErrExpired, l.trouble))
		}
		return say(tenure.ErrExpired)
	case errors.Is(cause, membership.ErrLost):
		return say(fmt.Errorf("%w with its session: %w", tenure.ErrLost, cause))
	case errors.Is(cause, membership.ErrReleased):
		return say(fmt.Errorf("%w with its session", tenure.ErrReleased))
	}
	return cause
}

// lose ends the leadership because it is certainly not this process's any more, or
// because it must not go on.
func (l *Leader) lose(cause error) error {
	cause = fmt.Errorf("authority %q (token %d): %w", l.a.name, l.proof.Token, cause)
	if l.end(cause) {
		l.a.c.Log.Error("authority: leadership lost", "authority", l.a.name, "token", l.proof.Token, "error", cause)
	}
	return cause
}

// lostTo is the error for a leadership in whose place h stands.
func lostTo(h *core.Head) error {
	switch {
	case h == nil:
		return fmt.Errorf("%w: its head is gone from the store", tenure.ErrLost)
	case h.Led():
		return fmt.Errorf("%w: node %q (incarnation %s) leads with token %d", tenure.ErrLost, h.Leader.Node, h.Leader.Incarnation, h.Token)
	}
	e := h.Ended()
	return fmt.Errorf("%w: it was %s by %q: %s", tenure.ErrLost, e.How, e.By, e.Why)
}

// overdue is called once the work must stop, by the clock. A leadership whose work
// does not stop, or that nobody gives up, is left to lapse after the stop limit.
func (l *Leader) overdue() {
	cause := l.work.Cause()
	if errors.Is(cause, deadline.ErrExpired) {
		l.a.c.Log.Error("authority: not renewed in time, the work must stop", "authority", l.a.name, "token", l.proof.Token)
	}
	l.cancel(l.inWords(cause))
	t := l.a.c.Clock.AfterFunc(l.a.cfg.stopLimit, l.quit)
	<-l.own.Done()
	t.Stop()
}

// extend publishes a grant or renewal that was first sent at sent (DL4), if both
// deadlines are live after the reply (DL6).
func (l *Leader) extend(sent deadline.Stamp) bool {
	t := l.a.cfg.timing
	life := t.Life()
	if !l.own.Extend(sent, life) {
		return false
	}
	until := sent.Boot() + life
	l.mu.Lock()
	l.until = until
	l.mu.Unlock()
	if t.Stop > 0 { // the session must outlast the stop, too
		if s, ok := l.under.T(); ok {
			until = min(until, s)
		}
	}
	l.work.Extend(sent, until-t.Stop-sent.Boot())
	return l.Live()
}

// Proof names this exact leadership: node, incarnation, process term and token
// (LA1). Hand it to Append and to whoever verifies.
func (l *Leader) Proof() tenure.Proof { return l.proof }

func (l *Leader) core() core.Proof { return core.Proof(l.proof) }

// Token is the fencing token: higher than every earlier leader's, the same over all
// renewals.
func (l *Leader) Token() uint64 { return l.proof.Token }

// Live reports whether this process may act as the leader at this instant: the
// leadership's own deadline and the session's are both in the future (DL6).
func (l *Leader) Live() bool { return l.own.Live() && l.under.Live() }

// Leads reports whether p is exactly this leadership, and it is live (LA7).
func (l *Leader) Leads(p tenure.Proof) bool { return p == l.proof && l.Live() }

// Context ends when the work must stop: the leadership is lost, lapsed or given up,
// its session is over, or it is nearer to its end than the work needs to stop (see
// Stop). Its cause is a tenure.ErrLost, ErrExpired, ErrReleased or ErrShutdown.
func (l *Leader) Context() context.Context { return l.ctx }

// Done is Context().Done().
func (l *Leader) Done() <-chan struct{} { return l.ctx.Done() }

// Err says why the context ended, nil before that.
func (l *Leader) Err() error {
	if l.ctx.Err() == nil {
		return nil
	}
	return context.Cause(l.ctx)
}

// Deadline is the instant on the clock's boot-time scale until which the leadership
// is live unless it is renewed: the earlier one of its own and its session's; ok is
// false once it is over.
func (l *Leader) Deadline() (at time.Duration, ok bool) {
	own, ok := l.own.T()
	session, live := l.under.T()
	return min(own, session), ok && live
}

// Remaining is the time left until Deadline, 0 if there is none.
func (l *Leader) Remaining() time.Duration { return min(l.own.Remaining(), l.under.Remaining()) }

// TTL is the leadership's time to live.
func (l *Leader) TTL() time.Duration { return l.a.cfg.timing.TTL }

// StepDown gives the leadership up, so that the next candidate leads at once. Call
// it when whatever acts under it has stopped. It ends the leadership here first,
// settles every write in doubt, and has its own time limit; only ctx's values are
// used. If the store does not confirm in time it is a tenure.ErrUnconfirmed, goes
// on in the background, and lapses after the TTL at the latest. Stepping down from
// a leadership that is over returns why it ended, and nil if it was given up.
func (l *Leader) StepDown(ctx context.Context) error {
	l.end(fmt.Errorf("authority %q (token %d): %w", l.a.name, l.proof.Token, tenure.ErrReleased)) // before the first send
	<-l.kept                                                                                      // soon: the context of its store calls has ended
	ctx, cancel := l.a.endLimit(ctx)
	defer cancel()
	select {
	case l.ending <- struct{}{}:
		defer func() { <-l.ending }()
	case <-ctx.Done():
		return l.unconfirmed(context.Cause(ctx))
	}
	if l.done {
		return l.err
	}
	l.left.Store(true)
	if err := l.giveUp(ctx); err != nil {
		l.a.c.Log.Error("authority: stepping down is not confirmed, trying on in the background", "authority", l.a.name, "token", l.proof.Token, "error", err)
		l.a.settleLater()
		return l.unconfirmed(err)
	}
	l.done = true
	if cause := l.own.Cause(); !errors.Is(cause, tenure.ErrReleased) {
		l.err = l.inWords(cause)
	} else {
		l.a.tell(tenure.EventReleased, l.proof.Token, kit.Event{})
	}
	return l.err
}

func (l *Leader) unconfirmed(cause error) error {
	return fmt.Errorf("authority %q (token %d): %w: %w", l.a.name, l.proof.Token, tenure.ErrUnconfirmed, cause)
}

// giveUp gives this very leadership up in the store, if it is still there.
func (l *Leader) giveUp(ctx context.Context) error {
	a := l.a
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return err
	}
	defer free()
	if a.leader.Load() != l { // a later one of this process stands
		return nil
	}
	return a.giveUp(ctx)
}

// shutdown ends the leadership with its session: the work is asked to stop, and the
// leadership given up once it has. An error says that it must lapse.
func (l *Leader) shutdown(ctx context.Context) error {
	cause := fmt.Errorf("authority %q (token %d): %w", l.a.name, l.proof.Token, tenure.ErrShutdown)
	if l.work.End(cause) {
		l.cancel(cause)
	}
	limit, cancel := settle.Limit(context.Background(), l.a.c.Clock, l.a.cfg.stopLimit)
	defer cancel()
	if err := l.awaitWork(limit); err != nil {
		return err
	}
	if err := l.StepDown(ctx); errors.Is(err, tenure.ErrUnconfirmed) {
		return err
	}
	return nil // however it ended, nothing of it is left
}

// awaitWork waits until the function of Run has returned, or ctx ends.
func (l *Leader) awaitWork(ctx context.Context) error {
	l.mu.Lock()
	running := l.running
	l.mu.Unlock()
	if running == nil {
		return nil
	}
	select {
	case <-running:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-running: // both came to their end: nothing overlaps
		return nil
	default:
		return fmt.Errorf("authority %q (token %d): %w", l.a.name, l.proof.Token, tenure.ErrOverlap)
	}
}

// errPanic is the cause of a leadership whose keeper or work panicked (LA6).
func errPanic(p any) error { return fmt.Errorf("%w: panic: %v", tenure.ErrLost, p) }

// while is ctx, ended with the leadership.
func (l *Leader) while(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.keeping, func() { cancel(tenure.ErrLost) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// adopt goes on from s, which was found where the leader's own head was expected, or
// ends the leadership (ST9). The caller holds the lock.
func (l *Leader) adopt(held *core.Head, s state) {
	a := l.a
	a.mu.Lock()
	how := core.Lost
	if s.head != nil {
		how = core.Adoptable(held, s.head, a.cand.Mine)
	}
	a.mu.Unlock()
	switch how {
	case core.Adopted:
	case core.Raised:
		_ = l.lose(fmt.Errorf("%w: its counter was raised to %d by a jump", tenure.ErrLost, s.head.Counter))
	default:
		_ = l.lose(lostTo(s.head))
	}
}

// current returns the head as this leadership has it, reading it only where it is
// not known. The caller holds the lock. An error other than of a leadership that
// ended may be tried again.
func (l *Leader) current(ctx context.Context) (*core.Head, error) {
	a := l.a
	if a.doubt == nil && a.ver != "" {
		return a.head, nil
	}
	return l.reread(ctx)
}

// reread is current, but for that it reads in any case. Where that fails, what is known
// of the head stays known: a leadership can live by writes alone.
func (l *Leader) reread(ctx context.Context) (*core.Head, error) {
	s, err := l.a.refresh(ctx) // which ends the leadership if it is not found there
	if err != nil {
		if !retryable(err) && !errors.Is(err, store.ErrDenied) {
			return nil, l.lose(fmt.Errorf("%w: %w", tenure.ErrLost, err))
		}
		return nil, err
	}
	return s.head, l.own.Cause()
}
