//go:build !unix

package sqlstore

import "os"

// hardLinks is how many names a file has; 0 where that is not known.
func hardLinks(os.FileInfo) uint64 { return 0 }

// denied cannot be asked here without opening the file.
func denied(string) bool { return false }

// syncDir has nothing to do: names are durable with the file here.
func syncDir(string) error { return nil }
