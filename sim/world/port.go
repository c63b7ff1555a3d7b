package world

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// port is what a process's client knows as its store: the link, behind the
// process's gate. A stopped process makes no call and learns no answer. Calls
// that end at one instant (because their link came up again, or one key changed
// for all of them) go on one after the other, in an order that the seed decides.
type port struct {
	*faultstore.Store
	p *Proc
}

// stampKey is the key of a call's stamp in its context.
type stampKey struct{}

// stampOf is what tells a call from the others of its process that do the same.
func stampOf(ctx context.Context) uint64 {
	stamp, _ := ctx.Value(stampKey{}).(uint64)
	return stamp
}

// call leads a call through the gate. It takes some nanoseconds more there and
// back, so that calls which begin or end at one instant reach the link, and go
// on, at instants of their own.
func (x port) call(ctx context.Context, op faultstore.Op, key string, f func(ctx context.Context) error) error {
	if err := store.CtxErr(ctx, "sim:world", string(op), key); err != nil {
		return err
	}
	began := time.Now()
	stamp := mix(now()^site(3), hash(string(op), key))
	n := x.p.toll(op, key)
	x.p.hooked(n, false)
	time.Sleep(1 + time.Duration(mix(stamp, x.p.seed)%4096))
	x.p.gate.pass(stamp)
	err := f(context.WithValue(ctx, stampKey{}, stamp))
	time.Sleep(1 + time.Duration(mix(stamp, x.p.seed+1)%4096))
	x.p.hooked(n, true)
	x.p.gate.pass(stamp)
	if op.Writes() {
		x.p.w.mutation.answered(x.p, key, time.Since(began))
	}
	if err != nil && (ctx.Err() == nil || errors.Is(context.Cause(ctx), context.DeadlineExceeded)) {
		x.p.w.trace.add(x.p.name, "%s %s: %s", op, short(key), kind(err))
	}
	return err
}

// Get reads.
func (x port) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = x.call(ctx, faultstore.OpGet, key, func(ctx context.Context) error {
		o, err = x.Store.Get(ctx, key, limit)
		return err
	})
	if err == nil {
		was := o.Body
		if o.Body = x.p.w.mutation.read(x.p, key, was); x.p.w.mutation.jobs && !bytes.Equal(o.Body, was) {
			o.Version += "?" // nobody can write over what it never was
		}
	}
	return o, err
}

// Create stores body if key is absent.
func (x port) Create(ctx context.Context, key string, body []byte) (v store.Version, err error) {
	err = x.call(ctx, faultstore.OpCreate, key, func(ctx context.Context) error {
		v, err = x.Store.Create(ctx, key, body)
		return err
	})
	return v, err
}

// Replace stores body if key is at over.
func (x port) Replace(ctx context.Context, key string, body []byte, over store.Version) (v store.Version, err error) {
	err = x.call(ctx, faultstore.OpReplace, key, func(ctx context.Context) error {
		v, err = x.Store.Replace(ctx, key, body, over)
		return err
	})
	return v, err
}

// Commit makes several changes at once.
func (x port) Commit(ctx context.Context, changes []store.Change) (made []store.Version, err error) {
	err = x.call(ctx, faultstore.OpCommit, changes[0].Key, func(ctx context.Context) error {
		made, err = x.Store.Commit(ctx, changes)
		return err
	})
	return made, err
}

// Scan reads several keys at one instant.
func (x port) Scan(ctx context.Context, r store.ScanRange) (found []store.Keyed, err error) {
	err = x.call(ctx, faultstore.OpScan, r.From, func(ctx context.Context) error {
		found, err = x.Store.Scan(ctx, r)
		return err
	})
	for i := range found {
		found[i].Body = x.p.w.mutation.read(x.p, found[i].Key, found[i].Body)
	}
	return found, err
}

// Delete removes key.
func (x port) Delete(ctx context.Context, key string) error {
	return x.call(ctx, faultstore.OpDelete, key, func(ctx context.Context) error { return x.Store.Delete(ctx, key) })
}

// DeleteIf removes key if it is at v.
func (x port) DeleteIf(ctx context.Context, key string, v store.Version) error {
	return x.call(ctx, faultstore.OpDeleteIf, key, func(ctx context.Context) error { return x.Store.DeleteIf(ctx, key, v) })
}

// List lists. The whole answer comes through the gate at once.
func (x port) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var keys []string
		err := x.call(ctx, faultstore.OpList, prefix, func(ctx context.Context) error {
			for k, err := range x.Store.List(ctx, prefix, after) {
				if err != nil {
					return err
				}
				keys = append(keys, k)
			}
			return nil
		})
		for _, k := range keys {
			if !yield(k, nil) {
				return
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// Watch waits for a change.
func (x port) Watch(ctx context.Context, key string, v store.Version) error {
	return x.call(ctx, faultstore.OpWatch, key, func(ctx context.Context) error { return x.Store.Watch(ctx, key, v) })
}

// Now reads the store's clock.
func (x port) Now(ctx context.Context) (r store.Reading, err error) {
	err = x.call(ctx, faultstore.OpNow, "", func(ctx context.Context) error {
		r, err = x.Store.Now(ctx)
		return err
	})
	return r, err
}

// Enqueue joins the line.
func (x port) Enqueue(ctx context.Context, key string) (t store.Ticket, err error) {
	err = x.call(ctx, faultstore.OpEnqueue, key, func(ctx context.Context) error {
		t, err = x.Store.Enqueue(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return portTicket{t, x, key}, nil
}

type portTicket struct {
	store.Ticket
	x   port
	key string
}

// Wait waits in line.
func (t portTicket) Wait(ctx context.Context, patience time.Duration) error {
	return t.x.call(ctx, faultstore.OpWait, t.key, func(ctx context.Context) error { return t.Ticket.Wait(ctx, patience) })
}

// Waiting asks whether anybody is in line.
func (x port) Waiting(ctx context.Context, key string) (yes bool, err error) {
	err = x.call(ctx, faultstore.OpWaiting, key, func(ctx context.Context) error {
		yes, err = x.Store.Waiting(ctx, key)
		return err
	})
	return yes, err
}

// NewWitness takes the process's lock.
func (x port) NewWitness(ctx context.Context) (w store.Witness, err error) {
	err = x.call(ctx, faultstore.OpNewWitness, "", func(ctx context.Context) error {
		w, err = x.Store.NewWitness(ctx)
		return err
	})
	return w, err
}

// Gone asks whether a process is gone.
func (x port) Gone(ctx context.Context, mark store.Mark) (gone bool, err error) {
	err = x.call(ctx, faultstore.OpGone, "", func(ctx context.Context) error {
		gone, err = x.Store.Gone(ctx, mark)
		return err
	})
	return gone, err
}

// WatchGone waits for the end of a process.
func (x port) WatchGone(ctx context.Context, mark store.Mark) error {
	return x.call(ctx, faultstore.OpWatchGone, "", func(ctx context.Context) error { return x.Store.WatchGone(ctx, mark) })
}
