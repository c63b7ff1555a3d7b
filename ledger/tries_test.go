package ledger

import (
	"context"
	"errors"
	"testing"

	core "github.com/tenure-project/tenure/internal/core/ledger"
)

var errTry = errors.New("boom")

// try is one attempt at the run that fails, before its effect began or after.
func (h *host) try(run Run, begun bool, opts ...OnceOption) Outcome {
	h.w.t.Helper()
	out, err := h.Once(h.w.t.Context(), run, func(context.Context, *Attempt) (Result, error) {
		return Result{NotStarted: !begun}, errTry
	}, opts...)
	if err != nil && !errors.Is(err, errTry) {
		h.w.t.Fatal(err)
	}
	return out
}

// MaxFailed counts what began and failed: neither an attempt that did not begin, wherever
// it stands among the others, nor one that was given up; also once all that was moved
// into blocks. A commit later makes all of it one fact again.
//
// SPEC EX3 EX4 EX7
func TestAttemptsThatDidNotBeginDoNotCount(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		for n, begun := range []bool{false, false, true, false, true, false, false, true} {
			want(t, h.try(at(1), begun, MaxFailed(3)), Failed, uint64(n+1))
			if _, err := h.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(t, h.do(at(1), MaxFailed(3)), GaveUp, 8)
		if r := w.info(at(1)); len(r.Attempts) != 3 || !r.Failed {
			t.Errorf("%+v", r)
		}
		if gone, err := h.Retry(t.Context(), at(1), SettleOptions{Reason: "once more"}); err != nil || len(gone) != 1 {
			t.Fatalf("%v, %v", gone, err)
		}
		want(t, h.try(at(1), false, MaxFailed(3)), Failed, 9) // it was withdrawn: the one more is to come yet
		want(t, h.try(at(1), true, MaxFailed(3)), Failed, 10)
		want(t, h.do(at(1), MaxFailed(3)), GaveUp, 10)
		want(t, h.do(at(1), MaxFailed(4)), Ran, 11)
		if r := w.info(at(1)); len(r.Attempts) != 2 || r.Attempts[0].Abandoned == nil || !r.Attempts[1].Committed {
			t.Errorf("what failed before a commit is kept: %+v", r)
		}
	})
}

// However many attempts did not begin or failed: the count is exact up to one more than
// the failures that are kept, and above that errs towards giving up.
//
// SPEC EX3
func TestManyFailures(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		const most = core.MaxFailures + 1
		for n := range 3 * most {
			want(t, h.try(at(1), n%3 == 1, MaxFailed(0)), Failed, uint64(n+1))
		}
		// most failed, and twice as many did not begin, the last among them.
		want(t, h.try(at(1), true, MaxFailed(most+1)), Failed, 3*most+1)
		want(t, h.do(at(1), MaxFailed(most)), GaveUp, 3*most+1)
		want(t, h.do(at(1), MaxFailed(most+1)), GaveUp, 3*most+1)
		want(t, h.do(at(1), MaxFailed(3*most+2)), Ran, 3*most+2)
	})
}
