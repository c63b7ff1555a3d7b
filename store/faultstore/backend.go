package faultstore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
)

// StaleRead answers a read with the state that the key had some writes ago, as
// far as the history knows, and a scan with such a state of each key.
func StaleRead(writesAgo int) Fault {
	return staleRead(func(h *History, key string) (state, bool) { return h.back(key, writesAgo) })
}

// LaggingRead answers a read with the state that the key had some time ago, as
// far as the history knows, and a scan with that of each key: a replica that
// lags.
func LaggingRead(lag time.Duration) Fault {
	return staleRead(func(h *History, key string) (state, bool) { return h.asOf(key, time.Now().Add(-lag)) })
}

func staleRead(pick func(h *History, key string) (state, bool)) Fault {
	return Fault{name: "stale read", applies: readOps, effect: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			if r.op == OpScan {
				return s.staleScan(ctx, r, s.history.within(r.scan, pick))
			}
			if st, known := pick(s.history, r.key); known {
				return st.reply(s, r)
			}
			return next(ctx, r)
		}
	}}
}

// ListWithoutNewest leaves the key that was created last out of a listing.
func ListWithoutNewest() Fault {
	return staleList(func(s *Store, r *request, keys []string) []string {
		newest := s.history.newest(keys)
		return slices.DeleteFunc(keys, func(k string) bool { return k == newest })
	})
}

// LaggingList lists the keys that there were some time ago, as far as the
// history knows.
func LaggingList(lag time.Duration) Fault {
	return staleList(func(s *Store, r *request, keys []string) []string {
		return s.history.keysAsOf(keys, r.key, r.after, time.Now().Add(-lag))
	})
}

func staleList(edit func(s *Store, r *request, keys []string) []string) Fault {
	return Fault{name: "stale list", applies: only(OpList), effect: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			if out.err != nil {
				return out
			}
			keys := []string{}
			for k, err := range out.value.(iter.Seq2[string, error]) {
				if err != nil {
					return reply{err: err}
				}
				keys = append(keys, k)
			}
			return reply{value: listOf(edit(s, r, keys))}
		}
	}}
}

// BreakList ends a listing with store.ErrUnavailable after n keys.
func BreakList(n int) Fault {
	return Fault{name: "break list", applies: only(OpList), wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			if out.err != nil {
				return out
			}
			whole := out.value.(iter.Seq2[string, error])
			return reply{value: iter.Seq2[string, error](func(yield func(string, error) bool) {
				left := n
				for k, err := range whole {
					if left == 0 {
						yield("", store.Errorf(store.ErrUnavailable, s.info.Identity, string(r.op), r.key, "injected after %d keys", n))
						return
					}
					left--
					if !yield(k, err) || err != nil {
						return
					}
				}
			})}
		}
	}}
}

// IgnoreCondition lets a conditional write succeed whatever it finds: Create
// overwrites, Replace stores at any version and also an absent key, DeleteIf
// deletes, and Commit makes all its changes so.
func IgnoreCondition() Fault {
	return Fault{name: "ignore condition", applies: guardOps, effect: func(s *Store, _ handler) handler {
		return s.force
	}}
}

// TearCondition checks a condition and takes effect as two steps with a gap
// between them, like a backend that looks before it writes: alone it behaves,
// but racers within the gap all win.
func TearCondition(gap time.Duration) Fault {
	return Fault{name: "tear condition", applies: guardOps, effect: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			if r.op == OpCommit {
				return s.tearCommit(ctx, r, next, gap)
			}
			o, err := s.inner.Get(ctx, r.key, s.info.MaxBody)
			present := err == nil
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return reply{err: err}
			}
			if r.op == OpCreate && present || r.op != OpCreate && (!present || o.Version != r.version) {
				return next(ctx, r) // refuses for the right reason
			}
			if err := s.sleep(ctx, gap); err != nil {
				return s.lost(r, err, "injected: held up between check and write")
			}
			return s.force(ctx, r)
		}
	}}
}

// force carries a write out whatever the key's state is.
func (s *Store) force(ctx context.Context, r *request) reply {
	if r.op == OpCommit {
		return s.forceCommit(ctx, r)
	}
	if r.op == OpDeleteIf {
		return s.wrote(r, "", s.inner.Delete(ctx, r.key))
	}
	for {
		v, err := s.inner.Create(ctx, r.key, r.body)
		if !errors.Is(err, store.ErrExists) {
			return s.wrote(r, v, err)
		}
		o, err := s.inner.Get(ctx, r.key, s.info.MaxBody)
		if err == nil {
			v, err = s.inner.Replace(ctx, r.key, r.body, o.Version)
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			return s.wrote(r, v, err)
		}
	}
}

// FlipBit turns one bit, drawn by the seed, of the body that a read returns. This
// and the other damages below meet every object of a scan.
func FlipBit() Fault {
	return damage("flip bit", func(_ context.Context, _ *Store, r *request, body []byte) ([]byte, error) {
		if len(body) > 0 {
			bit := r.roll.source(forDamage).IntN(8 * len(body))
			body[bit/8] ^= 1 << (bit % 8)
		}
		return body, nil
	})
}

// Truncate cuts the body that a read returns to at most n bytes.
func Truncate(n int) Fault {
	return damage("truncate", func(_ context.Context, _ *Store, _ *request, body []byte) ([]byte, error) {
		return body[:min(n, len(body))], nil
	})
}

// AppendBytes puts more bytes behind the body that a read returns.
func AppendBytes(more string) Fault {
	return damage("append bytes", func(_ context.Context, _ *Store, _ *request, body []byte) ([]byte, error) {
		return append(body, more...), nil
	})
}

// SwapBody returns the body of another key.
func SwapBody(other string) Fault {
	return damage("swap body", func(ctx context.Context, s *Store, r *request, _ []byte) ([]byte, error) {
		o, err := s.inner.Get(ctx, other, r.most())
		return o.Body, err
	})
}

func damage(name string, edit func(ctx context.Context, s *Store, r *request, body []byte) ([]byte, error)) Fault {
	return answer(name, func(ctx context.Context, s *Store, r *request, o *store.Object) error {
		body, err := edit(ctx, s, r, o.Body)
		o.Body = body
		return err
	})
}
