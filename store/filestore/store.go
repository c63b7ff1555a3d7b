//go:build linux || darwin

package filestore

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Store is an open directory. All methods are safe for concurrent use. It
// implements store.Store, ConditionalDeleter and Watcher, and on a local file
// system Queuer and, on Linux, Prover; its Info says which.
type Store struct {
	seam
	root     string // absolute, without symbolic links
	identity string
	fs       fsInfo
	network  bool
	modes    modes
	grace    graces
	boot     string // names this boot of the kernel; "" if unknown

	rootFD, tmpFD int
	rootFile      file
	lifeFile      lifeFile
	lanes         *lanes
	parents       *parents
	notifier      *notifier
	pollers       *pollers

	ending chan struct{} // closed first by Close: what waits for others ends

	mu   sync.Mutex
	held map[releaser]struct{} // tickets and witnesses
}

// releaser is something that lasts until its owner, or Close, gives it back.
type releaser interface{ release() }

// fsInfo is what the kernel says of the file system below a store.
type fsInfo struct {
	name string
	// disk: it lives on a block device that only this kernel has mounted.
	disk bool
	// durable: it outlives a power cut.
	durable bool
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
	_ store.Watcher            = (*Store)(nil)
	_ store.Queuer             = (*Store)(nil)
	_ store.Prover             = (*Store)(nil)
)

// Info describes the store. It does no I/O.
func (s *Store) Info() store.Info {
	can := store.CanDeleteIf | store.CanWatch
	if !s.network {
		can |= store.CanQueue
	}
	if s.canProve() {
		can |= store.CanProve
	}
	return store.Info{
		Scheme:     scheme,
		Identity:   s.identity,
		Driver:     driverName,
		Can:        can,
		MaxBody:    MaxBody,
		SingleHost: true,
	}
}

func (s *Store) canProve() bool { return kernelProves && !s.network && s.boot != "" }

// FileSystem names the file system that holds the store, such as "ext4"; one
// that has no name here is given by its number.
func (s *Store) FileSystem() string { return s.fs.name }

// Durable reports whether acknowledged writes outlive a power cut (ST16). They
// do not on a file system in memory (tmpfs).
func (s *Store) Durable() bool { return s.fs.durable }

// Health is nil, or says which calls hang in the kernel although their callers
// went away (ST13). It does no I/O.
func (s *Store) Health() error {
	c, n := s.lanes.oldestStuck()
	if c == nil {
		return nil
	}
	return store.Errorf(store.ErrUnavailable, s.identity, "health", c.key,
		"%d calls hang; the oldest is %s: look at the disk", n, c.text())
}

// Close ends the calls in flight, gives up the tickets and witnesses that are
// still held, and frees what the store holds. It never fails, waits at most two
// seconds for a disk that hangs, and may be called again.
func (s *Store) Close() error {
	if !s.releaseAll() {
		return nil
	}
	s.lanes.close()
	s.notifier.close()
	select {
	case <-s.lanes.idle:
		s.free()
	case <-time.After(s.grace.close):
		go func() { // a call that hangs still uses the descriptors
			<-s.lanes.idle
			s.free()
		}()
	}
	return nil
}

func (s *Store) free() {
	s.lifeFile.drop()
	s.parents.close()
	closeFD(s.tmpFD)
	closeFD(s.rootFD)
}

// hold keeps r until Close. It reports false if the store is closed already.
func (s *Store) hold(r releaser) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held == nil {
		return false
	}
	s.held[r] = struct{}{}
	return true
}

func (s *Store) drop(r releaser) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, r)
}

// releaseAll gives everything back that is held, and lets nothing be held any
// more. It reports false if it was called before.
func (s *Store) releaseAll() bool {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	if held == nil {
		return false
	}
	close(s.ending) // before a ticket is given back, lest the next one has its turn
	var all sync.WaitGroup
	for r := range held {
		all.Go(r.release) // each takes a bounded time on a disk that hangs
	}
	all.Wait()
	return true
}

// checkRoot makes sure that the directory opened is still the one that its path
// names: not replaced by a restore, not hidden by a mount, not unmounted.
func (s *Store) checkRoot() error {
	info, err := os.Lstat(s.root)
	if err == nil && fileOfInfo(info) == s.rootFile {
		return nil
	}
	found := "another directory is there now"
	if err != nil {
		found = err.Error()
	}
	return fmt.Errorf("the directory %s was moved, replaced or unmounted since the store was opened (%s); "+
		"if what is there now is right, open it anew", s.root, found)
}

// lifePath is the name of a key's life below the root.
func lifePath(key string) string { return key + lifeSuffix }

// checkKey refuses a key that is none.
func (s *Store) checkKey(op, key string) error {
	if err := store.CheckKey(key); err != nil {
		return store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	return nil
}

// checkWrite refuses what cannot be written.
func (s *Store) checkWrite(op, key string, body []byte) error {
	if err := s.checkKey(op, key); err != nil {
		return err
	}
	if len(body) > MaxBody {
		return store.Errorf(store.ErrInvalid, s.identity, op, key,
			"the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return nil
}
