// Package filestore keeps records in a directory of one machine.
//
// Any number of processes may use one directory at the same time. A write is a
// link(2) or a rename(2) that the file system makes exclusive, so no lock is
// held while a record changes: a process that is stopped or killed between any
// two system calls blocks nobody, and leaves the old record or the new one. An
// acknowledged write was synced to the disk, its directory entry included.
//
// The directory must be on a file system of this machine that has hard links;
// network file systems are refused, because their clients see one another's
// writes late. docs/stores/filestore.md has the layout byte for byte, the
// argument for its safety and its limits.
//
// Linux has everything: store, watch, waiting line and proof of death. On macOS
// watching is polling and there is no proof of death. On other systems Open
// says that the driver is not available.
package filestore
