//go:build linux || darwin

package filestore

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

func waiter(t *testing.T, path string) *process {
	t.Helper()
	p := start(t, part{Role: "wait", Path: path, Key: sleeperKey})
	p.expect("stands")
	return p
}

func enqueue(t *testing.T, s *Store) store.Ticket {
	t.Helper()
	tk, err := s.Enqueue(within(t), sleeperKey)
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

func stands(t *testing.T, s *Store) bool {
	t.Helper()
	yes, err := s.Waiting(within(t), sleeperKey)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// emptyQueue reports what is left of the waiting lines and of their making.
func emptyQueue(t *testing.T, s *Store) {
	t.Helper()
	for _, dir := range []string{queueName, tmpName} {
		left, err := os.ReadDir(filepath.Join(s.root, dir))
		if err != nil && !os.IsNotExist(err) || len(left) > 0 {
			t.Errorf("%s holds %v, %v; want nothing", dir, left, err)
		}
	}
}

// Processes stand in line in the order in which they came, and leave nothing.
//
// SPEC LS9
func TestQueueAmongProcesses(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	var line []*process
	for range 5 {
		line = append(line, waiter(t, path))
	}
	if !stands(t, s) {
		t.Error("nobody stands in line, says Waiting")
	}
	for _, p := range line {
		p.expect("turn")
		p.tell("leave")
		p.expect("left")
		if p.wait() != 0 {
			t.Error("a waiter failed")
		}
	}
	if stands(t, s) {
		t.Error("somebody still stands in line, says Waiting")
	}
	emptyQueue(t, s)
}

// A killed member does not hold the others up, at the head or in the middle,
// and what it left goes.
//
// SPEC LS9
func TestQueueWithDeadMembers(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	line := []*process{waiter(t, path), waiter(t, path), waiter(t, path)}
	line[0].expect("turn")
	last := enqueue(t, s)
	line[1].signal(syscall.SIGKILL) // while it waits
	line[1].wait()
	killed := time.Now()
	line[0].signal(syscall.SIGKILL) // while it is at the head
	line[0].wait()
	line[2].expect("turn")
	if d := time.Since(killed); d > limit/4 {
		t.Errorf("the turn came after %v", d)
	}
	line[2].signal(syscall.SIGKILL)
	line[2].wait()
	if err := last.Wait(within(t), 0); err != nil {
		t.Fatal(err)
	}
	last.Leave()
	emptyQueue(t, s)
}

// The turn comes within moments of a kill -9 of the one before.
//
// SPEC LS9
func TestQueueWakesAtOnce(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	best := time.Hour
	for range 5 {
		p := waiter(t, path)
		tk := enqueue(t, s)
		turn := make(chan time.Time, 1)
		go func() {
			if err := tk.Wait(within(t), 0); err != nil {
				t.Error(err)
			}
			turn <- time.Now()
		}()
		eventually(t, "the waiter to watch", func() bool { return subscriptions(s) > 0 || kernelWatches(s) == 0 && !hasNotices })
		killed := time.Now()
		p.signal(syscall.SIGKILL)
		best = min(best, (<-turn).Sub(killed))
		p.wait()
		tk.Leave()
	}
	if atMost := 50 * time.Millisecond; hasNotices && best > atMost {
		t.Errorf("the quickest turn after a kill came after %v, want at most %v", best, atMost)
	}
	t.Logf("the quickest turn after a kill came after %v", best)
}

// A stopped member at the head is passed over by those with patience, one after
// the other, and keeps its place.
//
// SPEC LS9 ST13
func TestQueueWithAStoppedHead(t *testing.T) {
	t.Parallel()
	const patience = 40 * time.Millisecond
	path := quick(t)
	s := opened(t, path)
	p := waiter(t, path)
	p.expect("turn")
	p.signal(syscall.SIGSTOP)
	p.stopped()
	first, second := enqueue(t, s), enqueue(t, s)
	turns := make(chan string, 2)
	begun := time.Now()
	for name, tk := range map[string]store.Ticket{"first": first, "second": second} {
		go func() {
			if err := tk.Wait(within(t), patience); err != nil {
				t.Error(err)
			}
			turns <- name
		}()
	}
	if got := <-turns; got != "first" {
		t.Errorf("the %s waiter passed first", got)
	}
	if d := time.Since(begun); d < patience {
		t.Errorf("a stopped member was passed after %v, want %v", d, patience)
	}
	first.Leave()
	<-turns
	if d := time.Since(begun); d < 2*patience*9/10 {
		t.Errorf("the second waiter passed after %v, want %v for each of the two before it", d, patience)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	isKind(t, "Wait without patience behind a stopped member", second.Wait(ctx, 0), context.DeadlineExceeded)
	second.Leave()
	p.signal(syscall.SIGCONT)
	p.tell("leave")
	p.expect("left")
	p.wait()
	emptyQueue(t, s)
}

// Whoever leaves from any place, by Leave or by Close, leaves nothing behind.
//
// SPEC LS9
func TestQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s, other := opened(t, path), opened(t, path)
	for n := range 6 {
		var line []store.Ticket
		for i := range n {
			line = append(line, enqueue(t, []*Store{s, other}[i%2]))
		}
		for i := range line { // from the middle outwards
			line[(i+n/2)%n].Leave()
			line[(i+n/2)%n].Leave()
		}
		emptyQueue(t, s)
	}
	enqueue(t, other)
	enqueue(t, other)
	mine := enqueue(t, s)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	if err := mine.Wait(within(t), 0); err != nil {
		t.Error(err)
	}
	mine.Leave()
	isKind(t, "Wait after Leave", mine.Wait(within(t), 0), store.ErrInvalid)
	emptyQueue(t, s)
}

// Joining and leaving at the same time gives every ticket its turn, in order.
//
// SPEC LS9
func TestQueueUnderChurn(t *testing.T) {
	t.Parallel()
	path := quick(t)
	stores := []*Store{opened(t, path), opened(t, path), opened(t, path)}
	const each = 20
	turns := make(chan uint64, 2*len(stores)*each)
	for _, s := range stores {
		for range 2 {
			go func() {
				for range each {
					tk, err := s.Enqueue(within(t), sleeperKey)
					if err == nil {
						err = tk.Wait(within(t), 0)
						turns <- tk.(*ticket).number
						tk.Leave()
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
	}
	timeout := time.After(limit)
	for i := range cap(turns) {
		select {
		case <-turns:
		case <-timeout:
			t.Fatalf("only %d of %d tickets had their turn", i, cap(turns))
		}
	}
	eventually(t, "the line to be empty", func() bool { return !stands(t, stores[0]) })
}

// A ticket that its dead owner left does not come before those who came later,
// and what is found of old lines goes with Open.
func TestOpenSweepsOldLines(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s := opened(t, path)
	p := waiter(t, path)
	p.signal(syscall.SIGKILL)
	p.wait()
	if stands(t, s) {
		t.Error("a dead member stands in line, says Waiting")
	}
	dir := filepath.Join(path, linePath(sleeperKey))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("the line of a dead member is %v, %v", left, err)
	}
	age(t, dir, 2*staleTemp)
	opened(t, path)
	emptyQueue(t, s)
}
