package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

func uuid(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n) }

var (
	ann = ledger.Claim{Holder: "ann", Epoch: 1}
	bob = ledger.Claim{Holder: "bob", Epoch: 2}
)

func look(h *ledger.Head, n int) *ledger.Found { return must(ledger.Look(h, nil, runOf(n))) }

func raised(t *testing.T, h *ledger.Head, c ledger.Claim) *ledger.Head {
	t.Helper()
	n, d, err := h.Raise(c, id1)
	if err != nil || d.Answer != ledger.Proceed || n == nil || n.Epoch != c.Epoch || n.Sequence != h.Sequence+1 {
		t.Fatalf("raise: %+v %v %v", n, d, err)
	}
	return n
}

func admitted(t *testing.T, h *ledger.Head, n int, c ledger.Claim) (*ledger.Head, ledger.Key) {
	t.Helper()
	next, d, err := look(h, n).Admit(c, ledger.Detail{Write: uuid(int(h.Sequence))})
	if err != nil || d.Answer != ledger.Proceed {
		t.Fatalf("admit: %v %v", d, err)
	}
	if !next.Has(runOf(n), uuid(int(h.Sequence))) || next.Has(runOf(n), uuid(999)) {
		t.Fatal("the head does not know which write admitted the attempt")
	}
	return next, d.Attempt
}

func settled(t *testing.T, h *ledger.Head, k ledger.Key, s ledger.Status) *ledger.Head {
	t.Helper()
	next, err := h.Settle(ledger.Outcome{Key: k, Status: s, By: "x"}, id2)
	if err != nil || next == nil {
		t.Fatalf("settle: %v %v", next, err)
	}
	return next
}

func start(t *testing.T) *ledger.Head {
	t.Helper()
	return raised(t, must(ledger.NewHead(job, "paris", id1)), ann)
}

// A head's epoch only rises, and says at once to a holder of an older one that it is
// over.
//
// SPEC EX4 EX2
func TestRaise(t *testing.T) {
	t.Parallel()
	h := raised(t, must(ledger.NewHead(job, "paris", id1)), bob)
	if n, d, err := h.Raise(bob, id2); n != nil || d.Answer != ledger.Proceed || err != nil {
		t.Errorf("raising again: %v %v %v", n, d, err)
	}
	for _, c := range []ledger.Claim{ann, {Holder: "ann", Epoch: 2}} {
		if n, d, err := h.Raise(c, id2); n != nil || d.Answer != ledger.StaleEpoch || d.Current != 2 || d.Holder != "bob" || err != nil {
			t.Errorf("%+v: %v %+v %v", c, n, d, err)
		}
	}
	if h.Seed() != 2 {
		t.Errorf("the seed is %d", h.Seed())
	}
	for _, c := range []ledger.Claim{{}, {Holder: "x"}, {Epoch: 3}, {Holder: "x", Epoch: record.MaxNumber + 1}, {Holder: "\xff", Epoch: 3}} {
		if _, _, err := h.Raise(c, id2); !errors.Is(err, store.ErrInvalid) && err == nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// An attempt is admitted only at the head's epoch, while the run is uncommitted and
// no attempt is open; the numbers of attempts rise.
//
// SPEC EX4
func TestAdmit(t *testing.T) {
	t.Parallel()
	h := start(t)
	one, k := admitted(t, h, 0, ann)
	if k.Attempt != 1 || k.Site != "paris" {
		t.Fatalf("the first attempt is %+v", k)
	}
	expect := func(what string, h *ledger.Head, c ledger.Claim, want ledger.Answer, running bool) ledger.Decision {
		t.Helper()
		n, d, err := look(h, 0).Admit(c, ledger.Detail{Write: id2})
		if n != nil || d.Answer != want || d.Running != running || err != nil {
			t.Errorf("%s: %v %+v %v", what, n, d, err)
		}
		return d
	}
	d := expect("the holder's own open attempt", one, ann, ledger.Unknown, true)
	if d.Open.Key != k || d.Open.Holder != "ann" || d.Open.Epoch != 1 {
		t.Errorf("the attempt in the way is %+v", d.Open)
	}
	expect("not raised", one, bob, ledger.StaleEpoch, false)
	later := raised(t, one, bob)
	expect("an older holder", later, ann, ledger.StaleEpoch, false)
	expect("an open attempt of an older epoch", later, bob, ledger.Unknown, false)
	done := settled(t, later, k, ledger.Committed)
	if !done.Committed(runOf(0)) || done.Committed(runOf(1)) || later.Committed(runOf(0)) {
		t.Error("what a head alone says")
	}
	if d := expect("committed at an older epoch", done, bob, ledger.AlreadyCommitted, false); d.Fact.Key != k || d.Repeated {
		t.Errorf("the commit is told as %+v", d)
	}
	expect("committed, told to anybody", done, ann, ledger.AlreadyCommitted, false)
	if _, k2 := admitted(t, settled(t, later, k, ledger.Failed), 0, bob); k2.Attempt != 2 {
		t.Errorf("the attempt after a failed one is %d", k2.Attempt)
	}
	if _, k2 := admitted(t, later, 1, bob); k2.Attempt != 1 {
		t.Errorf("another run begins with attempt %d", k2.Attempt)
	}
	if _, _, err := look(h, 0).Admit(ann, ledger.Detail{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a write without an id: %v", err)
	}
}

// The check before the effect, answer by answer and in their order.
//
// SPEC EX4
func TestCheck(t *testing.T) {
	t.Parallel()
	h, k := admitted(t, start(t), 0, ann)
	mine := ledger.Lease{Holder: "ann", Epoch: 1}
	other := ledger.Lease{Holder: "bob", Epoch: 2}
	later := raised(t, h, bob)
	rival := must(ledger.Look(later, nil, runOf(0)))
	retried, d, err := rival.Retry(bob, ledger.Detail{Write: id2})
	if err != nil || d.Attempt.Attempt != 2 {
		t.Fatalf("%v %v", d, err)
	}
	foreign := fold(intent(0, "lyon", 1, ledger.Pending, 5)).Agent(job)
	elsewhere := fold(intent(0, "lyon", 1, ledger.Committed, 5)).Agent(job)
	merged, _ := merge(t, h, foreign, blocks{})
	known, _ := merge(t, h, elsewhere, blocks{})
	byOperator := settled(t, h, k, ledger.Failed)
	for _, c := range []struct {
		name  string
		now   *ledger.Head
		lease ledger.Lease
		want  ledger.Answer
	}{
		{"nothing changed", h, mine, ledger.Proceed},
		{"committed meanwhile, and stale, and not held", settled(t, later, k, ledger.Committed), ledger.Lease{}, ledger.AlreadyCommitted},
		{"a later epoch was raised", later, mine, ledger.StaleEpoch},
		{"retried by another", retried, other, ledger.StaleEpoch},
		{"the lease has a new holder that did not raise yet", h, other, ledger.StaleEpoch},
		{"the same holder, another epoch", h, ledger.Lease{Holder: "ann", Epoch: 2}, ledger.StaleEpoch},
		{"another holder, the same epoch", h, ledger.Lease{Holder: "bob", Epoch: 1}, ledger.StaleEpoch},
		{"nobody holds the lease", h, ledger.Lease{}, ledger.NotHeld},
		{"another site was merged", merged, mine, ledger.LookAgain},
		{"another site was merged that committed", known, mine, ledger.LookAgain},
		{"settled by an operator", byOperator, mine, ledger.Withdrawn},
		{"another run went on", settled(t, must(first(admitted(t, h, 1, ann)), nil), ledger.Key{Run: runOf(1), Site: "paris", Attempt: 1}, ledger.Committed), mine, ledger.Proceed},
	} {
		if d := ledger.Check(h, c.now, c.lease, ann, k); d.Answer != c.want || (d.Answer == ledger.Proceed) != (d.Attempt == k) {
			t.Errorf("%s: %v %+v", c.name, d.Answer, d)
		}
	}
	// One that came with a merge before the admission stands in the way; of another
	// run it does not.
	after, d, err := blocks{"r": emptied(t)}.look(t, merged, 1).Admit(ann, ledger.Detail{Write: id2})
	if err != nil {
		t.Fatal(err)
	}
	if d := ledger.Check(after, after, mine, ann, d.Attempt); d.Answer != ledger.Proceed {
		t.Errorf("a run that the merge does not concern: %v", d.Answer)
	}
	if d := ledger.Check(merged, merged, mine, ann, k); d.Answer != ledger.Unknown || d.Open.Site != "lyon" {
		t.Errorf("another site's open attempt: %+v", d)
	}
}

func first[A, B any](a A, _ B) A { return a }

// Outcomes are facts: accepted from anybody at any epoch, once.
//
// SPEC EX3 EX4
func TestSettle(t *testing.T) {
	t.Parallel()
	h, k := admitted(t, start(t), 0, ann)
	later := raised(t, h, bob)
	retried, _, err := must(ledger.Look(later, nil, runOf(0))).Retry(bob, ledger.Detail{Write: id2})
	if err != nil {
		t.Fatal(err)
	}
	zombie := settled(t, retried, k, ledger.Committed)
	if yes, twice := look(zombie, 0).Committed(); !yes || !twice {
		t.Errorf("a commit of an abandoned attempt: committed %v, repeated %v", yes, twice)
	}
	if n, err := zombie.Settle(ledger.Outcome{Key: k, Status: ledger.Committed}, id2); n != nil || err != nil {
		t.Errorf("settling again: %v %v", n, err)
	}
	if len(zombie.Open) != 1 {
		t.Errorf("the second attempt is no longer shown as open")
	}
	began, err := h.Settle(ledger.Outcome{Key: k, Status: ledger.Failed, NotStarted: true}, id2)
	if err != nil || !look(began, 0).Attempts()[0].NotBegun {
		t.Errorf("not started: %+v %v", began, err)
	}
	if n, k2 := admitted(t, began, 0, ann); k2.Attempt != 2 || len(n.Open) != 1 {
		t.Errorf("after one that did not start: %+v", k2)
	}
	// What malformed intents of a merge left open can be settled too.
	broken := intent(0, "", 0, ledger.Pending, 0)
	broken.Run = ledger.RunID{}
	odd, b := merge(t, start(t), fold(broken).Agent(job), blocks{})
	if len(odd.Open) != 1 || len(settled(t, odd, broken.Key, ledger.Failed).Open) != 0 || len(b.all(odd).Opens()) != 1 {
		t.Errorf("a malformed intent leaves %+v", odd.Open)
	}
	for name, o := range map[string]ledger.Outcome{
		"pending":     {Key: k, Status: ledger.Pending},
		"raised":      {Key: k, Status: ledger.Raised},
		"no status":   {Key: k},
		"no run":      {Key: ledger.Key{Site: "paris", Attempt: 1}, Status: ledger.Committed},
		"not started": {Key: k, Status: ledger.Committed, NotStarted: true},
		"long name":   {Key: k, Status: ledger.Abandoned, By: string(make([]byte, 300))},
	} {
		if _, err := h.Settle(o, id2); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A retry abandons and admits in one write, only what its holder has lost, and not
// for ever.
//
// SPEC EX4
func TestRetry(t *testing.T) {
	t.Parallel()
	h, k := admitted(t, start(t), 0, ann)
	if n, d, err := look(h, 0).Retry(ann, ledger.Detail{Write: id2}); n != nil || d.Answer != ledger.Unknown || !d.Running || err != nil {
		t.Errorf("an attempt of the own epoch is abandoned: %v %v", d, err)
	}
	later := raised(t, h, bob)
	n, d, err := look(later, 0).Retry(bob, ledger.Detail{Write: id2})
	if err != nil || d.Attempt.Attempt != 2 || len(n.Open) != 1 || len(n.Facts) != 1 {
		t.Fatalf("%+v %+v %v", n, d, err)
	}
	if f := n.Facts[0]; f.Key != k || f.Abandoned == nil || f.Abandoned.By != "bob" || f.Abandoned.Epoch != 2 {
		t.Errorf("the abandoned attempt is %+v", f)
	}
	lyon := ledger.Key{Run: runOf(0), Site: "lyon", Attempt: 1}
	merged, _ := merge(t, start(t), fold(intent(0, "lyon", 1, ledger.Pending, 1)).Agent(job), blocks{})
	free := raised(t, merged, bob)
	bl := blocks{"r": emptied(t)}
	if _, d, err := bl.look(t, free, 0).Retry(bob, ledger.Detail{Write: id2}); d.Answer != ledger.Unknown || err != nil {
		t.Errorf("another site's attempt is abandoned without a word: %v %v", d, err)
	}
	if n, d, err := bl.look(t, free, 0).Retry(bob, ledger.Detail{Write: id2}, lyon); d.Answer != ledger.Proceed || err != nil || n.Facts[0].Key != lyon {
		t.Errorf("another site's attempt that is vouched for: %v %v", d, err)
	}
	for e := uint64(2); ; e++ {
		c := ledger.Claim{Holder: "x", Epoch: e}
		h, _, err = h.Raise(c, id1)
		if err != nil {
			t.Fatal(err)
		}
		next, _, err := look(h, 0).Retry(c, ledger.Detail{Write: id2})
		if err != nil {
			if e != ledger.MaxAbandoned+1 || !errors.Is(err, store.ErrInvalid) {
				t.Errorf("at epoch %d: %v", e, err)
			}
			break
		}
		h = next
	}
}

// The policies, step by step. A crash leaves a claim that a retry takes over with the
// next attempt, or a clear "unknown": never a day of refusals.
//
// SPEC EX4
// CASE B13
func TestPolicies(t *testing.T) {
	t.Parallel()
	unknown := ledger.Decision{Answer: ledger.Unknown, Open: ledger.Open{Key: ledger.Key{Run: runOf(0), Site: "paris", Attempt: 1}}}
	running := unknown
	running.Running = true
	for _, c := range []struct {
		p    ledger.Policy
		d    ledger.Decision
		over bool
		f    ledger.Finding
		step ledger.Step
		s    ledger.Status
	}{
		{ledger.Hold, running, false, 0, ledger.StepWait, ""},
		{ledger.Retry, running, false, 0, ledger.StepWait, ""},
		{ledger.Retry, unknown, false, 0, ledger.StepHold, ""}, // another site's
		{ledger.Hold, unknown, true, ledger.Happened, ledger.StepHold, ""},
		{ledger.Retry, unknown, true, 0, ledger.StepRetry, ""},
		{ledger.Retry, running, true, 0, ledger.StepRetry, ""},
		{ledger.Probe, unknown, true, ledger.NotAsked, ledger.StepProbe, ""},
		{ledger.Probe, unknown, true, ledger.Happened, ledger.StepSettle, ledger.Committed},
		{ledger.Probe, unknown, true, ledger.DidNotHappen, ledger.StepSettle, ledger.Failed},
		{ledger.Probe, unknown, true, ledger.CannotSay, ledger.StepHold, ""},
	} {
		step, o := c.p.Next(c.d, c.over, c.f, "probe")
		if step != c.step || o.Status != c.s || (o.Status != "" && o.Key != c.d.Open.Key) {
			t.Errorf("%v over %v, running %v, finding %v: step %v, %+v", c.p, c.over, c.d.Running, c.f, step, o)
		}
	}
	for _, s := range []string{"hold", "probe", "retry"} {
		if p, err := ledger.ParsePolicy(s); err != nil || string(p) != s {
			t.Errorf("%s: %v %v", s, p, err)
		}
	}
	if _, err := ledger.ParsePolicy("skip"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("skip: %v", err)
	}
	h, k := admitted(t, start(t), 0, ann)
	o := h.Open[0]
	later := raised(t, h, bob)
	for name, c := range map[string]struct {
		h    *ledger.Head
		o    ledger.Open
		l    ledger.Lease
		want bool
	}{
		"its holder has the lease":   {h, o, ledger.Lease{Holder: "ann", Epoch: 1}, false},
		"nobody has the lease":       {h, o, ledger.Lease{}, true},
		"another has the lease":      {h, o, ledger.Lease{Holder: "bob", Epoch: 2}, true},
		"a later epoch was raised":   {later, o, ledger.Lease{Holder: "ann", Epoch: 1}, true},
		"an attempt of another site": {later, ledger.Open{Key: ledger.Key{Run: k.Run, Site: "lyon", Attempt: 1}}, ledger.Lease{}, false},
	} {
		if got := ledger.Over(c.h, c.o, c.l); got != c.want {
			t.Errorf("%s: over is %v", name, got)
		}
	}
	if o.Exceeded(1<<50) || !(ledger.Open{Detail: ledger.Detail{Until: 5}}).Exceeded(5) || (ledger.Open{Detail: ledger.Detail{Until: 5}}).Exceeded(4) {
		t.Error("the time limit of an attempt")
	}
}

// The in-process coordinator: EX1 in order.
//
// SPEC EX1
func TestRegister(t *testing.T) {
	t.Parallel()
	const ttl = 100 * time.Millisecond
	r := ledger.NewRegister(0)
	a := must(r.Acquire("a", 0, ttl))
	if a != (ledger.Lease{Holder: "a", Epoch: 1}) || r.Current() != a {
		t.Fatalf("the first grant is %+v", a)
	}
	var held *ledger.HeldError
	for _, who := range []string{"a", "b"} {
		if _, err := r.Acquire(who, 99, ttl); !errors.As(err, &held) || held.Holder != "a" || held.ExpiresMS != 100 {
			t.Errorf("a live register, for %s: %v", who, err)
		}
	}
	var lost *ledger.LostError
	for _, l := range []ledger.Lease{{}, {Holder: "b", Epoch: 1}, {Holder: "a", Epoch: 2}} {
		if err := r.Renew(l, 50, ttl); !errors.As(err, &lost) {
			t.Errorf("renewing %+v: %v", l, err)
		}
		if err := r.Release(l); !errors.As(err, &lost) {
			t.Errorf("releasing %+v: %v", l, err)
		}
	}
	if r.Current() != a {
		t.Error("a failed release changed the holder")
	}
	if err := r.Renew(a, 500, ttl); err != nil || r.Current() != a {
		t.Errorf("a renewal after a lapse that nobody used: %v", err)
	}
	if _, err := r.Acquire("b", 599, ttl); !errors.As(err, &held) {
		t.Errorf("after the renewal: %v", err)
	}
	b := must(r.Acquire("b", 600, ttl))
	if b.Epoch != 2 || !errors.As(r.Renew(a, 600, ttl), &lost) || lost.Current != b {
		t.Errorf("stolen after a lapse: %+v, then %v", b, lost)
	}
	if r.Release(b) != nil || r.Current() != (ledger.Lease{}) || r.Release(b) == nil || r.Renew(b, 600, ttl) == nil {
		t.Error("a release")
	}
	if c := must(r.Acquire("c", 600, ttl)); c.Epoch != 3 {
		t.Errorf("the epoch after a release is %d", c.Epoch)
	}
	if c := must(r.Acquire("c", 700, ttl)); c.Epoch != 4 {
		t.Errorf("the epoch of a holder that lapsed and comes again is %d", c.Epoch)
	}
	if _, err := r.Acquire("d", 1<<60, 0); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a TTL of 0: %v", err)
	}
	d := must(r.Acquire("d", 1<<63-50, ttl))
	if _, err := r.Acquire("e", 1<<63-2, ttl); !errors.As(err, &held) || r.Current() != d {
		t.Errorf("at the end of time: %v", err)
	}
}
