package faultstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Commit commits through the faults. It is reachable only if the inner store
// declares store.CanCommit.
func (s *Store) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	c, ok := store.AsCommitter(s.inner)
	if !ok {
		return nil, s.lacks(OpCommit, "")
	}
	r := &request{op: OpCommit, changes: changes, effect: func(ctx context.Context, r *request) reply {
		made, err := c.Commit(ctx, r.changes)
		return s.committed(r, made, err)
	}}
	if len(changes) > 0 {
		r.key = changes[0].Key
	}
	out := s.do(ctx, r)
	made, _ := out.value.([]store.Version)
	return made, out.err
}

// committed notes a finished commit in the history.
func (s *Store) committed(r *request, made []store.Version, err error) reply {
	if err != nil {
		return reply{err: err}
	}
	s.history.committed(r.changes, made)
	return reply{value: made}
}

// Scan scans through the faults. It is reachable only if the inner store
// declares store.CanCommit.
func (s *Store) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	if _, ok := store.AsCommitter(s.inner); !ok {
		return nil, s.lacks(OpScan, "")
	}
	out := s.do(ctx, &request{op: OpScan, key: r.From, scan: r, effect: s.scan})
	found, _ := out.value.([]store.Keyed)
	return found, out.err
}

func (s *Store) scan(ctx context.Context, r *request) reply {
	c, _ := store.AsCommitter(s.inner)
	found, err := c.Scan(ctx, r.scan)
	if err != nil {
		return reply{err: err}
	}
	for _, k := range found {
		s.history.saw(k.Key, k.Object)
	}
	return reply{value: found}
}

// most is the length of body that a read or scan accepts.
func (r *request) most() int {
	if r.op == OpScan {
		return r.scan.Limit
	}
	return r.limit
}

// scanned is the answer of a scan that finds these objects: still bounded by its
// limit.
func (s *Store) scanned(r *request, found []store.Keyed) reply {
	for _, k := range found {
		if len(k.Body) > r.scan.Limit {
			return reply{err: store.Errorf(store.ErrCorrupt, s.info.Identity, string(r.op), k.Key,
				"the body has %d bytes, the caller accepts %d", len(k.Body), r.scan.Limit)}
		}
	}
	return reply{value: found}
}

// staleScan answers a scan with other states of the keys that are in old.
func (s *Store) staleScan(ctx context.Context, r *request, old map[string]state) reply {
	whole := *r
	whole.scan.Most = store.MaxScan
	out := s.scan(ctx, &whole)
	if out.err != nil {
		return out
	}
	found := slices.DeleteFunc(out.value.([]store.Keyed), func(k store.Keyed) bool { _, is := old[k.Key]; return is })
	for k, st := range old {
		if !st.absent {
			found = append(found, store.Keyed{Key: k, Object: copied(st.object)})
		}
	}
	slices.SortFunc(found, func(a, b store.Keyed) int {
		if r.scan.Backwards {
			a, b = b, a
		}
		return strings.Compare(a.Key, b.Key)
	})
	return s.scanned(r, found[:min(len(found), r.scan.Most)])
}

// frozenScan shows a range as it was when the link froze, and what was read for
// the first time since as it was then.
func (s *Store) frozenScan(ctx context.Context, r *request) reply {
	s.mu.Lock()
	found, known := s.frozen.scans[r.scan]
	old := map[string]state{}
	for k, st := range s.frozen.objects {
		if within(k, r.scan) {
			old[k] = st
		}
	}
	s.mu.Unlock()
	if !known {
		out := s.staleScan(ctx, r, old)
		if out.err != nil {
			return out
		}
		found = out.value.([]store.Keyed)
		s.mu.Lock()
		s.frozen.scans[r.scan] = found
		for _, k := range found {
			s.frozen.objects[k.Key] = state{object: k.Object}
		}
		s.mu.Unlock()
	}
	mine := slices.Clone(found)
	for i := range mine {
		mine[i].Object = copied(mine[i].Object)
	}
	return reply{value: mine}
}

// HalveCommit makes the first half of a commit's changes, rounded up, one key at
// a time, and answers store.ErrUnknown: a backend without transactions that broke
// down between two writes.
func HalveCommit() Fault {
	return Fault{name: "halve commit", applies: only(OpCommit), effect: func(s *Store, _ handler) handler {
		return func(ctx context.Context, r *request) reply {
			half := r.changes[:(len(r.changes)+1)/2]
			if out := s.oneByOne(ctx, half, 0); out.err != nil {
				return out // also if a condition of the other half does not hold
			}
			return s.lost(r, nil, "injected: half of the changes were made")
		}
	}}
}

// UnrollCommit makes the changes of a commit one after the other, with a gap
// between any two, as soon as all conditions hold: readers see a part of it.
func UnrollCommit(gap time.Duration) Fault {
	return Fault{name: "unroll commit", applies: only(OpCommit), effect: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			if holds, err := s.holds(ctx, r.changes); err != nil || !holds {
				return next(ctx, r) // refuses for the right reason
			}
			return s.oneByOne(ctx, r.changes, gap)
		}
	}}
}

// oneByOne makes changes each in a commit of its own.
func (s *Store) oneByOne(ctx context.Context, changes []store.Change, gap time.Duration) reply {
	c, _ := store.AsCommitter(s.inner)
	made := []store.Version{}
	for i, one := range changes {
		if i > 0 {
			if err := s.sleep(ctx, gap); err != nil {
				return s.lost(&request{op: OpCommit, key: one.Key}, err, "injected: held up between two changes")
			}
		}
		v, err := c.Commit(ctx, changes[i:i+1])
		if err != nil {
			return reply{err: err}
		}
		s.history.committed(changes[i:i+1], v)
		made = append(made, v...)
	}
	return reply{value: made}
}

// tearCommit checks the conditions and makes the changes as two steps.
func (s *Store) tearCommit(ctx context.Context, r *request, next handler, gap time.Duration) reply {
	holds, err := s.holds(ctx, r.changes)
	if err != nil {
		return reply{err: err}
	}
	if !holds {
		return next(ctx, r) // refuses for the right reason
	}
	if err := s.sleep(ctx, gap); err != nil {
		return s.lost(r, err, "injected: held up between check and write")
	}
	return s.forceCommit(ctx, r)
}

// holds reports whether every condition holds, one key after the other.
func (s *Store) holds(ctx context.Context, changes []store.Change) (bool, error) {
	for _, c := range changes {
		v, err := s.present(ctx, c.Key)
		if err != nil || v != c.Over {
			return false, err
		}
	}
	return true, nil
}

func (s *Store) present(ctx context.Context, key string) (store.Version, error) {
	o, err := s.inner.Get(ctx, key, s.info.MaxBody)
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return o.Version, err
}

// forceCommit makes the changes of a commit whatever the keys' states are.
func (s *Store) forceCommit(ctx context.Context, r *request) reply {
	c, _ := store.AsCommitter(s.inner)
	for {
		var do []store.Change
		var of []int // the places of do in the changes
		for i, ch := range r.changes {
			v, err := s.present(ctx, ch.Key)
			if err != nil {
				return reply{err: err}
			}
			if ch.Do == store.Put || ch.Do == store.Remove && v != "" {
				ch.Over = v
				do, of = append(do, ch), append(of, i)
			}
		}
		made := make([]store.Version, len(r.changes))
		if len(do) == 0 {
			return reply{value: made}
		}
		versions, err := c.Commit(ctx, do)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return reply{err: err}
		}
		for i, v := range versions {
			made[of[i]] = v
		}
		s.history.committed(do, versions)
		return reply{value: made}
	}
}

// within reports whether key is in r.
func within(key string, r store.ScanRange) bool { return key >= r.From && key < r.To }

func copiedChanges(changes []store.Change) []store.Change {
	out := slices.Clone(changes)
	for i := range out {
		out[i].Body = bytes.Clone(out[i].Body)
	}
	return out
}
