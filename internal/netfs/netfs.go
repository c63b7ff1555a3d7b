// Package netfs tells a file system of this machine from one that is shared
// with others. Locks and shared memory that one kernel keeps are worth nothing
// where another kernel writes to the same files.
package netfs

// Remote reports whether path lies on a file system that another machine can
// reach too, or that a user program serves (FUSE), and names it. A kind that it
// does not know counts as local. path must exist.
func Remote(path string) (name string, remote bool, err error) {
	return remoteFS(path)
}
