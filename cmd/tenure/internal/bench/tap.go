package bench

import (
	"context"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Call is one call to a store that has returned.
type Call struct {
	// Op is the operation: create, get, replace, delete, delete-if, list, watch,
	// clock, enqueue, waiting, witness, gone.
	Op string
	// Key is the key as the caller named it; a prefix for list.
	Key string
	// Took is how long it took; for a list, until its last key.
	Took time.Duration
	// Err is what it returned.
	Err error
}

// Tap is a store on which every call is seen, and whose keys may all lie under
// the prefix of another store: what works on it cannot touch anything else
// there. It has the powers of the store under it. It is safe for concurrent use.
type Tap struct {
	inner  store.Store
	prefix string
	gap    time.Duration // at least, between two writes of one key
	seen   func(ctx context.Context, c Call)

	mu    sync.Mutex
	wrote map[string]time.Time // by key of the inner store: when it was last written; gone once deleted
}

// NewTap puts a tap on inner. prefix is the beginning of every key in inner, ""
// for the same keys; with a prefix, no element of a key may hold "=2f", the
// escape of "/". seen gets every call when it has returned, from the
// goroutine that made it. Closing the tap does not close inner.
func NewTap(inner store.Store, prefix string, seen func(ctx context.Context, c Call)) *Tap {
	return &Tap{inner: inner, prefix: prefix, seen: seen, wrote: map[string]time.Time{}}
}

// escaped stands for "/" within one element of a key: EncodeName writes it so.
const escaped = "=2f"

// outer is the key in the inner store. All keys under a prefix are siblings
// there, so that a store of files makes no folders for them.
func (t *Tap) outer(key string) string {
	if t.prefix == "" {
		return key
	}
	return t.prefix + strings.ReplaceAll(key, "/", escaped)
}

func (t *Tap) inward(outer string) string {
	if t.prefix == "" {
		return outer
	}
	return strings.ReplaceAll(strings.TrimPrefix(outer, t.prefix), escaped, "/")
}

// Written are the keys of the inner store that may be there because of a write
// through this tap, and when each was last written.
func (t *Tap) Written() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]time.Time, len(t.wrote))
	for k, at := range t.wrote {
		out[k] = at
	}
	return out
}

// call runs one call and tells of it.
func (t *Tap) call(ctx context.Context, op, key string, do func() error) error {
	began := time.Now()
	err := do()
	t.seen(ctx, Call{Op: op, Key: key, Took: time.Since(began), Err: err})
	return err
}

// write is call for a write. Its key is noted before it may take effect, and
// rests first if it was written a moment ago.
func (t *Tap) write(ctx context.Context, op, key string, do func() error) error {
	outer := t.outer(key)
	rest(ctx, t.claim(outer))
	err := t.call(ctx, op, key, do)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrote[outer] = time.Now()
	return err
}

// claim notes a write that is about to come and returns how long its key must
// rest before.
func (t *Tap) claim(outer string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := time.Duration(0)
	if before, ok := t.wrote[outer]; ok {
		wait = max(0, t.gap-time.Since(before))
	}
	t.wrote[outer] = time.Now().Add(wait)
	return wait
}

func (t *Tap) forget(outer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wrote, outer)
}

// Get is store.Store's.
func (t *Tap) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = t.call(ctx, "get", key, func() (err error) {
		o, err = t.inner.Get(ctx, t.outer(key), limit)
		return err
	})
	return o, err
}

// Create is store.Store's.
func (t *Tap) Create(ctx context.Context, key string, body []byte) (v store.Version, err error) {
	err = t.write(ctx, "create", key, func() (err error) {
		v, err = t.inner.Create(ctx, t.outer(key), body)
		return err
	})
	return v, err
}

// Replace is store.Store's.
func (t *Tap) Replace(ctx context.Context, key string, body []byte, old store.Version) (v store.Version, err error) {
	err = t.write(ctx, "replace", key, func() (err error) {
		v, err = t.inner.Replace(ctx, t.outer(key), body, old)
		return err
	})
	return v, err
}

// Delete is store.Store's.
func (t *Tap) Delete(ctx context.Context, key string) error {
	err := t.write(ctx, "delete", key, func() error { return t.inner.Delete(ctx, t.outer(key)) })
	if err == nil {
		t.forget(t.outer(key))
	}
	return err
}

// List is store.Store's.
func (t *Tap) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		from := after
		if after != "" {
			from = t.outer(after)
		}
		began := time.Now()
		var failed error
		for k, err := range t.inner.List(ctx, t.outer(prefix), from) {
			failed = err
			if !yield(t.inward(k), err) || err != nil {
				break
			}
		}
		t.seen(ctx, Call{Op: "list", Key: prefix, Took: time.Since(began), Err: failed})
	}
}

// Info is that of the inner store.
func (t *Tap) Info() store.Info { return t.inner.Info() }

// Close does nothing: the inner store is its opener's.
func (t *Tap) Close() error { return nil }

// DeleteIf is store.ConditionalDeleter's.
func (t *Tap) DeleteIf(ctx context.Context, key string, v store.Version) error {
	d, ok := store.AsConditionalDeleter(t.inner)
	if !ok {
		return t.lacks("delete-if", key)
	}
	err := t.write(ctx, "delete-if", key, func() error { return d.DeleteIf(ctx, t.outer(key), v) })
	if err == nil {
		t.forget(t.outer(key))
	}
	return err
}

// Watch is store.Watcher's.
func (t *Tap) Watch(ctx context.Context, key string, v store.Version) error {
	w, ok := store.AsWatcher(t.inner)
	if !ok {
		return t.lacks("watch", key)
	}
	return t.call(ctx, "watch", key, func() error { return w.Watch(ctx, t.outer(key), v) })
}

// Now is store.Clocker's.
func (t *Tap) Now(ctx context.Context) (r store.Reading, err error) {
	c, ok := store.AsClocker(t.inner)
	if !ok {
		return r, t.lacks("clock", "")
	}
	err = t.call(ctx, "clock", "", func() (err error) {
		r, err = c.Now(ctx)
		return err
	})
	return r, err
}

// Enqueue is store.Queuer's.
func (t *Tap) Enqueue(ctx context.Context, key string) (ticket store.Ticket, err error) {
	q, ok := store.AsQueuer(t.inner)
	if !ok {
		return nil, t.lacks("enqueue", key)
	}
	err = t.call(ctx, "enqueue", key, func() (err error) {
		ticket, err = q.Enqueue(ctx, t.outer(key))
		return err
	})
	return ticket, err
}

// Waiting is store.Queuer's.
func (t *Tap) Waiting(ctx context.Context, key string) (yes bool, err error) {
	q, ok := store.AsQueuer(t.inner)
	if !ok {
		return false, t.lacks("waiting", key)
	}
	err = t.call(ctx, "waiting", key, func() (err error) {
		yes, err = q.Waiting(ctx, t.outer(key))
		return err
	})
	return yes, err
}

// NewWitness is store.Prover's.
func (t *Tap) NewWitness(ctx context.Context) (w store.Witness, err error) {
	p, ok := store.AsProver(t.inner)
	if !ok {
		return nil, t.lacks("witness", "")
	}
	err = t.call(ctx, "witness", "", func() (err error) {
		w, err = p.NewWitness(ctx)
		return err
	})
	return w, err
}

// Gone is store.Prover's.
func (t *Tap) Gone(ctx context.Context, m store.Mark) (yes bool, err error) {
	p, ok := store.AsProver(t.inner)
	if !ok {
		return false, t.lacks("gone", "")
	}
	err = t.call(ctx, "gone", "", func() (err error) {
		yes, err = p.Gone(ctx, m)
		return err
	})
	return yes, err
}

// WatchGone is store.Prover's.
func (t *Tap) WatchGone(ctx context.Context, m store.Mark) error {
	p, ok := store.AsProver(t.inner)
	if !ok {
		return t.lacks("watch-gone", "")
	}
	return t.call(ctx, "watch-gone", "", func() error { return p.WatchGone(ctx, m) })
}

// lacks is for a power that the inner store's Info does not declare.
func (t *Tap) lacks(op, key string) error {
	return store.Errorf(store.ErrInvalid, t.inner.Info().Identity, op, key, "the store cannot do this")
}
