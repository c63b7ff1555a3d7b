//go:build linux || darwin

package filestore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// benchBody is about the size of a lease record.
var benchBody = make([]byte, 700)

// floor is the least that a durable, exclusive write of a file takes: open,
// write, sync, link, sync the directory, unlink.
type floor struct {
	dir string
	fd  *os.File
	n   int
}

func newFloor(b *testing.B) *floor {
	b.Helper()
	dir := b.TempDir()
	fd, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = fd.Close() })
	return &floor{dir: dir, fd: fd}
}

func (f *floor) write() error {
	tmp := filepath.Join(f.dir, "tmp")
	t, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer t.Close()
	if _, err := t.Write(benchBody); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	f.n++
	if err := os.Link(tmp, filepath.Join(f.dir, fmt.Sprint(f.n))); err != nil {
		return err
	}
	if err := f.fd.Sync(); err != nil {
		return err
	}
	return os.Remove(tmp)
}

func benchStore(b *testing.B) *Store {
	b.Helper()
	return opened(b, filepath.Join(b.TempDir(), "store"))
}

// besideFloor times f and the floor in turns of some calls each, so that both
// see the same disk and pay for what they leave to do, and reports the ratio.
func besideFloor(b *testing.B, f func(i int) error) {
	b.Helper()
	const turn = 16
	fl := newFloor(b)
	timed := func(f func(i int) error, first int) time.Duration {
		start := time.Now()
		for i := range turn {
			if err := f(first + i); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
	var own, least time.Duration
	n := 0
	for ; b.Loop(); n += turn {
		least += timed(func(int) error { return fl.write() }, n)
		own += timed(f, n)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(own.Microseconds())/float64(n), "own-µs")
	b.ReportMetric(float64(least.Microseconds())/float64(n), "floor-µs")
	b.ReportMetric(float64(own)/float64(least), "×floor")
}

func BenchmarkCreateBesideFloor(b *testing.B) {
	s := benchStore(b)
	besideFloor(b, func(i int) error {
		_, err := s.Create(context.Background(), fmt.Sprintf("ns/lease/%d", i), benchBody)
		return err
	})
}

func BenchmarkReplaceBesideFloor(b *testing.B) {
	s := benchStore(b)
	v, err := s.Create(context.Background(), sleeperKey, benchBody)
	if err != nil {
		b.Fatal(err)
	}
	besideFloor(b, func(int) error {
		v, err = s.Replace(context.Background(), sleeperKey, benchBody, v)
		return err
	})
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	if _, err := s.Create(context.Background(), sleeperKey, benchBody); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Get(context.Background(), sleeperKey, MaxBody); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkListOf1000(b *testing.B) {
	s := opened(b, quick(b))
	for i := range 1000 {
		if _, err := s.Create(context.Background(), fmt.Sprintf("ns/lease/%d", i), benchBody); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		n := 0
		for _, err := range s.List(context.Background(), store.Prefix("ns", "lease"), "") {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 1000 {
			b.Fatalf("%d keys", n)
		}
	}
}
