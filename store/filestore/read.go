//go:build linux || darwin

package filestore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// Get returns the present state of key (ST3, ST7). Modified is the host's wall
// clock at the write, for people to read. What it returns is durable, even if
// its writer has not finished.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	if err := s.checkKey("get", key); err != nil {
		return store.Object{}, err
	}
	return perform(ctx, s, "get", key, func(c *call) (store.Object, error) {
		l, st, err := s.find(c)
		if err != nil {
			return store.Object{}, err
		}
		defer l.close()
		defer st.close()
		if st.length > int64(limit) {
			return store.Object{}, s.fail(c, store.ErrCorrupt, "the body has %d bytes, the caller accepts %d", st.length, limit)
		}
		body, err := s.body(st)
		if err != nil {
			return store.Object{}, err
		}
		if err := s.settle(l, st); err != nil {
			return store.Object{}, err
		}
		return store.Object{Body: body, Version: st.version(), Modified: modTime(st.stat)}, nil
	})
}

// find opens the present state of the call's key. An absent key is ErrNotFound,
// and durably so.
func (s *Store) find(c *call) (*life, *state, error) {
	if err := s.checkRoot(); err != nil {
		return nil, nil, err
	}
	l, err := s.openLife(c.key)
	if err != nil {
		return nil, nil, err
	}
	absent := s.fail(c, store.ErrNotFound, "")
	if l == nil {
		return nil, nil, absent
	}
	st, err := s.head(l)
	if err == nil && st != nil && st.kind == record {
		return l, st, nil
	}
	defer l.close()
	switch {
	case err != nil:
		return nil, nil, err
	case st == nil: // dead, but perhaps not yet on the disk
		err = s.sync(l.fd)
	default:
		defer st.close()
		err = s.settle(l, st)
	}
	if err != nil {
		return nil, nil, fault("sync", s.lifeDir(c.key), err)
	}
	return nil, nil, absent
}

// version is the present version of key; the zero Version if it is absent. It
// is for watches, which decide nothing, so it need not be durable.
func (s *Store) version(key string) (store.Version, error) {
	l, err := s.openLife(key)
	if err != nil || l == nil {
		return "", err
	}
	defer l.close()
	st, err := s.head(l)
	if err != nil || st == nil {
		return "", err
	}
	defer st.close()
	if st.kind == tombstone {
		return "", nil
	}
	return st.version(), nil
}
