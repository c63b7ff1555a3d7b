//go:build linux || darwin

package proc

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// reaper waits for dead children. While the process table is searched for living
// ones it must rest: see ender.gone.
type reaper struct {
	mu   sync.Mutex
	reap func()
	poke chan struct{} // tells an ender that something died
}

func newReaper(reap func()) *reaper { return &reaper{reap: reap, poke: make(chan struct{}, 1)} }

func (r *reaper) run() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reap()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// reap waits for the children that the kernel gave to us because their own
// parents died. Children that other parts of this process started (a helper for
// credentials, say) are waited for by those.
func (r *run) reap() {
	if nothingDied() {
		return
	}
	table, err := processTable()
	if err != nil {
		return
	}
	self, group := unix.Getpid(), unix.Getpgrp()
	for _, p := range table {
		if p.ppid == self && p.state == 'Z' && p.pid != r.child.pid && !r.foreign(p, group) {
			_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		}
	}
}

// reap waits for every dead child: the wrapper starts none but the supervisor.
// As process 1 of a container it gets all orphans.
func (w *wrapper) reap() {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || pid == 0:
			return
		case pid == w.supervisor:
			w.left.Store(true)
		}
	}
}

// foreign reports whether p is a child of this process that has nothing to do
// with the command: it was there before, or it shares our process group.
func (r *run) foreign(p process, group int) bool {
	return r.others[p.id()] || p.pgrp == group && p.pid != r.child.pid
}

// ownChildren are the children that this process has now.
func ownChildren() map[procID]bool {
	table, _ := processTable()
	self, found := unix.Getpid(), map[procID]bool{}
	for _, p := range table {
		if p.ppid == self {
			found[p.id()] = true
		}
	}
	return found
}

// look is one look at the command's tree.
func (r *run) look() (tree, error) {
	table, err := processTable()
	if err != nil {
		return tree{}, err
	}
	self, group := unix.Getpid(), unix.Getpgrp()
	skip := func(p process) bool { return p.ppid == self && r.foreign(p, group) }
	t := tree{living: withGroup(living(r.kin.below(table, self, skip)), table, r.s.group)}
	any := false
	for _, p := range table {
		if p.ppid == self {
			any = true
			if !skip(p) {
				t.children = append(t.children, p.id())
			}
		}
	}
	sortIDs(t.children)
	t.hidden = orphansComeHome && !any && !childless()
	return t, nil
}

// look is one look at what is below the wrapper, without the supervisor itself.
func (w *wrapper) look() (tree, error) {
	table, err := processTable()
	if err != nil {
		return tree{}, err
	}
	self := unix.Getpid()
	skip := func(p process) bool { return w.before[p.id()] }
	var t tree
	for _, p := range living(w.kin.below(table, self, skip)) {
		if p.pid != w.supervisor {
			t.living = append(t.living, p)
		}
	}
	for _, p := range table {
		if (p.ppid == self || p.ppid == w.supervisor) && p.pid != w.supervisor && !skip(p) {
			t.children = append(t.children, p.id())
		}
	}
	sortIDs(t.children)
	return t, nil
}

func sortIDs(ids []procID) {
	slices.SortFunc(ids, func(a, b procID) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.start, b.start)) })
}

func living(all []process) []process {
	var alive []process
	for _, p := range all {
		if p.alive() {
			alive = append(alive, p)
		}
	}
	return alive
}

// withGroup adds what is in the control group but not below us any more.
func withGroup(found, table []process, group *cage) []process {
	if group == nil {
		return found
	}
	in := group.pids()
	for _, p := range found {
		delete(in, p.pid)
	}
	for _, p := range table {
		if in[p.pid] && p.alive() {
			found = append(found, p)
		}
	}
	return found
}
