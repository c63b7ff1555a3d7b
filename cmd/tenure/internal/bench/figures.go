package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Step is what was measured of one kind of step: an operation of the store, or
// something that the library does with a lease.
type Step struct {
	// Name says which step.
	Name string
	// Times are what the steps took that succeeded.
	Times Times
	// Failed counts the steps that failed.
	Failed int
	// Calls is the mean number of store calls of one step, by operation.
	Calls map[string]float64
}

// Times are durations in ascending order.
type Times []time.Duration

// Percentile is the least of the durations that at least p per cent of all are
// not above (the nearest rank), 0 if there are none. p is above 0 and at most
// 100.
func (t Times) Percentile(p float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	rank := int(math.Ceil(p / 100 * float64(len(t))))
	return t[min(max(rank, 1), len(t))-1]
}

// Max is the longest, 0 if there are none.
func (t Times) Max() time.Duration { return t.Percentile(100) }

// The steps, in the order of a report.
const (
	StepCreate       = "create"
	StepGet          = "get"
	StepReplace      = "replace"
	StepList         = "list" // of the few keys of the moment: one page
	StepDelete       = "delete"
	StepAcquireNew   = "acquire-new"   // a name never used before
	StepAcquireKnown = "acquire-known" // one that was released
	StepRenew        = "renew"
	StepRelease      = "release"
)

var order = []string{StepCreate, StepGet, StepReplace, StepList, StepDelete, StepAcquireNew, StepAcquireKnown, StepRenew, StepRelease}

// figures collects what was measured. It is safe for concurrent use.
type figures struct {
	mu    sync.Mutex
	steps map[string]*Step
	loose map[string]map[string]int // calls outside any step, by key and operation
	inRow int                       // steps that failed since the last success
}

func newFigures() *figures {
	f := &figures{steps: map[string]*Step{}, loose: map[string]map[string]int{}}
	for _, name := range order {
		f.steps[name] = &Step{Name: name, Calls: map[string]float64{}}
	}
	return f
}

// succeeded adds one step that took so long and made these calls.
func (f *figures) succeeded(name string, took time.Duration, calls map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.steps[name]
	s.Times = append(s.Times, took)
	for op, n := range calls {
		s.Calls[op] += float64(n)
	}
	f.inRow = 0
}

// failed adds one step that failed, and returns how many did in a row.
func (f *figures) failed(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps[name].Failed++
	f.inRow++
	return f.inRow
}

// any reports whether any step succeeded.
func (f *figures) any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.steps {
		if len(s.Times) > 0 {
			return true
		}
	}
	return false
}

// median is that of one kind of step so far.
func (f *figures) median(name string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Times(slices.Sorted(slices.Values(f.steps[name].Times))).Percentile(50)
}

// report is every step, in order, with means for sums.
func (f *figures) report() []Step {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Step, 0, len(order))
	for _, name := range order {
		s := *f.steps[name]
		s.Times = slices.Sorted(slices.Values(s.Times))
		s.Calls = map[string]float64{}
		for op, n := range f.steps[name].Calls {
			s.Calls[op] = n / float64(len(s.Times))
		}
		out = append(out, s)
	}
	return out
}

// tally counts the calls of one step. The step's context leads to it, also from
// within the library.
type tally struct {
	mu    sync.Mutex
	calls map[string]int
}

type tallyKey struct{}

func withTally(ctx context.Context) (context.Context, *tally) {
	t := &tally{calls: map[string]int{}}
	return context.WithValue(ctx, tallyKey{}, t), t
}

func (t *tally) take() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = map[string]int{}
	return calls
}

// seen counts a call for its step; what the library does on its own account, in
// the background, is counted by key.
func (f *figures) seen(ctx context.Context, c Call) {
	if t, ok := ctx.Value(tallyKey{}).(*tally); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calls[c.Op]++
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loose[c.Key] == nil {
		f.loose[c.Key] = map[string]int{}
	}
	f.loose[c.Key][c.Op]++
}

// takeLoose are the calls in the background on key since the last look.
func (f *figures) takeLoose(key string) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.loose[key]
	delete(f.loose, key)
	return calls
}
