package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tenure-project/tenure"
)

// BenchmarkFile puts acquire + release on files beside the two durable writes
// that they cannot do without.
func BenchmarkFile(b *testing.B) {
	b.Run("AcquireRelease", func(b *testing.B) {
		c := open(b, "file://"+filepath.Join(b.TempDir(), "store"))
		acquireRelease(b, c)
	})
	b.Run("Floor/TwoDurableWrites", func(b *testing.B) {
		dir := b.TempDir()
		body := make([]byte, 600)
		for i := 0; b.Loop(); i++ {
			durableWrite(b, dir, strconv.Itoa(2*i), body)
			durableWrite(b, dir, strconv.Itoa(2*i+1), body)
		}
	})
}

func open(b *testing.B, url string, opts ...tenure.Option) *tenure.Client {
	b.Helper()
	c, err := tenure.Open(b.Context(), url, append([]tenure.Option{tenure.WithoutProbe()}, opts...)...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func acquireRelease(b *testing.B, c *tenure.Client) {
	b.Helper()
	for b.Loop() {
		l, err := c.Acquire(b.Context(), "job")
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// durableWrite is the least that publishes a new file exclusively and durably:
// write, fsync, link, fsync of the folder, unlink of the first name.
func durableWrite(b *testing.B, dir, name string, body []byte) {
	b.Helper()
	tmp := filepath.Join(dir, "tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	check(b, err)
	_, err = f.Write(body)
	check(b, err)
	check(b, f.Sync())
	check(b, f.Close())
	check(b, os.Link(tmp, filepath.Join(dir, name)))
	d, err := os.Open(dir)
	check(b, err)
	check(b, d.Sync())
	check(b, d.Close())
	check(b, os.Remove(tmp))
	if i, err := strconv.Atoi(name); err == nil && i > 1 {
		check(b, os.Remove(filepath.Join(dir, strconv.Itoa(i-2)))) // keep two, as the store does
	}
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
