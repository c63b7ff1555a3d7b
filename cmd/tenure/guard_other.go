//go:build !unix

package main

import (
	"errors"
	"os"
)

// inheritable would make f stay open in a child. A guard cannot be held here, so
// it is never reached.
func inheritable(*os.File) error { return errors.ErrUnsupported }
