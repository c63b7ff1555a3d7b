package sqlstore

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// BenchmarkReplace compares one conditional write with the transaction that it
// cannot do without, on the same settings and in turn, so that other load on
// the disk meets both. The ratio is that of the medians.
func BenchmarkReplace(b *testing.B) {
	body := make([]byte, 600)
	bare, s := open(b, filepath.Join(b.TempDir(), "bare.db")), open(b, filepath.Join(b.TempDir(), "store.db"))
	first, err := bare.Create(b.Context(), key, body)
	if err != nil {
		b.Fatal(err)
	}
	v, err := s.Create(b.Context(), key, body)
	if err != nil {
		b.Fatal(err)
	}
	c, at := mustConnect(b, bare), parseVersion(first)
	defer func() { _ = c.close() }()
	var took [2][]time.Duration
	for b.Loop() {
		start := time.Now()
		bareReplace(b, c, body, &at)
		between := time.Now()
		if v, err = s.Replace(b.Context(), key, body, v); err != nil {
			b.Fatal(err)
		}
		took[0] = append(took[0], between.Sub(start))
		took[1] = append(took[1], time.Since(between))
	}
	reportRatio(b, took)
}

// reportRatio compares the medians of the bare way and the store's.
func reportRatio(b *testing.B, took [2][]time.Duration) {
	var median [2]float64
	for i := range took {
		slices.Sort(took[i])
		median[i] = float64(took[i][len(took[i])/2])
	}
	b.ReportMetric(median[0], "bare-ns")
	b.ReportMetric(median[1], "store-ns")
	b.ReportMetric(median[1]/median[0], "ratio")
}

// bareReplace is BEGIN IMMEDIATE, SELECT, UPDATE, COMMIT.
func bareReplace(b *testing.B, c *conn, body []byte, at *version) {
	var there version
	_, begin := c.exec("BEGIN IMMEDIATE")
	read := c.row(queryVersion, []any{key}, &there.number, &there.nonce)
	n, update := c.exec("UPDATE tenure_register SET body = ?, version = ? WHERE key = ? AND version = ?", body, there.number+1, key, there.number)
	_, commit := c.exec("COMMIT")
	if begin != nil || read != nil || update != nil || commit != nil || n != 1 || there.number != at.number {
		b.Fatal(begin, read, update, commit, n)
	}
	at.number++
}

// BenchmarkReplaceMany is what a process with many leases sees: its renewals
// share commits.
func BenchmarkReplaceMany(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "leases.db"))
	body := make([]byte, 600)
	var worker atomic.Int32
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		k := fmt.Sprintf("suite/lease/k%d", worker.Add(1))
		v, err := s.Create(b.Context(), k, body)
		for pb.Next() {
			if err != nil {
				b.Error(err)
				return
			}
			v, err = s.Replace(b.Context(), k, body, v)
		}
	})
}

// BenchmarkGet compares a read with the bare query.
func BenchmarkGet(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "leases.db"))
	if _, err := s.Create(b.Context(), key, make([]byte, 600)); err != nil {
		b.Fatal(err)
	}
	b.Run("bare", func(b *testing.B) {
		c := mustConnect(b, s)
		defer func() { _ = c.close() }()
		for b.Loop() {
			var v version
			var body []byte
			if err := c.row("SELECT version, nonce, body FROM tenure_register WHERE key = ?", []any{key}, &v.number, &v.nonce, &body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Get(b.Context(), key, 1000); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLook is one look of the poller that finds no change: what a process
// with watches pays about 200 times a second.
func BenchmarkLook(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "leases.db"))
	last := int64(-1)
	for b.Loop() {
		now, _, err := s.changes.look(last)
		if err != nil {
			b.Fatal(err)
		}
		last = now
	}
}

// BenchmarkOpen is what a short command pays for its store.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "leases.db")
	open(b, path)
	for b.Loop() {
		s, err := OpenSQLite(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Get(b.Context(), key, 10); store.KindOf(err) != store.ErrNotFound {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
