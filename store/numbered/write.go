package numbered

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// errLost says that a write certainly was not the one to go on from its state.
var errLost = errors.New("another write was first")

// Create stores body only if key is absent (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	const op = "create"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	if err := s.guard(ctx, op, key); err != nil {
		return "", err
	}
	k := s.recall(key)
	known := !k.present && s.fresh(k)
	for range tries {
		if !known {
			var err error
			if k, _, err = s.find(ctx, key, s.info.MaxBody); err != nil {
				return "", s.nothing(ctx, op, key, err)
			}
		}
		if k.present {
			return "", s.fail(store.ErrExists, op, key, "it is at version %s", k.version())
		}
		won, err := s.put(ctx, op, key, record, k, body)
		if err == nil {
			s.clean(ctx, key, won)
			return won.version(), nil
		}
		if !errors.Is(err, errLost) {
			return "", err
		}
		known = false
	}
	return "", s.fail(store.ErrUnavailable, op, key, "others created and deleted it %d times meanwhile", tries)
}

// Replace stores body only if key is at exactly version v (ST2). It is two
// requests if this handle saw or wrote v within the last minute.
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	const op = "replace"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	k := s.recall(key)
	if !k.present || k.version() != v || !s.fresh(k) {
		var err error
		if k, _, err = s.find(ctx, key, s.info.MaxBody); err != nil {
			return "", s.nothing(ctx, op, key, err)
		}
		if err := s.refuse(op, key, k, v); err != nil {
			return "", err
		}
	}
	won, err := s.put(ctx, op, key, record, k, body)
	if errors.Is(err, errLost) {
		k, _, err := s.find(ctx, key, s.info.MaxBody)
		if err != nil {
			return "", s.nothing(ctx, op, key, err)
		}
		if err := s.refuse(op, key, k, v); err != nil {
			return "", err
		}
		return "", s.fail(store.ErrConflict, op, key, "another write was first")
	}
	if err != nil {
		return "", err
	}
	s.clean(ctx, key, won)
	return won.version(), nil
}

// refuse is why a key cannot be replaced from v; nil if it can.
func (s *Store) refuse(op, key string, k seen, v store.Version) error {
	switch {
	case !k.present:
		return s.fail(store.ErrNotFound, op, key, "")
	case k.version() != v:
		return s.fail(store.ErrConflict, op, key, "it is at version %s, not %q", k.version(), v)
	}
	return nil
}

// Delete removes key; an absent key is a success (ST5). It leaves one mark.
func (s *Store) Delete(ctx context.Context, key string) error {
	const op = "delete"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	for range tries {
		k, _, err := s.find(ctx, key, s.info.MaxBody)
		if err != nil {
			return s.nothing(ctx, op, key, err)
		}
		if k.present {
			k, err = s.put(ctx, op, key, tombstone, k, nil)
			if errors.Is(err, errLost) {
				continue
			}
			if err != nil {
				return err
			}
		}
		if k.buried { // listings go by the mark, so it is a part of the deletion
			if err := s.bound(ctx, key, k); err != nil {
				return s.blur(ctx, store.ErrUnknown, op, key, "it is deleted, but listings may show it still", err)
			}
			s.learn(key, seen{number: k.number, at: k.at})
			s.spare(ctx, func(ctx context.Context) { s.sweep(ctx, key) })
		}
		return nil
	}
	return s.fail(store.ErrUnavailable, op, key, "others wrote it %d times meanwhile", tries)
}

// put makes the state that follows over, and returns it if it won (N5); errLost
// if it certainly did not.
func (s *Store) put(ctx context.Context, op, key string, what kind, over seen, body []byte) (seen, error) {
	if over.number >= maxNumber {
		return seen{}, s.fail(store.ErrInvalid, op, key, "its numbers are used up")
	}
	h := header{kind: what, number: over.number + 1, key: key}
	h.nonces = append([]string{newNonce()}, over.nonces...)
	h.nonces = h.nonces[:min(len(h.nonces), s.t.remember)]
	at := time.Now()
	_, err := s.inner.Create(ctx, stateKey(key, h.number), h.encode(body))
	if errors.Is(err, store.ErrExists) {
		return seen{}, errLost
	}
	if err != nil {
		return seen{}, s.pass(op, key, err)
	}
	v, err := s.look(ctx, key, h.number)
	switch {
	case err != nil:
		return seen{}, s.blur(ctx, store.ErrUnknown, op, key, "written, but not checked", err)
	case len(v.marks) > 0:
		err = s.fate(ctx, op, h, v)
	case !slices.Contains(v.states, h.number):
		err = s.fail(store.ErrUnknown, op, key, "the store's listing does not show what was just written: it is not fit for a numbered register")
	}
	if err != nil {
		return seen{}, err
	}
	won := seen{number: h.number, present: what == record, buried: what == tombstone, nonces: h.nonces, at: at}
	s.learn(key, won)
	return won, nil
}

// fate tells a writer that met a mark of at least its number what became of its
// write: nil if it won and was overtaken, errLost if its object was made in vain.
func (s *Store) fate(ctx context.Context, op string, mine header, v view) error {
	verdict := s.testimony(ctx, mine, v)
	if verdict == nil {
		return nil
	}
	_ = s.inner.Delete(ctx, stateKey(mine.key, mine.number)) // void either way (N3)
	if errors.Is(verdict, errLost) {
		return errLost
	}
	return s.blur(ctx, store.ErrUnknown, op, mine.key, "the register went on while this write was under way, and what remains does not tell whether it took part", verdict)
}

// testimony asks marks and the present state who made number mine.
func (s *Store) testimony(ctx context.Context, mine header, v view) error {
	witnesses := []string{}
	numbers := []uint64{}
	for _, b := range v.marks {
		witnesses, numbers = append(witnesses, markKey(mine.key, b)), append(numbers, b)
	}
	if n := last(v.states); n > last(v.marks) {
		witnesses, numbers = append(witnesses, stateKey(mine.key, n)), append(numbers, n)
	}
	for i, n := range numbers {
		if n-mine.number >= uint64(s.t.remember) {
			break
		}
		o, err := s.inner.Get(ctx, witnesses[i], s.info.MaxBody+maxHeader)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		h, _, err := decode(mine.key, n, o.Body)
		if err != nil {
			return err
		}
		if nonce, known := h.nonce(mine.number); known {
			if nonce == mine.nonces[0] {
				return nil
			}
			return errLost
		}
	}
	return errors.New("more was written than is remembered")
}
