package pgstore

import (
	"context"
	"iter"
	"math"
	"strconv"

	"github.com/tenure-project/tenure/store"
)

// pageSize is how many keys one query of a listing fetches.
const pageSize = 512

// Get returns the present state of key (ST3, ST7). Modified is when the server
// wrote it, by the server's clock.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	r := request{op: "get", key: key}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return store.Object{}, err
	}
	bound := min(int64(limit), math.MaxInt32)
	rows, err := s.exec(ctx, r, s.sql.get, textArg(key), intArg(bound))
	if err != nil {
		return store.Object{}, err
	}
	got, err := s.first(r, rows, 5)
	if err != nil {
		return store.Object{}, err
	}
	if err := s.fromPrimary(r.op, key, got.bool(0)); err != nil {
		return store.Object{}, err
	}
	o := store.Object{Version: got.version(1), Modified: got.time(2), Body: got[4]}
	switch size := got.int(3); {
	case o.Version == "":
		return store.Object{}, store.Errorf(store.ErrNotFound, s.label, r.op, key, "")
	case o.Body == nil:
		return store.Object{}, store.Errorf(store.ErrCorrupt, s.label, r.op, key, "the body has %d bytes, the caller accepts %d", size, limit)
	}
	return o, nil
}

// List yields the keys with prefix after the key after, in byte order (ST6). No
// transaction is open while the caller looks at a page.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for {
			page, err := s.page(ctx, prefix, after)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page {
				if !yield(key, nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			after = page[len(page)-1]
		}
	}
}

func (s *Store) page(ctx context.Context, prefix, after string) ([]string, error) {
	r := request{op: "list"}
	// A key's bytes are all below 0x7f, so the keys with a prefix are those from
	// the prefix up to the prefix and that byte.
	rows, err := s.exec(ctx, r, s.sql.list, textArg(after), textArg(prefix), textArg(prefix+"\x7f"))
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(rows))
	for _, row := range rows {
		if err := s.fromPrimary(r.op, "", row.bool(0)); err != nil {
			return nil, err
		}
		if row[1] != nil {
			keys = append(keys, string(row[1]))
		}
	}
	return keys, nil
}

// present is the version that key is at, zero if it is absent.
func (s *Store) present(ctx context.Context, r request) (store.Version, error) {
	r.write = false
	rows, err := s.exec(ctx, r, s.sql.present, textArg(r.key))
	if err != nil {
		return "", err
	}
	got, err := s.first(r, rows, 2)
	if err != nil {
		return "", err
	}
	return got.version(1), s.fromPrimary(r.op, r.key, got.bool(0))
}

// Now reads the server's clock (ST12). The instance names the running server:
// the cluster and the start of its server process. A fail-over, a restart and a
// restored copy are other instances, for they may be on a machine with another
// clock.
func (s *Store) Now(ctx context.Context) (store.Reading, error) {
	r := request{op: "now"}
	rows, err := s.exec(ctx, r, s.sql.now)
	if err != nil {
		return store.Reading{}, err
	}
	got, err := s.first(r, rows, 4)
	if err != nil {
		return store.Reading{}, err
	}
	if err := s.fromPrimary(r.op, "", got.bool(0)); err != nil {
		return store.Reading{}, err
	}
	return store.Reading{
		Time:     got.time(1),
		Instance: strconv.FormatInt(got.int(3), 10) + "-" + strconv.FormatInt(got.time(2).UnixMicro(), 10),
	}, nil
}
