package slots

import (
	"context"
	"fmt"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/memstore"
)

// benchHost is a host with n ranges, and a goroutine that refreshes it thirty times as
// often as it must until the benchmark ends.
func benchHost(b *testing.B, n int, session bool) *Host {
	b.Helper()
	st := memstore.New()
	c, err := tenure.New(b.Context(), st, tenure.WithoutProbe(), tenure.WithLogger(noLog))
	if err != nil {
		b.Fatal(err)
	}
	table, err := Create(b.Context(), c, orders)
	if err != nil {
		b.Fatal(err)
	}
	cfg := HostConfig{Owner: "a"}
	for i := range n {
		cfg.Ranges = append(cfg.Ranges, Range{A: uint16(i * Count / n), B: uint16((i+1)*Count/n - 1)})
	}
	if session {
		if cfg.Session, err = c.Join(b.Context(), "n1"); err != nil {
			b.Fatal(err)
		}
	}
	h, err := table.Host(cfg)
	if err != nil {
		b.Fatal(err)
	}
	for len(h.Held()) < n {
		h.Refresh(b.Context())
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			h.Refresh(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(250 * time.Millisecond):
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-done
		h.Close()
		_ = c.Close()
		_ = st.Close()
	})
	return h
}

// EpochFor with 1,000 ranges while they are renewed, beside one reading of the clock in the
// same run: at most 15 ns more, and no allocation.
func BenchmarkEpochFor(b *testing.B) {
	for _, session := range []bool{false, true} {
		b.Run(fmt.Sprintf("session=%v", session), func(b *testing.B) {
			h := benchHost(b, 1000, session)
			b.ReportAllocs()
			b.Run("time.Now", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = time.Now()
				}
			})
			b.Run("EpochFor", func(b *testing.B) {
				b.ReportAllocs()
				slot := uint16(0)
				for b.Loop() {
					if _, ok := h.EpochFor(slot % Count); !ok {
						b.Fatal("not served")
					}
					slot += 7
				}
			})
		})
	}
}

// EpochFor allocates nothing.
//
// SPEC SL6 DL2
func TestEpochForAllocatesNothing(t *testing.T) {
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh()
		if n := testing.AllocsPerRun(100, func() { a.EpochFor(5) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		a.epoch(Count-1, 0)
		if _, ok := a.EpochFor(Count); ok {
			t.Error("there is no such slot")
		}
	})
}
