package filestore

// hasNotices says whether the kernel tells of changes.
const hasNotices = false

// subscriptions counts who waits for notice.
func subscriptions(s *Store) int {
	s.pollers.mu.Lock()
	defer s.pollers.mu.Unlock()
	n := 0
	for _, po := range s.pollers.byKey {
		n += len(po.subs)
	}
	return n
}

// kernelWatches: the kernel watches nothing here.
func kernelWatches(*Store) int { return 0 }
