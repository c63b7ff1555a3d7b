package ledger_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
)

// Whatever is decoded is the one encoding of itself.
//
// SPEC ST7
func FuzzDecodeHead(f *testing.F) {
	f.Add(must(fullHead().Encode()))
	f.Add(must(must(ledger.NewHead(job, "paris", id1)).Encode()))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		h, err := ledger.DecodeHead("k", job, body)
		if err != nil {
			return
		}
		if again := must(h.Encode()); !bytes.Equal(again, body) {
			t.Fatalf("%s\nis encoded as\n%s", body, again)
		}
		for _, leaf := range h.Blocks() {
			if leaf == "" && len(h.Blocks()) > 1 {
				t.Fatal("the root is a leaf among others")
			}
		}
		run := runOf(1)
		if leaf, ok := h.BlockOf(run); ok && !slices.Contains(h.Blocks(), leaf) {
			t.Fatalf("a run belongs to leaf %q, which there is not", leaf)
		}
		n, _, err := h.Raise(ledger.Claim{Holder: "x", Epoch: h.Epoch + 1}, id2)
		if err == nil && n.Valid() != nil {
			t.Fatal("a head that was raised is not valid")
		}
	})
}

// Blocks and checkpoints that are accepted load, and come out as they went in.
//
// SPEC ST7 EX7
func FuzzDecodePack(f *testing.F) {
	a := ledger.NewAgent(job, 0)
	fullHead().Load(a)
	f.Add(must(a.Checkpoint()))
	f.Add(must(ledger.NewAgent("", 0).Checkpoint()))
	h := fullHead()
	h.Leaves = ""
	f.Add(must(ledger.Compact(h).Take("", nil)))
	f.Fuzz(func(t *testing.T, body []byte) {
		if b, err := ledger.DecodeBlock("k", job, "", body); err == nil {
			b.Find(runOf(0))
			b.Load(ledger.NewAgent(job, 0))
		}
		s := ledger.NewState()
		if s.Load("k", body) != nil {
			return
		}
		for _, name := range s.Agents() {
			again := ledger.NewState()
			if err := again.Load("k", must(s.Agent(name).Checkpoint())); err != nil || !again.Agent(name).Equal(s.Agent(name)) {
				t.Fatalf("a checkpoint does not survive: %v", err)
			}
		}
	})
}

// No log makes the reader fail in any other way than by an error, and what was read
// folds; its compacted form reads as the same state.
//
// SPEC EX3
func FuzzReadLog(f *testing.F) {
	i := intent(0, "a", 1, ledger.Pending, 1)
	log := must(ledger.AppendLine(nil, &i))
	f.Add(log)
	f.Add(log[:len(log)-3])
	f.Add([]byte("deadbeef {}\n"))
	f.Fuzz(func(t *testing.T, log []byte) {
		s, n := ledger.NewState(), 0
		r, err := ledger.ReadLog("f", log, func(i ledger.Intent) { s.Fold(i); n++ })
		if n != r.Lines || r.Good > len(log) || err == nil && !r.Torn && r.Good != len(log) {
			t.Fatalf("%d intents, %+v, %v", n, r, err)
		}
		laws(t, s)
	})
}

// What is no valid intent is placed where it promotes nothing, and never panics.
//
// SPEC EX3
func FuzzLenient(f *testing.F) {
	i := intent(0, "a", 1, ledger.Committed, 1)
	f.Add(must(i.Encode()))
	f.Add([]byte(`{"v":1,"epoch":1e3,"agent":"\ud800","status":["committed"],"run":7,"attempt":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		i, clean, err := ledger.Lenient(body)
		if err != nil {
			return
		}
		again, err := i.Encode()
		if clean && (err != nil || !bytes.Equal(again, body)) {
			t.Fatalf("%s is called clean, and is encoded as %s, %v", body, again, err)
		}
		s := ledger.NewState()
		s.Fold(i)
		laws(t, s)
		if yes, _ := s.Agent(i.Agent).Committed(i.Run); yes != (i.Status == ledger.Committed) || yes && !bytes.Contains(body, []byte("committed")) && !bytes.Contains(body, []byte(`\u`)) {
			t.Fatalf("%s folds as committed %v", body, yes)
		}
	})
}

func laws(t *testing.T, s *ledger.State) {
	t.Helper()
	again := ledger.NewState()
	for _, name := range s.Agents() {
		for _, i := range slices.Backward(s.Agent(name).Intents()) {
			again.Fold(i)
		}
	}
	if !again.Equal(s) {
		t.Fatal("the fewest intents fold to something else")
	}
	again.Join(s)
	if !again.Equal(s) {
		t.Fatal("a join with itself changes a state")
	}
}
