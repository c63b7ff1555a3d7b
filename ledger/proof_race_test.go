package ledger

import (
	"testing"
)

// The reply to the write that raises the epoch is lost, and before it can be read back
// somebody settles another run: what he wrote stands, and is not written over by the
// admission that follows.
//
// SPEC EX3 EX4 ST9
func TestRaiseIsFoundUnderOtherWrites(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, left := w.leave(at(1), true)
		other := w.host()
		h := w.racing(&meanwhile{op: "replace", key: "/ledger/", after: true, do: func() {
			if err := other.Settle(t.Context(), left, AsCommitted, SettleOptions{Reason: "it is there", Vouch: true}); err != nil {
				t.Error(err)
			}
		}})
		want(t, h.do(at(2), Wait(5*ttl)), Ran, 1)
		if r := w.info(at(1)); !r.Committed || r.Unknown {
			t.Errorf("a commit is lost: %+v", r)
		}
		want(t, w.host().do(at(1), OnUnknown(Retry)), Done, 1)
		if plain, _ := w.effects(at(1)); plain != 1 {
			t.Errorf("%d effects", plain)
		}
	})
}
