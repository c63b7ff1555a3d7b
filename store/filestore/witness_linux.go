package filestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/store"
)

// A witness is a file .locks/<its inode number> on which its maker holds an
// exclusive flock(2) until it ends. As long as the maker has the file open,
// removed or not, no other file of that file system has its inode number: so a
// file of the same device and inode whose lock is free cannot belong to a maker
// that lives.

// witnessMark begins a witness file.
const witnessMark = "tenure-witness/1"

const (
	opWitness = "make a witness"
	opGone    = "look for a proof of death"
)

// witness is a lock that its process holds.
type witness struct {
	s    *Store
	mark store.Mark
	fd   int
	once sync.Once
}

// NewWitness takes a fresh lock for the calling process (LS14). No child
// process inherits it. It is lost when the store is closed.
func (s *Store) NewWitness(ctx context.Context) (store.Witness, error) {
	if !s.canProve() {
		return nil, s.errNoProof(opWitness)
	}
	w, err := obtain(ctx, s, opWitness, "", s.makeWitness, (*witness).release)
	if err != nil {
		return nil, err
	}
	if !s.hold(w) {
		w.release()
		return nil, store.Wrap(store.ErrUnavailable, s.identity, opWitness, "", errClosed)
	}
	return w, nil
}

func (s *Store) errNoProof(op string) error {
	return store.Errorf(store.ErrInvalid, s.identity, op, "", "there is no proof of death on a network file system or without /proc")
}

// makeWitness locks a file before it gives it the name that others look for.
func (s *Store) makeWitness(*call) (*witness, error) {
	if err := s.checkRoot(); err != nil {
		return nil, err
	}
	locks, err := s.ensureDir(locksName)
	if err != nil {
		return nil, err
	}
	defer closeFD(locks)
	tmp := randomID() + ".w"
	fd, err := s.lockedTemp(tmp, s.witnessLine())
	if err != nil {
		return nil, err
	}
	st, err := statOf(fd)
	if err == nil {
		// What stands there is a copy from elsewhere, or the file of nobody: its
		// number would not have been given out again otherwise.
		err = s.rename(s.tmpFD, tmp, locks, lockName(st.Ino))
	}
	if err != nil {
		closeFD(fd)
		_ = s.unlink(s.tmpFD, tmp)
		return nil, fault("rename", s.tmpPath(tmp), err)
	}
	return &witness{s: s, fd: fd, mark: store.Mark{Boot: s.boot, Dev: st.Dev, Inode: st.Ino}}, nil
}

func lockName(inode uint64) string { return strconv.FormatUint(inode, 10) }

// witnessLine says on which boot of which machine the witness was made.
func (s *Store) witnessLine() []byte {
	return []byte(strings.Join([]string{witnessMark, s.boot, machineDigest()}, " ") + "\n")
}

// machineDigest stands for this installation; "-" if it has no name.
func machineDigest() string {
	id := machineID()
	if id == "" {
		return "-"
	}
	sum := sha256.Sum256([]byte("tenure witness " + id))
	return hex.EncodeToString(sum[:16])
}

// Mark is what a record says of this witness.
func (w *witness) Mark() store.Mark { return w.mark }

// Close frees the lock and removes its file. It never fails, and may be called
// again.
func (w *witness) Close() error {
	w.s.drop(w)
	w.release()
	return nil
}

func (w *witness) release() {
	w.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
		defer cancel()
		var taken atomic.Bool // whoever takes it closes the descriptor
		_, err := perform(ctx, w.s, opWitness, "", func(*call) (struct{}, error) {
			if taken.CompareAndSwap(false, true) {
				w.remove()
			}
			return struct{}{}, nil
		})
		if err != nil && taken.CompareAndSwap(false, true) {
			closeFD(w.fd)
		}
	})
}

func (w *witness) remove() {
	defer closeFD(w.fd)
	if locks, err := openDir(w.s.rootFD, locksName); err == nil {
		w.s.unlinkIfSame(locks, lockName(w.mark.Inode), w.fd)
		closeFD(locks)
	}
}

// Gone reports whether the process that made the witness is proven gone (LS14):
// the very file is there and its lock is free, and it was made on this boot, or
// on an earlier boot of this machine on a disk that only one kernel can have
// mounted.
func (s *Store) Gone(ctx context.Context, mark store.Mark) (bool, error) {
	if !s.canProve() {
		return false, s.errNoProof(opGone)
	}
	return perform(ctx, s, opGone, "", func(*call) (bool, error) { return s.gone(mark) })
}

func (s *Store) gone(mark store.Mark) (bool, error) {
	if mark.Boot == "" || mark.Inode == 0 {
		return false, nil
	}
	if err := s.checkRoot(); err != nil {
		return false, err
	}
	fd, err := openat(s.rootFD, lockPath(mark), unix.O_RDONLY, 0)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, fault("open", filepath.Join(s.root, lockPath(mark)), err)
	}
	defer closeFD(fd)
	if same, err := s.isMarked(fd, mark); err != nil || !same {
		return false, err
	}
	held, err := lockedByOther(fd)
	if err != nil {
		return false, fault("lock", filepath.Join(s.root, lockPath(mark)), err)
	}
	return !held, nil
}

func lockPath(mark store.Mark) string { return locksName + "/" + lockName(mark.Inode) }

// isMarked reports whether an open file is the one that mark names, so that its
// free lock proves something.
func (s *Store) isMarked(fd int, mark store.Mark) (bool, error) {
	st, err := statOf(fd)
	if err != nil {
		return false, fault("stat", filepath.Join(s.root, lockPath(mark)), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != mark.Inode {
		return false, nil
	}
	if mark.Boot == s.boot {
		return st.Dev == mark.Dev, nil
	}
	// The numbers of devices change from boot to boot. What the file says must
	// agree, so that a disk that was moved here from another machine, whose
	// process may live on without it, proves nothing.
	if !s.fs.disk {
		return false, nil
	}
	line, err := readAt(fd, 0, 256)
	if err != nil {
		return false, fault("read", filepath.Join(s.root, lockPath(mark)), err)
	}
	f := strings.Fields(string(line))
	return len(f) == 3 && f[0] == witnessMark && f[1] == mark.Boot && f[2] == machineDigest() && f[2] != "-", nil
}

// WatchGone returns nil as soon as Gone may have become true, or the context's
// error (LS14).
func (s *Store) WatchGone(ctx context.Context, mark store.Mark) error {
	if !s.canProve() {
		return s.errNoProof(opGone)
	}
	path := filepath.Join(s.root, lockPath(mark))
	for look := 0; ; look++ {
		v, err := obtain(ctx, s, opGone, "", func(*call) (witnessView, error) {
			sub, err := s.notifier.subscribe(path, noticeFile, "", 0)
			if err != nil {
				sub = &subscription{cancel: func() {}} // a nil channel: poll
			}
			gone, goneErr := s.gone(mark)
			if goneErr != nil {
				sub.cancel()
			}
			return witnessView{sub: sub, gone: gone, absent: errors.Is(err, unix.ENOENT)}, goneErr
		}, func(v witnessView) { v.sub.cancel() })
		if err != nil {
			return err
		}
		done := v.gone
		if !done {
			done, err = s.awaitGone(ctx, mark, v, look)
		}
		v.sub.cancel()
		if done || err != nil {
			return err
		}
	}
}

// witnessView is what was found of a witness, and how to learn that it changes.
type witnessView struct {
	sub          *subscription
	gone, absent bool
}

// awaitGone waits for a reason to look again, and reports whether the witness
// is gone already.
func (s *Store) awaitGone(ctx context.Context, mark store.Mark, v witnessView, look int) (bool, error) {
	limit := secondLook
	if v.sub.wake == nil && !v.absent {
		limit = pollDelay(look)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-v.sub.wake:
		// The kernel tells that a file is closed just before it frees the lock.
		return soon(ctx, func() bool {
			gone, err := s.Gone(ctx, mark)
			return gone && err == nil
		}), nil
	case <-ctx.Done():
		return false, store.CtxErr(ctx, s.identity, opGone, "")
	case <-s.ending:
		return false, store.Wrap(store.ErrUnavailable, s.identity, opGone, "", errClosed)
	}
}
