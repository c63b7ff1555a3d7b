package agent

import (
	"net"

	"golang.org/x/sys/unix"
)

// process is the process at the other end of a connection.
type process struct{ fd int }

// peerProcess finds the process that connected; nil if it cannot be seen from here.
// If it has died and its number was given to another one, that one is watched in its
// place: whoever that is, the peer is gone when it is.
func peerProcess(c *net.UnixConn) *process {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	fd := -1
	_ = raw.Control(func(s uintptr) {
		cred, err := unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || cred.Pid <= 0 {
			return
		}
		if f, err := unix.PidfdOpen(int(cred.Pid), 0); err == nil {
			fd = f
		}
	})
	if fd < 0 {
		return nil
	}
	return &process{fd}
}

// gone says whether the process has certainly ended. Of no process nothing is
// certain.
func (p *process) gone() bool {
	if p == nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
}

func (p *process) close() {
	if p != nil {
		_ = unix.Close(p.fd)
	}
}
