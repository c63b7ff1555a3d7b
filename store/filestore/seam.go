package filestore

import "errors"

// stepKind names a system call that changes what is stored, or makes it
// durable. Every one that this package makes goes through a [seam].
type stepKind string

const (
	stepMkdir  stepKind = "mkdir"
	stepCreate stepKind = "create" // an empty file, exclusively
	stepWrite  stepKind = "write"
	stepSync   stepKind = "sync"
	stepLink   stepKind = "link"
	stepRename stepKind = "rename"
	stepUnlink stepKind = "unlink"
	stepRmdir  stepKind = "rmdir"
)

// step is one such system call.
type step struct {
	kind stepKind
	fd   int    // write, sync: the file or directory
	data []byte // write
	dir  int    // the directory in which name is made or removed
	name string
	from int // link, rename: the directory of the old name
	old  string
}

// tracer sees every step. It stands in for a crash, a stop or a failing disk in
// tests; there is none otherwise.
type tracer interface {
	// before may block, or return an error that takes the place of the step.
	before(step) error
	after(step, error)
}

// errPretend makes a step count as done although it was left out.
var errPretend = errors.New("pretended")

// seam takes steps.
type seam struct {
	tracer tracer
}

func (s seam) take(st step, f func() error) error {
	if s.tracer == nil {
		return f()
	}
	err := s.tracer.before(st)
	switch {
	case errors.Is(err, errPretend):
		err = nil
	case err == nil:
		err = f()
	}
	s.tracer.after(st, err)
	return err
}
