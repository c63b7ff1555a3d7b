package ledger

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// compact moves what is settled into blocks, until ctx ends.
func (f *files) compact(ctx context.Context) (Compacted, error) {
	done, _, err := f.move(ctx, f.readHead, func(h *core.Head) (*core.Compaction, error) { return core.Compact(h), nil })
	return done, err
}

// makeRoom compacts for a head that is full; full is the answer where that helps
// nothing.
func (f *files) makeRoom(ctx context.Context, full error) error {
	done, err := f.compact(ctx)
	if err == nil && done.Facts == 0 {
		return full
	}
	return err
}

// move carries out a compaction or an import, again and again with a new head until the
// head that it began with is replaced.
func (f *files) move(ctx context.Context, read func(context.Context) (look, error), begin func(h *core.Head) (*core.Compaction, error)) (Compacted, *core.Head, error) {
	var last store.Version
	for {
		var s look
		if err := f.patiently(ctx, func() (err error) { s, err = read(ctx); return err }); err != nil || s.head == nil {
			return Compacted{}, nil, err
		}
		c, err := begin(s.head)
		if err != nil {
			return Compacted{}, nil, err
		}
		done, next, err := f.moveOnce(ctx, s, c)
		switch {
		case err == nil:
			return done, next, nil
		case !settle.LostRace(err):
			return done, nil, err
		case errors.Is(err, errBlockGone) && s.ver == last:
			return done, nil, store.Wrap(store.ErrCorrupt, f.identity(), "compact", f.headKey, err)
		}
		last = s.ver
		f.pause(ctx)
		if err := store.CtxErr(ctx, f.identity(), "compact", f.headKey); err != nil {
			return done, nil, err
		}
	}
}

// errBlockGone: a block that the head names is not there.
var errBlockGone = errors.New("the store lost a block")

func (f *files) moveOnce(ctx context.Context, s look, c *core.Compaction) (Compacted, *core.Head, error) {
	var done Compacted
	for leaf, ok := c.Next(); ok; leaf, ok = c.Next() {
		wrote, err := f.moveBlock(ctx, c, leaf)
		if err != nil {
			return done, nil, err
		}
		if wrote {
			done.Blocks++
		}
	}
	next, err := c.Head(f.k.NewID())
	if err != nil || next == nil {
		return done, s.head, err
	}
	now, _, err := f.write(ctx, s, next, func(*core.Head) bool { return false })
	if err != nil {
		return done, nil, err
	}
	done.Facts, done.Splits = max(len(s.head.Facts)-len(next.Facts), 0), len(c.Split())
	for _, leaf := range c.Split() {
		if err := f.remove(ctx, f.blockKey(leaf)); err != nil { // Sweep finds it
			f.k.Log.Info("ledger: a block that was split is not removed yet", "job", f.agent, "block", leaf, "error", err)
		}
	}
	return done, now.head, nil
}

// moveBlock brings one block to what it is to have. It may also be found to be two, or
// to be written by somebody else meanwhile: then the compaction names it again.
func (f *files) moveBlock(ctx context.Context, c *core.Compaction, leaf string) (wrote bool, err error) {
	key := f.blockKey(leaf)
	var o store.Object
	err = f.patiently(ctx, func() (err error) { o, err = f.get(ctx, key, core.MaxBlock); return err })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	absent := err != nil
	body, err := c.Take(leaf, o.Body)
	if absent && errors.Is(err, store.ErrConflict) {
		return false, store.Wrap(store.ErrConflict, f.identity(), "compact", key, errBlockGone)
	}
	if err != nil || body == nil {
		return false, err
	}
	_, err = settle.Do(ctx, f.k.Store, settle.Write{
		Key: key, Body: body, Over: o.Version, Limit: core.MaxBlock, Mine: func(b []byte) bool { return bytes.Equal(b, body) },
	}, f.k.Pace(f.k.Timing))
	if err == nil {
		c.Wrote(leaf)
		return true, nil
	}
	if settle.LostRace(err) {
		return false, store.CtxErr(ctx, f.identity(), "compact", key)
	}
	return false, err
}

func (f *files) remove(ctx context.Context, key string) error {
	call, cancel := settle.Limit(ctx, f.k.Clock, f.k.Timing.Attempt)
	defer cancel()
	return f.k.Store.Delete(call, key)
}

// tidy compacts in the background if it is due. One compaction is under way at a time.
func (l *Ledger) tidy(due bool) {
	if !due {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compacting != nil {
		select {
		case <-l.compacting:
		default:
			return
		}
	}
	over := make(chan struct{})
	l.compacting = over
	l.k.Background(func(ctx context.Context) {
		defer close(over)
		ctx, cancel := settle.Limit(ctx, l.k.Clock, 4*l.k.Timing.TTL)
		defer cancel()
		_, err := l.compact(ctx)
		l.mu.Lock()
		l.trouble = err
		l.mu.Unlock()
		if err != nil {
			l.k.Log.Warn("ledger: the compaction is not done yet", "job", l.agent, "error", err)
		}
	})
}

// flush waits for the compaction in the background.
func (l *Ledger) flush(ctx context.Context) error {
	l.mu.Lock()
	over := l.compacting
	l.mu.Unlock()
	if over == nil {
		return nil
	}
	select {
	case <-over:
	case <-ctx.Done():
		return store.CtxErr(ctx, l.identity(), "compact", l.headKey)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// sweep removes what nothing refers to any more.
func (l *Ledger) sweep(ctx context.Context, keep time.Duration) (Swept, error) {
	var done Swept
	if keep < 0 {
		return done, invalid("sweep", "job %q: results cannot be kept for %v", l.agent, keep)
	}
	names, err := l.elements(ctx, "block/")
	if err != nil {
		return done, err
	}
	s, err := l.readHead(ctx) // after the listing: what it names was there before
	if err != nil || s.head == nil {
		return done, err
	}
	for _, name := range s.head.Garbage(names) {
		if err := l.remove(ctx, l.logKey+"block/"+name); err != nil {
			return done, err
		}
		done.Blocks++
	}
	if keep == 0 {
		return done, nil
	}
	done.Results, err = l.sweepResults(ctx, l.k.NowMS()-keep.Milliseconds())
	return done, err
}

// elements are the ends of the keys of a kind.
func (f *files) elements(ctx context.Context, kind string) ([]string, error) {
	var names []string
	for key, err := range settle.Keys(ctx, f.k.Store, f.k.Clock, f.k.Timing.Attempt, f.logKey+kind, "") {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(key, f.logKey+kind))
	}
	return names, nil
}

// sweepResults removes the results that ended before an instant. One that cannot be read
// is left, and its error returned in the end.
func (l *Ledger) sweepResults(ctx context.Context, before int64) (int, error) {
	names, err := l.elements(ctx, "result/")
	if err != nil {
		return 0, err
	}
	var errs []error
	n := 0
	for _, name := range names {
		key := l.logKey + "result/" + name
		o, err := l.get(ctx, key, core.MaxResult)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		var r *core.Result
		if err == nil {
			r, err = core.ReadResult(key, l.agent, o.Body)
		}
		if err == nil && r.Ended < before {
			if err = l.remove(ctx, key); err == nil {
				n++
			}
		}
		if err != nil {
			errs = append(errs, err)
			if ctx.Err() != nil {
				break
			}
		}
	}
	return n, errors.Join(errs...)
}

// all reads the head and then every block, again if one was split meanwhile.
func (f *files) all(ctx context.Context) (*core.Head, *core.Agent, error) {
	var before store.Version
	for {
		var s look
		if err := f.patiently(ctx, func() (err error) { s, err = f.readHead(ctx); return err }); err != nil || s.head == nil {
			return nil, core.NewAgent(f.agent, 0), err
		}
		a := core.NewAgent(f.agent, 0)
		s.head.Load(a)
		err := f.loadBlocks(ctx, s.head, a)
		if !errors.Is(err, store.ErrNotFound) {
			return s.head, a, err
		}
		if s.ver == before {
			return nil, nil, store.Wrap(store.ErrCorrupt, f.identity(), "load", f.headKey, err)
		}
		before = s.ver
	}
}

func (f *files) loadBlocks(ctx context.Context, h *core.Head, a *core.Agent) error {
	for _, leaf := range h.Blocks() {
		key := f.blockKey(leaf)
		var o store.Object
		if err := f.patiently(ctx, func() (err error) { o, err = f.get(ctx, key, core.MaxBlock); return err }); err != nil {
			return err
		}
		b, err := core.DecodeBlock(key, f.agent, leaf, o.Body)
		if err != nil {
			return err
		}
		b.Load(a)
	}
	return nil
}
