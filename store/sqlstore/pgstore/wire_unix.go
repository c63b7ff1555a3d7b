//go:build unix

package pgstore

import (
	"errors"
	"net"
	"syscall"
)

// silent reports whether the peer of an idle connection neither closed it nor
// sent anything, without taking a byte.
func silent(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var one [1]byte
	var peek error
	// Control and not Read: pgx may have left a goroutine reading, for which Read
	// would wait. Go's sockets do not block.
	err = raw.Control(func(fd uintptr) {
		_, _, peek = syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
	})
	return err == nil && (errors.Is(peek, syscall.EAGAIN) || errors.Is(peek, syscall.EINTR))
}
