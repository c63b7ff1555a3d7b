package main

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// keptOutput is how much of a command's output is kept: what a result of the ledger
// takes.
const keptOutput = 64 << 10

const (
	// keepLimit is how long the end of the output is waited for once the command's tree is
	// gone: something that is no longer of the tree may still have it open.
	keepLimit = time.Second
	// keepPause is how long nothing comes if the pipe is empty.
	keepPause = 10 * time.Millisecond
	// keepRest is more than a pipe holds: what comes after that is not the command's.
	keepRest = 16 << 20
)

// keeper passes a command's standard output on, and keeps its beginning.
type keeper struct {
	read *os.File
	to   *os.File
	undo func() // gives this process its standard output back

	done chan struct{} // closed when everything was passed on

	mu    sync.Mutex
	kept  []byte
	total int64
	lost  error // why output could not be passed on, unless its reader went away
}

// keepOutput puts a keeper between this process's standard output and whatever is
// started from now on.
func keepOutput() (*keeper, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	to, undo, err := replaceStdout(w)
	if err != nil {
		return nil, errors.Join(err, r.Close(), w.Close())
	}
	k := &keeper{read: r, to: to, undo: undo, done: make(chan struct{})}
	go k.pass()
	return k, nil
}

// pass copies until nobody has the other end open, or end says that it is enough. A
// reader that went away ends the copying, and the next write of the command fails, as
// without a keeper.
func (k *keeper) pass() {
	defer close(k.done)
	buf := make([]byte, 32<<10)
	for more := true; more; {
		_, more = k.take(buf)
	}
	// If end's limit ended that, it may be because nobody took what was passed on, however
	// long ago the command wrote it. What lies in the pipe is passed on as well.
	for n, rest, more := 0, keepRest, true; more && rest > 0; rest -= n {
		if k.read.SetReadDeadline(time.Now().Add(keepPause)) != nil {
			return
		}
		n, more = k.take(buf)
	}
}

// take passes one piece on, of n bytes, and says whether there may be more.
func (k *keeper) take(buf []byte) (n int, more bool) {
	n, err := k.read.Read(buf)
	k.mu.Lock()
	k.total += int64(n)
	k.kept = append(k.kept, buf[:min(n, keptOutput-len(k.kept))]...)
	k.mu.Unlock()
	if n > 0 {
		if _, err := k.to.Write(buf[:n]); err != nil {
			_ = k.read.Close()
			if !errors.Is(err, syscall.EPIPE) {
				k.mu.Lock()
				k.lost = err
				k.mu.Unlock()
			}
			return n, false
		}
	}
	return n, err == nil
}

// trouble is why output was lost that the command had written: it does not know, since a
// pipe took it. Its reader's end is no trouble. Call it after end.
func (k *keeper) trouble() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lost
}

// end is what was kept of an output of total bytes, once the command's tree is gone. It
// waits for a slow reader as long as the command itself would have: until somebody is in
// a hurry. whole is false if not everything was passed on then. A nil keeper kept nothing.
func (k *keeper) end(hurried <-chan struct{}) (kept []byte, total int64, whole bool) {
	if k == nil {
		return nil, 0, true
	}
	k.undo()
	_ = k.read.SetReadDeadline(time.Now().Add(keepLimit))
	select {
	case <-k.done:
		whole = true
	case <-hurried:
	}
	_ = k.read.Close() // that ends a read, but not a write that nobody takes
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.kept, k.total, whole
}
