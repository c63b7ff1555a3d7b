package filestore

import "testing"

// hasNotices says whether the kernel tells of changes.
const hasNotices = true

// subscriptions counts who waits for notice, by the kernel or by polling.
func subscriptions(s *Store) int {
	n := 0
	s.notifier.mu.Lock()
	for _, w := range s.notifier.watch {
		n += w.n
	}
	s.notifier.mu.Unlock()
	return n + polled(s)
}

// kernelWatches counts the inodes that the kernel watches for s.
func kernelWatches(s *Store) int {
	s.notifier.mu.Lock()
	defer s.notifier.mu.Unlock()
	return len(s.notifier.watch)
}

func polled(s *Store) int {
	s.pollers.mu.Lock()
	defer s.pollers.mu.Unlock()
	n := 0
	for _, po := range s.pollers.byKey {
		n += len(po.subs)
	}
	return n
}

// The watch is in place before the version is compared: a change in between is
// seen.
//
// SPEC ST14
func TestWatchIsSetBeforeItCompares(t *testing.T) {
	t.Parallel()
	path := quick(t)
	s, rival := opened(t, path), opened(t, path)
	v := create(t, rival, sleeperKey, "0")
	s.notifier.calls.Lock() // nobody can set a watch
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(within(t), sleeperKey, v) }()
	eventually(t, "the watch to begin", func() bool { return workers(s) == 1 })
	replace(t, rival, sleeperKey, "1", v)
	s.notifier.calls.Unlock()
	woken(t, ended, 1, "a replace before the watch was set")
}
