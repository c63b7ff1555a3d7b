//go:build linux || darwin

package filestore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

const sleeperKey = "ns/lease/a"

// A writer that slept right before its link, while others wrote so much that
// its number was used and unlinked, does not take that number for a free one.
//
// SPEC ST2 ST4
func TestSleepingReplaceBeforeItsLink(t *testing.T) {
	t.Parallel()
	for _, others := range []int{1, 2, 3, 50, keepMost + 10} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			path := quick(t)
			sleeper, rival := opened(t, path, traced(g)), opened(t, path)
			v := create(t, rival, sleeperKey, "0")
			wake := asleep(t, g, of(stepLink), func() error {
				_, err := sleeper.Replace(within(t), sleeperKey, []byte("late"), v)
				return err
			})
			at := v
			for i := range others {
				at = replace(t, rival, sleeperKey, fmt.Sprint(i), at)
			}
			isKind(t, "the sleeper's replace", wake(), store.ErrConflict)
			holds(t, rival, sleeperKey, fmt.Sprint(others-1))
			replace(t, rival, sleeperKey, "on", at)
			holds(t, sleeper, sleeperKey, "on")
		})
	}
}

// The same, but the sleeper was first: it slept after its link. It learns that
// it won as long as its state is there, and that it cannot know otherwise.
//
// SPEC ST2
func TestSleepingReplaceAfterItsLink(t *testing.T) {
	t.Parallel()
	for others, want := range map[int]error{0: nil, 1: nil, 2: nil, 50: nil, keepMost + 10: store.ErrUnknown} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			t.Parallel()
			g := &afterGate{}
			path := quick(t)
			sleeper, rival := opened(t, path, traced(g)), opened(t, path)
			v := create(t, rival, sleeperKey, "0")
			wake := asleep(t, &g.gate, of(stepLink), func() error {
				_, err := sleeper.Replace(within(t), sleeperKey, []byte("mine"), v)
				return err
			})
			got, at := body(t, rival, sleeperKey)
			if got != "mine" {
				t.Fatalf("after the sleeper's link the key holds %q", got)
			}
			for i := range others {
				at = replace(t, rival, sleeperKey, fmt.Sprint(i), at)
			}
			if err := wake(); !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("the sleeper's replace: %v, want %v", err, want)
			}
			replace(t, rival, sleeperKey, "on", at)
		})
	}
}

// afterGate holds a step up after it was taken.
type afterGate struct{ gate }

func (g *afterGate) before(step) error      { return nil }
func (g *afterGate) after(st step, _ error) { _ = g.gate.before(st) }

// A write that slept while the key was deleted, or deleted and made again,
// touches the life that it looked at and not the new one.
//
// SPEC ST2 ST4 ST5
func TestSleepingWritesAndDeletedKeys(t *testing.T) {
	t.Parallel()
	ops := map[string]func(t *testing.T, s *Store, v store.Version) error{
		"replace": func(t *testing.T, s *Store, v store.Version) error {
			_, err := s.Replace(within(t), sleeperKey, []byte("late"), v)
			return err
		},
		"delete-if": func(t *testing.T, s *Store, v store.Version) error {
			return s.DeleteIf(within(t), sleeperKey, v)
		},
	}
	for name, op := range ops {
		for _, again := range []bool{false, true} {
			for _, old := range []int{0, 3} {
				t.Run(fmt.Sprintf("%s-again-%v-after-%d", name, again, old), func(t *testing.T) {
					t.Parallel()
					g := &gate{}
					path := quick(t)
					sleeper, rival := opened(t, path, traced(g)), opened(t, path)
					v := create(t, rival, sleeperKey, "0")
					for range old {
						v = replace(t, rival, sleeperKey, "0", v)
					}
					wake := asleep(t, g, of(stepLink), func() error { return op(t, sleeper, v) })
					remove(t, rival, sleeperKey, v)
					if again {
						v = create(t, rival, sleeperKey, "new life")
						for range old { // up to the very number that the sleeper links
							v = replace(t, rival, sleeperKey, "new life", v)
						}
					}
					isKind(t, "the sleeper's "+name, wake(), store.ErrNotFound)
					if again {
						holds(t, rival, sleeperKey, "new life")
						replace(t, rival, sleeperKey, "on", v)
					} else {
						holds(t, rival, sleeperKey, "-")
						create(t, rival, sleeperKey, "on")
					}
				})
			}
		}
	}
}

// A creator that slept right before its rename loses to whoever created
// meanwhile, and wins if the key is absent again.
//
// SPEC ST1
func TestSleepingCreate(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprintf("deleted-%v", deleted), func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			path := quick(t)
			sleeper, rival := opened(t, path, traced(g)), opened(t, path)
			wake := asleep(t, g, of(stepRename), func() error {
				_, err := sleeper.Create(within(t), sleeperKey, []byte("late"))
				return err
			})
			v := create(t, rival, sleeperKey, "rival")
			if deleted {
				remove(t, rival, sleeperKey, v)
				if err := wake(); err != nil {
					t.Errorf("the create of a key that is absent again: %v", err)
				}
				holds(t, rival, sleeperKey, "late")
				return
			}
			isKind(t, "the sleeper's create", wake(), store.ErrExists)
			holds(t, sleeper, sleeperKey, "rival")
		})
	}
}

// A delete that slept at any of its steps, from its link on, harms no life that
// was made meanwhile.
//
// SPEC ST5
func TestSleepingDelete(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			path := quick(t)
			sleeper, rival := opened(t, path, traced(g)), opened(t, path)
			v := create(t, rival, sleeperKey, "0")
			v = replace(t, rival, sleeperKey, "1", v)
			linked, seen := false, 0
			wake := asleep(t, g, func(st step) bool {
				if linked {
					seen++
				}
				linked = linked || st.kind == stepLink
				return seen == n
			}, func() error { return sleeper.DeleteIf(within(t), sleeperKey, v) })
			holds(t, rival, sleeperKey, "-")
			isKind(t, "a second delete", rival.DeleteIf(within(t), sleeperKey, v), store.ErrNotFound)
			w := create(t, rival, sleeperKey, "new life")
			w = replace(t, rival, sleeperKey, "new life", w)
			if err := wake(); err != nil && !errors.Is(err, store.ErrUnknown) {
				t.Errorf("the sleeper's delete: %v", err)
			}
			holds(t, sleeper, sleeperKey, "new life")
			w = replace(t, rival, sleeperKey, "on", w)
			remove(t, sleeper, sleeperKey, w)
			if left := entries(t, rival); len(left) != 5 {
				t.Errorf("after everything was deleted there are %q", left)
			}
		})
	}
}

// A delete that slept right after its link had won. It does not learn that it
// lost: not from those who clear its life away, who give it a moment first, and
// not if it meets them in the middle of that.
//
// SPEC ST5
func TestSleepingDeleteAfterItsLink(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, g *gate) (rival *Store, wake func() error) {
		slow := &afterGate{}
		path := quick(t)
		sleeper, rival := opened(t, path, traced(slow)), opened(t, path, traced(g))
		v := create(t, rival, sleeperKey, "0")
		return rival, asleep(t, &slow.gate, of(stepLink), func() error {
			return sleeper.DeleteIf(within(t), sleeperKey, v)
		})
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		rival, wake := begin(t, &gate{})
		holds(t, rival, sleeperKey, "-")
		if err := wake(); err != nil {
			t.Errorf("the sleeper's delete: %v", err)
		}
	})
	t.Run("cleared-away", func(t *testing.T) {
		t.Parallel()
		begun := time.Now()
		rival, wake := begin(t, &gate{})
		for _, name := range entries(t, rival) { // which also says that it is under way
			if filepath.Dir(name) == tmpName {
				must(t, os.Remove(filepath.Join(rival.root, name)))
			}
		}
		create(t, rival, sleeperKey, "new life")
		if d := time.Since(begun); d < defaultGraces.clear {
			t.Errorf("the life of a delete under way was cleared away after %v", d)
		}
		isKind(t, "the sleeper's delete", wake(), store.ErrUnknown)
		holds(t, rival, sleeperKey, "new life")
	})
	t.Run("half-cleared-away", func(t *testing.T) {
		t.Parallel()
		g := &gate{}
		rival, wake := begin(t, g)
		clear := asleep(t, g, func(st step) bool { return st.kind == stepUnlink && st.name == numberName(2) }, func() error {
			_, err := rival.Create(within(t), sleeperKey, []byte("new life"))
			return err
		})
		isKind(t, "the sleeper's delete", wake(), store.ErrUnknown)
		must(t, clear())
		holds(t, rival, sleeperKey, "new life")
	})
}
