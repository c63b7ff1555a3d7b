package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// inDoubt is a write of the head whose outcome is not known.
type inDoubt struct {
	next *core.Head
	w    settle.Write
	sent deadline.Stamp
}

// take takes a lock of capacity 1. Waiters get it in the order in which they came.
func (a *Authority) take(ctx context.Context, lock chan struct{}) (free func(), err error) {
	if err := store.CtxErr(ctx, a.identity(), "wait", a.headKey); err != nil {
		return nil, err
	}
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, store.CtxErr(ctx, a.identity(), "wait", a.headKey)
	}
}

// write sends next over the known state of the head and settles it, for as long as
// ctx lasts. The caller holds the lock: one write of the head is on its way at a
// time, so that whatever is read later was read after the last attempt was planned.
func (a *Authority) write(ctx context.Context, next *core.Head, tune func(w *settle.Write, p *settle.Pace)) (settle.Result, error) {
	held, over := a.head, a.ver
	w, err := a.prepare(next, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	p := a.c.Pace(a.cfg.timing)
	if tune != nil {
		tune(&w, &p)
	}
	d := &inDoubt{next: next, w: w, sent: deadline.Take(a.c.Clock)}
	a.mu.Lock()
	a.cand.Sending(next.WriterAttempt)
	a.mu.Unlock()
	a.doubt, a.ver = d, "" // what follows may panic: the doubt stays
	res, err := settle.Do(ctx, a.c.Store, w, p)
	a.settled(d, res)
	if res.Outcome == settle.Rejected && !settle.LostRace(err) { // nothing happened
		a.forget(nil)
		a.head, a.ver = held, over
	}
	return res, err
}

// settled takes the outcome of a write. The caller holds the lock.
func (a *Authority) settled(d *inDoubt, res settle.Result) {
	if res.Outcome == settle.Unknown {
		return
	}
	a.doubt, a.ver = nil, ""
	if res.Outcome == settle.Rejected { // told once the head was read: a driver may have repeated it
		a.refused = append(a.refused, d.next.WriterAttempt)
		return
	}
	a.mu.Lock()
	a.cand.Settled(d.next.WriterAttempt, true)
	a.mu.Unlock()
	a.head, a.ver = d.next, res.Version
	if res.Found != nil { // another may have written since
		h, err := core.Decode(a.headKey, a.name, res.Found.Body)
		if err != nil {
			a.ver = ""
			return
		}
		a.head = h
	}
	_ = a.c.Seen(kindHead, a.name)(a.head.Counter) // from now on less is a store that went back
}

// forget settles the writes that were refused, by h, which was read since; nil: none
// of them happened. The caller holds the lock.
func (a *Authority) forget(h *core.Head) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range a.refused {
		a.cand.Settled(id, h != nil && h.Carries(id))
	}
	a.refused = nil
}

// settle settles what is in doubt, for as long as ctx lasts. The caller holds the
// lock. Sending the same bytes again over the same version changes nothing that was
// not wanted: at most one copy takes effect, and it names the state it was for.
func (a *Authority) settle(ctx context.Context) error {
	d := a.doubt
	if d == nil {
		return nil
	}
	ctx, cancel := settle.Limit(ctx, a.c.Clock, a.cfg.timing.Life()/2) // others wait for the lock
	defer cancel()
	res, err := settle.Again(ctx, a.c.Store, d.w, a.c.Pace(a.cfg.timing), d.sent)
	a.settled(d, res)
	if res.Outcome == settle.Unknown {
		return err
	}
	return nil
}

// refresh settles what is in doubt and reads the head. The caller holds the lock. A
// leadership of this process that the head does not go on with ends here.
func (a *Authority) refresh(ctx context.Context) (state, error) {
	if err := a.settle(ctx); err != nil {
		return state{}, err
	}
	s, err := a.read(ctx)
	if err != nil {
		return s, err
	}
	a.forget(s.head)
	if l := a.leader.Load(); l != nil && l.own.Cause() == nil {
		l.adopt(a.head, s)
	}
	if held := a.head; held != nil && (s.head == nil || s.head.Sequence < held.Sequence) {
		return s, store.Errorf(store.ErrCorrupt, a.identity(), "read", a.headKey,
			"the head vanished, or went back below sequence %d: if the store was restored from a backup, jump above that", held.Sequence)
	}
	a.head, a.ver = s.head, s.ver
	return s, nil
}

// tidy brings what is in doubt to its end, and gives up a leadership that the head
// names though nobody here wants it: a Lead that was given up leaves nothing behind.
// It returns nil once nothing is left to do.
func (a *Authority) tidy(ctx context.Context) error {
	ctx, cancel := settle.Limit(ctx, a.c.Clock, a.cfg.timing.TTL)
	defer cancel()
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return err
	}
	defer free()
	if a.Leader() != nil {
		return a.settle(ctx)
	}
	if a.doubt == nil && (a.head == nil || a.ver != "" && !a.unwanted(a.head)) {
		return nil
	}
	s, err := a.refresh(ctx)
	if err != nil || s.head == nil || !a.unwanted(s.head) {
		return err
	}
	return a.giveUp(ctx)
}

// unwanted reports whether h names a leadership of this process that nobody here
// uses or will use.
func (a *Authority) unwanted(h *core.Head) bool {
	if !h.Led() || *h.Leader != a.me {
		return false
	}
	a.mu.Lock()
	wanted := a.wanted
	a.mu.Unlock()
	l := a.leader.Load()
	if l != nil && l.proof.Token == h.Token {
		return l.left.Load()
	}
	return wanted == 0
}

// settleLater goes on with tidy in the background; the session waits for it before
// it leaves. One is under way at a time, and goes round again for whoever asks
// meanwhile: an outage gathers no crowd.
func (a *Authority) settleLater() {
	a.mu.Lock()
	a.untidy++
	first := a.untidy == 1
	a.mu.Unlock()
	if !first {
		return
	}
	a.session.Settle(fmt.Sprintf("authority %q", a.name), func(ctx context.Context) error {
		for {
			a.mu.Lock()
			asked := a.untidy
			a.mu.Unlock()
			err := a.tidy(ctx)
			if settle.LostRace(err) { // it is not done: Settle takes such an error for the end
				err = store.Wrap(store.ErrUnavailable, a.identity(), "settle", a.headKey, err)
			}
			a.mu.Lock()
			done := err == nil && a.untidy == asked || errors.Is(err, tenure.ErrLost)
			if done {
				a.untidy = 0
			}
			a.mu.Unlock()
			if done || err != nil {
				return err
			}
		}
	})
}

// giveUp writes the head without a leader, where it still names this process. The
// caller holds the lock.
func (a *Authority) giveUp(ctx context.Context) error {
	for {
		if a.doubt != nil || a.ver == "" {
			if _, err := a.refresh(ctx); err != nil {
				return err
			}
		}
		if a.head == nil || !a.head.Led() || *a.head.Leader != a.me {
			return nil
		}
		a.mu.Lock()
		a.cand.Ended()
		a.mu.Unlock()
		next, err := a.head.StepDown(a.head.Last(), a.c.NewID(), a.c.NowMS())
		if err != nil {
			return err
		}
		_, err = a.write(ctx, next, nil)
		if err == nil || !settle.LostRace(err) {
			return err
		}
	}
}

// end is the authority's part of the session's end (LA6): the work stops, what is in
// doubt is settled, the leadership is given up. An error makes the name lapse.
func (a *Authority) end(ctx context.Context) error {
	limit, cancel := a.endLimit(ctx)
	defer cancel()
	done, err := a.take(limit, a.campaign) // soon: it ends with what the session accepts
	if err != nil {
		return err
	}
	defer done()
	if l := a.leader.Load(); l != nil {
		if err := l.shutdown(ctx); err != nil {
			return err
		}
	}
	ctx, stop := a.endLimit(ctx) // after the work has stopped
	defer stop()
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return err
	}
	defer free()
	if a.doubt != nil || a.head != nil && a.head.Led() && *a.head.Leader == a.me {
		if err = a.giveUp(ctx); err != nil {
			return fmt.Errorf("authority %q: the leadership is not given up: %w", a.name, err)
		}
	}
	return nil
}

// endLimit bounds an end; of ctx only the values are used.
func (a *Authority) endLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return settle.Limit(context.WithoutCancel(ctx), a.c.Clock, max(4*a.cfg.timing.Attempt, time.Second))
}
