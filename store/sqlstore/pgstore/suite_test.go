package pgstore

import (
	"context"
	"sync"
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

var contextWithoutEnd = context.Background()

func harness(t testing.TB) storetest.Harness {
	server(t)
	urls := &byStore{}
	return storetest.Harness{
		Open: func(t testing.TB) store.Store {
			u := place(t)
			s := open(t, u)
			urls.put(s, u)
			return s
		},
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, urls.get(s)) },
	}
}

// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST12 ST13 ST14 ST16 LS9
// CASE B18 B24 B42 B60 B61
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness(t))
}

// SPEC ST9
// CASE B02 B20
func TestConformanceWithLosses(t *testing.T) {
	t.Parallel()
	storetest.Lost(t, harness(t))
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, harness(b)) }

// byStore remembers where a store was opened.
type byStore struct {
	mu   sync.Mutex
	urls map[store.Store]string
}

func (b *byStore) put(s store.Store, u string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.urls == nil {
		b.urls = map[store.Store]string{}
	}
	b.urls[s] = u
}

func (b *byStore) get(s store.Store) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.urls[s]
}
