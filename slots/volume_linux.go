package slots

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tenure-project/tenure/internal/bootid"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/flock"
	"github.com/tenure-project/tenure/internal/netfs"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// The lock file is a line "tenure-volume/1 <id>", and one "owner <name>" once a host
// served from the volume. A line without its end was cut off by a crash, and is none.
const (
	volumeMark = "tenure-volume/1 "
	ownerMark  = "owner "
)

func openVolume(dir string) (*Volume, error) {
	fs, remote, err := netfs.Remote(dir)
	switch {
	case err != nil:
		return nil, store.Wrap(store.ErrInvalid, "", "open volume", dir, err)
	case remote:
		return nil, invalid("open volume", dir, "it is on %s, where a lock of this kernel proves nothing: use a local disk", fs)
	}
	v := &Volume{dir: dir}
	path := filepath.Join(dir, volumeFile)
	if v.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "open volume", dir, err)
	}
	if err := v.lock(path); err != nil {
		_ = v.file.Close()
		return nil, err
	}
	return v, nil
}

// lock takes the lock, and reads or makes the id.
func (v *Volume) lock(path string) error {
	switch locked, err := flock.Try(v.file); {
	case err != nil:
		return store.Wrap(store.ErrInvalid, "", "open volume", v.dir, err)
	case !locked:
		return store.Errorf(store.ErrUnavailable, "", "open volume", v.dir, "a process has it open: one at a time serves from a volume")
	}
	var st, named unix.Stat_t
	if err := errors.Join(unix.Fstat(int(v.file.Fd()), &st), unix.Lstat(path, &named)); err != nil {
		return store.Wrap(store.ErrUnavailable, "", "open volume", v.dir, err)
	}
	if st.Dev != named.Dev || st.Ino != named.Ino {
		return store.Errorf(store.ErrUnavailable, "", "open volume", v.dir, "its file %s was replaced at this moment, or is a link: try again", volumeFile)
	}
	id, err := v.read()
	if err != nil {
		return err
	}
	boot := bootid.Boot()
	if boot == "" {
		return invalid("open volume", v.dir, "the kernel does not tell its boot id (is /proc mounted?), without which nothing is proven")
	}
	v.mark = core.Volume{ID: id, Mark: store.Mark{Boot: boot, Dev: st.Dev, Inode: st.Ino}}
	return nil
}

// read returns the id, made if there is none, and notes the owner.
func (v *Volume) read() (id string, err error) {
	body, err := io.ReadAll(io.LimitReader(v.file, 4<<10))
	if err != nil {
		return "", store.Wrap(store.ErrUnavailable, "", "open volume", v.dir, err)
	}
	first, rest, whole := strings.Cut(string(body), "\n")
	if !whole {
		id = freshID()
		return id, v.rewrite(volumeMark + id + "\n")
	}
	id, ok := strings.CutPrefix(first, volumeMark)
	if !ok || !record.IsID(id) {
		return "", store.Errorf(store.ErrCorrupt, "", "open volume", v.dir, "%s is not the mark of a volume: look what it is, then remove it", volumeFile)
	}
	if line, _, whole := strings.Cut(rest, "\n"); whole {
		v.owner = strings.TrimPrefix(line, ownerMark)
	}
	return id, nil
}

func (v *Volume) keepOwner(owner string) error {
	return v.rewrite(volumeMark + v.mark.ID + "\n" + ownerMark + owner + "\n")
}

func (v *Volume) rewrite(body string) error {
	if err := errors.Join(v.file.Truncate(0), writeAt(v.file, body), v.file.Sync()); err != nil {
		return store.Wrap(store.ErrUnavailable, "", "open volume", v.dir, err)
	}
	return nil
}

func writeAt(f *os.File, body string) error {
	_, err := f.WriteAt([]byte(body), 0)
	return err
}

// freshID is a random UUID (version 4).
func freshID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
