package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// blocks are what a store has under BlockName.
type blocks map[string][]byte

// run carries a compaction out against the store and returns the head to write.
func (b blocks) run(t *testing.T, c *ledger.Compaction) *ledger.Head {
	t.Helper()
	for leaf, ok := c.Next(); ok; leaf, ok = c.Next() {
		write, err := c.Take(leaf, b[ledger.BlockName(leaf)])
		if err != nil {
			t.Fatal(err)
		}
		if write != nil {
			if len(write) > ledger.MaxBlock {
				t.Fatalf("a block of %d bytes", len(write))
			}
			b[ledger.BlockName(leaf)] = write
			if len(write)%2 == 0 {
				c.Wrote(leaf) // else it is read and taken again
			}
		}
	}
	h, err := c.Head(id2)
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range c.Split() {
		delete(b, ledger.BlockName(leaf))
	}
	return h
}

func (b blocks) look(t *testing.T, h *ledger.Head, n int) *ledger.Found {
	t.Helper()
	return b.find(t, h, runOf(n))
}

// find answers for one run from the head and one block.
func (b blocks) find(t *testing.T, h *ledger.Head, run ledger.RunID) *ledger.Found {
	t.Helper()
	var bl *ledger.Block
	if leaf, ok := h.BlockOf(run); ok {
		bl = must(ledger.DecodeBlock("k", job, leaf, b[ledger.BlockName(leaf)]))
	}
	f, err := ledger.Look(h, bl, run)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// all is the whole state of a ledger.
func (b blocks) all(h *ledger.Head) *ledger.Agent {
	a := ledger.NewAgent(h.Agent, 0)
	h.Load(a)
	for _, leaf := range h.Blocks() {
		must(ledger.DecodeBlock("k", h.Agent, leaf, b[ledger.BlockName(leaf)])).Load(a)
	}
	return a
}

// merge imports an agent's log.
func merge(t *testing.T, h *ledger.Head, from *ledger.Agent, b blocks) (*ledger.Head, blocks) {
	t.Helper()
	c, err := ledger.Import(h, from)
	if err != nil {
		t.Fatal(err)
	}
	return b.run(t, c), b
}

// emptied is a block without entries, as an import of open attempts only makes it.
func emptied(t *testing.T) []byte {
	t.Helper()
	b := blocks{}
	merge(t, start(t), fold(intent(0, "lyon", 1, ledger.Pending, 1)).Agent(job), b)
	return b["r"]
}

// Compaction at any moment changes nothing that anybody can ask, over thousands of
// runs, with splits, and costs at most 40 bytes per committed run.
//
// SPEC EX7
func TestCompaction(t *testing.T) {
	t.Parallel()
	r := seeded(t, 4)
	h, b := start(t), blocks{}
	log := fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Site: "paris"}, Status: ledger.Raised, Epoch: 1, Holder: "ann", Birth: id1})
	const runs = 2500
	for n := range runs {
		k := ledger.Key{Run: runOf(n), Site: "paris", Attempt: 1}
		o := ledger.Outcome{Key: k, Status: ledger.Committed}
		switch r.IntN(50) {
		case 0:
			o.Status = ledger.Failed
		case 1:
			o.Status, o.By, o.Epoch = ledger.Abandoned, "ann", 1
		}
		next, err := h.Settle(o, id1)
		if err != nil {
			t.Fatal(err)
		}
		h = next
		log.Fold(ledger.Intent{V: 1, Agent: job, Key: k, Status: o.Status, Epoch: o.Epoch, Holder: o.By})
		if h.Full() {
			before := record.Size(h)
			h = b.run(t, ledger.Compact(h))
			if len(h.Facts) != 0 || record.Size(h) >= before || !b.all(h).Equal(log.Agent(job)) {
				t.Fatalf("after %d runs: %d facts, %d bytes (were %d)", n, len(h.Facts), record.Size(h), before)
			}
		}
	}
	h = b.run(t, ledger.Compact(h))
	if !b.all(h).Equal(log.Agent(job)) {
		t.Fatal("the last compaction lost something")
	}
	bytes, abandoned := record.Size(h), 0
	for _, body := range b {
		bytes += len(body)
	}
	for _, f := range b.all(h).Facts() {
		if f.Abandoned != nil {
			abandoned++
		}
	}
	t.Logf("%d runs, %d abandoned: %d blocks, %d bytes, %.1f per run", runs, abandoned, len(h.Blocks()), bytes, float64(bytes)/runs)
	if len(b) != len(h.Blocks()) || len(b) < 3 {
		t.Errorf("%d blocks lie about, %d are named", len(b), len(h.Blocks()))
	}
	for n := range runs + 100 {
		yes, twice := b.look(t, h, n).Committed()
		if want, _ := log.Agent(job).Committed(runOf(n)); yes != want || twice {
			t.Fatalf("run %d: committed %v, want %v, repeated %v", n, yes, want, twice)
		}
	}
	if c := b.run(t, ledger.Compact(h)); c != nil {
		t.Error("a compaction of nothing writes a head")
	}
}

// A committed run costs at most 40 bytes for ever; an answer reads at most 64 KiB.
//
// SPEC EX7
func TestBytesPerRun(t *testing.T) {
	t.Parallel()
	a := ledger.NewState()
	const runs = 20000
	for n := range runs {
		a.Fold(intent(n, "paris", 1, ledger.Committed, 1))
	}
	h, b := merge(t, start(t), a.Agent(job), blocks{})
	total := record.Size(h)
	for _, body := range b {
		total += len(body)
	}
	if per := float64(total) / runs; per > 40 {
		t.Errorf("a run costs %.2f bytes", per)
	} else {
		t.Logf("a run costs %.2f bytes in %d blocks", per, len(b))
	}
	if ledger.MaxHead+ledger.MaxBlock > 64<<10 {
		t.Error("an answer reads more than 64 KiB")
	}
}

// What the check relies on stays in the head: the commits of runs with an open
// attempt.
//
// SPEC EX4 EX7
func TestCompactionKeepsWhatTheCheckNeeds(t *testing.T) {
	t.Parallel()
	h, k := admitted(t, start(t), 0, ann)
	h = raised(t, h, bob)
	n, d, err := look(h, 0).Retry(bob, ledger.Detail{Write: id2})
	if err != nil {
		t.Fatal(err)
	}
	zombie := settled(t, n, k, ledger.Committed)
	zombie = settled(t, zombie, ledger.Key{Run: runOf(1), Site: "paris", Attempt: 1}, ledger.Committed)
	b := blocks{}
	h = b.run(t, ledger.Compact(zombie))
	if got := ledger.Check(n, h, ledger.Lease{Holder: "bob", Epoch: 2}, bob, d.Attempt); got.Answer != ledger.AlreadyCommitted || !got.Repeated {
		t.Errorf("a commit that came while the attempt was open: %+v", got)
	}
	if len(h.Facts) != 1 || h.Facts[0].Key != k {
		t.Errorf("the head keeps %+v", h.Facts)
	}
	h = settled(t, h, d.Attempt, ledger.Failed)
	if h = b.run(t, ledger.Compact(h)); len(h.Facts) != 0 {
		t.Errorf("the head keeps %+v after the attempt was settled", h.Facts)
	}
	if yes, twice := b.look(t, h, 0).Committed(); !yes || !twice {
		t.Error("the repeat was lost in the compaction")
	}
}

// A compaction that stops anywhere, is repeated, or runs twice at once loses nothing:
// blocks only grow.
//
// SPEC EX7
func TestCompactionStopsAnywhere(t *testing.T) {
	t.Parallel()
	base := fold(birth)
	for n := range 1500 {
		base.Fold(intent(n, "paris", 1, ledger.Committed, 1))
	}
	h0, b0 := merge(t, start(t), base.Agent(job), blocks{})
	for n := 1500; n < 1650; n++ {
		h0 = settled(t, h0, ledger.Key{Run: runOf(n), Site: "paris", Attempt: 1}, ledger.Committed)
		base.Fold(intent(n, "paris", 1, ledger.Committed, 1))
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		b := blocks{}
		for k, v := range b0 {
			b[k] = v
		}
		c := ledger.Compact(h0)
		for range r.IntN(6) {
			leaf, ok := c.Next()
			if !ok {
				break
			}
			if write := must(c.Take(leaf, b[ledger.BlockName(leaf)])); write != nil && r.IntN(3) > 0 {
				b[ledger.BlockName(leaf)] = write
			}
		}
		if !b.all(h0).Equal(base.Agent(job)) {
			t.Fatalf("seed %d: a compaction that stopped changed the state", seed)
		}
		if _, ok := c.Next(); ok {
			if _, err := c.Head(id1); !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("a head before all blocks are written: %v", err)
			}
		}
		h := b.run(t, ledger.Compact(h0))
		if !b.all(h).Equal(base.Agent(job)) || len(h.Facts) != 0 {
			t.Fatalf("seed %d: the next compaction lost something", seed)
		}
	}
}

// Blocks that were split and not deleted are found; one that a compaction may be
// about to link is not.
func TestGarbage(t *testing.T) {
	t.Parallel()
	base := ledger.NewState()
	for n := range 4000 {
		base.Fold(intent(n, "paris", 1, ledger.Committed, 1))
	}
	h, b := merge(t, start(t), base.Agent(job), blocks{})
	names := []string{"r", "x", "r01x", "r0000000000", "r1111111111"}
	for name := range b {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range h.Garbage(names) {
		if _, ok := b[name]; ok || len(name) > 4 || name == "x" {
			t.Errorf("%s is called garbage", name)
		}
	}
	if !slices.Contains(h.Garbage(names), "r") {
		t.Error("the block that was split first is not called garbage")
	}
}

// A reader that comes too late for a block that was split is told so, as is one that
// brings another run's.
//
// SPEC EX7
func TestLookWantsTheRightBlock(t *testing.T) {
	t.Parallel()
	base := ledger.NewState()
	for n := range 2000 {
		base.Fold(intent(n, "paris", 1, ledger.Committed, 1))
	}
	h, b := merge(t, start(t), base.Agent(job), blocks{})
	if _, err := ledger.Look(h, nil, runOf(0)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a missing block: %v", err)
	}
	leaf, _ := h.BlockOf(runOf(0))
	for _, other := range h.Blocks() {
		bl := must(ledger.DecodeBlock("k", job, other, b[ledger.BlockName(other)]))
		if _, err := ledger.Look(h, bl, runOf(0)); (err == nil) != (other == leaf) || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("block %s for leaf %s: %v", other, leaf, err)
		}
	}
	bl := must(ledger.DecodeBlock("k", job, leaf, b[ledger.BlockName(leaf)]))
	if _, err := ledger.Look(start(t), bl, runOf(0)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a block for a head without blocks: %v", err)
	}
	c := ledger.Compact(settled(t, h, ledger.Key{Run: runOf(0), Site: "paris", Attempt: 2}, ledger.Committed))
	if _, err := c.Take(leaf, nil); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a compaction that finds its block gone: %v", err)
	}
	if _, err := c.Take(leaf+"0", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a compaction that is given another block: %v", err)
	}
}

// Sites that were cut off merge in any order into the same state; what any of them
// committed is committed after it, and what two committed is shown as repeated. Their
// epochs fence only their own attempts.
//
// SPEC EX3 EX7
func TestMergeOfSites(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		site := func(name string) *ledger.State {
			s := ledger.NewState()
			for range r.IntN(40) {
				i := intent(r.IntN(12), name, uint64(1+r.IntN(3)), pick(r, ledger.Pending, ledger.Committed, ledger.Failed, ledger.Abandoned), uint64(1+r.IntN(9)))
				s.Fold(i)
			}
			return s
		}
		x, y, z := site("lyon"), site("nice"), site("paris")
		want := fold(birth)
		want.Fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Site: "paris"}, Status: ledger.Raised, Epoch: 1})
		for _, s := range []*ledger.State{x, y, z} {
			want.Join(s)
		}
		order := []*ledger.State{x, y, z, x}
		r.Shuffle(4, func(i, j int) { order[i], order[j] = order[j], order[i] })
		h, b := start(t), blocks{}
		for i, s := range order {
			h, b = merge(t, h, s.Agent(job), b)
			if h.Imports != uint64(i+1) {
				t.Fatalf("%d merges are counted as %d", i+1, h.Imports)
			}
			if r.IntN(2) == 0 {
				if n := b.run(t, ledger.Compact(h)); n != nil {
					h = n
				}
			}
		}
		if got := b.all(h); !got.Equal(want.Agent(job)) {
			t.Fatalf("seed %d: %+v\nwant %+v", seed, got.Intents(), want.Agent(job).Intents())
		}
		for n := range 12 {
			f := b.look(t, h, n)
			yes, twice := f.Committed()
			wantYes, wantTwice := want.Agent(job).Committed(runOf(n))
			if yes != wantYes || twice != wantTwice || fmt.Sprint(f.Attempts()) == "" {
				t.Fatalf("seed %d, run %d: %v %v, want %v %v", seed, n, yes, twice, wantYes, wantTwice)
			}
			c := ledger.Claim{Holder: "new", Epoch: h.Epoch + 1}
			if _, d, err := b.look(t, raised(t, h, c), n).Admit(c, ledger.Detail{Write: id2}); err != nil || yes && d.Answer != ledger.AlreadyCommitted {
				t.Fatalf("seed %d: a committed run is admitted after the merge: %v %v", seed, d.Answer, err)
			}
		}
	}
}

// Whatever is rebuilt from what is stored has every open attempt with its holder and
// epoch, the first and the last one too.
//
// SPEC EX3 EX7
// CASE B56
func TestOpenAttemptsSurviveARestart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 40} {
		h, b := start(t), blocks{}
		for i := range n {
			h, _ = admitted(t, h, i, ann)
		}
		h = settled(t, h, ledger.Key{Run: runOf(99), Site: "paris", Attempt: 1}, ledger.Committed)
		h = b.run(t, ledger.Compact(h))
		back := must(ledger.DecodeHead("k", job, must(h.Encode())))
		s := ledger.NewState()
		if err := s.Load("c", must(b.all(back).Checkpoint())); err != nil {
			t.Fatal(err)
		}
		for what, opens := range map[string][]ledger.Open{"head": back.Open, "state": b.all(back).Opens(), "checkpoint": s.Agent(job).Opens()} {
			if len(opens) != n || !slices.Equal(opens, b.all(h).Opens()) {
				t.Errorf("%s: %d of %d attempts are open", what, len(opens), n)
			}
			for _, o := range opens {
				if o.Holder != "ann" || o.Epoch != 1 || o.Write == "" {
					t.Errorf("%s: %+v", what, o)
				}
			}
		}
	}
}

// A merge that would make the ledger unbounded is refused before anything is written,
// or at the block that would be.
//
// SPEC EX7
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := ledger.Import(start(t), ledger.NewAgent("other", 0)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a log of another job: %v", err)
	}
	for sites := ledger.MaxSites; sites <= ledger.MaxSites+1; sites++ {
		s := ledger.NewState()
		for n := range sites {
			s.Fold(intent(n, fmt.Sprint("site ", n), 1, ledger.Committed, 1))
		}
		if _, err := ledger.Import(start(t), s.Agent(job)); (err == nil) != (sites <= ledger.MaxSites) || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%d sites: %v", sites, err)
		}
	}
	for kept := ledger.MaxKept; kept <= ledger.MaxKept+1; kept++ {
		s := ledger.NewState()
		for n := range kept {
			i := intent(0, "lyon", uint64(n+1), ledger.Abandoned, 1<<53-1)
			i.Holder = strings.Repeat(`"`, 127)
			s.Fold(i)
			s.Fold(intent(0, "lyon", uint64(100+n), ledger.Failed, 1)) // which count for little
		}
		c := must(ledger.Import(start(t), s.Agent(job)))
		write, err := c.Take("", nil)
		if (err == nil) != (kept <= ledger.MaxKept) || err != nil && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%d attempts of one run: %v", kept, err)
		}
		if err == nil && len(write)+4*700 > ledger.MaxBlock {
			t.Errorf("%d attempts of one run need %d bytes: no room for own ones", kept, len(write))
		}
	}
}

// A merge that brings the end of an open attempt takes it off the head's list, where
// it would stand in every check's way.
//
// SPEC EX4 EX7
func TestMergeSettlesOpenAttempts(t *testing.T) {
	t.Parallel()
	h, b := merge(t, start(t), fold(intent(0, "lyon", 1, ledger.Pending, 5), intent(1, "lyon", 1, ledger.Pending, 5), intent(2, "lyon", 1, ledger.Pending, 5)).Agent(job), blocks{})
	if len(h.Open) != 3 {
		t.Fatalf("%d attempts are open", len(h.Open))
	}
	h, b = merge(t, h, fold(intent(0, "lyon", 1, ledger.Committed, 5), intent(1, "lyon", 2, ledger.Failed, 5)).Agent(job), b)
	if len(h.Open) != 1 || h.Open[0].Run != runOf(2) || h.Seed() != 5 || h.Epoch != 1 {
		t.Errorf("open is %+v, the seed %d, the epoch %d", h.Open, h.Seed(), h.Epoch)
	}
	n, d, err := b.look(t, h, 1).Admit(ann, ledger.Detail{Write: id2})
	if err != nil || d.Attempt.Attempt != 1 || ledger.Check(n, n, ledger.Lease(ann), ann, d.Attempt).Answer != ledger.Proceed {
		t.Errorf("a run whose other attempt ended: %+v %v", d, err)
	}
}

// A head that is full says so before anything is lost, and an outcome still has room.
//
// SPEC EX4 EX7
func TestFullHead(t *testing.T) {
	t.Parallel()
	h := start(t)
	var keys []ledger.Key
	var full *ledger.FullError
	for n := 0; ; n++ {
		next, d, err := look(h, n).Admit(ann, ledger.Detail{Write: id2, Trigger: "schedule", At: 1, Since: 1})
		if errors.As(err, &full) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		h, keys = next, append(keys, d.Attempt)
	}
	if !errors.Is(full, store.ErrInvalid) || len(keys) < 60 {
		t.Errorf("after %d open attempts: %v", len(keys), full)
	}
	for i, k := range keys {
		next, err := h.Settle(ledger.Outcome{Key: k, Status: ledger.Abandoned, By: "an operator with a long name, " + fmt.Sprint(i), Epoch: 1}, id2)
		if err != nil {
			t.Fatalf("outcome %d of %d: %v", i, len(keys), err)
		}
		if h = next; h.Full() {
			h = blocks{}.run(t, ledger.Compact(h)) // blocks are not looked at again
			h.Leaves = ""
		}
	}
}
