package slots

import (
	"os"
	"path/filepath"
	"sync"

	core "github.com/tenure-project/tenure/internal/core/slots"
)

// volumeFile is the lock file, in the volume's directory.
const volumeFile = ".tenure-volume"

// Volume is a directory that a host serves from, locked. A host that has one is known after
// a restart: it goes on with its rows under their epochs, without waiting for them to
// lapse, for the kernel itself shows that the process before it is gone (SL3). It is
// safe for concurrent use.
//
// Only this very file on this boot of this kernel counts: a copy of the directory, the
// same disk elsewhere, or the machine after a reboot is a rival and gets a new epoch. It
// is no proof where a machine is cloned while it runs, nor where a child of the process
// before goes on to write to the volume: hand no volume to children.
type Volume struct {
	dir  string
	file *os.File
	mark core.Volume

	mu     sync.Mutex
	owner  string // bound to; "" before the first host
	hosts  int
	closed bool
}

// OpenVolume locks the directory dir, which must exist and not be on a network file
// system. It fails with store.ErrUnavailable while any process, also this one, has it
// open, and with ErrInvalid where nothing can be proven, as on systems other than Linux.
func OpenVolume(dir string) (*Volume, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, invalid("open volume", dir, "%w", err)
	}
	return openVolume(abs)
}

// Dir is the volume's directory.
func (v *Volume) Dir() string { return v.dir }

// Close frees the lock. It is ErrInvalid while a host uses the volume: close that first.
// It may be called again.
func (v *Volume) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return nil
	case v.hosts > 0:
		return invalid("close volume", v.dir, "a host serves from it: release or close the host first")
	}
	v.closed = true
	return v.file.Close()
}

// bind makes the volume owner's, for good, and counts a host. Another owner on it is
// refused: two of them would serve from one set of files.
func (v *Volume) bind(owner string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.closed:
		return invalid("use volume", v.dir, "it is closed")
	case v.hosts > 0:
		return invalid("use volume", v.dir, "another host of this process serves from it: one volume, one host")
	case v.owner != "" && v.owner != owner:
		return invalid("use volume", v.dir, "it belongs to the owner %q, not %q; if it was handed over on purpose, remove %s", v.owner, owner, volumeFile)
	case v.owner == "":
		if err := v.keepOwner(owner); err != nil {
			return err
		}
		v.owner = owner
	}
	v.hosts++
	return nil
}

func (v *Volume) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hosts--
}
