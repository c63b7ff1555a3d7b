//go:build unix && !linux && !darwin

package proc

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure/store"
)

var errPlatform = store.Errorf(store.ErrInvalid, "", "run", "", "this system is not supported: use Linux, macOS or Windows, or hold the lease in the program itself")

// Supervisor does not exist on this system.
type Supervisor struct{}

// Main refuses: this system is not supported.
func Main(o Options, _ func(*Supervisor) Outcome) (Report, error) {
	return Report{}, errors.Join(o.complete(), errPlatform)
}

// Context returns a context that has ended.
func (*Supervisor) Context() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errPlatform)
	return ctx
}

// Hurried returns nil: nobody asks.
func (*Supervisor) Hurried() <-chan struct{} { return nil }

// SetTimes does nothing: nothing runs here.
func (*Supervisor) SetTimes(_, _ time.Duration) {}

// Contained returns "": nothing holds a tree together here.
func (*Supervisor) Contained() string { return "" }

// Contain returns "": there are no control groups.
func (*Supervisor) Contain() string { return "" }

// Run refuses.
func (*Supervisor) Run(Command, Hold) Result { return Result{End: NotStarted, Err: errPlatform} }

// CgroupEmpty can say nothing here: there are no control groups.
func CgroupEmpty(string) (bool, error) { return false, errors.New("this system has no control groups") }

// Resolve refuses.
func Resolve(name string, _ []string) (string, error) {
	return "", &StartError{Name: name, Code: 126, Err: errPlatform}
}

func bootID() string { return "" }
