package balance_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

// large is 1,000 hosts with weights from 1 to 1,000 and a shard per slot.
func large(owner func(r *rand.Rand, shard int) string) *world {
	r := rand.New(rand.NewPCG(7, 7))
	all := hosts(1000)
	for i := range all {
		all[i].Weight = 1 + r.IntN(1000)
	}
	s := shards(balance.Slots)
	for i := range s {
		s[i].Owner = owner(r, i)
		s[i].Held = s[i].Owner != ""
		s[i].Target = s[i].Owner
	}
	return newWorld(all, s, free)
}

func BenchmarkPlan(b *testing.B) {
	anyone := func(r *rand.Rand, _ int) string { return hostID(r.IntN(1000)) }
	for name, make := range map[string]func() *world{
		"nobody":      func() *world { return large(func(*rand.Rand, int) string { return "" }) },
		"one has all": func() *world { return large(func(*rand.Rand, int) string { return hostID(0) }) },
		"at random":   func() *world { return large(anyone) },
		"loads": func() *world {
			w := large(anyone)
			for i := range w.Shards {
				w.Shards[i].Load = int64(1 + i*7919%1000)
			}
			return w
		},
		"tight": func() *world {
			w := large(anyone)
			for i := range w.Hosts {
				w.Hosts[i].Capacity = 17
			}
			return w
		},
		"in balance": func() *world {
			w := large(func(*rand.Rand, int) string { return "" })
			w.settle(b)
			return w
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := make()
			w.Now = time.Hour
			b.ReportAllocs()
			for b.Loop() {
				if _, err := balance.Compute(w.Input); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
