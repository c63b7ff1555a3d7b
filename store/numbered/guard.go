package numbered

import (
	"context"
	"errors"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// A namespace is used either plainly or through this adapter: the two would not
// see each other's leases. Both begin by creating one and the same object, the
// place of a plain namespace's settings, and the store lets one of them win. A
// plain client finds [Guard] there, which is no settings, and stops.

// Guard is what a numbered register keeps in the place of a plain namespace's
// settings (see GuardKey).
const Guard = "tenure-numbered-guard/1 this namespace is kept with register=numbered: add that parameter to the store URL\n"

// GuardKey is the key, in the store below, of the guard for all keys whose first
// element is that of key: where a plain client keeps a namespace's settings.
func GuardKey(key string) string {
	first, _, _ := strings.Cut(key, "/")
	return first + "/meta/namespace"
}

// Guarded reports whether body, found at a namespace's settings in a plain
// store, says that the namespace is kept through this adapter.
func Guarded(body []byte) bool { return string(body) == Guard }

// guard makes sure that nobody uses key's namespace plainly, now or later.
func (s *Store) guard(ctx context.Context, op, key string) error {
	if strings.HasPrefix(key, root) {
		return nil // a register over a register: no plain namespace is called so
	}
	at := GuardKey(key)
	s.mu.Lock()
	_, known := s.guarded[at]
	s.mu.Unlock()
	if known {
		return nil
	}
	for range tries {
		o, err := s.inner.Get(ctx, at, maxSettings)
		switch {
		case errors.Is(err, store.ErrNotFound):
			_, err = s.inner.Create(ctx, at, []byte(Guard))
			if err != nil && !errors.Is(err, store.ErrExists) {
				return s.nothing(ctx, op, key, err)
			}
			continue // read what is there now
		case err != nil:
			return s.nothing(ctx, op, key, err)
		case !Guarded(o.Body):
			return s.inPlainUse(op, key, at)
		}
		s.mu.Lock()
		s.guarded[at] = struct{}{}
		s.mu.Unlock()
		return nil
	}
	return s.fail(store.ErrUnavailable, op, key, "%s is there and is not there", at)
}

// refusePlain refuses to call a namespace's settings absent where they are kept
// plainly: a command that only looks would say that nobody holds anything.
func (s *Store) refusePlain(ctx context.Context, op, key string) error {
	if key != GuardKey(key) || strings.HasPrefix(key, root) {
		return nil
	}
	o, err := s.inner.Get(ctx, key, maxSettings)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return s.pass(op, key, err)
	case Guarded(o.Body):
		return nil
	}
	return s.inPlainUse(op, key, key)
}

func (s *Store) inPlainUse(op, key, at string) error {
	return s.fail(store.ErrInvalid, op, key,
		"this namespace is in use without register=numbered (%s holds its settings): leave the parameter away, or choose another namespace", at)
}

// maxSettings is more than a guard or a namespace's settings take.
const maxSettings = 64 << 10
