package sqlstore

import (
	"os"

	"golang.org/x/sys/unix"
)

// bell rings when a file is written to, by any process: the kernel tells
// (inotify). A ring comes before the commit can be seen, for the log is written
// before its index is; whoever hears it looks a few times in a row.
type bell struct {
	f     *os.File
	fd    int
	rings chan struct{}
	done  chan struct{}
}

// newBell is nil where the kernel has no more to give: its user polls.
func newBell() *bell {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	b := &bell{f: os.NewFile(uintptr(fd), "inotify"), fd: fd, rings: make(chan struct{}), done: make(chan struct{})}
	go b.listen()
	return b
}

// listen takes the next event only when the last one was heard; the kernel makes
// one of those that wait.
func (b *bell) listen() {
	var events [4096]byte
	for {
		if _, err := b.f.Read(events[:]); err != nil {
			return
		}
		select {
		case b.rings <- struct{}{}:
		case <-b.done:
			return
		}
	}
}

// hang makes the bell ring for path from now on. To hang it where it hangs is
// cheap; where path was replaced it is necessary.
func (b *bell) hang(path string) {
	if b != nil {
		_, _ = unix.InotifyAddWatch(b.fd, path, unix.IN_MODIFY|unix.IN_DONT_FOLLOW)
	}
}

// heard is nil, which never speaks, where there is no bell.
func (b *bell) heard() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.rings
}

func (b *bell) close() {
	if b != nil {
		close(b.done)
		_ = b.f.Close()
	}
}
