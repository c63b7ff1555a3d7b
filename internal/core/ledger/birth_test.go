package ledger_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

func bornAt(site, id string) ledger.Intent {
	return ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Site: site}, Status: ledger.Raised, Birth: id}
}

// Two ledgers of one site name are never merged: neither into the one's head, nor two
// of another site, at once or one after the other. The same ledger comes as often as it
// likes, and one that says no birth is told from none.
//
// SPEC EX3 EX7
func TestTwoLedgersOfOneName(t *testing.T) {
	t.Parallel()
	done := func(site string) ledger.Intent { return intent(1, site, 1, ledger.Committed, 1) }
	ok := func(h *ledger.Head, all ...ledger.Intent) *ledger.Head {
		t.Helper()
		n, _ := merge(t, h, fold(all...).Agent(job), blocks{})
		return n
	}
	refused := func(h *ledger.Head, all ...ledger.Intent) {
		t.Helper()
		if _, err := ledger.Import(h, fold(all...).Agent(job)); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("imported: %v", err)
		}
	}
	h := start(t)
	if h.Birth != id1 {
		t.Fatalf("born as %s", h.Birth)
	}
	ok(h, bornAt("paris", id1), done("paris"))
	ok(h, done("paris"))
	refused(h, bornAt("paris", id2), done("paris"))
	refused(h, bornAt("paris", id1), bornAt("paris", id2))
	refused(h, bornAt("lyon", id1), bornAt("lyon", id2))
	knows := ok(h, bornAt("lyon", id1), done("lyon"))
	for range 3 { // through every kind of write
		if knows.Epochs[0].Birth != id1 || knows.Birth != h.Birth {
			t.Fatalf("%+v", knows.Epochs)
		}
		refused(knows, bornAt("lyon", id2))
		ok(knows, bornAt("lyon", id1), bornAt("nice", id2))
		knows = must(knows.Jump(knows.Sequence+1, id2))
	}
	if n := must(ledger.Continue(job, "paris", id1, fold(bornAt("paris", id2)).Agent(job))); n.Birth != id2 || n.WriterAttempt != id1 {
		t.Errorf("a ledger that goes on was born as %s", n.Birth)
	}
	if n := must(ledger.Continue(job, "paris", id1, fold(bornAt("lyon", id2)).Agent(job))); n.Birth != id1 {
		t.Errorf("a new ledger was born as %s", n.Birth)
	}
}

// written is the state as a log, read again.
func written(t *testing.T, s *ledger.State) (*ledger.State, ledger.Read) {
	t.Helper()
	var log []byte
	for _, name := range s.Agents() {
		for _, i := range s.Agent(name).Intents() {
			log = must(ledger.AppendFolded(log, &i))
		}
	}
	back := ledger.NewState()
	return back, must(ledger.ReadLog("f", log, back.Fold))
}

// Merging logs and reading the merged one knows what reading each knows, also of what
// is malformed.
//
// SPEC EX3 EX7
func TestMergedLogKnowsTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		x, y := randomIntents(r, r.IntN(12)), randomIntents(r, r.IntN(12))
		both := fold(slices.Concat(x, y)...)
		a, _ := written(t, fold(x...))
		b, _ := written(t, fold(y...))
		a.Join(b)
		merged, _ := written(t, a)
		if !merged.Equal(both) || describe(merged) != describe(both) {
			t.Fatalf("seed %d: the merged log knows\n%s\nwant\n%s", seed, describe(merged), describe(both))
		}
	}
}

// A commit in a malformed line counts as much in a merged log as in a direct import.
//
// SPEC EX3 EX7
func TestMalformedCommitSurvivesTheMerge(t *testing.T) {
	t.Parallel()
	const line = `{"v":1,"agent":"nightly","run":"%v","site":%q,"attempt":%d,"holder":"<h>","epoch":1,"status":"committed"%s}`
	for name, body := range map[string]string{
		"attempt 0":    fmt.Sprintf(line, runOf(0), "east", 0, ""),
		"no site":      fmt.Sprintf(line, runOf(0), "", 1, ""),
		"a field more": fmt.Sprintf(line, runOf(0), "east", 1, `,"x":1`),
		"huge attempt": fmt.Sprintf(line, runOf(0), "east", uint64(5e9), ""),
		"no number":    fmt.Sprintf(line, runOf(0), "east", uint64(record.MaxNumber)+1, ""),
	} {
		log := fmt.Appendf(nil, "%08x %s\n", crc32.Checksum([]byte(body), crc32.MakeTable(crc32.Castagnoli)), body)
		s := ledger.NewState()
		if r := must(ledger.ReadLog("f", log, s.Fold)); r.Malformed != 1 {
			t.Fatalf("%s: %+v", name, r)
		}
		back, _ := written(t, s)
		yes, _ := back.Agent(job).Committed(runOf(0))
		h, b := merge(t, start(t), back.Agent(job), blocks{})
		if imported, _ := b.look(t, h, 0).Committed(); !yes || !imported {
			t.Errorf("%s: committed %v after the merge, %v after the import", name, yes, imported)
		}
	}
}
