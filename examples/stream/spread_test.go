package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
)

func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func participants(names ...string) []assignment.Participant {
	var all []assignment.Participant
	for _, name := range names {
		all = append(all, assignment.Participant{Node: name, Incarnation: id(int(name[0]))})
	}
	return all
}

// madeView is a view with these owners, by slot, that stand at byte 10, 20, 30...
func madeView(t *testing.T, owners ...string) *view {
	t.Helper()
	m, err := assignment.NewMap(3, participants(owners...))
	if err != nil {
		t.Fatal(err)
	}
	v := &view{
		assigned: &assignment.Current{Map: m, Fence: m.Fence()}, attempt: checkpoint.Attempt{Epoch: 8, Checkpoint: 8}, base: 6,
		state: &state{Commits: 4, Counts: counts{"x": 1}},
	}
	for slot := range owners {
		v.state.Offsets = append(v.state.Offsets, int64(10*(slot+1)))
	}
	return v
}

// Slots are spread evenly, and none moves that need not.
func TestSpread(t *testing.T) {
	t.Parallel()
	all := participants("a", "b", "c", "d", "e", "f", "g")
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		owners := make([]assignment.Participant, 1+r.IntN(12))
		for slot := range owners {
			if i := r.IntN(len(all) + 1); i < len(all) {
				owners[slot] = all[i]
			}
		}
		candidates := slices.Clone(all[:1+r.IntN(len(all))])
		got := spread(owners, candidates)
		load := map[assignment.Participant]int{}
		for slot, p := range got {
			if !slices.Contains(candidates, p) {
				t.Fatalf("seed %d: slot %d went to %v", seed, slot, p)
			}
			load[p]++
		}
		for _, p := range candidates {
			if least := len(owners) / len(candidates); load[p] < least || load[p] > least+1 {
				t.Fatalf("seed %d: %v has %d of %d slots, for %d", seed, p, load[p], len(owners), len(candidates))
			}
		}
		if again := spread(got, candidates); !slices.Equal(again, got) {
			t.Fatalf("seed %d: what is even was moved: %v, %v", seed, got, again)
		}
	}
}
