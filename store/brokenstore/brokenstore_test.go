package brokenstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// probe probes s with virtual time.
func probe(t *testing.T, s store.Store, deep bool) (store.Report, error) {
	t.Helper()
	return store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("n", "probe"), Deep: deep})
}

// said is what an operator reads of each kind: the property that it lacks, and
// the beginning of what that means. No property: the probe came to no verdict,
// and says why.
var said = map[string]struct {
	lacks store.Property
	words string
}{
	"ignores If-None-Match":            {store.CreateRefuses, "the store let a second create of one key succeed, as if it ignored the condition: every contender for a new lease would get it"},
	"ignores If-Match":                 {store.ReplaceRefuses, "the store let a replace at an old version succeed, as if it ignored the condition: a holder that lost its lease would overwrite the next one"},
	"ignores 1 condition in 50":        {"", "the store failed its probe"}, // see rarely
	"both racers win":                  {store.OneCreator, "the store did not let exactly one of several creators of one key win: leases on it could have two holders, or none"},
	"reads are stale":                  {store.ReadShowsWrite, "a read did not show a write that the store had acknowledged: holders and contenders would act on what was true before"},
	"lists without the newest key":     {store.ListShows, "a listing did not show a key that had been written: leases would be missing from what operators and recovery see"},
	"repeats versions":                 {store.VersionsUnique, "writing the same bytes again gave an old version back, although the driver declares that versions are unique"},
	"forgets deletes":                  {store.DeleteRemoves, "a record was still there after the store had acknowledged its deletion"},
	"answers writes with 409 for ever": {"", "the store did not let the probe finish within 30s: it said \"try again\" "},
	"rewrites ETags":                   {store.VersionAgrees, "a read gave another version than the write that it shows had given, as if a proxy that compresses rewrote ETags: every renewal would look like a loss"},
	"answers with an error page":       {store.BodyKept, "a read succeeded with something that nobody wrote, such as an error page: "},
}

// rarely is what the probe may say of a store that ignores a condition now and
// then: it depends on which write met it, and the probe's keys are random.
var rarely = map[store.Property]string{
	store.CreateRefuses:       "the store let a second create of one key succeed, as if it ignored the condition",
	store.ReplaceRefuses:      "the store let a replace at an old version succeed, as if it ignored the condition",
	store.ReplaceNeverCreates: "a replace of an absent key was not answered with \"not found\"",
	store.OneCreator:          "the store did not let exactly one of several creators of one key win",
	store.OneReplacer:         "the store did not let exactly one of several writers that replace one version win",
}

// The probe names every kind, in words for an operator.
//
// SPEC ST10
// CASE B21 B82
func TestProbeNamesEveryKind(t *testing.T) {
	t.Parallel()
	for _, k := range Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := k.Break(memstore.New())
				defer s.Close()
				want, known := said[k.Name]
				r, err := probe(t, s, k.Rare)
				if !known || err == nil || !strings.Contains(err.Error(), want.words) {
					t.Fatalf("the probe says: %v\nwant: %s", err, want.words)
				}
				t.Log(err)
				var failed *store.ProbeError
				if named := errors.As(err, &failed); want.lacks != "" && (!named || failed.Property != want.lacks) {
					t.Errorf("the probe names %v, want %q", failed, want.lacks)
				}
				if k.Rare && (failed == nil || rarely[failed.Property] == "" || !strings.Contains(err.Error(), rarely[failed.Property])) {
					t.Errorf("the probe says: %v", err)
				}
				if r.Sound {
					t.Error("the report calls it sound")
				}
			})
		})
	}
	if len(said) != len(Kinds()) {
		t.Errorf("%d kinds, %d sayings", len(Kinds()), len(said))
	}
}

// What ignores 1 condition in 50 escapes a quick probe most times, and a deep one
// with the odds that its report states: (49/50)^500, which is 0.004 %.
//
// SPEC ST10
// CASE B21
func TestRareFaultNeedsTheDeepProbe(t *testing.T) {
	t.Parallel()
	escaped := map[bool]int{}
	const worlds = 40
	for seed := range uint64(worlds) {
		for _, deep := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := IgnoresSomeConditions(memstore.New(), 50, seed)
				defer s.Close()
				if _, err := probe(t, s, deep); err == nil {
					escaped[deep]++
				} else if !errors.As(err, new(*store.ProbeError)) {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
	}
	// One deep escape happens in one of a thousand runs, two never.
	if escaped[true] > 1 || escaped[false] < worlds/4 {
		t.Errorf("of %d stores that ignore 1 condition in 50, %d escaped the quick probe and %d the deep one", worlds, escaped[false], escaped[true])
	}
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		r, err := probe(t, s, true)
		if alike, _ := r.Escape(50); err != nil || alike > 0.000042 || !strings.Contains(r.Odds(), "would pass this with a chance of 0.00") {
			t.Errorf("the deep probe of a sound store: %v, odds %v: %s", err, alike, r.Odds())
		}
	})
}

// The family stands over a store and does not hide what it can do.
func TestKindsKeepPowers(t *testing.T) {
	t.Parallel()
	names := []string{}
	for _, k := range Kinds() {
		m := memstore.New()
		s := k.Break(m)
		want := m.Info().Can
		if k.Name == "repeats versions" { // translates versions, so it watches none
			want &= store.CanDeleteIf | store.CanModTime
		}
		if can := s.Info().Can; can != want {
			t.Errorf("%s: powers %b, want %b", k.Name, can, want)
		}
		names = append(names, k.Name)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(Kinds()) {
		t.Error("two kinds have one name")
	}
}
