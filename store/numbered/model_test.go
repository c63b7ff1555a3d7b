package numbered

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// linearizable says why the operations are not the history of one register; ""
// if they are. It looks for an order in which each one takes effect between its
// begin and its end. One whose outcome is unknown may take effect at any time
// after its begin, or never. The state is the body that is there: no two writes
// have the same.
func linearizable(ops []*operation) string {
	if len(ops) > 64 {
		return "the history is too long for this checker"
	}
	slices.SortFunc(ops, func(a, b *operation) int { return int(a.begin - b.begin) })
	type node struct {
		done  uint64
		state string
	}
	visited := map[node]bool{}
	farthest := uint64(0)
	var search func(n node) bool
	search = func(n node) bool {
		if visited[n] {
			return false
		}
		visited[n] = true
		limit, left := never, false
		for i, o := range ops {
			if n.done&(1<<i) == 0 && o.err != store.ErrUnknown {
				limit, left = min(limit, o.end), true
			}
		}
		if !left {
			return true
		}
		if len(ones(n.done)) > len(ones(farthest)) {
			farthest = n.done
		}
		for i, o := range ops {
			if n.done&(1<<i) != 0 || o.begin > limit {
				continue
			}
			if after, ok := o.effect(n.state); ok && search(node{n.done | 1<<i, after}) {
				return true
			}
		}
		return false
	}
	if search(node{}) {
		return ""
	}
	var b strings.Builder
	b.WriteString("no register has this history (+: what could be explained):")
	for i, o := range ops {
		sign := "-"
		if farthest&(1<<i) != 0 {
			sign = "+"
		}
		fmt.Fprintf(&b, "\n  %s %v", sign, o)
	}
	return b.String()
}

func ones(m uint64) (is []int) {
	for i := range 64 {
		if m&(1<<i) != 0 {
			is = append(is, i)
		}
	}
	return is
}

// effect is the state after o, and whether o's answer fits the state before. The
// state "" is the absent key.
func (o *operation) effect(state string) (after string, fits bool) {
	happened := o.err == nil || o.err == store.ErrUnknown
	switch {
	case o.kind == "get" && o.err == nil:
		return state, state != "" && state == o.body
	case o.kind == "get":
		return state, state == "" && o.err == store.ErrNotFound
	case o.kind == "create" && happened:
		return o.body, state == ""
	case o.kind == "create":
		return state, state != "" && o.err == store.ErrExists
	case o.kind == "replace" && happened:
		return o.body, state != "" && state == o.over
	case o.kind == "replace" && o.err == store.ErrConflict:
		return state, state != "" && state != o.over
	case o.kind == "replace":
		return state, state == "" && o.err == store.ErrNotFound
	case o.kind == "delete":
		return "", happened
	}
	return state, false
}

// Three writers, a cleaner, sleepers, crashes at every request, lost, late and
// doubled requests: what everybody is told is the history of one register.
//
// SPEC ST17 ST1 ST2 ST3 ST4 ST5 ST9
func TestModel(t *testing.T) {
	t.Parallel()
	var stats [6]int
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		if flaw := simulate(t, seed, sound, &stats); flaw != "" {
			t.Fatalf("seed %d: %s", seed, flaw)
		}
	}
	t.Logf("%d calls; of the writes %d won, %d were in conflict, %d of unknown outcome; %d crashes, %d long pauses",
		stats[0], stats[3], stats[2], stats[1], stats[4], stats[5])
	if min(stats[1], stats[2], stats[3], stats[4], stats[5]) < 50 {
		t.Error("the worlds are too quiet: they show nothing")
	}
}

// The simulation finds each flaw of the protocol that it is there for.
//
// SPEC ST17
func TestModelFindsFlaws(t *testing.T) {
	t.Parallel()
	for m, name := range map[mutant]string{
		checkBefore:  "the mark is checked before the create",
		deleteBefore: "old numbers are deleted before the mark",
		noCheck:      "a writer does not check the mark",
		noSecondLook: "a reader does not check the mark",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stats [6]int
			for seed := range uint64(3000) {
				if flaw := simulate(t, seed, m, &stats); flaw != "" {
					t.Logf("found by seed %d: %s", seed, flaw)
					return
				}
			}
			t.Error("3000 worlds did not show it")
		})
	}
}
