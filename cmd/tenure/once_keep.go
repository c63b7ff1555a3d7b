package main

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// keptOutput is how much of a command's output is kept: what a result of the ledger
// takes.
const keptOutput = 64 << 10

// keepLimit is how long the end of the output is waited for once the command's tree is
// gone: something that is no longer of the tree may still have it open.
const keepLimit = time.Second

// keeper passes a command's standard output on, and keeps its beginning.
type keeper struct {
	clk  clock.Clock
	read *os.File
	to   *os.File
	undo func() // gives this process its standard output back

	done chan struct{} // closed when everything was passed on

	mu    sync.Mutex
	kept  []byte
	total int64
}

// keepOutput puts a keeper between this process's standard output and whatever is
// started from now on.
func keepOutput(clk clock.Clock) (*keeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	to, undo, err := replaceStdout(w)
	if err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	k := &keeper{clk: clk, read: r, to: to, undo: undo, done: make(chan struct{})}
	go k.pass()
	return k, nil
}

// pass copies until nobody has the other end open. A reader that went away ends the
// copying, and the next write of the command fails, as without a keeper.
func (k *keeper) pass() {
	defer close(k.done)
	buf := make([]byte, 32<<10)
	for {
		n, err := k.read.Read(buf)
		k.mu.Lock()
		k.total += int64(n)
		k.kept = append(k.kept, buf[:min(n, keptOutput-len(k.kept))]...)
		k.mu.Unlock()
		if n > 0 {
			if _, err := k.to.Write(buf[:n]); err != nil {
				_ = k.read.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// end is what was kept of an output of total bytes, once the command's tree is gone. A
// nil keeper kept nothing.
func (k *keeper) end() (kept []byte, total int64) {
	if k == nil {
		return nil, 0
	}
	k.undo()
	late := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(late)
		clock.Sleep(k.clk, keepLimit, stop)
	}()
	select {
	case <-k.done:
		close(stop)
		<-late
	case <-late:
	}
	_ = k.read.Close() // that ends a read, but not a write that nobody takes
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept, k.total
}
