package storetest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// mutant is a broken driver, the clauses that catch it, and what their failure
// says.
type mutant struct {
	name    string
	harness Harness
	breaks  []string
	seen    string
}

// faulty is a harness of faulty stores whose handles share a history.
func faulty(rule faultstore.Rule) Harness {
	return faultyBy(faultstore.Options{Rules: []faultstore.Rule{rule}})
}

type faultyHandle struct {
	*faultstore.Store
	place   *memstore.Store
	history *faultstore.History
}

func faultyBy(o faultstore.Options) Harness {
	wrap := func(place *memstore.Store, h *faultstore.History) store.Store {
		o := o
		o.History = h
		return &faultyHandle{faultstore.New(place.Peer(), o), place, h}
	}
	return Harness{
		Open: func(testing.TB) store.Store { return wrap(memstore.New(), faultstore.NewHistory()) },
		Peer: func(_ testing.TB, s store.Store) store.Store {
			h := s.(*faultyHandle)
			return wrap(h.place, h.history)
		},
	}
}

func on(f faultstore.Fault, ops ...faultstore.Op) faultstore.Rule {
	return faultstore.Rule{Ops: ops, Fault: f}
}

func mutants() []mutant {
	return slices.Concat(writeMutants(), readMutants(), listMutants(), contextMutants(), infoMutants(), watchMutants(), queueMutants(),
		clockMutants(), proofMutants(), commitMutants(), scanMutants())
}

func writeMutants() []mutant {
	torn := faultstore.TearCondition(time.Millisecond)
	return []mutant{
		{"create stores nothing", hook(func(h *hooked) {
			h.create = func(ctx context.Context, key string, _ []byte) (store.Version, error) {
				return h.Store.Create(ctx, key, nil)
			}
		}), []string{"ST1/create-stores-an-absent-key"}, `gives the body ""`},
		{"create overwrites", faulty(on(faultstore.IgnoreCondition(), faultstore.OpCreate)),
			[]string{"ST1/create-refuses-a-present-key"}, "Create of a present key"},
		{"create never works twice", hook(func(h *hooked) {
			var made sync.Map
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				if _, twice := made.LoadOrStore(key, true); twice {
					return "", store.Errorf(store.ErrExists, "mem", "create", key, "")
				}
				return h.Store.Create(ctx, key, body)
			}
		}), []string{"ST1/create-works-after-delete"}, "Create(suite/lease/k) of an absent key failed"},
		{"create looks, then writes", faulty(on(torn, faultstore.OpCreate)),
			[]string{"ST1/create-has-one-winner", "ST1/create-has-one-winner-among-handles"}, "were told that they won"},
		{"create looks, then writes", faulty(on(torn, faultstore.OpCreate)), []string{"ST9/create-has-one-winner"}, "found that they won"},
		{"replace does nothing", hook(func(h *hooked) {
			h.replace = func(_ context.Context, _ string, _ []byte, v store.Version) (store.Version, error) { return v, nil }
		}), []string{"ST2/replace-changes-the-exact-version"}, "returned the version"},
		{"replace ignores the version", faulty(on(faultstore.IgnoreCondition(), faultstore.OpReplace)), []string{
			"ST2/replace-refuses-another-version", "ST2/replace-never-creates", "ST4/an-old-version-is-worth-nothing-after-a-new-create",
		}, "succeeded, want the kind"},
		{"replace looks, then writes", faulty(on(torn, faultstore.OpReplace)),
			[]string{"ST2/replace-has-one-winner", "ST2/replace-has-one-winner-among-handles"}, "were told that they won"},
		{"replace looks, then writes", faulty(on(torn, faultstore.OpReplace)),
			[]string{"ST2/no-update-is-lost", "ST2/no-update-is-lost-among-handles"}, "added 1 to a counter"},
		{"replace looks, then writes", faulty(on(torn, faultstore.OpReplace)),
			[]string{"ST9/replace-has-one-winner", "ST9/replace-has-one-winner-among-handles"}, "found that they won"},
		{"replace looks, then writes", faulty(on(torn, faultstore.OpReplace)), []string{"ST9/no-update-is-lost-or-doubled"}, "added 1 to its counter"},
		{"versions of contents", faultyBy(faultstore.Options{ContentVersions: true}), []string{
			"ST4/same-bytes-are-a-new-version", "ST4/back-to-old-bytes-is-a-new-version", "ST4/delete-and-create-is-a-new-version",
		}, "got version"},
		{"delete of nothing fails", hook(func(h *hooked) {
			h.delete = func(ctx context.Context, key string) error {
				if _, err := h.Store.Get(ctx, key, 1<<30); err != nil {
					return err
				}
				return h.Store.Delete(ctx, key)
			}
		}), []string{"ST5/delete"}, "Delete(suite/lease/k) failed"},
		{"delete-if ignores the version", faulty(on(faultstore.IgnoreCondition(), faultstore.OpDeleteIf)),
			[]string{"ST5/delete-if"}, "DeleteIf of a key that never was succeeded"},
		{"delete-if looks, then deletes", faulty(on(torn, faultstore.OpDeleteIf)),
			[]string{"ST5/delete-if-has-one-winner", "ST5/delete-if-is-atomic-against-replace", "ST5/delete-if-is-atomic-among-handles"}, "were told that they won"},
		{"delete-if looks, then deletes", faulty(on(torn, faultstore.OpDeleteIf)), []string{"ST9/delete-if-against-replace"}, "found that they won"},
		{"a busy store calls itself corrupt", hook(func(h *hooked) {
			var busy atomic.Int64
			h.replace = func(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
				defer busy.Add(-1)
				if busy.Add(1) > 1 {
					return "", store.Errorf(store.ErrCorrupt, "mem", "replace", key, "two at once")
				}
				pause(ctx, time.Millisecond)
				return h.Store.Replace(ctx, key, body, v)
			}
		}), []string{"ST13/concurrent-use"}, "two at once"},
		{"create overwrites", faulty(on(faultstore.IgnoreCondition(), faultstore.OpCreate)), []string{"ST10/probe"}, "second create"},
		{"the last write is lost at close", hook(func(h *hooked) {
			h.close = func() error {
				_ = h.Store.Delete(context.Background(), key("created"))
				return h.Store.Close()
			}
		}), []string{"ST16/acknowledged-writes-outlive-the-handle"}, "not found"},
	}
}

func readMutants() []mutant {
	stale := faulty(on(faultstore.StaleRead(1), faultstore.OpGet))
	return []mutant{
		{"absent is unavailable", faulty(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.Fail(store.ErrUnavailable)}),
			[]string{"ST3/absent-is-not-found"}, `want the kind "not found"`},
		{"errors are bare", missing(func(string) error { return store.ErrNotFound }), []string{"ST3/absent-is-not-found"}, "no *store.Error"},
		{"errors name no store", missing(func(key string) error { return store.Errorf(store.ErrNotFound, "", "get", key, "") }),
			[]string{"ST3/absent-is-not-found"}, "does not name the store"},
		{"errors name no key", missing(func(string) error { return store.Errorf(store.ErrNotFound, "mem", "get", "", "") }),
			[]string{"ST3/absent-is-not-found"}, "does not name the key"},
		{"errors name no operation", missing(func(key string) error { return store.Errorf(store.ErrNotFound, "mem", "", key, "") }),
			[]string{"ST3/absent-is-not-found"}, "whose operation is empty"},
		{"errors are of two kinds", missing(func(key string) error {
			return store.Wrap(store.ErrNotFound, "mem", "get", key, store.ErrUnavailable)
		}), []string{"ST3/absent-is-not-found"}, "and no other"},
		{"keys are folders", hook(func(h *hooked) {
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				for range h.Store.List(ctx, key+"/", "") {
					return "", store.Errorf(store.ErrExists, "mem", "create", key, "it is a folder")
				}
				return h.Store.Create(ctx, key, body)
			}
		}), []string{"ST3/keys-are-flat"}, "it is a folder"},
		{"reads are stale", stale, []string{"ST3/get-sees-acknowledged-writes-of-others"}, "seen:"},
		{"bodies are text", hook(func(h *hooked) {
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				return h.Store.Create(ctx, key, bytes.ToValidUTF8(body, []byte("?")))
			}
		}), []string{"ST3/body-is-kept-exactly"}, "gives the body"},
		{"bodies are shared", hook(func(h *hooked) {
			cached := map[store.Version]store.Object{}
			h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
				o, err := h.Store.Get(ctx, key, limit)
				if c, ok := cached[o.Version]; ok && err == nil {
					return c, nil
				}
				cached[o.Version] = o
				return o, err
			}
		}), []string{"ST3/bodies-are-not-shared"}, `gives the body "YYYYYY"`},
		{"no read limit", hook(func(h *hooked) {
			h.get = func(ctx context.Context, key string, _ int) (store.Object, error) {
				return h.Store.Get(ctx, key, 1<<30)
			}
		}), []string{"ST7/reads-are-bounded"}, "with the limit 999 succeeded"},
		{"no bound for bodies", hook(func(h *hooked) {
			h.info = func(i store.Info) store.Info { i.MaxBody = 64 << 10; return i }
		}), []string{"ST7/largest-body"}, "MaxBody + 1 bytes succeeded"},
		{"each handle has versions of its own", hook(func(h *hooked) {
			prefix := store.Version(string(rune('a'+len(h.Store.Info().Identity))) + time.Now().String())
			h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
				o, err := h.Store.Get(ctx, key, limit)
				o.Version = prefix + o.Version
				return o, err
			}
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				v, err := h.Store.Create(ctx, key, body)
				return prefix + v, err
			}
		}), []string{"ST4/versions-are-the-same-for-every-reader"}, "gives version"},
		{"long elements are cut", hook(func(h *hooked) {
			cut := func(key string) string {
				elements := strings.Split(key, "/")
				for i, e := range elements {
					elements[i] = e[:min(len(e), 100)]
				}
				return strings.Join(elements, "/")
			}
			h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
				return h.Store.Get(ctx, cut(key), limit)
			}
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				return h.Store.Create(ctx, cut(key), body)
			}
		}), []string{"ST11/every-name-is-its-own-record", "ST11/every-namespace-is-its-own"}, "Create for the name"},
		{"long keys are refused", hook(func(h *hooked) {
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				if len(key) > 512 {
					return "", store.Errorf(store.ErrInvalid, "mem", "create", key, "too long")
				}
				return h.Store.Create(ctx, key, body)
			}
		}), []string{"ST11/longest-keys"}, "too long"},
		{"bad keys are not found", hook(func(h *hooked) {
			h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
				if store.CheckKey(key) != nil {
					return store.Object{}, store.Errorf(store.ErrNotFound, "mem", "get", key, "")
				}
				return h.Store.Get(ctx, key, limit)
			}
		}), []string{"ST11/bad-keys-are-refused"}, `want the kind "invalid"`},
	}
}

// missing is a driver that answers Get of an absent key with an error of its own.
func missing(err func(key string) error) Harness {
	return hook(func(h *hooked) {
		h.get = func(ctx context.Context, key string, limit int) (store.Object, error) {
			o, found := h.Store.Get(ctx, key, limit)
			if errors.Is(found, store.ErrNotFound) {
				return o, err(key)
			}
			return o, found
		}
	})
}

func listMutants() []mutant {
	return []mutant{
		{"after is ignored", hook(func(h *hooked) {
			h.list = func(ctx context.Context, prefix, _ string) iter.Seq2[string, error] {
				return h.Store.List(ctx, prefix, "")
			}
		}), []string{"ST6/list-of-nothing", "ST6/list-order-prefix-and-after"}, "List("},
		{"one page only", hook(func(h *hooked) {
			h.list = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
				return take(h.Store.List(ctx, prefix, after), 1000)
			}
		}), []string{"ST6/list-of-many-pages"}, "1000 keys"},
		{"the newest key is missing", faulty(on(faultstore.ListWithoutNewest(), faultstore.OpList)),
			[]string{"ST6/list-shows-finished-writes", "ST6/list-shows-finished-writes-of-others"}, "List does not show"},
		{"a stopped listing keeps its connection", hook(func(h *hooked) {
			pool := make(chan struct{}, 5)
			h.list = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					select {
					case pool <- struct{}{}:
					case <-ctx.Done():
						yield("", store.CtxErr(ctx, "mem", "list", ""))
						return
					}
					for k, err := range h.Store.List(ctx, prefix, after) {
						if !yield(k, err) {
							return
						}
					}
					<-pool
				}
			}
		}), []string{"ST6/list-stopped-early"}, "listing number 5 failed"},
		{"a listing locks the store", hook(func(h *hooked) {
			lock := make(chan struct{}, 1)
			locked := func(ctx context.Context, f func()) error {
				select {
				case lock <- struct{}{}:
				case <-ctx.Done():
					return store.CtxErr(ctx, "mem", "lock", "")
				}
				f()
				<-lock
				return nil
			}
			h.list = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					_ = locked(ctx, func() { h.Store.List(ctx, prefix, after)(yield) })
				}
			}
			h.delete = func(ctx context.Context, key string) (err error) {
				if lockErr := locked(ctx, func() { err = h.Store.Delete(ctx, key) }); lockErr != nil {
					return lockErr
				}
				return err
			}
		}), []string{"ST6/list-while-its-caller-works"}, "Delete(suite/lease/"},
		{"pages by number", hook(func(h *hooked) {
			h.list = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					for n := 0; ; n++ {
						i := 0
						for k, err := range h.Store.List(ctx, prefix, after) {
							if i == n && !yield(k, err) {
								return
							}
							i++
						}
						if n >= i {
							return
						}
					}
				}
			}
		}), []string{"ST6/list-while-others-write"}, "during writes"},
	}
}

// take is the first n of a listing.
func take(whole iter.Seq2[string, error], n int) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		left := n
		for k, err := range whole {
			if left == 0 || !yield(k, err) {
				return
			}
			left--
		}
	}
}

func contextMutants() []mutant {
	return []mutant{
		{"contexts are ignored", hook(func(h *hooked) {
			h.create = func(ctx context.Context, key string, body []byte) (store.Version, error) {
				return h.Store.Create(context.WithoutCancel(ctx), key, body)
			}
		}), []string{"ST13/an-ended-context-does-nothing"}, "Create with an ended context"},
		{"an unknown outcome is called nothing", hook(func(h *hooked) {
			h.replace = func(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
				w, err := h.Store.Replace(context.WithoutCancel(ctx), key, body, v)
				pause(ctx, 50*time.Microsecond)
				if ctxErr := store.CtxErr(ctx, "mem", "replace", key); ctxErr != nil {
					return "", ctxErr
				}
				return w, err
			}
		}), []string{"ST13/cancel-in-mid-call"}, "but the body is"},
		{"a listing ends without a word", hook(func(h *hooked) {
			h.list = func(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					for k, err := range h.Store.List(ctx, prefix, after) {
						if ctx.Err() != nil || !yield(k, err) {
							return
						}
					}
				}
			}
		}), []string{"ST13/cancel-in-mid-listing"}, "and no error"},
		{"close does nothing", hook(func(h *hooked) { h.close = func() error { return nil } }),
			[]string{"ST13/close-ends-calls-in-flight"}, "did not come within"},
	}
}

// bare has no powers, whatever it declares.
type bare struct {
	store.Store
	can store.Power
}

func (b bare) Info() store.Info {
	i := b.Store.Info()
	i.Can = b.can
	return i
}

func infoMutants() []mutant {
	edit := func(f func(i *store.Info)) Harness {
		return hook(func(h *hooked) { h.info = func(i store.Info) store.Info { f(&i); return i } })
	}
	return []mutant{
		{"a declared power is not there", Harness{Open: func(testing.TB) store.Store { return bare{memstore.New(), store.CanWatch} }},
			[]string{"ST14/powers-are-what-is-declared"}, "declared true"},
		{"a power without a name", Harness{Open: func(testing.TB) store.Store { return bare{memstore.New(), 1 << 20} }},
			[]string{"ST14/powers-are-what-is-declared"}, "unknown powers"},
		{"no driver", edit(func(i *store.Info) { i.Driver = "" }), []string{"ST14/info-is-complete"}, "empty field"},
		{"a negative rate", edit(func(i *store.Info) { i.WritesPerSecond = -1 }), []string{"ST14/info-is-complete"}, "WritesPerSecond"},
		{"one identity for all", edit(func(i *store.Info) { i.Identity = "mem:" }), []string{"ST14/identity-names-the-place"}, "two places have the identity"},
	}
}
