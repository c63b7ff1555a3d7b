package authority

import (
	"errors"
	"testing"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// A prune that meets a missing entry, and cannot read the head again, does not call
// the log corrupt: a compaction may have removed the entry, and nobody knows.
//
// SPEC LA5 LA8
func TestPruneThatCannotLookAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		first := p.append(l, abort(1), Created)
		p.append(l, abort(2), Created)
		key := p.key(string(core.KindEntry), first.Winner.Name().Element())
		w.set(key, nil)
		q.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpGet}, Key: q.headKey, Skip: 1, Fault: faultstore.Fail(store.ErrUnavailable)})
		if _, err := Prune(t.Context(), q.client, theOne); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrCorrupt) {
			t.Errorf("prune: %v", err)
		}
		q.link.Clear()
		if _, err := Prune(t.Context(), q.client, theOne); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("prune of a broken log: %v", err)
		}
	})
}
