package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// Bench measures the harness's driver: each operation alone, many keys at once,
// and many callers at one key.
func Bench(b *testing.B, h Harness) {
	body := make([]byte, 512) // about a lease record
	open := func(b *testing.B) store.Store {
		s := h.Open(b)
		b.Cleanup(func() { _ = s.Close() })
		return s
	}
	b.Run("create", func(b *testing.B) {
		s, n := open(b), 0
		for b.Loop() {
			n++
			must(b)(s.Create(b.Context(), key(fmt.Sprint(n)), body))
		}
	})
	b.Run("get", func(b *testing.B) {
		s := open(b)
		must(b)(s.Create(b.Context(), key("k"), body))
		for b.Loop() {
			if _, err := s.Get(b.Context(), key("k"), readLimit); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("replace", func(b *testing.B) {
		s := open(b)
		v := must(b)(s.Create(b.Context(), key("k"), body))
		for b.Loop() {
			v = must(b)(s.Replace(b.Context(), key("k"), body, v))
		}
	})
	b.Run("replace-of-many-keys-at-once", func(b *testing.B) { benchParallel(b, open(b), body) })
	b.Run("replace-of-one-key-by-many", func(b *testing.B) { benchContended(b, open(b), body) })
	b.Run("list-of-1000", func(b *testing.B) {
		s := open(b)
		for i := range 1000 {
			must(b)(s.Create(b.Context(), key(fmt.Sprint(i)), body))
		}
		for b.Loop() {
			n := 0
			for _, err := range s.List(b.Context(), "", "") {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			if n != 1000 {
				b.Fatalf("%d keys", n)
			}
		}
	})
	if open(b).Info().Can.Has(store.CanCommit) {
		b.Run("commit-of-2", func(b *testing.B) { benchCommit(b, open(b), body) })
		b.Run("scan-of-the-last-of-4096", func(b *testing.B) { benchScan(b, open(b), len(body)) })
	}
}

func benchCommit(b *testing.B, s store.Store, body []byte) {
	t, _ := store.AsCommitter(s)
	changes := []store.Change{{Key: key("a"), Body: body}, {Key: key("b"), Body: body}}
	for b.Loop() {
		made, err := t.Commit(b.Context(), changes)
		if err != nil {
			b.Fatal(err)
		}
		changes[0].Over, changes[1].Over = made[0], made[1]
	}
}

func benchScan(b *testing.B, s store.Store, size int) {
	t, _ := store.AsCommitter(s)
	err := fillRange(func(changes []store.Change) error { _, err := t.Commit(b.Context(), changes); return err }, 4096, size)
	if err != nil {
		b.Fatal(err)
	}
	r := store.ScanRange{To: "z", Backwards: true, Most: 1, Limit: size}
	for b.Loop() {
		if found, err := t.Scan(b.Context(), r); err != nil || len(found) != 1 {
			b.Fatal(len(found), err)
		}
	}
}

func benchParallel(b *testing.B, s store.Store, body []byte) {
	var workers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		k := key(fmt.Sprint(workers.Add(1)))
		v, err := s.Create(b.Context(), k, body)
		for err == nil && pb.Next() {
			v, err = s.Replace(b.Context(), k, body, v)
		}
		if err != nil {
			b.Error(err)
		}
	})
}

// benchContended counts attempts; the share that won is a metric of its own.
func benchContended(b *testing.B, s store.Store, body []byte) {
	must(b)(s.Create(b.Context(), key("k"), body))
	var won atomic.Int64
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o, err := s.Get(b.Context(), key("k"), readLimit)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := s.Replace(b.Context(), key("k"), body, o.Version); err == nil {
				won.Add(1)
			} else if !isAny(err, []error{store.ErrConflict, store.ErrUnavailable}) {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(won.Load())/float64(b.N), "won/op")
}

func must(b *testing.B) func(store.Version, error) store.Version {
	return func(v store.Version, err error) store.Version {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}
