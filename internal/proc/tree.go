//go:build linux || darwin

package proc

// process is one row of the kernel's process table.
type process struct {
	pid, ppid, pgrp int
	state           byte
	// threads is how many threads the process has; a process whose first thread
	// has ended while others run looks like a zombie and is none.
	threads int
	// start tells two processes apart that had one pid after the other.
	start uint64
}

// procID names one process for ever (within this boot).
type procID struct {
	pid   int
	start uint64
}

func (p process) id() procID { return procID{p.pid, p.start} }

// alive reports whether the process can still act.
func (p process) alive() bool {
	switch p.state {
	case 'X', 'x':
		return false
	case 'Z':
		return p.threads > 1
	}
	return true
}

func (p process) stopped() bool { return p.state == 'T' }

// descendants returns everything below root, without root, in an order in which
// parents come before children. Whatever skip names is left out together with
// what is below it.
func descendants(all []process, root int, skip func(process) bool) []process {
	children := make(map[int][]process, len(all))
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	seen := map[int]bool{root: true}
	var found []process
	for todo := []int{root}; len(todo) > 0; todo = todo[1:] {
		for _, p := range children[todo[0]] {
			if seen[p.pid] || (skip != nil && skip(p)) {
				continue
			}
			seen[p.pid] = true
			found = append(found, p)
			todo = append(todo, p.pid)
		}
	}
	return found
}
