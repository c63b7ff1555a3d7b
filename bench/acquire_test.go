package bench

import (
	"testing"

	"github.com/tenure-project/tenure"
)

// BenchmarkAcquireRelease is one acquire and one release of a free lease,
// beside the two durable writes that they cannot do without. Target: at most
// 1.5 times the floor. Every few changes a record's past is archived, which is
// a write more: the mean has it, the median does not.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, p := range places(b) {
		b.Run(p.kind, func(b *testing.B) {
			others(b)
			c := client(b, local(b, p.url))
			o, f := alternate(b, func() { acquireRelease(b, c, "job") }, p.floor(b))
			compare(b, o, f)
		})
	}
}

// acquireRelease may run in any goroutine of the benchmark.
func acquireRelease(b *testing.B, c *tenure.Client, name string) bool {
	l, err := c.Acquire(b.Context(), name)
	if err == nil {
		err = l.Release(b.Context())
	}
	if err != nil {
		b.Error(err)
	}
	return err == nil
}
