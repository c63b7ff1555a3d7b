//go:build !unix

package sqlstore

import (
	"os"
	"time"
)

// fileID tells a file from every other one of this machine.
type fileID struct{ info os.FileInfo }

// fileAt is the file that name leads to.
func fileAt(name string) (fileID, error) {
	info, err := os.Stat(name)
	return fileID{info}, err
}

func (f fileID) same(other fileID) bool { return os.SameFile(f.info, other.info) }

// folderState is not known here.
type folderState struct{}

func folderAt(string) (s folderState, ok bool) { return s, false }

func (folderState) changed() time.Time { return time.Time{} }

// hardLinks is how many names a file has; 0 where that is not known.
func hardLinks(os.FileInfo) uint64 { return 0 }

// denied cannot be asked here without opening the file.
func denied(string) bool { return false }

// syncDir has nothing to do: names are durable with the file here.
func syncDir(string) error { return nil }
