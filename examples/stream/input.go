package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// input is a folder of partition files, the same for every process. Slot i of the
// assignment is partition i.
type input struct {
	paths []string
	sizes []int64
	// id is made of everything in the folder. It is the stream's deployment id, so
	// that a process with another input is refused, not mixed in.
	id string
}

// openInput reads the folder once, to know what is in it.
func openInput(dir string) (*input, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "p-*.txt"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there are no partitions p-*.txt in %q: make some with `stream generate --input %s`", dir, dir)
	}
	in := &input{paths: paths} // sorted by Glob
	sum := sha256.New()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		content := sha256.New()
		size, err := io.Copy(content, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		in.sizes = append(in.sizes, size)
		fmt.Fprintf(sum, "%q %d %x\n", filepath.Base(path), size, content.Sum(nil))
	}
	h := fmt.Sprintf("%x", sum.Sum(nil))
	in.id = strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:32]}, "-") // the form of a UUID
	return in, nil
}

// counts are occurrences by word.
type counts map[string]uint64

func (c counts) add(more counts) {
	for word, n := range more {
		c[word] += n
	}
}

func (c counts) addText(text string) {
	for _, word := range strings.Fields(text) {
		c[word]++
	}
}

// text is c, one word per line, sorted.
func (c counts) text() string {
	var b strings.Builder
	for _, word := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s %d\n", word, c[word])
	}
	return b.String()
}

// count counts the words of at most lines lines of a partition, beginning at byte
// from; to is where the next one begins. It is the whole of the engine's work.
func (in *input) count(slot int, from int64, lines int, into counts) (to int64, err error) {
	f, err := os.Open(in.paths[slot])
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return 0, err
	}
	to = from
	for r := bufio.NewReader(f); lines > 0; lines-- {
		line, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		to += int64(len(line))
		into.addText(line)
		if err != nil {
			break
		}
	}
	if to == from && from < in.sizes[slot] {
		return 0, fmt.Errorf("%s ends at byte %d, and had %d when this process began", in.paths[slot], from, in.sizes[slot])
	}
	return to, nil
}

// plain counts the whole input the simple way, to compare with.
func (in *input) plain() (counts, error) {
	all := counts{}
	for _, path := range in.paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all.addText(string(text))
	}
	return all, nil
}

// generate writes partitions of lines random words each.
func generate(dir string, partitions, lines int, seed uint64) error {
	if partitions < 1 || lines < 0 {
		return fmt.Errorf("%d partitions of %d lines cannot be made: give at least 1 and 0", partitions, lines)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if old, err := filepath.Glob(filepath.Join(dir, "p-*.txt")); err != nil || len(old) > 0 {
		return errors.Join(err, fmt.Errorf("%q has partitions already: give an empty folder", dir))
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for p := range partitions {
		var b strings.Builder
		for range lines {
			for range 3 + random.IntN(8) {
				n := random.IntN(40)
				fmt.Fprintf(&b, "word%d ", n*n/40) // some are frequent
			}
			b.WriteByte('\n')
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("p-%02d.txt", p)), []byte(b.String()), 0o666); err != nil {
			return err
		}
	}
	return nil
}
