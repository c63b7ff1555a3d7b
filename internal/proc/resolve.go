//go:build linux || darwin

package proc

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The exit codes of a command that could not be run, as shells give them.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

var (
	errNotFound = errors.New("not found")
	errIsDir    = errors.New("it is a directory")
	errNoFormat = errors.New("the kernel does not know its format: give it a first line like #!/bin/sh, or run it as sh FILE")
)

// Resolve finds the program that name stands for: a path if it has a slash,
// else the first executable file of that name in env's PATH. The error is a
// *[StartError].
func Resolve(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", startError(name, err)
		}
		return name, nil
	}
	var denied error
	for dir := range strings.SplitSeq(searchPath(env), ":") {
		if dir == "" {
			dir = "."
		}
		path := dir + "/" + name
		switch err := executable(path); {
		case err == nil && name != "":
			return path, nil
		case err != nil && !missing(err) && !errors.Is(err, errIsDir) && denied == nil:
			denied = err
		}
	}
	if denied != nil {
		return "", startError(name, denied)
	}
	return "", startError(name, errNotFound)
}

func searchPath(env []string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			return v
		}
	}
	return "/usr/bin:/bin"
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errIsDir
	}
	return unix.Access(path, unix.X_OK)
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, errNotFound)
}

// startError gives err the exit code that shells use.
func startError(name string, err error) *StartError {
	var bare *fs.PathError
	if errors.As(err, &bare) {
		err = bare.Err
	}
	code := codeCannotRun
	if missing(err) {
		code = codeNotFound
	}
	if errors.Is(err, syscall.ENOEXEC) {
		err = errNoFormat
	}
	return &StartError{Name: name, Code: code, Err: err}
}
