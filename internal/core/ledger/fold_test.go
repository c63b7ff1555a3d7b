package ledger_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
)

// The fold agrees with a list that is searched by brute force, over intents of any
// form, in any order, with any repeats.
//
// SPEC EX3
func TestFoldIsWhatTheOracleSays(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := randomIntents(r, r.IntN(20))
		want := oracle(all)
		for range 3 {
			mixed := append(slices.Clone(all), all[:r.IntN(len(all)+1)]...)
			r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
			if got := describe(fold(mixed...)); got != want {
				t.Fatalf("seed %d: %+v\ngot\n%s\nwant\n%s", seed, mixed, got, want)
			}
		}
	}
}

// Joins are commutative, associative and idempotent, and a join is the fold of both.
//
// SPEC EX3 EX7
func TestJoinLaws(t *testing.T) {
	t.Parallel()
	join := func(all ...*ledger.State) *ledger.State {
		s := ledger.NewState()
		for _, o := range all {
			s.Join(o)
		}
		return s
	}
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		x, y, z := randomIntents(r, r.IntN(9)), randomIntents(r, r.IntN(9)), randomIntents(r, r.IntN(9))
		a, b, c := fold(x...), fold(y...), fold(z...)
		whole := fold(slices.Concat(x, y, z)...)
		for name, s := range map[string]*ledger.State{
			"in order": join(a, b, c), "backwards": join(c, b, a), "left first": join(join(a, b), c), "right first": join(a, join(b, c)),
			"with repeats": join(a, b, a, c, b, join(a, b, c)),
		} {
			if !s.Equal(whole) || describe(s) != oracle(slices.Concat(x, y, z)) {
				t.Fatalf("seed %d, %s:\n%s\nwant\n%s", seed, name, describe(s), describe(whole))
			}
		}
		if !join(a, a).Equal(a) || !a.Equal(fold(x...)) {
			t.Fatalf("seed %d: a join changed its side, or is not idempotent", seed)
		}
	}
}

// Failures of older attempts are known up to a bound, and no longer than they count:
// whatever is joined in whatever order gives the same ones.
//
// SPEC EX3 EX7
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	most := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		all := make([]ledger.Intent, 20+r.IntN(60))
		for n := range all {
			all[n] = intent(r.IntN(2), pick(r, "a", "b"), uint64(1+r.IntN(30)), pick(r, ledger.Failed, ledger.Failed, ledger.Failed, ledger.Pending, ledger.Abandoned), 1)
			all[n].NotStarted = all[n].Status == ledger.Failed && r.IntN(4) == 0
			if r.IntN(150) == 0 {
				all[n].Status, all[n].NotStarted = ledger.Committed, false
			}
		}
		want := oracle(all)
		for range 4 {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			cut := r.IntN(len(all))
			a, b := fold(all[:cut]...), fold(all[cut/2:]...)
			a.Join(b)
			packed := ledger.NewState()
			if err := packed.Load("c", must(a.Agent(job).Checkpoint())); err != nil {
				t.Fatal(err)
			}
			for _, s := range []*ledger.State{a, packed, fold(all...)} {
				if got := describe(s); got != want {
					t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got, want)
				}
			}
		}
		for n := range 2 {
			failed := 0
			for _, at := range fold(all...).Agent(job).Attempts(runOf(n)) {
				if at.Failed {
					failed++
				}
			}
			most = max(most, failed)
		}
	}
	if most < ledger.MaxFailures || most > ledger.MaxFailures+2 {
		t.Errorf("up to %d failures of a run are known", most)
	}
}

// A checkpoint and any tail are the whole, also if the tail repeats what the
// checkpoint dropped; the same of a log file that was compacted to fewer lines.
//
// SPEC EX7
func TestCheckpointAndTail(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		x, y := randomIntents(r, r.IntN(15)), randomIntents(r, r.IntN(9))
		whole := fold(slices.Concat(x, y)...)
		early := fold(x...)
		packed, lines := ledger.NewState(), ledger.NewState()
		for _, name := range early.Agents() {
			if err := packed.Load("c", must(early.Agent(name).Checkpoint())); err != nil {
				t.Fatal(err)
			}
			for _, i := range early.Agent(name).Intents() {
				lines.Fold(i)
			}
		}
		if !packed.Equal(early) {
			t.Fatalf("seed %d: the checkpoint is\n%s\nwant\n%s", seed, describe(packed), describe(early))
		}
		tail := append(slices.Clone(y), x[:r.IntN(len(x)+1)]...)
		r.Shuffle(len(tail), func(i, j int) { tail[i], tail[j] = tail[j], tail[i] })
		for _, i := range tail {
			packed.Fold(i)
			lines.Fold(i)
		}
		if !packed.Equal(whole) {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, describe(packed), describe(whole))
		}
		if got := describe(lines); got != describe(whole) {
			t.Fatalf("seed %d: the compacted log gives\n%s\nwant\n%s", seed, got, describe(whole))
		}
	}
}

// The two views, case by case.
//
// SPEC EX3
func TestViews(t *testing.T) {
	t.Parallel()
	i := intent
	for _, c := range []struct {
		name           string
		intents        []ledger.Intent
		yes, twice     bool
		opens          int
		current        uint64 // attempt; 0 for none
		currentStarted bool
	}{
		{"nothing", nil, false, false, 0, 0, false},
		{"pending", []ledger.Intent{i(0, "a", 1, ledger.Pending, 3)}, false, false, 1, 1, false},
		{"committed", []ledger.Intent{i(0, "a", 1, ledger.Pending, 3), i(0, "a", 1, ledger.Committed, 3)}, true, false, 0, 1, true},
		{"a commit of an old epoch is a fact", []ledger.Intent{i(1, "a", 1, ledger.Raised, 9), i(0, "a", 1, ledger.Committed, 3)}, true, false, 0, 1, true},
		{"a pending of an old epoch is fenced and open", []ledger.Intent{i(0, "a", 1, ledger.Pending, 3), i(1, "a", 1, ledger.Pending, 4)}, false, false, 2, 0, false},
		{"another site's epoch fences nothing", []ledger.Intent{i(0, "a", 1, ledger.Pending, 3), i(1, "b", 1, ledger.Pending, 4)}, false, false, 2, 1, false},
		{"committed beats failed", []ledger.Intent{i(0, "a", 1, ledger.Failed, 3), i(0, "a", 1, ledger.Committed, 3)}, true, false, 0, 1, true},
		{"failed, then the next", []ledger.Intent{i(0, "a", 1, ledger.Failed, 3), i(0, "a", 2, ledger.Pending, 3)}, false, false, 1, 2, false},
		{"two attempts committed", []ledger.Intent{i(0, "a", 1, ledger.Committed, 3), i(0, "a", 2, ledger.Committed, 3)}, true, true, 0, 2, true},
		{"two sites committed", []ledger.Intent{i(0, "a", 1, ledger.Committed, 3), i(0, "b", 1, ledger.Committed, 3)}, true, true, 0, 1, true},
		{"an abandoned attempt committed", []ledger.Intent{i(0, "a", 1, ledger.Committed, 3), i(0, "a", 1, ledger.Abandoned, 4)}, true, true, 0, 1, true},
		{"abandoned, the next committed", []ledger.Intent{i(0, "a", 1, ledger.Abandoned, 4), i(0, "a", 2, ledger.Committed, 4)}, true, false, 0, 2, true},
		{"an open attempt beside a commit", []ledger.Intent{i(0, "a", 1, ledger.Committed, 3), i(0, "b", 1, ledger.Pending, 3)}, true, false, 1, 1, true},
		{"an old line that comes back opens nothing", []ledger.Intent{i(0, "a", 2, ledger.Failed, 3), i(0, "a", 1, ledger.Pending, 3)}, false, false, 0, 2, true},
	} {
		a := fold(c.intents...).Agent(job)
		yes, twice := a.Committed(runOf(0))
		cur, ok := a.Current(runOf(0))
		if yes != c.yes || twice != c.twice || len(a.Opens()) != c.opens || ok != (c.current > 0) || cur.Key.Attempt != c.current || (ok && cur.Open == nil) != c.currentStarted {
			t.Errorf("%s: committed %v, repeated %v, %d open, current %+v %v", c.name, yes, twice, len(a.Opens()), cur, ok)
		}
		if twice != (len(a.Repeated()) == 1) {
			t.Errorf("%s: the list of repeated runs is %v", c.name, a.Repeated())
		}
	}
}

// A coordinator that lost its counter starts above every epoch that the log or the
// checkpoint knows, also of attempts that were compacted away.
//
// SPEC EX2
func TestSeed(t *testing.T) {
	t.Parallel()
	early := fold(intent(0, "a", 1, ledger.Pending, 7), intent(0, "a", 1, ledger.Committed, 7), intent(1, "b", 1, ledger.Raised, 4))
	if got := early.Agent(job).Seed(); got != 7 {
		t.Errorf("the seed of a log is %d", got)
	}
	s := ledger.NewState()
	if err := s.Load("c", must(early.Agent(job).Checkpoint())); err != nil {
		t.Fatal(err)
	}
	if got := s.Agent(job).Seed(); got != 7 {
		t.Errorf("the seed of its checkpoint is %d", got)
	}
	s.Fold(intent(2, "a", 1, ledger.Pending, 9))
	if got := s.Agent(job).Seed(); got != 9 {
		t.Errorf("the seed of checkpoint and tail is %d", got)
	}
	r := ledger.NewRegister(s.Agent(job).Seed())
	if l := must(r.Acquire("h", 0, 1e9)); l.Epoch != 10 {
		t.Errorf("the first epoch after a lost counter is %d", l.Epoch)
	}
}
