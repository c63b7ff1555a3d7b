package settle

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// Until is ctx, ended when the boot clock of c reaches at.
func Until(ctx context.Context, c clock.Clock, at time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := c.AfterBoot(at, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		t.Stop()
		cancel(context.Canceled)
	}
}

// Keys yields the keys under prefix after one. It ends with an error if the store
// does not come up with the next one within limit.
func Keys(ctx context.Context, s store.Store, c clock.Clock, limit time.Duration, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		hung := func() { cancel(context.DeadlineExceeded) }
		t := c.AfterFunc(limit, hung)
		defer func() { t.Stop() }()
		for key, err := range s.List(ctx, prefix, after) {
			if !t.Stop() && ctx.Err() != nil && err == nil {
				err = store.CtxErr(ctx, s.Info().Identity, "list", prefix)
			}
			if !yield(key, err) || err != nil {
				return
			}
			t = c.AfterFunc(limit, hung)
		}
	}
}

// Waiting says how to wait for a change.
type Waiting struct {
	Clock clock.Clock
	// Most is how long one watch may take: it can hang, too.
	Most time.Duration
	// Poll is the pause, jittered, where the store cannot watch.
	Poll time.Duration
	Rand func() float64
	Log  *slog.Logger
}

// Change returns when key may be at another version than v, after a jittered pause
// where the store cannot watch, or when ctx ends.
func Change(ctx context.Context, s store.Store, key string, v store.Version, w Waiting) {
	if watcher, can := store.AsWatcher(s); can {
		call, cancel := Limit(ctx, w.Clock, w.Most)
		defer cancel()
		err := watcher.Watch(call, key, v)
		if err == nil || call.Err() != nil {
			return
		}
		w.Log.Warn("store: the watch broke, polling instead", "key", key, "error", err)
	}
	clock.Sleep(w.Clock, w.Poll/2+time.Duration(w.Rand()*float64(w.Poll)), ctx.Done())
}

// LostRace reports whether err only says that somebody else was faster, also with
// removing what retention lets go.
func LostRace(err error) bool {
	k := store.KindOf(err)
	return k == store.ErrConflict || k == store.ErrExists || k == store.ErrNotFound
}
