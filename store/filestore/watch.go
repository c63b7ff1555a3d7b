//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// Watch returns nil once key may be at another version than v. All watches of
// one key in a process share one watch of the kernel, or one poll where the
// kernel has none to give.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.checkKey(op, key); err != nil {
		return err
	}
	for {
		w, err := obtain(ctx, s, op, key, func(*call) (watching, error) { return s.look(key, v) },
			func(w watching) { w.sub.cancel() })
		if err != nil {
			return err
		}
		if !w.changed {
			err = s.await(ctx, op, key, w.sub)
		}
		w.sub.cancel()
		if err != nil || w.changed {
			return err
		}
	}
}

// watching is a watch in place, and whether the key had changed already.
type watching struct {
	sub     *subscription
	changed bool
}

// look sets a watch on key and then compares its version with v, so that a
// change that the comparison does not see wakes the watch.
func (s *Store) look(key string, v store.Version) (watching, error) {
	if err := s.checkRoot(); err != nil {
		return watching{}, err
	}
	sub, err := s.subscribeKey(key, v == "")
	if err != nil {
		sub = s.pollers.subscribe(key, v)
	}
	at, err := s.version(key)
	if err != nil {
		sub.cancel()
		return watching{}, err
	}
	return watching{sub: sub, changed: at != v}, nil
}

// await waits for a subscription. Its error is of kind ErrUnavailable.
func (s *Store) await(ctx context.Context, op, key string, sub *subscription) error {
	select {
	case <-sub.wake:
		return nil
	case <-ctx.Done():
		return store.CtxErr(ctx, s.identity, op, key)
	case <-s.ending:
		return store.Wrap(store.ErrUnavailable, s.identity, op, key, errClosed)
	}
}

// subscription tells of changes. A token in wake stands for any number of them.
type subscription struct {
	wake   chan struct{}
	events uint32 // the kinds of change that matter; 0 is all
	cancel func()
}

func (sub *subscription) notify() {
	select {
	case sub.wake <- struct{}{}:
	default:
	}
}

// errNoNotice says that the kernel watches nothing for us: poll.
var errNoNotice = errors.New("the kernel gives no notice of changes")

// subscribeKey tells of changes of key by the kernel. A life that stands is
// watched itself; for one that does not, the directory where it will appear,
// or the deepest directory above it that exists.
func (s *Store) subscribeKey(key string, absent bool) (*subscription, error) {
	if s.network {
		return nil, errNoNotice
	}
	path := lifePath(key)
	if !absent {
		sub, err := s.notifier.subscribe(s.root+"/"+path, noticeDir, "", madeEvents)
		if !errors.Is(err, unix.ENOENT) {
			return sub, err
		}
	}
	for {
		dir, name := "", path
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			dir, name = path[:i], path[i+1:]
		}
		sub, err := s.notifier.subscribe(s.root+"/"+dir, noticeDir, name, madeEvents)
		switch {
		case errors.Is(err, unix.ENOENT) && dir != "":
			path = dir
			continue
		case err != nil:
			return nil, err
		}
		if path != lifePath(key) {
			if _, err := lstatAt(s.rootFD, path); err == nil {
				sub.cancel() // it was made just before the watch was in place
				path = lifePath(key)
				continue
			}
		}
		return sub, nil
	}
}

const (
	pollFirst = 20 * time.Millisecond
	pollMost  = 200 * time.Millisecond
)

// pollDelay is how long to wait before look number i, with jitter.
func pollDelay(i int) time.Duration {
	d := min(pollFirst<<min(i, 10), pollMost)
	return d*3/4 + rand.N(d/2)
}

// pollers look at keys again and again where the kernel gives no notice: one
// goroutine per key, however many wait for it.
type pollers struct {
	s *Store

	mu    sync.Mutex
	byKey map[string]*poller
}

// poller is one such goroutine and who waits for it, by version seen.
type poller struct {
	subs map[*subscription]store.Version
	stop chan struct{}
}

func newPollers(s *Store) *pollers {
	return &pollers{s: s, byKey: map[string]*poller{}}
}

// subscribe tells once key is at another version than v, or cannot be read.
func (p *pollers) subscribe(key string, v store.Version) *subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	po := p.byKey[key]
	if po == nil {
		po = &poller{subs: map[*subscription]store.Version{}, stop: make(chan struct{})}
		p.byKey[key] = po
		go p.run(key, po)
	}
	sub := &subscription{wake: make(chan struct{}, 1)}
	sub.cancel = sync.OnceFunc(func() { p.cancel(key, po, sub) })
	po.subs[sub] = v
	return sub
}

func (p *pollers) cancel(key string, po *poller, sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(po.subs, sub); len(po.subs) == 0 {
		delete(p.byKey, key)
		close(po.stop)
	}
}

func (p *pollers) run(key string, po *poller) {
	for i := 0; ; i++ {
		timer := time.NewTimer(pollDelay(i))
		select {
		case <-po.stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		at, err := perform(context.Background(), p.s, "watch", key, func(*call) (store.Version, error) {
			return p.s.version(key)
		})
		p.mu.Lock()
		for sub, v := range po.subs {
			if err != nil || at != v {
				sub.notify()
			}
		}
		p.mu.Unlock()
	}
}
