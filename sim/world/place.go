package world

import (
	"context"
	"iter"
	"sync"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// place keeps the records. Effects happen one after the other, and the oracle
// sees each of them before the next.
type place struct {
	w   *World
	mem *memstore.Store

	mu sync.Mutex
}

// effect is what a conditional write does when it arrives.
type effect struct {
	from *Proc
	op   faultstore.Op
	key  string
	body []byte
	over store.Version
	do   func(ctx context.Context) (store.Version, error)

	changes []store.Change   // of a commit
	made    *[]store.Version // what it made of them
}

// apply carries e out and tells the oracle.
func (pl *place) apply(e effect) (store.Version, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.w.mutation.forgets(e) {
		return store.Version("forgotten"), nil
	}
	if twist := pl.w.mutation.twist; twist != nil && (e.op == faultstore.OpReplace || e.op == faultstore.OpCreate && pl.w.mutation.jobs) {
		e.twisted(pl.mem, twist(e))
	}
	e.mutated(pl)
	v, err := e.do(context.Background())
	if err != nil {
		pl.w.oracle.refused(e, err)
		return v, err
	}
	pl.w.oracle.applied(e)
	return v, nil
}

// twisted makes e write another body, if that is not nil (a mutation).
func (e *effect) twisted(mem *memstore.Store, body []byte) {
	if body == nil {
		return
	}
	key, over := e.key, e.over
	e.body = body
	e.do = func(ctx context.Context) (store.Version, error) {
		if over == "" {
			return mem.Create(ctx, key, body)
		}
		return mem.Replace(ctx, key, body, over)
	}
}

// restore puts an older state back as a new one, which no store may do by
// itself (a mutation).
func (pl *place) restore(key string, body []byte) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	ctx := context.Background()
	o, err := pl.mem.Get(ctx, key, memstore.MaxBody)
	if err != nil {
		return
	}
	if _, err := pl.mem.Replace(ctx, key, body, o.Version); err == nil {
		pl.w.oracle.applied(effect{op: faultstore.OpReplace, key: key, body: body})
	}
}

func (pl *place) get(ctx context.Context, mem *memstore.Store, key string, limit int) (store.Object, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return mem.Get(ctx, key, limit)
}

func (pl *place) scan(mem *memstore.Store, r store.ScanRange) ([]store.Keyed, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return mem.Scan(context.Background(), r)
}

func (pl *place) list(ctx context.Context, mem *memstore.Store, prefix, after string) (keys []string, err error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	for k, err := range mem.List(ctx, prefix, after) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func listOf(keys []string, err error) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
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
