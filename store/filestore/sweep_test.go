//go:build linux || darwin

package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// A number is unlinked only by someone who saw that the one before is gone.
//
// SPEC ST17
func TestNumbersGoInOrder(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t), hasty)
	v := create(t, s, sleeperKey, "1")
	// Without tidying, as if every writer had been killed after its link.
	s.tracer = failing(func(st step) error {
		if _, ok := numberOf(st.name); ok && st.kind == stepUnlink {
			return errDead
		}
		return nil
	})
	for i := range 3 {
		v = replace(t, s, sleeperKey, fmt.Sprint(i), v)
	}
	body(t, s, sleeperKey) // waits until the last write has tidied up
	s.tracer = nil
	l, err := s.openLife(sleeperKey)
	must(t, err)
	defer l.close()
	there := func(want string) {
		t.Helper()
		numbers, _, err := s.numbers(l)
		if got := fmt.Sprint(numbers); err != nil || got != want {
			t.Errorf("the numbers are %s, %v; want %s", got, err, want)
		}
	}
	there("[1 2 3 4]")
	must(t, s.sweepNumbers(l, []uint64{2, 3}))
	there("[1 2 3 4]")
	must(t, s.sweepNumbers(l, []uint64{1, 3}))
	there("[2 3 4]")
	must(t, s.sweepNumbers(l, []uint64{2, 3}))
	there("[4]")
}

// A writer that slept puts its number back, where it harms nobody: it is not
// taken for the present state, and goes with the next write or the delete.
//
// SPEC ST2 ST17
func TestNumbersThatComeBack(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		s := opened(t, quick(t), hasty)
		v := create(t, s, sleeperKey, "0")
		for i := range 5 {
			v = replace(t, s, sleeperKey, fmt.Sprint(i), v)
		}
		dir := filepath.Join(s.root, lifePath(sleeperKey))
		// A state as the sleeper had it, under a number that was unlinked.
		stray := header{key: sleeperKey, number: 1, nonce: randomID()}.next(record, nil)
		tmp, fd, err := s.writeTemp(stray.nonce, stray.line())
		must(t, err)
		closeFD(fd)
		l, err := s.openLife(sleeperKey)
		must(t, err)
		must(t, s.link(s.tmpFD, tmp, l.fd, numberName(stray.number)))
		l.close()
		holds(t, s, sleeperKey, "4")
		if deleted {
			remove(t, s, sleeperKey, v)
		} else {
			age(t, s.tmpPath(tmp), 2*keepFor)
			replace(t, s, sleeperKey, "5", v)
		}
		body(t, s, sleeperKey) // which waits until the write has tidied up
		if _, err := lstatAt(s.rootFD, lifePath(sleeperKey)+"/"+numberName(stray.number)); err == nil {
			t.Errorf("the number that came back is still in %s", dir)
		}
	}
}

// An Open that clears away an old birth, and whose creator wakes up in the
// middle of that: the record is there in whole, or the creator knows that it is
// not.
//
// SPEC ST1
func TestSweepMeetsItsCreator(t *testing.T) {
	t.Parallel()
	path := quick(t)
	create1, sweep := &gate{}, &gate{}
	s, other := opened(t, path, hasty, traced(create1)), opened(t, path, hasty, traced(sweep))
	wake := asleep(t, create1, of(stepRename), func() error {
		_, err := s.Create(within(t), sleeperKey, []byte("late"))
		return err
	})
	for _, name := range entries(t, s) {
		if filepath.Dir(name) == tmpName {
			age(t, filepath.Join(path, name), 2*staleTemp)
		}
	}
	swept := asleep(t, sweep, func(st step) bool { return st.kind == stepUnlink && st.name == lifeName }, func() error {
		other.sweep()
		return nil
	})
	err := wake()
	must(t, swept())
	if err != nil {
		isKind(t, "the creator's answer", err, store.ErrUnavailable)
		holds(t, s, sleeperKey, "-")
	} else {
		holds(t, s, sleeperKey, "late")
	}
}

// The file that gives every new life its mark may be swept away, or be full.
//
// SPEC ST1
func TestLifeFileHasASuccessor(t *testing.T) {
	t.Parallel()
	s := opened(t, quick(t))
	create(t, s, "ns/lease/first", "x")
	must(t, unix.Unlinkat(s.tmpFD, s.lifeFile.name, 0))
	create(t, s, "ns/lease/second", "x")
	old, full := s.lifeFile.name, true
	s.tracer = failing(func(st step) error {
		if st.kind == stepLink && st.name == lifeName && full {
			full = false
			return unix.EMLINK
		}
		return nil
	})
	create(t, s, "ns/lease/third", "x")
	if full || s.lifeFile.name == old {
		t.Errorf("a file with too many names was kept")
	}
	for _, key := range []string{"ns/lease/first", "ns/lease/second", "ns/lease/third"} {
		holds(t, s, key, "x")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(s.root, tmpName)); err != nil || len(left) > 0 {
		t.Errorf("Close left %v, %v", left, err)
	}
}
