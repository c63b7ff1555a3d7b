package faultstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// run makes a fixed set of calls, for several keys at once, and returns what
// became of them, by key.
func run(t *testing.T, o faultstore.Options, keysAtOnce bool) map[string][]string {
	out := map[string][]string{}
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.New(memstore.New(), o)
		defer s.Close()
		var mu sync.Mutex
		var wg sync.WaitGroup
		calls := func(key string) {
			v := store.Version("")
			for i := range 40 {
				start := time.Now()
				var err error
				if i == 0 {
					v, err = s.Create(limited(t), key, nil)
				} else if i%2 == 0 {
					_, err = s.Get(limited(t), key, 100)
				} else {
					var w store.Version
					if w, err = s.Replace(limited(t), key, []byte(fmt.Sprint(i)), v); err == nil {
						v = w
					}
				}
				mu.Lock()
				out[key] = append(out[key], fmt.Sprint(store.KindOf(err), time.Since(start)))
				mu.Unlock()
			}
		}
		for i := range 5 {
			key := fmt.Sprintf("n/lease/%d", i)
			if keysAtOnce {
				wg.Go(func() { calls(key) })
			} else {
				calls(key)
			}
		}
		wg.Wait()
	})
	return out
}

// One seed replays one run, whatever the order of calls for different keys.
func TestSeedReplays(t *testing.T) {
	t.Parallel()
	o := faultstore.Chaos(42, 1, time.Second)
	first := run(t, o, true)
	for key, want := range run(t, o, false) {
		if !slices.Equal(first[key], want) {
			t.Errorf("%s met %v at once and %v one after the other", key, first[key], want)
		}
	}
	same := 0
	for key, got := range run(t, faultstore.Chaos(43, 1, time.Second), false) {
		if slices.Equal(first[key], got) {
			same++
		}
	}
	if same > 0 {
		t.Errorf("another seed gave the same faults for %d of 5 keys", same)
	}
}

func TestChaosIntensity(t *testing.T) {
	t.Parallel()
	troubled := func(intensity float64) int {
		n := 0
		for _, calls := range run(t, faultstore.Chaos(7, intensity, time.Second), false) {
			for _, c := range calls {
				if c != "<nil> 0s" && c != "<nil>0s" {
					n++
				}
			}
		}
		return n
	}
	none, some, much := troubled(0), troubled(0.2), troubled(1)
	if none != 0 || some == 0 || much < 2*some || much > 180 {
		t.Errorf("of 200 calls, %d, %d and %d met trouble at the intensities 0, 0.2 and 1", none, some, much)
	}
}
