package membership

import (
	"context"
	"errors"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// prepare is the conditional write of next over a version.
func (i *Identities) prepare(next *identity.Record, over store.Version) (settle.Write, error) {
	body, err := next.Encode()
	if err != nil {
		return settle.Write{}, err
	}
	key, id := i.recordKey(next.Node), next.WriterAttempt
	return settle.Write{
		Key: key, Body: body, Over: over, Limit: identity.MaxBody,
		Mine: func(b []byte) bool {
			r, err := identity.Decode(key, next.Node, b)
			return err == nil && (r.WriterAttempt == id || r.HolderAttempt == id)
		},
	}, nil
}

// write sends next over a version and settles it, for as long as ctx lasts.
func (i *Identities) write(ctx context.Context, next *identity.Record, over store.Version, p settle.Pace) (settle.Result, error) {
	w, err := i.prepare(next, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	res, err := settle.Do(ctx, i.cfg.Store, w, p)
	if err == nil {
		_ = i.cfg.Seen(next.Node)(next.Counter) // from now on less is a store that went back
	}
	return res, err
}

// again goes on settling a write whose outcome was unknown.
func (i *Identities) again(ctx context.Context, next *identity.Record, over store.Version, p settle.Pace, first settle.Result) (settle.Result, error) {
	w, err := i.prepare(next, over)
	if err != nil {
		return settle.Result{Outcome: settle.Rejected}, err
	}
	return settle.Again(ctx, i.cfg.Store, w, p, first.Sent)
}

// change applies f to node's record until it sticks, within one TTL. f returns nil
// if nothing has to change. doubted says that one of f's writes may have happened
// before the state that f is shown.
func (i *Identities) change(ctx context.Context, node string, f func(h Head, doubted bool) (*identity.Record, error)) error {
	ctx, cancel := settle.Limit(ctx, i.cfg.Clock, i.cfg.Timing.TTL)
	defer cancel()
	for doubted := false; ; {
		h, err := i.readOn(ctx, node)
		if err != nil && doubted {
			return store.Wrap(store.ErrUnknown, i.identityOfStore(), "change", node, err)
		}
		if err != nil {
			return err
		}
		if h.Record == nil {
			return store.Errorf(store.ErrNotFound, i.identityOfStore(), "change", node, "the node never joined here")
		}
		next, err := f(h, doubted)
		if err != nil || next == nil {
			return err
		}
		res, err := i.write(ctx, next, h.Version, i.pace())
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		doubted = doubted || res.Reads > 0
	}
}

// readOn reads node's record until the store answers, or ctx ends.
func (i *Identities) readOn(ctx context.Context, node string) (Head, error) {
	for failures := 1; ; failures++ {
		h, err := i.Read(ctx, node)
		if err == nil || !retryable(err) || !i.pause(ctx, i.retryAfter(err, failures, i.cfg.Timing)) {
			return h, err
		}
	}
}
