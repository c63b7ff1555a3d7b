//go:build linux || darwin

package filestore

import (
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// staleTemp is how old a temporary entry must be before Open removes it. A
	// writer that was stopped for longer finds its own gone and has done nothing.
	staleTemp = time.Hour
	// staleLock is how long nobody must have held a witness before Open removes
	// it. Without it, a record that names it waits out its TTL.
	staleLock = 24 * time.Hour
	// sweepMost bounds what one Open looks at in each place.
	sweepMost = 1000
)

// sweep removes what processes left behind when they were killed. It does what
// it can in a bounded number of steps and reports nothing.
func (s *Store) sweep() {
	s.sweepTemp()
	s.sweepDir(queueName, s.sweepLine)
	s.sweepDir(locksName, s.sweepLock)
}

// sweepDir calls f for the entries of a directory of the root.
func (s *Store) sweepDir(dir string, f func(fd int, name string)) {
	fd, err := openDir(s.rootFD, dir)
	if err != nil {
		return
	}
	defer closeFD(fd)
	names, _, err := readNames(fd)
	if err != nil {
		return
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:min(len(names), sweepMost)] {
		f(fd, name)
	}
}

// olderThan reports whether the entry was last changed before that, by this
// machine's wall clock.
func olderThan(dir int, name string, age time.Duration) (unix.Stat_t, bool) {
	st, err := lstatAt(dir, name)
	return st, err == nil && time.Since(modTime(st)) > age
}

func (s *Store) sweepTemp() {
	synced := false
	s.sweepDir(tmpName, func(fd int, name string) {
		st, old := olderThan(fd, name, staleTemp)
		if !old {
			return
		}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			s.sweepBirth(fd, name)
			return
		}
		// The second name of a state file says that it may not be durable yet.
		if st.Nlink > 1 && !strings.HasSuffix(name, sourceSuffix) && !synced {
			if syncAll(s.rootFD) != nil {
				return
			}
			synced = true
		}
		_ = s.unlink(fd, name)
	})
}

// sweepBirth removes a life that was prepared and never placed. It takes it
// under another name first: a creator that wakes up then finds its own gone,
// and cannot put in place what is being emptied.
func (s *Store) sweepBirth(tmp int, name string) {
	if !strings.HasPrefix(name, "stale-") {
		aside := "stale-" + randomID()
		if s.rename(tmp, name, tmp, aside) != nil {
			return
		}
		name = aside
	}
	fd, err := openDir(tmp, name)
	if err != nil {
		return
	}
	defer closeFD(fd)
	names, _, err := readNames(fd)
	if err != nil {
		return
	}
	for _, n := range names {
		_ = s.unlink(fd, n)
	}
	_ = s.rmdir(tmp, name)
}

// sweepLine removes the tickets of nobody from a line in which nothing moved
// for a while, and the line if it is empty then.
func (s *Store) sweepLine(all int, name string) {
	if _, old := olderThan(all, name, staleTemp); !old {
		return
	}
	q := &line{s: s, path: queueName + "/" + name}
	var err error
	if q.fd, err = openDir(all, name); err != nil {
		return
	}
	defer q.close()
	if numbers, err := q.numbers(); err == nil {
		for _, n := range numbers {
			_, _ = q.alive(n, true)
		}
	}
	_ = s.rmdir(all, name)
}

// sweepLock removes a witness that nobody has held for a day. The first look
// that finds it free only notes so, in the owner's execute bit and the time of
// change: a holder that lived for long and has just died can still be proven
// dead.
func (s *Store) sweepLock(locks int, name string) {
	st, old := olderThan(locks, name, staleLock)
	if !old {
		return
	}
	fd, err := openat(locks, name, unix.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer closeFD(fd)
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	if st.Mode&unix.S_IXUSR != 0 {
		s.unlinkIfSame(locks, name, fd)
		return
	}
	now := unix.NsecToTimeval(time.Now().UnixNano())
	if unix.Fchmod(fd, uint32(st.Mode)&0o777|unix.S_IXUSR) == nil {
		_ = unix.Futimes(fd, []unix.Timeval{now, now})
	}
}
