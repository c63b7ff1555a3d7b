package ledger

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// leaves is the binary tree over the leading bits of run ids whose leaves are the
// blocks: its nodes in preorder, '1' for one that has two children, '0' for a leaf.
// It is "" while there is no block at all. It only grows: a node that has children
// is never a leaf again, so no name of a block is ever used twice.
type leaves string

// check returns an error unless the tree is complete and has nothing after it.
func (l leaves) check() error {
	open, count := 1, 0
	for i := range len(l) {
		switch {
		case open == 0:
			return errors.New("the leaves have more than one root")
		case l[i] == '1':
			open++
		case l[i] == '0':
			open--
			count++
		default:
			return fmt.Errorf("%q in the leaves", l[i])
		}
	}
	if l != "" && open != 0 || count > MaxLeaves {
		return fmt.Errorf("the leaves are incomplete or more than %d", MaxLeaves)
	}
	return nil
}

// count is how many leaves there are.
func (l leaves) count() int { return strings.Count(string(l), "0") }

// of is the leaf of a run: its leading bits. ok is false if there is no block.
func (l leaves) of(run RunID) (leaf string, ok bool) {
	if l == "" {
		return "", false
	}
	at, depth := 0, 0
	path := make([]byte, 0, 16)
	for l[at] == '1' {
		b := run.bit(depth)
		at++
		if b == 1 {
			at = l.skip(at)
		}
		path = append(path, '0'+b)
		depth++
	}
	return string(path), true
}

// skip is the place after the subtree that begins at.
func (l leaves) skip(at int) int {
	for open := 1; open > 0; at++ {
		if l[at] == '1' {
			open++
		} else {
			open--
		}
	}
	return at
}

// split is l with two children at leaf, or as it is where leaf is not a leaf.
func (l leaves) split(leaf string) leaves {
	if l == "" {
		l = "0"
	}
	at := 0
	for i := range len(leaf) {
		if l[at] != '1' {
			return l
		}
		at++
		if leaf[i] == '1' {
			at = l.skip(at)
		}
	}
	if l[at] == '1' {
		return l
	}
	return l[:at] + "100" + l[at+1:]
}

// all are the leaves, in order of their bits.
func (l leaves) all() []string {
	var out []string
	path := ""
	for i := range len(l) {
		if l[i] == '1' {
			path += "0"
			continue
		}
		out = append(out, path)
		path = strings.TrimRight(path, "1")
		if path != "" {
			path = path[:len(path)-1] + "1"
		}
	}
	return out
}

// pack is the tree as it stands in a head: the number of its nodes, and their bits
// in base64.
func (l leaves) pack() string {
	if l == "" {
		return ""
	}
	bits := make([]byte, (len(l)+7)/8)
	for i := range len(l) {
		bits[i/8] |= (l[i] - '0') << (7 - i%8)
	}
	return fmt.Sprintf("%d:%s", len(l), base64.RawStdEncoding.EncodeToString(bits))
}

// unpackLeaves is pack's inverse; anything that pack did not make is an error.
func unpackLeaves(s string) (leaves, error) {
	if s == "" {
		return "", nil
	}
	var n int
	count, text, _ := strings.Cut(s, ":")
	if _, err := fmt.Sscanf(count, "%d", &n); err != nil || n < 1 || n > 2*MaxLeaves {
		return "", fmt.Errorf("%q leaves", count)
	}
	bits, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(bits) != (n+7)/8 {
		return "", errors.New("the bits of the leaves are not complete")
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = '0' + bits[i/8]>>(7-i%8)&1
	}
	l := leaves(b)
	if l.pack() != s {
		return "", errors.New("the leaves are not in their one form")
	}
	return l, l.check()
}
