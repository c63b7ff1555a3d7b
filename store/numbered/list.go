package numbered

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// List yields the keys that start with prefix and are greater than after, in
// byte order (ST6). It lists the objects below, a few dozen per key at most, and
// reads none of them, but for keys of more than about 400 bytes.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		const op = "list"
		if err := store.CtxErr(ctx, s.info.Identity, op, ""); err != nil {
			yield("", err)
			return
		}
		if plain(prefix) != prefix {
			return // no key has such a prefix
		}
		long, err := s.longKeys(ctx, prefix, after)
		if err != nil {
			yield("", s.pass(op, "", err))
			return
		}
		for key, err := range s.shortKeys(ctx, prefix, after) {
			for len(long) > 0 && err == nil && long[0] < key {
				if !yield(long[0], nil) {
					return
				}
				long = long[1:]
			}
			if err != nil {
				yield("", s.pass(op, "", err))
				return
			}
			if !yield(key, nil) {
				return
			}
		}
		for _, key := range long {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// shortKeys lists the keys whose objects' names hold them in full. Those names
// sort as the keys do.
func (s *Store) shortKeys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for d, err := range s.dirs(ctx, root+"/"+split(escape(prefix)), startAfter(after)) {
			if err != nil {
				yield("", err)
				return
			}
			key, err := keyOf(d.name)
			if err != nil {
				yield("", err)
				return
			}
			if d.present() && key > after && strings.HasPrefix(key, prefix) && !yield(key, nil) {
				return
			}
		}
	}
}

// startAfter sorts before every object of a key greater than after; the nearer,
// the less is listed in vain.
func startAfter(after string) string {
	if p := plain(after); p != after || len(p) > maxFlat/2 {
		return root + "/" + split(escape(p[:min(len(p), maxFlat/2)]))
	}
	return root + "/" + split(escape(after)+end) + "/" + behindAll
}

// longKeys lists the keys whose objects' names hold a digest only. They are few,
// if any: nothing that Tenure writes has such a key.
func (s *Store) longKeys(ctx context.Context, prefix, after string) ([]string, error) {
	var keys []string
	for d, err := range s.dirs(ctx, longRoot+"/", "") {
		if err != nil {
			return nil, err
		}
		if !d.present() {
			continue
		}
		key, err := s.longKey(ctx, d)
		if err != nil {
			return nil, err
		}
		if key > after && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys, nil
}

// longKey asks a state which key it is of. The key is empty if the state is gone
// or a tombstone.
func (s *Store) longKey(ctx context.Context, d place) (string, error) {
	o, err := s.inner.Get(ctx, d.name+"/"+stateName(d.state), s.info.MaxBody+maxHeader)
	if store.KindOf(err) == store.ErrNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(o.Body[:min(len(o.Body), maxHeader)]), "\n")
	key := line[strings.LastIndexByte(line, ' ')+1:]
	h, _, err := decode(key, d.state, o.Body)
	switch {
	case err != nil:
		return "", err
	case dir(key) != d.name:
		return "", store.Errorf(store.ErrCorrupt, "", "decode", d.name, "it holds a state of %s", key)
	case h.kind != record:
		return "", nil
	}
	return key, nil
}

// place is the objects of one key in a listing: its highest state and mark.
type place struct {
	name        string
	state, mark uint64
}

func (p place) present() bool { return p.state > p.mark }

// dirs lists the places whose names begin with prefix.
func (s *Store) dirs(ctx context.Context, prefix, after string) iter.Seq2[place, error] {
	return func(yield func(place, error) bool) {
		var p place
		for object, err := range s.inner.List(ctx, prefix, after) {
			if err != nil {
				yield(place{}, err)
				return
			}
			d, n, mark, err := cut(object)
			if err != nil {
				yield(place{}, err)
				return
			}
			if d != p.name {
				if p.name != "" && !yield(p, nil) {
					return
				}
				p = place{name: d}
			}
			if mark {
				p.mark = n
			} else {
				p.state = n
			}
		}
		if p.name != "" {
			yield(p, nil)
		}
	}
}
