package proc

import (
	"errors"
	"os/signal"
	"sync"
	"syscall"

	"github.com/tenure-project/tenure/internal/clock"
	"golang.org/x/sys/unix"
)

// macOS has no subreaper, no parent-death signal and no control groups. A tree
// is what can be reached from the command through the process table, and what was
// seen there before: a process that leaves between two looks is missed. The
// design note says so.

// orphansComeHome says that orphans below a subreaper become its children.
const orphansComeHome = false

// mirrorsStops says that a command that stops alone makes the job stop. Here the
// terminal stops wrapper and command, each for itself.
const mirrorsStops = false

const (
	statStopped = 4
	statZombie  = 5
)

func processTable() ([]process, error) {
	rows, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	table := make([]process, 0, len(rows))
	for i := range rows {
		table = append(table, fromKinfo(&rows[i]))
	}
	return table, nil
}

func readProcess(pid int) (process, error) {
	row, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return process{}, err
	}
	return fromKinfo(row), nil
}

func fromKinfo(k *unix.KinfoProc) process {
	p := process{pid: int(k.Proc.P_pid), ppid: int(k.Eproc.Ppid), pgrp: int(k.Eproc.Pgid), threads: 1, state: 'R'}
	p.start = uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec)
	switch k.Proc.P_stat {
	case statStopped:
		p.state = 'T'
	case statZombie:
		p.state = 'Z'
	}
	return p
}

func signalProcess(p process, sig unix.Signal) error {
	if now, err := readProcess(p.pid); err != nil || now.id() != p.id() {
		return unix.ESRCH
	}
	return unix.Kill(p.pid, sig)
}

// kin finds what is below a process, and remembers whom it found: an orphan goes
// to process 1.
type kin struct {
	mu    sync.Mutex
	known map[procID]bool
}

// follow remembers pid as one of the family.
func (k *kin) follow(pid int) {
	if p, err := readProcess(pid); err == nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.remember(p)
	}
}

func (k *kin) remember(p process) {
	if k.known == nil {
		k.known = map[procID]bool{}
	}
	k.known[p.id()] = true
}

func (k *kin) below(table []process, root int, skip func(process) bool) []process {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := descendants(table, root, skip)
	for _, p := range table {
		if k.known[p.id()] {
			found = append(append(found, p), descendants(table, p.pid, skip)...)
		}
	}
	seen := map[procID]bool{}
	once := found[:0]
	for _, p := range found {
		if !seen[p.id()] {
			seen[p.id()] = true
			once = append(once, p)
			k.remember(p)
		}
	}
	return once
}

func becomeSubreaper() error { return nil }

func childless() bool { return false }

func nothingDied() bool { return false }

func platformCheck() error { return nil }

func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

func ignoredAtStart() map[unix.Signal]bool {
	return map[unix.Signal]bool{
		unix.SIGHUP: signal.Ignored(unix.SIGHUP),
		unix.SIGINT: signal.Ignored(unix.SIGINT),
	}
}

func inheritedFiles() []int { return openFiles("/dev/fd") }

func selfPath(path string) string { return path }

func dup2(from, to int) error { return unix.Dup2(from, to) }

func stopSelf(unix.Signal, func() bool) {}

// handover is for systems that mirror stops.
type handover struct{}

func rememberTerminal(int) *handover { return nil }

func (*handover) restore() {}

// child is a started command.
type child struct{ pid int }

func startChild(path string, args, env []string, _ *cage) (*child, error) {
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
	return &child{pid: pid}, err
}

func (c *child) signal(sig unix.Signal) error { return unix.Kill(c.pid, sig) }

func (c *child) release() {}

// mirror does nothing here: see mirrorsStops.
type mirror struct{}

func newMirror(*Supervisor, int) *mirror { return &mirror{} }
func (*mirror) stopped(unix.Signal)      {}
func (*mirror) continued()               {}
func (*mirror) close()                   {}
func (*mirror) over()                    {}
func (*mirror) resumed(int, *child)      {}

// cage stands for a control group, of which there are none here.
type cage struct{}

var errNoGroups = errors.New("this system has no control groups")

func newCage(int) (*cage, error)       { return nil, errNoGroups }
func (*cage) leave()                   {}
func groupOf(string) *cage             { return nil }
func (*cage) ref() (string, error)     { return "", errNoGroups }
func (*cage) kill() error              { return errNoGroups }
func (*cage) populated() (bool, error) { return false, errNoGroups }
func (*cage) pids() map[int]bool       { return nil }
func (*cage) remove(clock.Clock)       {}

// CgroupEmpty can say nothing here: there are no control groups.
func CgroupEmpty(string) (bool, error) { return false, errNoGroups }
