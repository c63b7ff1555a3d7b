package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// committing edits a commit on its way, or its answer.
func committing(before func(changes []store.Change) []store.Change, after func(made []store.Version, err error) ([]store.Version, error)) Harness {
	return hook(func(h *hooked) {
		h.commit = func(ctx context.Context, changes []store.Change) ([]store.Version, error) {
			if before != nil {
				changes = before(slices.Clone(changes))
			}
			made, err := h.Store.Commit(ctx, changes)
			if after != nil {
				made, err = after(made, err)
			}
			return made, err
		}
	})
}

// without leaves the changes out that match. Its scans take a moment, so that much
// happens before a commit.
func without(match func(ch store.Change) bool) Harness {
	return hook(func(h *hooked) {
		h.scan = func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
			defer pause(ctx, time.Millisecond)
			return h.Store.Scan(ctx, r)
		}
		h.commit = func(ctx context.Context, changes []store.Change) ([]store.Version, error) {
			made, of := make([]store.Version, len(changes)), []int{}
			var left []store.Change
			for i, ch := range changes {
				if !match(ch) {
					left, of = append(left, ch), append(of, i)
				}
			}
			if err := store.CheckChanges(changes, memstore.MaxBody); err != nil || len(left) == 0 {
				return made, err
			}
			some, err := h.Store.Commit(ctx, left)
			if err != nil {
				return nil, err
			}
			for i, v := range some {
				made[of[i]] = v
			}
			return made, nil
		}
	})
}

func commitMutants() []mutant {
	torn := faulty(on(faultstore.TearCondition(time.Millisecond), faultstore.OpCommit))
	unrolled := faulty(on(faultstore.UnrollCommit(time.Millisecond), faultstore.OpCommit))
	ignored := faulty(on(faultstore.IgnoreCondition(), faultstore.OpCommit))
	keeps := func(ch store.Change) bool { return ch.Do == store.Keep }
	return []mutant{
		{"commit forgets removals", without(func(ch store.Change) bool { return ch.Do == store.Remove }),
			[]string{"SL4/commit-makes-every-change"}, "should be absent"},
		{"commit returns no version", committing(nil, func(made []store.Version, err error) ([]store.Version, error) {
			return make([]store.Version, len(made)), err
		}), []string{"SL4/commit-makes-every-change"}, `returned the version "" for a put`},
		{"commit ignores conditions", ignored, []string{"SL4/commit-refuses-as-a-whole", "SL4/commit-of-conditions-only"}, "succeeded, want the kind"},
		{"commit makes half", faulty(on(faultstore.HalveCommit(), faultstore.OpCommit)),
			[]string{"SL4/commit-refuses-as-a-whole"}, `List("", "") gives`},
		{"commit does not look at what is only kept", without(keeps), []string{"SL4/commit-of-conditions-only"}, "succeeded, want the kind"},
		{"commit does not look at what is only kept", without(keeps), []string{
			"SL4/commit-on-what-it-only-read", "SL4/commit-on-what-it-only-read-among-handles",
		}, "were told that they won"},
		{"commit does not look at what is only kept", without(keeps), []string{"SL4/commits-of-many-keep-the-books"}, "hold -"},
		{"commit says not found", committing(nil, func(made []store.Version, err error) ([]store.Version, error) {
			if errors.Is(err, store.ErrConflict) {
				err = store.Errorf(store.ErrNotFound, "mem", "commit", "", "")
			}
			return made, err
		}), []string{"SL4/commit-refuses-as-a-whole"}, `of kind "not found"`},
		{"commit does not say which key", committing(nil, func(made []store.Version, err error) ([]store.Version, error) {
			if errors.Is(err, store.ErrConflict) {
				err = store.Errorf(store.ErrConflict, "mem", "commit", "", "")
			}
			return made, err
		}), []string{"SL4/commit-refuses-as-a-whole"}, "does not name the key"},
		{"versions of contents", contentCommits(), []string{"SL4/commit-versions-never-come-back"}, "came back in round"},
		{"commit takes what is too much", committing(func(changes []store.Change) []store.Change {
			if len(changes) > store.MaxChanges {
				return changes[:store.MaxChanges]
			}
			return changes
		}, nil), []string{"SL4/commit-of-bad-changes"}, "too many changes succeeded"},
		{"commit takes a tenth", limited(4), []string{"SL4/commit-of-the-largest"}, "whose conditions all hold failed"},
		{"commit shares bodies", hook(func(h *hooked) {
			h.scan = cachedScans(h)
		}), []string{"SL4/commit-shares-no-bodies"}, `"YYYYY"`},
		{"a commit cut off has happened", hook(func(h *hooked) {
			n := 0
			h.commit = func(ctx context.Context, changes []store.Change) ([]store.Version, error) {
				if n++; n%3 > 0 || len(changes) < 2 {
					return h.Store.Commit(ctx, changes)
				}
				_, _ = h.Store.Commit(context.WithoutCancel(ctx), changes)
				return nil, store.Errorf(store.ErrUnavailable, "mem", "commit", changes[0].Key, "")
			}
		}), []string{"SL4/commit-cut-off"}, "answered"},
		{"a commit cut off is halved", faulty(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCommit}, Every: 3, Fault: faultstore.HalveCommit()}),
			[]string{"SL4/commit-cut-off"}, "and made"},
		{"the last commit is lost at close", hook(func(h *hooked) {
			h.close = func() error {
				_ = h.Store.Delete(context.Background(), key("a"))
				return h.Store.Close()
			}
		}), []string{"SL4/commits-outlive-the-handle"}, "not found"},
		{"commit rings no bell", hook(func(h *hooked) {
			h.watch = func(ctx context.Context, key string, _ store.Version) error {
				<-ctx.Done()
				return store.CtxErr(ctx, "mem", "watch", key)
			}
		}), []string{"SL4/commit-wakes-watches"}, "did not come within"},
		{"commit looks, then writes", torn, []string{
			"SL4/commit-has-one-winner", "SL4/commit-has-one-winner-among-handles",
			"SL4/commit-on-what-it-only-read", "SL4/commit-on-what-it-only-read-among-handles",
			"SL4/commit-is-atomic-against-single-writes", "SL4/commit-is-atomic-against-single-writes-among-handles",
		}, "were told that they won"},
		{"commit looks, then writes", torn, []string{"SL4/commits-of-many-keep-the-books"}, "seen:"},
		{"commit looks, then writes", torn, []string{"ST9/commit-is-all-or-nothing"}, "found that"},
		{"commit is a row of commits", unrolled, []string{"SL4/scan-sees-all-or-nothing", "SL4/scan-sees-all-or-nothing-among-handles"}, "which every commit sets to one number"},
		{"commit ignores conditions", ignored, []string{"SL4/commit-and-scan-follow-a-model"}, "one of whose conditions does not hold"},
	}
}

// limited is a harness whose stores take only n changes in a commit.
func limited(n int) Harness {
	return hook(func(h *hooked) {
		h.commit = func(ctx context.Context, changes []store.Change) ([]store.Version, error) {
			if len(changes) > n {
				return nil, store.Errorf(store.ErrInvalid, "mem", "commit", "", "%d changes", len(changes))
			}
			return h.Store.Commit(ctx, changes)
		}
	})
}

// contentCommits are commits whose versions are their bodies.
func contentCommits() Harness {
	return hook(func(h *hooked) {
		real := map[store.Version]store.Version{}
		h.commit = func(ctx context.Context, changes []store.Change) ([]store.Version, error) {
			changes = slices.Clone(changes)
			for i, ch := range changes {
				if v, ok := real[ch.Over]; ok {
					changes[i].Over = v
				}
			}
			made, err := h.Store.Commit(ctx, changes)
			for i := range made {
				shown := store.Version("of " + string(changes[i].Body))
				real[shown], made[i] = made[i], shown
			}
			return made, err
		}
	})
}

// cachedScans gives every caller the same bodies.
func cachedScans(h *hooked) func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	cached := map[store.Version]store.Keyed{}
	return func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
		found, err := h.Store.Scan(ctx, r)
		for i, k := range found {
			if c, ok := cached[k.Version]; ok {
				found[i] = c
			}
			cached[k.Version] = found[i]
		}
		return found, err
	}
}

// scanning edits the range of a scan, or its answer.
func scanning(before func(r store.ScanRange) store.ScanRange, after func(found []store.Keyed) []store.Keyed) Harness {
	return hook(func(h *hooked) {
		h.scan = func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
			if before != nil {
				r = before(r)
			}
			found, err := h.Store.Scan(ctx, r)
			if after != nil {
				found = after(found)
			}
			return found, err
		}
	})
}

func scanMutants() []mutant {
	const order = "SL4/scan-is-in-byte-order"
	return []mutant{
		{"scan knows one direction", scanning(func(r store.ScanRange) store.ScanRange { r.Backwards = false; return r }, nil),
			[]string{order, "SL4/commit-and-scan-follow-a-model"}, "Scan gave"},
		{"scan takes the upper bound in", scanning(func(r store.ScanRange) store.ScanRange { r.To += "-"; return r }, nil), []string{order, "SL4/scan-of-nothing"}, "Scan gave"},
		{"scan leaves the lower bound out", scanning(func(r store.ScanRange) store.ScanRange {
			if r.From < r.To {
				r.From += "-"
			}
			return r
		}, nil), []string{order}, "Scan gave"},
		{"scan gives too many", scanning(func(r store.ScanRange) store.ScanRange { r.Most = min(r.Most+1, store.MaxScan); return r }, nil), []string{order}, "objects, want"},
		{"scan is in no order", scanning(nil, func(found []store.Keyed) []store.Keyed {
			if len(found) > 1 {
				found[0], found[1] = found[1], found[0]
			}
			return found
		}), []string{order}, "as number 0"},
		{"scan stamps what it reads", scanning(nil, func(found []store.Keyed) []store.Keyed {
			for i := range found {
				found[i].Modified = time.Now()
			}
			return found
		}), []string{order}, "was modified at"},
		{"scan of nothing is not found", hook(func(h *hooked) {
			h.scan = func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
				found, err := h.Store.Scan(ctx, r)
				if err == nil && len(found) == 0 {
					err = store.Errorf(store.ErrNotFound, "mem", "scan", "", "")
				}
				return found, err
			}
		}), []string{"SL4/scan-of-nothing"}, "failed"},
		{"scan has no limit", scanning(func(r store.ScanRange) store.ScanRange { r.Limit = 1 << 30; return r }, nil),
			[]string{"SL4/scan-is-bounded"}, "with the limit 999 succeeded"},
		{"scan looks at bodies that it does not return", hook(func(h *hooked) {
			h.scan = func(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
				most := r.Most
				r.Most = store.MaxScan
				found, err := h.Store.Scan(ctx, r)
				return found[:min(most, len(found))], err
			}
		}), []string{"SL4/scan-is-bounded"}, "failed"},
		{"scan takes any range", scanning(func(r store.ScanRange) store.ScanRange { r.Most = max(r.Most, 1); return r }, nil),
			[]string{"SL4/scan-of-a-bad-range"}, "no objects wanted succeeded"},
		{"scans are stale", faulty(on(faultstore.StaleRead(1), faultstore.OpScan)), []string{"SL4/scan-sees-acknowledged-writes-of-others"}, "Scan gave"},
	}
}
