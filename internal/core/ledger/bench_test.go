package ledger_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/ledger"
)

const million = 1_000_000

// spread are n run ids; SHA-256 is not what is measured.
func spread(n int) []ledger.RunID {
	all := make([]ledger.RunID, n)
	x := uint64(88172645463325252)
	for i := range all {
		for j := 0; j < 32; j += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(all[i][j:], x)
		}
	}
	return all
}

func perIntent(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/intent")
}

// The floor: a plain map of as many entries.
func BenchmarkPlainMapMillion(b *testing.B) {
	ids := spread(million)
	for b.Loop() {
		m := map[ledger.RunID][8]byte{}
		for i := range ids {
			m[ids[i]] = [8]byte{1}
		}
	}
	perIntent(b, million)
}

// A million commits of different runs.
func BenchmarkFoldMillionCommits(b *testing.B) {
	ids := spread(million)
	for b.Loop() {
		s := ledger.NewState()
		for i := range ids {
			s.Fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Run: ids[i], Site: "paris", Attempt: 1}, Status: ledger.Committed, Epoch: 7, Holder: "host"})
		}
	}
	perIntent(b, million)
}

// Half a million runs, pending and then committed.
func BenchmarkFoldMillionIntents(b *testing.B) {
	ids := spread(million / 2)
	for b.Loop() {
		s := ledger.NewState()
		for i := range ids {
			in := ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Run: ids[i], Site: "paris", Attempt: 1}, Status: ledger.Pending, Epoch: 7, Holder: "host"}
			s.Fold(in)
			in.Status = ledger.Committed
			s.Fold(in)
		}
	}
	perIntent(b, million)
}

func millionState() *ledger.State {
	s := ledger.NewState()
	for _, id := range spread(million) {
		s.Fold(ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Run: id, Site: "paris", Attempt: 1}, Status: ledger.Committed, Epoch: 7, Holder: "host"})
	}
	return s
}

// A checkpoint of a million runs: size and time to load.
func BenchmarkLoadMillion(b *testing.B) {
	body := must(millionState().Agent(job).Checkpoint())
	b.ResetTimer()
	for b.Loop() {
		if err := ledger.NewState().Load("c", body); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(body))/million, "B/run")
}

// An answer from a state in memory, among a million runs.
func BenchmarkLookupInMemory(b *testing.B) {
	a := millionState().Agent(job)
	ids := spread(4096)
	n := 0
	for i := 0; b.Loop(); i++ {
		if yes, _ := a.Committed(ids[i%len(ids)]); yes {
			n++
		}
	}
	if n == 0 {
		b.Fatal("nothing was found")
	}
}

// stored is a ledger of a million runs on a store, without the store.
func stored(b *testing.B) (*ledger.Head, blocks) {
	b.Helper()
	h := must(ledger.NewHead(job, "paris", id1))
	h, _, _ = h.Raise(ledger.Claim{Holder: "ann", Epoch: 8}, id1)
	c := must(ledger.Import(h, millionState().Agent(job)))
	bl := blocks{}
	for leaf, ok := c.Next(); ok; leaf, ok = c.Next() {
		if write := must(c.Take(leaf, nil)); write != nil {
			bl[ledger.BlockName(leaf)] = write
			c.Wrote(leaf)
		}
	}
	return must(c.Head(id2)), bl
}

// An answer from the bytes of a head and a block, decoding and checking included.
func BenchmarkLookupFromBytes(b *testing.B) {
	h, bl := stored(b)
	body := must(h.Encode())
	size := len(body)
	for _, x := range bl {
		size += len(x)
	}
	ids := spread(4096)
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		h := must(ledger.DecodeHead("k", job, body))
		leaf, _ := h.BlockOf(ids[i%len(ids)])
		block := must(ledger.DecodeBlock("k", job, leaf, bl[ledger.BlockName(leaf)]))
		if yes, _ := must(ledger.Look(h, block, ids[i%len(ids)])).Committed(); !yes {
			b.Fatal("not found")
		}
	}
	b.ReportMetric(float64(size)/million, "B/run")
	b.ReportMetric(float64(len(body)), "head-B")
	b.ReportMetric(float64(len(bl)), "blocks")
}

// The pure part of an admission, a check and an outcome in a head with some history.
func BenchmarkDispatch(b *testing.B) {
	h, bl := stored(b)
	id := must(ledger.Named(job, "new"))
	leaf, _ := h.BlockOf(id)
	block := must(ledger.DecodeBlock("k", job, leaf, bl[ledger.BlockName(leaf)]))
	c := ledger.Claim{Holder: "ann", Epoch: 8}
	b.ResetTimer()
	for b.Loop() {
		n, d, err := must(ledger.Look(h, block, id)).Admit(c, ledger.Detail{Write: id2})
		if err != nil || ledger.Check(n, n, ledger.Lease(c), c, d.Attempt).Answer != ledger.Proceed {
			b.Fatal(d, err)
		}
		if _, err := n.Settle(ledger.Outcome{Key: d.Attempt, Status: ledger.Committed}, id1); err != nil {
			b.Fatal(err)
		}
	}
}

// The last occurrence of a schedule by interval.
func BenchmarkLatestEvery(b *testing.B) {
	e := must(ledger.NewEvery(time.Minute, 0))
	t := time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)
	for b.Loop() {
		if _, ok := ledger.Latest(e, t, time.Hour); !ok {
			b.Fatal("none")
		}
	}
}
