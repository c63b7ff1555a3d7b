package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// procfs is where the process table of this process's own PID namespace is. The
// one at /proc can be another namespace's, as after "unshare --pid --fork"; its
// numbers would then name strangers. A privileged process gets one of its own,
// which nobody else sees.
var procfs = sync.OnceValues(func() (string, error) {
	const usual = "/proc"
	self, err := os.Readlink(usual + "/self")
	if err != nil {
		return "", errors.New("/proc is not mounted: without it the command's process tree cannot be seen")
	}
	if self == strconv.Itoa(os.Getpid()) {
		return usual, nil
	}
	fd, err := mountProcfs()
	if err != nil {
		return "", fmt.Errorf("/proc shows another PID namespace than this process's: mount it anew there (unshare --mount-proc): %w", err)
	}
	return usual + "/self/fd/" + strconv.Itoa(fd), nil
})

// mountProcfs returns a descriptor of a procfs that is mounted nowhere.
func mountProcfs() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return 0, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	return fd, os.NewSyscallError("fsmount", err)
}

// processTable reads the whole process table. It is not one instant: a process
// can move below another parent while the table is read, so one look that finds
// nothing proves nothing.
func processTable() ([]process, error) {
	root, err := procfs()
	if err != nil {
		return nil, err
	}
	dir, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	_ = dir.Close()
	if err != nil {
		return nil, err
	}
	table := make([]process, 0, len(names))
	for _, name := range slices.Backward(names) { // young ones, who may not live long, first
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			table = append(table, p)
		}
	}
	return table, nil
}

// readProcess reads one row; an error means that there is none any more, or
// that it is hidden from us.
func readProcess(pid int) (process, error) {
	root, err := procfs()
	if err != nil {
		return process{}, err
	}
	raw, err := os.ReadFile(root + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, raw)
}

// parseStat reads a stat line. The program's name in it can hold anything, also
// parentheses and newlines; the last parenthesis ends it.
func parseStat(pid int, raw []byte) (process, error) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return process{}, fmt.Errorf("/proc/%d/stat: no name", pid)
	}
	f := strings.Fields(string(raw[end+1:]))
	if len(f) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	ppid, err1 := strconv.Atoi(f[1])
	pgrp, err2 := strconv.Atoi(f[2])
	threads, err3 := strconv.Atoi(f[17])
	start, err4 := strconv.ParseUint(f[19], 10, 64)
	p := process{pid: pid, ppid: ppid, pgrp: pgrp, state: f[0][0], threads: threads, start: start}
	return p, errors.Join(err1, err2, err3, err4)
}

// signalProcess sends sig to exactly p: a pid that was given to another process
// meanwhile is left alone.
func signalProcess(p process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		return signalByPid(p, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := readProcess(p.pid); err != nil || now.id() != p.id() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// signalByPid is for kernels before 5.3.
func signalByPid(p process, sig unix.Signal) error {
	if now, err := readProcess(p.pid); err != nil || now.id() != p.id() {
		return unix.ESRCH
	}
	return unix.Kill(p.pid, sig)
}

// orphansComeHome says that orphans below a subreaper become its children.
const orphansComeHome = true

// becomeSubreaper makes orphans below this process its children, however they
// were orphaned, so that a walk down from here finds them.
func becomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// childless reports whether the kernel says that this process has no child at
// all, living or dead. Of a subreaper this proves that nothing is left below it.
func childless() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD)
}

// nothingDied reports whether no child of this process waits to be waited for.
func nothingDied() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo == 0
}

var bootID = sync.OnceValue(func() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
})

// ignoredAtStart returns the signals that this process was told to ignore when
// it was started, as far as they can be known: Go's runtime takes the others
// over before any code of ours runs. Call it before os/signal is used.
func ignoredAtStart() map[unix.Signal]bool {
	ignored := map[unix.Signal]bool{}
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ignored
	}
	for line := range strings.Lines(string(raw)) {
		hex, ok := strings.CutPrefix(line, "SigIgn:")
		if !ok {
			continue
		}
		mask, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		for s := unix.Signal(1); s <= 64; s++ {
			if mask&(1<<(s-1)) != 0 {
				ignored[s] = true
			}
		}
	}
	return ignored
}

// selfPath names this very program: by its path, so that it has its usual name in
// process lists, unless the file there is another one by now.
func selfPath(path string) string {
	const self = "/proc/self/exe"
	there, err1 := os.Stat(path)
	here, err2 := os.Stat(self)
	if err1 == nil && err2 == nil && os.SameFile(there, here) {
		return path
	}
	return self
}

// kin finds what is below a process. On Linux orphans come to the subreaper, so
// that the process table alone tells.
type kin struct{}

func (kin) below(table []process, root int, skip func(process) bool) []process {
	return descendants(table, root, skip)
}

// follow is for systems whose orphans go elsewhere.
func (kin) follow(int) {}

// inheritedFiles returns the descriptors from 3 on that a child would inherit:
// what the user's shell passed on.
func inheritedFiles() []int { return openFiles("/proc/self/fd") }
