package filestore

import (
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notice says what to be told of. One inode is always watched with one mask,
// because a second watch of it would change the first.
type notice uint32

const (
	// noticeDir: names appear in a directory or go, or the directory goes.
	noticeDir notice = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_MOVED_FROM |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	// noticeFile: a file loses a name, or a process that could write it closes
	// it or ends.
	noticeFile notice = unix.IN_CLOSE_WRITE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

// madeEvents and goneEvents say which changes of a directory matter.
const (
	madeEvents uint32 = unix.IN_CREATE | unix.IN_MOVED_TO
	goneEvents uint32 = unix.IN_DELETE | unix.IN_MOVED_FROM
)

// selfEvents concern the watched inode itself, or the loss of the watch.
const selfEvents = unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_IGNORED | unix.IN_UNMOUNT

// notifier is a store's one inotify instance, made when it is first needed.
type notifier struct {
	// calls is held while the kernel is asked to watch or not to, which takes
	// long on a disk that hangs. It comes before mu.
	calls sync.Mutex
	fd    int // under calls

	mu     sync.Mutex
	f      *os.File // nil before the first use
	broken bool     // closed, or no events any more
	done   chan struct{}
	watch  map[int32]*watched
	idle   []int32 // watches that nobody may need any more
}

// watched is one inode that the kernel watches, and who is told of it: by the
// name in it that they ask for, "" being all.
type watched struct {
	subs map[string]map[*subscription]struct{}
	n    int
}

// subscribe tells of changes of path, or only of name in it, that are of the
// kinds in events; 0 is all. ENOENT inside means that path does not exist, any
// other error that the kernel cannot watch it.
func (n *notifier) subscribe(path string, what notice, name string, events uint32) (*subscription, error) {
	n.calls.Lock()
	defer n.calls.Unlock()
	defer n.unwatchIdle()
	if err := n.start(); err != nil {
		return nil, err
	}
	wd, err := unix.InotifyAddWatch(n.fd, path, uint32(what)|unix.IN_DONT_FOLLOW)
	if err != nil {
		return nil, fault("watch", path, err)
	}
	return n.add(int32(wd), name, events), nil
}

func (n *notifier) add(wd int32, name string, events uint32) *subscription {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.watch[wd]
	if w == nil {
		w = &watched{subs: map[string]map[*subscription]struct{}{}}
		n.watch[wd] = w
	}
	if w.subs[name] == nil {
		w.subs[name] = map[*subscription]struct{}{}
	}
	sub := &subscription{wake: make(chan struct{}, 1), events: events}
	sub.cancel = sync.OnceFunc(func() { n.cancel(wd, w, name, sub) })
	w.subs[name][sub] = struct{}{}
	w.n++
	return sub
}

// start makes the instance. Under calls.
func (n *notifier) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken {
		return errNoNotice
	}
	if n.f != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fault("watch", "inotify", err) // perhaps too many; it may work later
	}
	n.f, n.fd = os.NewFile(uintptr(fd), "inotify"), fd
	n.done, n.watch = make(chan struct{}), map[int32]*watched{}
	go n.read(n.f, n.done)
	return nil
}

// cancel ends one subscription. The last of a watch ends that too, or leaves it
// to whoever is asking the kernel at the moment.
func (n *notifier) cancel(wd int32, w *watched, name string, sub *subscription) {
	n.mu.Lock()
	delete(w.subs[name], sub)
	if len(w.subs[name]) == 0 {
		delete(w.subs, name)
	}
	w.n--
	unused := w.n == 0 && n.watch[wd] == w
	if unused {
		n.idle = append(n.idle, wd)
	}
	n.mu.Unlock()
	if unused && n.calls.TryLock() {
		n.unwatchIdle()
		n.calls.Unlock()
	}
}

// unwatchIdle ends the watches that nobody needs. Under calls.
func (n *notifier) unwatchIdle() {
	n.mu.Lock()
	var unused []int32
	for _, wd := range n.idle {
		if w := n.watch[wd]; w != nil && w.n == 0 {
			delete(n.watch, wd)
			unused = append(unused, wd)
		}
	}
	n.idle = n.idle[:0]
	broken := n.broken
	n.mu.Unlock()
	for _, wd := range unused {
		if !broken {
			_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
		}
	}
}

// close ends the instance. Subscriptions are told nothing more.
func (n *notifier) close() {
	n.mu.Lock()
	f, done := n.f, n.done
	n.broken = true
	n.mu.Unlock()
	if f == nil {
		return
	}
	// Nobody may be using the descriptor's number once it is free.
	end := func() {
		n.calls.Lock()
		defer n.calls.Unlock()
		_ = f.Close()
		<-done
	}
	if n.calls.TryLock() {
		n.calls.Unlock()
		end()
	} else {
		go end()
	}
}

// read hands out what the kernel tells until the instance is closed.
func (n *notifier) read(f *os.File, done chan struct{}) {
	defer close(done)
	buf := make([]byte, 64<<10)
	for {
		size, err := f.Read(buf)
		if err != nil {
			n.mu.Lock()
			n.broken = true
			n.wakeAll()
			n.mu.Unlock()
			return
		}
		n.mu.Lock()
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			event := (*unix.InotifyEvent)(unsafe.Pointer(&b[0]))
			end := min(unix.SizeofInotifyEvent+int(event.Len), len(b))
			n.handle(event.Wd, event.Mask, unix.ByteSliceToString(b[unix.SizeofInotifyEvent:end]))
			b = b[end:]
		}
		n.mu.Unlock()
	}
}

// handle tells those whom one event concerns. Under mu.
func (n *notifier) handle(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		n.wakeAll()
		return
	}
	w := n.watch[wd]
	if w == nil {
		return
	}
	if mask&selfEvents != 0 || name == "" {
		w.wakeAll()
	}
	if mask&unix.IN_IGNORED != 0 { // it is gone, and the kernel's watch with it
		delete(n.watch, wd)
	}
	for _, who := range []string{name, ""} {
		for sub := range w.subs[who] {
			if sub.events == 0 || sub.events&mask != 0 {
				sub.notify()
			}
		}
	}
}

func (n *notifier) wakeAll() {
	for _, w := range n.watch {
		w.wakeAll()
	}
}

func (w *watched) wakeAll() {
	for _, subs := range w.subs {
		for sub := range subs {
			sub.notify()
		}
	}
}
