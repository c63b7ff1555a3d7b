package numbered

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

const k1 = "n/lease/a"

// counted is a register whose requests are counted.
func counted(t *testing.T, m *memstore.Store, rules ...faultstore.Rule) (*Store, *faultstore.Store) {
	t.Helper()
	f := faultstore.New(createOnly{m.Peer()}, faultstore.Options{Rules: rules})
	s := New(f).(*Store)
	t.Cleanup(func() { _ = s.Close() })
	return s, f
}

// requests is what f runs cost, as text like "create 1, list 1".
func requests(f *faultstore.Store, run func()) string {
	before := f.Counts()
	run()
	out := []string{}
	for op, n := range f.Counts() {
		if n -= before[op]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", op, n))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func names(t *testing.T, s store.Store, prefix string) (all []string) {
	t.Helper()
	for k, err := range s.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	return all
}

// In steady state a renewal is a create and a check. Clean-up is paid now and
// then, and keeps what is there bounded.
//
// SPEC ST17
func TestRenewalIsTwoRequests(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	s, f := counted(t, m)
	v := must[store.Version](t)(s.Create(t.Context(), k1, []byte("0")))
	const writes = 640
	cheap, all := 0, 0
	for i := range writes {
		cost := requests(f, func() {
			v = must[store.Version](t)(s.Replace(t.Context(), k1, []byte(fmt.Sprint(i)), v))
		})
		if cost == "create 1, list 1" {
			cheap++
		}
	}
	for _, n := range f.Counts() {
		all += n
	}
	if want := writes - writes/int(usual.every); cheap < want {
		t.Errorf("%d of %d renewals were one create and one list, want %d", cheap, writes, want)
	}
	if all > 13*writes/4 {
		t.Errorf("%d renewals took %d requests with all clean-up", writes, all)
	}
	if n, most := len(names(t, m, dir(k1))), int(usual.keep+usual.every)+usual.keepMarks+1; n > most {
		t.Errorf("%d objects are kept of one key, want at most %d", n, most)
	}
}

// SPEC ST17
func TestReadsAndListingsCost(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	s, f := counted(t, m)
	other, _ := counted(t, m)
	get := func() { must[store.Object](t)(s.Get(t.Context(), k1, 100)) }
	v := must[store.Version](t)(other.Create(t.Context(), k1, []byte("0")))
	for i := range 100 {
		v = must[store.Version](t)(other.Replace(t.Context(), k1, []byte(fmt.Sprint(i)), v))
	}
	steps := []struct {
		what, cost string
		run        func()
	}{
		{"a first read", "get 1, list 2", get},
		{"a read of what is known", "get 1, list 1", get},
		{"a read of an absent key", "list 1", func() {
			if _, err := s.Get(t.Context(), "n/lease/b", 100); !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		}},
		{"a create after that read", "create 1, get 1, list 1", func() { // the read is of the guard, once per namespace
			must[store.Version](t)(s.Create(t.Context(), "n/lease/b", nil))
		}},
		{"a create without a read", "create 1, list 2", func() { must[store.Version](t)(s.Create(t.Context(), "n/lease/c", nil)) }},
		{"a replace of what was read", "create 1, list 1", func() { must[store.Version](t)(s.Replace(t.Context(), k1, nil, v)) }},
		{"a listing", "list 2", func() {
			if got := names(t, s, "n/"); len(got) != 3 {
				t.Errorf("listed %q", got)
			}
		}},
	}
	for _, step := range steps {
		if got := requests(f, step.run); got != step.cost {
			t.Errorf("%s costs %s, want %s", step.what, got, step.cost)
		}
	}
}

// Escaped keys sort as keys do and can be turned back.
func TestKeysKeepTheirOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	make1 := func() string {
		b := make([]byte, 1+rng.IntN(12))
		for i := range b {
			b[i] = "-/-/0=_az"[rng.IntN(9)]
		}
		return strings.Repeat("a", rng.IntN(3)*chunk/2) + string(b)
	}
	for range 20_000 {
		a, b := make1(), make1()
		if store.CheckKey(a) != nil || store.CheckKey(b) != nil {
			continue
		}
		if strings.Compare(a, b) != strings.Compare(dir(a)+"/", dir(b)+"/") {
			t.Fatalf("%q and %q sort another way as %q and %q", a, b, dir(a), dir(b))
		}
		if back, err := keyOf(dir(a)); err != nil || back != a {
			t.Fatalf("%q came back as %q, %v", a, back, err)
		}
		if err := store.CheckKey(markKey(a, maxNumber)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"", root, root + "/a", root + "/a-", root + "/a-2--", root + "/a--/b", "other/a--", root + "/" + strings.Repeat("a", 200) + "--"} {
		if key, err := keyOf(d); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%q is taken for the key %q, %v", d, key, err)
		}
	}
}

// Long keys, of which names below hold a digest only, are listed in their place.
//
// SPEC ST6
func TestLongKeysAreListedInOrder(t *testing.T) {
	t.Parallel()
	s := New(createOnly{memstore.New()})
	deep := strings.Repeat("-/", 390)
	keys := []string{deep + "a", deep + "b", deep + "b/c", "-/-/0", "a"}
	for _, k := range keys {
		must[store.Version](t)(s.Create(t.Context(), k, nil))
	}
	slices.Sort(keys)
	if got := names(t, s, ""); !slices.Equal(got, keys) {
		t.Errorf("listed %q", got)
	}
	if got := names(t, s, deep[:700]); !slices.Equal(got, []string{deep + "a", deep + "b", deep + "b/c"}) {
		t.Errorf("listed %d keys below a long prefix", len(got))
	}
	for k, err := range s.List(t.Context(), "", deep+"a") {
		if k != deep+"b" {
			t.Errorf("after a long key comes %q, %v", k, err)
		}
		break
	}
}

// A sleeper whose number was used and deleted learns that from the mark; the
// object that it made in vain is never seen, and goes.
//
// SPEC ST17
// CASE B20
func TestSleeperLearns(t *testing.T) {
	t.Parallel()
	for others, want := range map[int]error{3: store.ErrConflict, 20: store.ErrConflict, 500: store.ErrUnknown} {
		m := memstore.New()
		sleeper, _ := counted(t, m)
		other, _ := counted(t, m)
		old := must[store.Version](t)(sleeper.Create(t.Context(), k1, []byte("old")))
		v := old
		for i := range others {
			v = must[store.Version](t)(other.Replace(t.Context(), k1, []byte(fmt.Sprint(i)), v))
		}
		if _, err := sleeper.Replace(t.Context(), k1, []byte("late"), old); !errors.Is(err, want) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after %d writes of others: %v, want %v", others, err, want)
		}
		for _, s := range []store.Store{sleeper, other} {
			if o, err := s.Get(t.Context(), k1, 100); err != nil || o.Version != v {
				t.Errorf("after %d writes of others a read gives %q at %s, %v; want version %s", others, o.Body, o.Version, err, v)
			}
		}
		if _, err := m.Get(t.Context(), stateKey(k1, 2), 1<<20); others > 100 && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the object made in vain is still there: %v", err)
		}
	}
}

// A handle that knew its version long ago looks before it writes, so that a
// machine that slept makes nothing in vain and learns at once.
//
// SPEC ST17
func TestOldKnowledgeIsNotTrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		sleeper, f := counted(t, m)
		other, _ := counted(t, m)
		v := must[store.Version](t)(sleeper.Create(t.Context(), k1, []byte("old")))
		for w, i := v, 0; i < 500; i++ {
			w = must[store.Version](t)(other.Replace(t.Context(), k1, []byte(fmt.Sprint(i)), w))
		}
		time.Sleep(usual.fresh) // virtual: poll
		cost := requests(f, func() {
			if _, err := sleeper.Replace(t.Context(), k1, []byte("late"), v); !errors.Is(err, store.ErrConflict) {
				t.Errorf("%v, want ErrConflict", err)
			}
		})
		if strings.Contains(cost, "create") {
			t.Errorf("it took %s", cost)
		}
	})
}

// held lets the check of a writer wait until others have written.
type held struct {
	store.Store
	meanwhile func()
	created   bool
}

func (h *held) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	v, err := h.Store.Create(ctx, key, body)
	h.created = err == nil && strings.Contains(string(body), "mine")
	return v, err
}

func (h *held) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	if f := h.meanwhile; f != nil && h.created {
		h.meanwhile = nil
		f()
	}
	return h.Store.List(ctx, prefix, after)
}

// A writer that won and was overtaken before its check learns that it won, as
// long as anything remembers.
//
// SPEC ST17 ST9
func TestOvertakenWinnerLearns(t *testing.T) {
	t.Parallel()
	for others, want := range map[int]error{1: nil, 15: nil, 40: nil, 200: nil, 500: store.ErrUnknown} {
		for _, remove := range []bool{false, true} {
			m := memstore.New()
			other, _ := counted(t, m)
			v := must[store.Version](t)(other.Create(t.Context(), k1, []byte("0")))
			h := &held{Store: createOnly{m}}
			h.meanwhile = func() {
				for i := range others {
					v := must[store.Object](t)(other.Get(t.Context(), k1, 100)).Version
					must[store.Version](t)(other.Replace(t.Context(), k1, []byte(fmt.Sprint(i)), v))
				}
				if remove {
					if err := other.Delete(t.Context(), k1); err != nil {
						t.Error(err)
					}
				}
			}
			got, err := New(h).Replace(t.Context(), k1, []byte("mine"), v)
			if want == nil && (err != nil || !strings.HasPrefix(string(got), "2-")) || want != nil && !errors.Is(err, want) {
				t.Errorf("overtaken by %d writes, deleted %v: %q, %v; want %v", others, remove, got, err, want)
			}
		}
	}
}

// What was deleted leaves one mark behind and goes on counting.
//
// SPEC ST4 ST5
func TestDeleteLeavesOneMark(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	s, _ := counted(t, m)
	for life := range 5 {
		v := must[store.Version](t)(s.Create(t.Context(), k1, nil))
		if want := fmt.Sprintf("%d-", 3*life+1); !strings.HasPrefix(string(v), want) {
			t.Errorf("life %d begins with version %s, want number %s", life, v, want)
		}
		must[store.Version](t)(s.Replace(t.Context(), k1, nil, v))
		if err := s.Delete(t.Context(), k1); err != nil {
			t.Fatal(err)
		}
		left := names(t, m, root)
		for _, k := range left {
			if !strings.HasSuffix(k, markSuffix) {
				t.Errorf("life %d: %s is left", life, k)
			}
		}
		if len(left) != life+1 {
			t.Errorf("after %d lives: %q is left, want a mark for each", life+1, left)
		}
	}
	for range 50 {
		must[store.Version](t)(s.Create(t.Context(), k1, nil))
		if err := s.Delete(t.Context(), k1); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, m, root); len(left) > usual.keepMarks+1 {
		t.Errorf("%d marks are left", len(left))
	}
}

// A clean-up that hangs, fails or lacks the rights delays a renewal by a bounded
// time and fails nothing.
//
// SPEC ST17 ST13
func TestCleanUpNeverBlocksARenewal(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultstore.Fault{
		"hangs": faultstore.Hang(), "fails": faultstore.Fail(store.ErrUnavailable), "lacks rights": faultstore.Fail(store.ErrDenied),
		"reply lost": faultstore.LoseReply(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				marks := faultstore.Rule{Fault: fault, Ops: []faultstore.Op{faultstore.OpCreate}, Match: func(c faultstore.Call) bool {
					return strings.HasSuffix(c.Key, markSuffix)
				}}
				s, _ := counted(t, memstore.New(), faultstore.Rule{Fault: fault, Ops: []faultstore.Op{faultstore.OpDelete}}, marks)
				v := must[store.Version](t)(s.Create(t.Context(), k1, nil))
				for range 100 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					start := time.Now()
					w, err := s.Replace(ctx, k1, nil, v)
					if took := time.Since(start); err != nil || took > time.Second/2 {
						t.Fatalf("a renewal: %v after %v", err, took)
					}
					v = w
					cancel()
				}
			})
		})
	}
}

// SPEC ST7 ST15
func TestDamageFailsClosed(t *testing.T) {
	t.Parallel()
	good := header{kind: record, number: 7, nonces: []string{newNonce(), newNonce()}, key: k1}
	line := strings.TrimSuffix(good.line(), "\n")
	n := good.nonces[0]
	if h, body, err := decode(k1, 7, good.encode([]byte("x\ny"))); err != nil || string(body) != "x\ny" || h.line() != good.line() {
		t.Fatalf("%+v, %q, %v", h, body, err)
	}
	for what, data := range map[string]string{
		"empty": "", "no line": line, "other": "hello\n", "short": "tenure-numbered/1 record 7\n", "padded": line + " \n", "number": strings.Replace(line, " 7 ", " 8 ", 1) + "\n",
		"leading zero": strings.Replace(line, " 7 ", " 07 ", 1) + "\n", "key": line + "b\n", "kind": strings.Replace(line, "record", "thing", 1) + "\n",
		"nonce": strings.Replace(line, n, n[1:], 1) + "\n", "upper": strings.Replace(line, n, "ABCDEF0123456789", 1) + "\n", "no nonce": fmt.Sprintf("tenure-numbered/1 record 7  %s\n", k1),
		"level 0": strings.Replace(line, "/1", "/0", 1) + "\n",
	} {
		if _, _, err := decode(k1, 7, []byte(data)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := decode(k1, 7, []byte("tenure-numbered/2 anything\nat all")); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a newer level: %v", err)
	}
	m := memstore.New()
	s := New(createOnly{m})
	v := must[store.Version](t)(s.Create(t.Context(), k1, []byte("x")))
	must[store.Version](t)(m.Create(t.Context(), dir(k1)+"/foreign", nil))
	_, getErr := s.Get(t.Context(), k1, 100)
	_, writeErr := New(createOnly{m.Peer()}).Replace(t.Context(), k1, nil, v)
	for _, err := range []error{getErr, writeErr} {
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "foreign") {
			t.Errorf("a foreign object: %v", err)
		}
	}
}

// A listing that does not show the newest object is no ground to stand on.
//
// SPEC ST17
func TestUnfitListingIsNoSuccess(t *testing.T) {
	t.Parallel()
	s, _ := counted(t, memstore.New(), faultstore.Rule{Fault: faultstore.ListWithoutNewest(), Ops: []faultstore.Op{faultstore.OpList}})
	if _, err := s.Create(t.Context(), k1, nil); !errors.Is(err, store.ErrUnknown) || !strings.Contains(err.Error(), "not fit") {
		t.Errorf("%v", err)
	}
}

// A namespace is used plainly or through the register, never both ways.
//
// SPEC ST17
func TestGuard(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	must[store.Version](t)(m.Create(t.Context(), "plain/meta/namespace", []byte(`{"v":1}`)))
	s := New(createOnly{m})
	if _, err := s.Create(t.Context(), "plain/lease/a", nil); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "without register=numbered") {
		t.Errorf("a namespace that is in use plainly: %v", err)
	}
	if left := names(t, m, ""); len(left) != 1 {
		t.Errorf("the refused create left %q", left)
	}
	must[store.Version](t)(s.Create(t.Context(), "mine/meta/namespace", nil))
	if o := must[store.Object](t)(m.Get(t.Context(), GuardKey("mine/x"), 1000)); !Guarded(o.Body) {
		t.Errorf("the guard is %q", o.Body)
	}
	if _, err := m.Create(t.Context(), "mine/meta/namespace", nil); !errors.Is(err, store.ErrExists) {
		t.Errorf("a plain client could make its settings: %v", err)
	}
	lossy, _ := counted(t, m, faultstore.Rule{Fault: faultstore.LoseReply(), Ops: []faultstore.Op{faultstore.OpCreate}, Times: 1})
	if _, err := lossy.Create(t.Context(), "third/a", nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("nothing was sent but the guard: %v", err)
	}
	must[store.Version](t)(lossy.Create(t.Context(), "third/a", nil))
}

// What is remembered or cached of the plain store does not pass for the
// register's.
//
// SPEC ST10 ST14
func TestInfoIsAnotherStores(t *testing.T) {
	t.Parallel()
	m := memstore.New()
	plain, i := m.Info(), New(createOnly{m}).Info()
	if i.Identity == plain.Identity || i.Driver == plain.Driver || !strings.Contains(i.Driver, plain.Driver) {
		t.Errorf("%+v over %+v", i, plain)
	}
	if i.Can != store.CanWatch|store.CanClock|store.CanModTime {
		t.Errorf("it declares the powers %b", i.Can)
	}
}
