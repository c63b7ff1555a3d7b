//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fileguard

import (
	"errors"
	"os"
	"syscall"
)

// flock tries to lock f, alone or together with others who do not ask for it
// alone. The lock belongs to the open file: it holds against
// other goroutines too, and ends with the last descriptor of it, however the
// process ends.
func flock(f *os.File, alone bool) (bool, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, os.NewSyscallError("flock", err)
		}
	}
}

// duplicate copies a descriptor, lock included, for a child to inherit.
func duplicate(f *os.File) (*os.File, error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
