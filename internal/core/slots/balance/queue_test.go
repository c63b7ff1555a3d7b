package balance

import (
	"testing"

	"pgregory.net/rapid"
)

// The queue's top is the greatest key of those in it, and of equal ones the first.
//
// SPEC SL8
func TestQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.Int64Range(-5, 5), 1, 20).Draw(t, "keys")
		q := newQueue(keys)
		in := map[int]bool{}
		host := rapid.IntRange(0, len(keys)-1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if h := host.Draw(t, "h"); !in[h] {
					q.add(h)
					in[h] = true
				}
			},
			"remove": func(t *rapid.T) {
				if h := host.Draw(t, "h"); in[h] {
					q.remove(h)
					delete(in, h)
				}
			},
			"change": func(t *rapid.T) {
				h := host.Draw(t, "h")
				keys[h] = rapid.Int64Range(-5, 5).Draw(t, "key")
				q.fix(h)
			},
			"": func(t *rapid.T) {
				best := none
				for h := range keys {
					if in[h] && (best == none || keys[h] > keys[best]) {
						best = h
					}
				}
				if q.size() != len(in) || (best != none && q.top() != best) {
					t.Fatalf("%d in the queue, not %d; top is not %d", q.size(), len(in), best)
				}
			},
		})
	})
}
