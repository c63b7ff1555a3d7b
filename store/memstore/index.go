package memstore

import (
	"slices"
	"strings"
)

// chunkSize is the most keys in one chunk of an index: small enough that an
// insert moves little, large enough that there are few chunks.
const chunkSize = 512

// index is a set of keys in byte order. Invariants: no chunk is empty or longer
// than chunkSize, and the chunks one after the other are sorted without
// repeats.
type index struct {
	chunks [][]string
}

// chunk is the number of the chunk where key is or belongs; 0 in an empty index.
func (x *index) chunk(key string) int {
	i, found := slices.BinarySearchFunc(x.chunks, key, func(c []string, key string) int { return strings.Compare(c[0], key) })
	if found || i == 0 {
		return i
	}
	return i - 1
}

// insert adds a key that is not there.
func (x *index) insert(key string) {
	if len(x.chunks) == 0 {
		x.chunks = [][]string{{key}}
		return
	}
	n := x.chunk(key)
	c := x.chunks[n]
	i, _ := slices.BinarySearch(c, key)
	c = slices.Insert(c, i, key)
	x.chunks[n] = c
	if len(c) > chunkSize {
		half := len(c) / 2
		x.chunks[n] = slices.Clip(c[:half])
		x.chunks = slices.Insert(x.chunks, n+1, slices.Clone(c[half:]))
	}
}

// remove takes away a key that is there.
func (x *index) remove(key string) {
	n := x.chunk(key)
	i, _ := slices.BinarySearch(x.chunks[n], key)
	x.chunks[n] = slices.Delete(x.chunks[n], i, i+1)
	if len(x.chunks[n]) == 0 {
		x.chunks = slices.Delete(x.chunks, n, n+1)
	}
}

// page copies up to limit keys with prefix that are greater than after.
func (x *index) page(prefix, after string, limit int) []string {
	if len(x.chunks) == 0 {
		return nil
	}
	from := max(prefix, after)
	n := x.chunk(from)
	i, found := slices.BinarySearch(x.chunks[n], from)
	if found && from == after {
		i++
	}
	out := []string{}
	for ; n < len(x.chunks); n, i = n+1, 0 {
		for _, key := range x.chunks[n][i:] {
			if len(out) == limit || !strings.HasPrefix(key, prefix) {
				return out
			}
			out = append(out, key)
		}
	}
	return out
}

// span copies up to limit keys k with from <= k < to, from the least upwards or
// from the greatest downwards.
func (x *index) span(from, to string, backwards bool, limit int) []string {
	out := []string{}
	n, i := x.place(from)
	end, last := x.place(to)
	before := func(n, i, m, j int) bool { return n < m || n == m && i < j }
	for len(out) < limit && before(n, i, end, last) {
		switch {
		case backwards && last == 0:
			end--
			last = len(x.chunks[end])
		case backwards:
			last--
			out = append(out, x.chunks[end][last])
		case i == len(x.chunks[n]):
			n, i = n+1, 0
		default:
			out = append(out, x.chunks[n][i])
			i++
		}
	}
	return out
}

// place is the chunk of the first key that is not less than key, and its place
// there; it may be the end of the chunk.
func (x *index) place(key string) (chunk, i int) {
	if len(x.chunks) == 0 {
		return 0, 0
	}
	n := x.chunk(key)
	i, _ = slices.BinarySearch(x.chunks[n], key)
	return n, i
}
