package memstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// The index agrees with a sorted slice, whatever is done to it.
func TestIndexAgainstAModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	var x index
	var model []string
	for step := range 30_000 {
		key := fmt.Sprintf("%c/%04d", 'a'+r.IntN(3), r.IntN(3000))
		i, found := slices.BinarySearch(model, key)
		if found && (step/6000%2 == 1 || r.IntN(4) == 0) { // grows, shrinks, grows
			x.remove(key)
			model = slices.Delete(model, i, i+1)
		} else if !found && step/6000%2 == 0 {
			x.insert(key)
			model = slices.Insert(model, i, key)
		}
		if step%100 == 0 {
			checkIndex(t, &x, model, r)
		}
	}
	for _, key := range slices.Clone(model) {
		x.remove(key)
	}
	if len(x.chunks) != 0 {
		t.Errorf("an emptied index has %d chunks", len(x.chunks))
	}
}

func checkIndex(t *testing.T, x *index, model []string, r *rand.Rand) {
	t.Helper()
	if all := slices.Concat(x.chunks...); !slices.Equal(all, model) {
		t.Fatalf("the index has %d keys, want %d", len(all), len(model))
	}
	for _, c := range x.chunks {
		if len(c) == 0 || len(c) > chunkSize {
			t.Fatalf("a chunk has %d keys", len(c))
		}
	}
	prefix := []string{"", "a/", "b/1", "c", "d"}[r.IntN(5)]
	after := []string{"", fmt.Sprintf("b/%04d", r.IntN(3000)), "b/1", "z"}[r.IntN(4)]
	limit := 1 + r.IntN(600)
	want := []string{}
	for _, key := range model {
		if strings.HasPrefix(key, prefix) && key > after && len(want) < limit {
			want = append(want, key)
		}
	}
	checkSpan(t, x, model, r)
	if got := x.page(prefix, after, limit); !slices.Equal(got, want) {
		t.Fatalf("page(%q, %q, %d) gives %d keys, want %d", prefix, after, limit, len(got), len(want))
	}
}

// Nothing is kept of watches and lines that ended, however they did.
func TestNothingIsKept(t *testing.T) {
	t.Parallel()
	s := New()
	p := s.place
	for i := range 50 {
		key := fmt.Sprintf("k/%d", i)
		done := make(chan error)
		go func() { done <- s.Watch(t.Context(), key, "") }()
		ticket, err := s.Enqueue(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		ticket.Leave()
	}
	go func() { _ = s.Close() }()
	if err := s.Watch(t.Context(), "k/never", ""); store.KindOf(err) != store.ErrUnavailable {
		t.Errorf("a watch of a store that is closed: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.watches) > 0 || len(p.lines) > 0 {
		t.Errorf("%d watches and %d lines are kept", len(p.watches), len(p.lines))
	}
}

// checkSpan takes a range out of the index in both directions.
func checkSpan(t *testing.T, x *index, model []string, r *rand.Rand) {
	t.Helper()
	bound := func() string {
		return []string{"", "a/", "b/1", "d", fmt.Sprintf("b/%04d", r.IntN(3000)), fmt.Sprintf("c/%04d", r.IntN(3000))}[r.IntN(6)]
	}
	from, to, limit := bound(), bound(), 1+r.IntN(1200)
	want := []string{}
	for _, key := range model {
		if key >= from && key < to {
			want = append(want, key)
		}
	}
	if got := x.span(from, to, false, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
		t.Fatalf("the span from %q to %q has %d keys, want %d of %d", from, to, len(got), limit, len(want))
	}
	slices.Reverse(want)
	if got := x.span(from, to, true, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
		t.Fatalf("the span from %q back to %q has %d keys, want %d of %d", to, from, len(got), limit, len(want))
	}
}
