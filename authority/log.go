package authority

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// The kinds of keys.
const (
	kindHead   = "authority"
	kindLog    = "authority-log"
	kindReport = "report"
)

// files is where one authority is kept: its head, and the objects beside it.
type files struct {
	c       *kit.Client
	name    string
	headKey string
	logKey  string // what every object's key starts with
}

func newFiles(c *kit.Client, name string) (*files, error) {
	if err := store.CheckName("authority name", name); err != nil {
		return nil, err
	}
	return &files{c: c, name: name, headKey: store.Key(c.Namespace, kindHead, name), logKey: store.Key(c.Namespace, kindLog, name) + "/"}, nil
}

func (f *files) identity() string { return f.c.Store.Info().Identity }

func (f *files) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return settle.Limit(ctx, f.c.Clock, f.c.Timing.Attempt)
}

// key is the key of an object of one kind.
func (f *files) key(kind, element string) string { return f.logKey + kind + "/" + element }

// state is one look at the head.
type state struct {
	head *core.Head // nil: the authority never was
	ver  store.Version
	at   time.Duration // boot clock after the response
}

// read looks at the head once, linearizably.
func (f *files) read(ctx context.Context) (state, error) {
	// What is seen by others while the read is under way says nothing of it.
	seen := f.c.Seen(kindHead, f.name)
	call, cancel := f.limit(ctx)
	defer cancel()
	o, err := f.c.Store.Get(call, f.headKey, core.MaxHead)
	s := state{ver: o.Version, at: f.c.Clock.Boot()}
	if errors.Is(err, store.ErrNotFound) {
		return s, seen(0)
	}
	if err != nil {
		return s, err
	}
	if s.head, err = core.Decode(f.headKey, f.name, o.Body); err != nil {
		return s, err
	}
	return s, seen(s.head.Counter)
}

// stands is read for an authority that must be there.
func (f *files) stands(ctx context.Context) (state, error) {
	s, err := f.read(ctx)
	if err == nil && s.head == nil {
		err = store.Errorf(store.ErrNotFound, f.identity(), "read", f.headKey, "nobody ever led authority %q", f.name)
	}
	return s, err
}

// prepare is the conditional write of next over a version.
func (f *files) prepare(next *core.Head, over store.Version) (settle.Write, error) {
	body, err := next.Encode()
	if err != nil {
		return settle.Write{}, err
	}
	id := next.WriterAttempt
	return settle.Write{
		Key: f.headKey, Body: body, Over: over, Limit: core.MaxHead,
		Mine: func(b []byte) bool {
			h, err := core.Decode(f.headKey, f.name, b)
			return err == nil && h.Carries(id)
		},
	}, nil
}

// get reads one object; nil if there is none.
func (f *files) get(ctx context.Context, key string, limit int) ([]byte, error) {
	call, cancel := f.limit(ctx)
	defer cancel()
	o, err := f.c.Store.Get(call, key, limit)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return o.Body, err
}

// fetch reads one object of the log, until the store answers, ctx ends, or three TTLs
// have passed: one that the store does not serve holds up nobody for ever. One that is
// larger than any of its kind is not its link's.
func (f *files) fetch(ctx context.Context, n core.Name, limit int) ([]byte, error) {
	return f.fetchKey(ctx, f.key(string(n.Kind), n.Element()), limit)
}

// fetchKey is fetch of any key.
func (f *files) fetchKey(ctx context.Context, key string, limit int) ([]byte, error) {
	p, until := f.c.Pace(f.c.Timing), f.c.Clock.Boot()+3*f.c.Timing.TTL
	for wait := p.Backoff; ; wait = min(2*wait, 16*p.Backoff) {
		body, err := f.get(ctx, key, limit)
		if errors.Is(err, store.ErrCorrupt) {
			return core.Spoilt(err), nil
		}
		if err == nil || !retryable(err) || f.c.Clock.Boot() >= until || !clock.Sleep(f.c.Clock, p.Jitter(wait), ctx.Done()) {
			return body, err
		}
	}
}

// put creates an immutable object and settles it, until ctx ends. The same bytes at
// the key are as good.
func (f *files) put(ctx context.Context, key string, body []byte, limit int) error {
	res, err := settle.Do(ctx, f.c.Store, settle.Write{
		Key: key, Body: body, Limit: limit, Mine: func(b []byte) bool { return bytes.Equal(b, body) },
	}, f.c.Pace(f.c.Timing))
	if !errors.Is(err, store.ErrExists) {
		return err
	}
	stands := []byte(nil)
	if res.Found != nil {
		stands = res.Found.Body
	} else if stands, err = f.get(ctx, key, limit); err != nil {
		return err
	}
	if !bytes.Equal(stands, body) {
		return store.Errorf(store.ErrConflict, f.identity(), "create", key, "other bytes stand there")
	}
	return nil
}

func (f *files) remove(ctx context.Context, key string) error {
	call, cancel := f.limit(ctx)
	defer cancel()
	return f.c.Store.Delete(call, key)
}

// elements yields what follows prefix in the keys that start with it, after one. It
// ends with an error if the store does not come up with the next one within an
// attempt limit.
func (f *files) elements(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if after != "" {
			after = prefix + after
		}
		for key, err := range settle.Keys(ctx, f.c.Store, f.c.Clock, f.c.Timing.Attempt, prefix, after) {
			if !yield(strings.TrimPrefix(key, prefix), err) {
				return
			}
		}
	}
}

// walk walks one chain of h, down to its end or until enough says so. before may be
// an earlier walk, whose entries are not read again. A break is a *core.Break.
func (f *files) walk(ctx context.Context, h *core.Head, chain string, before *core.Trail, enough func(t *core.Trail) bool) (*core.Trail, error) {
	return f.walkOn(ctx, core.Follow(h, chain, before), enough)
}

func (f *files) walkOn(ctx context.Context, t *core.Trail, enough func(t *core.Trail) bool) (*core.Trail, error) {
	src := newAhead(f)
	defer src.stop()
	if enough == nil {
		src.start(ctx, t.Left())
	}
	for {
		l, more := t.Next()
		if !more || enough != nil && enough(t) {
			break
		}
		body, err := src.fetch(ctx, l.Name(), core.MaxEntry)
		if err != nil {
			return nil, err
		}
		if err := t.Take(body); err != nil {
			return t, err
		}
	}
	if b := t.Broken(); b != nil {
		return t, b
	}
	return t, nil
}

// many calls f for each of n, some at the same time.
func many(n int, f func(i int)) {
	const width = 16
	gate := make(chan struct{}, width)
	var wg sync.WaitGroup
	for i := range n {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			f(i)
		})
	}
	wg.Wait()
}

// awaitChange returns when key may be at another version than v, after a jittered
// poll interval where the store cannot watch, or when ctx ends.
func (f *files) awaitChange(ctx context.Context, v store.Version) {
	settle.Change(ctx, f.c.Store, f.headKey, v, settle.Waiting{Clock: f.c.Clock, Most: 2 * f.c.Timing.TTL, Poll: f.c.Poll, Rand: f.c.Rand, Log: f.c.Log})
}

// pause waits about d, jittered, and reports whether ctx still lives.
func (f *files) pause(ctx context.Context, d time.Duration) bool {
	return clock.Sleep(f.c.Clock, d/2+time.Duration(f.c.Rand()*float64(d)), ctx.Done())
}

// untilBoot is ctx, ended when the boot clock reaches at.
func (f *files) untilBoot(ctx context.Context, at time.Duration) (context.Context, context.CancelFunc) {
	return settle.Until(ctx, f.c.Clock, at)
}

// retryable reports whether time may mend err.
func retryable(err error) bool {
	var e *store.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Kind {
	case store.ErrUnavailable, store.ErrUnknown:
		return true
	}
	return false
}
