package filestore

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
