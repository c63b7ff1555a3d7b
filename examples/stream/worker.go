package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/authority"
)

// worker counts the partitions that its process owns.
type worker struct {
	*member
	eyes     *looker
	put      string // the key of the last part that it wrote
	reported bool
}

// run works until the result is sealed (nil) or ctx ends (its cause).
func (w *worker) run(ctx context.Context) error {
	for {
		done, err := w.turn(ctx)
		switch {
		case done:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !passing(err):
			return err
		case err != nil:
			w.log.Debug("looking again", "why", err)
			pause(ctx, w.poll)
		}
	}
}

// turn makes one part, if there is one to make, and waits for news.
func (w *worker) turn(ctx context.Context) (done bool, err error) {
	v, err := w.eyes.look(ctx)
	switch {
	case err != nil:
		return false, err
	case v.sealed:
		w.log.Info("the result is sealed")
		return true, nil
	case v.assigned == nil || v.leader.Token == 0: // a first assignment is no change of the head, so do not wait for one
		pause(ctx, w.poll)
		return false, nil
	case w.startedOver(v) && !w.reported:
		// An earlier start of this node owns slots. It is over, and whatever it had on
		// its way is void; the leader learns that at once, and not by its own patience.
		_, err := w.recovery.Report(ctx, "a new start of a node that owns slots")
		w.reported = err == nil
		return false, err
	case v.admission.Faulty():
	default:
		if err := w.contribute(ctx, v); err != nil {
			return false, err
		}
	}
	_, err = v.head.Next(ctx)
	return false, err
}

func (w *worker) startedOver(v *view) bool {
	for _, p := range v.assigned.Fence.Participants {
		if p.Node == w.me.Node && p != w.me {
			return true
		}
	}
	return false
}

// contribute counts the next batch of every slot that this process owns, and puts
// the part where the leader looks for it.
func (w *worker) contribute(ctx context.Context, v *view) error {
	key := w.partKey(v.attempt, v.assigned.Fence, w.me)
	if !v.assigned.Fence.Has(w.me) || v.state.finished(w.input) || key == w.put {
		return nil
	}
	p := &part{Attempt: v.attempt, Base: v.base, Fence: v.assigned.Fence.State(), Owner: w.me, Counts: counts{}}
	for slot, from := range v.state.Offsets {
		if v.owner(slot) != w.me {
			continue
		}
		to, err := w.input.count(slot, from, w.batch, p.Counts)
		if err != nil {
			return w.broken(ctx, fmt.Errorf("partition %d: %w", slot, err))
		}
		p.Pieces = append(p.Pieces, piece{Slot: slot, From: from, To: to})
	}
	if pause(ctx, w.pace); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// Only now, just before it acts: no fault was made, no round was released, and
	// the same leader leads. What changes from here on is caught by the part's name.
	if err := v.admission.Check(ctx, v.leader); err != nil {
		return err
	}
	if err := w.putPart(ctx, key, p); err != nil {
		return err
	}
	w.put = key
	return nil
}

// broken says that this process cannot go on, and why. It ends; others take its
// slots over.
func (w *worker) broken(ctx context.Context, why error) error {
	text := why.Error()
	if len(text) > 200 {
		text = text[:200]
	}
	_, err := w.recovery.Report(ctx, text)
	if errors.Is(err, authority.ErrSuperseded) {
		err = nil
	}
	return errors.Join(why, err)
}
