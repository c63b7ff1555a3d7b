package etcdstore

import (
	"context"
	"errors"
	"math"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// Watch returns nil once key may be at another version than v. It reads key and
// then watches from the revision after that read, so there is no gap between
// the two, and nothing rests on where v came from. Should that revision be
// compacted meanwhile, it reads again. A broken stream is ErrUnavailable.
func (s *Store) Watch(ctx context.Context, key string, v store.Version) error {
	const op = "watch"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	for {
		now, at, err := s.seen(ctx, op, key)
		if err != nil || now != v {
			return err
		}
		changed, err := s.await(ctx, op, key, at+1)
		if changed || err != nil {
			return err
		}
	}
}

// seen is the present version of key, zero if it is absent, and the revision at
// which it was read. A record that cannot be read is of no version.
func (s *Store) seen(ctx context.Context, op, key string) (store.Version, int64, error) {
	o, at, err := s.get(ctx, op, key, math.MaxInt32)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", at, nil
	case errors.Is(err, store.ErrCorrupt) && at > 0:
		return "?", at, nil
	}
	return o.Version, at, err
}

// await waits for an event at or after revision from. false means that the
// cluster no longer knows: read and start again.
func (s *Store) await(ctx context.Context, op, key string, from int64) (bool, error) {
	w := s.hub.watch(s.records+key, "", from, make(chan struct{}, 1))
	defer w.stop()
	for {
		found, err := w.next(ctx)
		switch {
		case s.stop.Err() != nil:
			return false, s.errClosed(op, key)
		case errors.Is(err, errCompacted):
			return false, nil
		case ctx.Err() != nil:
			return false, store.CtxErr(ctx, s.identity, op, key)
		case err != nil:
			return false, s.broken(op, key, err)
		case len(found) > 0:
			return true, nil
		}
	}
}

// bareReason takes the text of an error out of the form that gRPC prints.
func bareReason(reason string) string {
	if _, text, ok := strings.Cut(reason, " desc = "); ok {
		return text
	}
	return reason
}
