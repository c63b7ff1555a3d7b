package ledger_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// A jump only raises the sequence, and leaves room for what follows; nothing else of the
// head changes.
//
// SPEC LS12
func TestJump(t *testing.T) {
	t.Parallel()
	h := fullHead()
	for above, want := range map[uint64]uint64{0: 0, 41: 0, 42: 42, record.MaxNumber / 2: record.MaxNumber / 2} {
		n, err := h.Jump(above, id2)
		switch {
		case err != nil:
			t.Errorf("above %d: %v", above, err)
		case want == 0 && n != nil:
			t.Errorf("above %d: sequence %d", above, n.Sequence)
		case want != 0 && (n.Sequence != want || n.WriterAttempt != id2 || n.Epoch != h.Epoch || len(n.Open) != len(h.Open)):
			t.Errorf("above %d: %+v", above, n)
		}
	}
	if _, err := h.Jump(record.MaxNumber/2+1, id2); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a jump to the end: %v", err)
	}
}

// What lists ledgers and results learns whose they are from themselves, strictly.
//
// SPEC ST7 ST11
func TestReadWithoutAName(t *testing.T) {
	t.Parallel()
	head := must(fullHead().Encode())
	if name, err := ledger.AgentOf("k", head); err != nil || name != job {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := ledger.AgentOf("k", append(head, ' ')); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	body := must(fullResult().Encode())
	if r, err := ledger.ReadResult("k", job, body); err != nil || r.Attempt != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := ledger.ReadResult("k", "other", body); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	s := ledger.NewState()
	fullHead().Load(s.Into(job))
	if got := s.Agent(job).Epochs(); !maps.Equal(got, map[string]uint64{"paris": 9, "lyon": 20}) {
		t.Errorf("%v", got)
	}
}
