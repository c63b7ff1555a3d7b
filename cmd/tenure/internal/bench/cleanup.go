package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// sweepers is how many deletes of the clean-up are under way at once.
const sweepers = 8

// cleanUp removes every key that a write of this run may have left, and returns
// how many it could not remove and why. It runs on after the end of ctx.
func (r *run) cleanUp(ctx context.Context) (left int, why error) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), r.o.CleanUp, errors.New("the time limit of the clean-up ended"))
	defer cancel()
	type task struct {
		key string
		at  time.Time
	}
	tasks := make(chan task)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range sweepers {
		wg.Go(func() {
			for t := range tasks {
				rest(ctx, r.gap-time.Since(t.at))
				if err := r.remove(ctx, t.key); err != nil {
					mu.Lock()
					left++
					if why == nil || errors.Is(err, store.ErrDenied) {
						why = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for key, at := range r.tap.Written() {
		tasks <- task{key, at}
	}
	close(tasks)
	wg.Wait()
	return left, why
}

// remove deletes one key, and tries again while time may mend what went wrong.
func (r *run) remove(ctx context.Context, key string) error {
	if r.noDelete.Load() {
		return store.Errorf(store.ErrDenied, r.st.Info().Identity, "delete", key, "the rights to delete are missing")
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := r.st.Delete(ctx, key)
		switch store.KindOf(err) {
		case store.ErrUnavailable, store.ErrUnknown:
		case store.ErrDenied:
			r.noDelete.Store(true)
			return err
		default:
			return err
		}
		if rest(ctx, pause); ctx.Err() != nil {
			return err
		}
	}
}
