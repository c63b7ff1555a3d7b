package ledger

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// The tree against a plain set of leaves: every id has exactly one leaf, splits only
// add, and its text is its own.
//
// SPEC EX7
func TestLeaves(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		l, set := leaves("").split(""), map[string]bool{"0": true, "1": true}
		for range 60 {
			var id RunID
			for i := range id {
				id[i] = byte(r.Uint32())
			}
			leaf, ok := l.of(id)
			if !ok || !set[leaf] || !id.under(leaf) {
				t.Fatalf("seed %d: %v belongs to %q", seed, id, leaf)
			}
			if r.IntN(2) == 0 {
				l = l.split(leaf)
				delete(set, leaf)
				set[leaf+"0"], set[leaf+"1"] = true, true
			}
			if again := l.split(leaf[:len(leaf)-1]); again != l {
				t.Fatalf("an inner node was split again: %s", again)
			}
			back, err := unpackLeaves(l.pack())
			if err != nil || back != l || l.check() != nil || l.count() != len(set) {
				t.Fatalf("seed %d: %s comes back as %s, %v", seed, l, back, err)
			}
		}
		all := l.all()
		if len(all) != len(set) {
			t.Fatalf("%d leaves, %d are told", len(set), len(all))
		}
		for i, leaf := range all {
			if !set[leaf] || i > 0 && all[i-1] >= leaf {
				t.Fatalf("leaf %q is none, or out of order", leaf)
			}
		}
	}
	for _, s := range []string{"0:", "1:", "1:gA", "3:gA==", "3:", "3:/w", "5:gA", "x:gA", "1:AA", "03:gA", "3:gB", "-1:gA", strings.Repeat("9", 30) + ":gA"} {
		if l, err := unpackLeaves(s); err == nil && l.pack() != s {
			t.Errorf("%q reads as %s", s, l)
		} else if err == nil && s != "1:AA" {
			t.Errorf("%q is accepted as %s", s, l)
		}
	}
	full := leaves(strings.Repeat("1", MaxLeaves-1) + strings.Repeat("0", MaxLeaves))
	if err := full.check(); err != nil || len(full.pack()) > 12<<10 {
		t.Errorf("the largest tree: %v, %d bytes", err, len(full.pack()))
	}
	if (full[:MaxLeaves-1] + "100" + full[MaxLeaves:]).check() == nil {
		t.Error("one more leaf is accepted")
	}
}

// A fact in another leaf's block is found, at whichever side of the disk.
//
// SPEC ST7 EX7
func TestBlockOfAnotherLeaf(t *testing.T) {
	t.Parallel()
	f := Fact{Key: Key{Site: "paris", Attempt: 1}, Committed: true} // its run id begins with a 0
	body, err := encodePack(packLine{Agent: "job", Leaf: "0"}, []Fact{f}, MaxBlock)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBlock("k", "job", "0", body); err != nil {
		t.Errorf("its own leaf: %v", err)
	}
	if _, err := encodePack(packLine{Agent: "job", Leaf: "1"}, []Fact{f}, MaxBlock); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("another leaf is written: %v", err)
	}
	line, rest, _ := bytes.Cut(body, []byte("\n"))
	moved := append(bytes.Replace(line, []byte(`"leaf":"0"`), []byte(`"leaf":"1"`), 1), '\n')
	moved = append(moved, rest[:len(rest)-sha256.Size]...)
	sum := sha256.Sum256(moved)
	if _, err := DecodeBlock("k", "job", "1", append(moved, sum[:]...)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("another leaf is read: %v", err)
	}
}
