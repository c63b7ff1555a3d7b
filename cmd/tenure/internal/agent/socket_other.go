//go:build !linux && !darwin

package agent

import (
	"errors"
	"io/fs"
	"net"
	"os"
)

// Supported says whether this system has agents.
const Supported = false

const maxPath, noFollow = 0, 0

var errLocked = errors.New("locked by another process")

var errSystem = errors.New("this system has no agents")

func tryLock(*os.File) error { return errSystem }

func private(fs.FileInfo) bool { return false }

func refused(error) bool { return false }

func absent(error) bool { return false }

func peerOf(*net.UnixConn) (int, error) { return -1, errSystem }
