package proc

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// Deadline is the content of a deadline file: until when a command may act
// under its hold. The file has one "name=value" per line:
//
//	boot_ns=8123456789012    the instant on the boot clock (Linux:
//	                         CLOCK_BOOTTIME), in nanoseconds
//	unix_ms=1767225600000    the same by the wall clock, for people only
//	token=42                 the fencing token
//	boot_id=5f1c...          this boot of the machine; empty where unknown
type Deadline struct {
	// Boot is the instant on the boot clock. It alone decides.
	Boot time.Duration
	// Wall is the same instant by the wall clock when the file was written. It is
	// information: that clock can be set.
	Wall time.Time
	// Token is the fencing token.
	Token uint64
}

// DeadlineFile is a file in a private folder that follows a hold's deadline. It
// is replaced as a whole, so a reader sees the old or the new one. Its methods
// are safe for concurrent use.
type DeadlineFile struct {
	path  string
	token uint64

	mu   sync.Mutex
	gone bool
}

// NewDeadlineFile chooses a fresh name in this user's private folder:
// $XDG_RUNTIME_DIR/tenure, else a folder in the temporary directory. Nothing is
// written before the first set. A folder that others could write to is refused.
func NewDeadlineFile(token uint64) (*DeadlineFile, error) {
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	var id [6]byte
	if _, err := io.ReadFull(rand.Reader, id[:]); err != nil {
		return nil, fmt.Errorf("deadline file: %w", err)
	}
	name := fmt.Sprintf("deadline-%d-%s", os.Getpid(), hex.EncodeToString(id[:]))
	return &DeadlineFile{path: filepath.Join(dir, name), token: token}, nil
}

func privateDir() (string, error) {
	dir := filepath.Join(os.TempDir(), "tenure-"+userTag())
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		dir = filepath.Join(run, "tenure")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("deadline file: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("deadline file: %w", err)
	}
	if !info.IsDir() || !ownPrivate(info) {
		return "", store.Errorf(store.ErrInvalid, "", "deadline file", "",
			"%s is not a private folder of this user: remove it, or set XDG_RUNTIME_DIR to one that is (mode 0700)", dir)
	}
	return dir, nil
}

// Path is where the file is, for the command's environment.
func (f *DeadlineFile) Path() string { return f.path }

// Set writes boot, an instant on c's boot clock, as the deadline. After Remove
// it does nothing.
func (f *DeadlineFile) Set(c clock.Clock, boot time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return nil
	}
	wall := time.Unix(0, int64(c.Read().Wall+boot-c.Boot()))
	return WriteDeadline(f.path, Deadline{Boot: boot, Wall: wall, Token: f.token})
}

// Remove deletes the file. A reader then gets os.ErrNotExist: nothing is held.
func (f *DeadlineFile) Remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// WriteDeadline replaces the file at path as a whole with d. It is not made
// durable: the file means nothing after a reboot.
func WriteDeadline(path string, d Deadline) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "boot_ns=%d\nunix_ms=%d\ntoken=%d\nboot_id=%s\n", int64(d.Boot), d.Wall.UnixMilli(), d.Token, bootID())
	fresh := path + ".new"
	if err := os.WriteFile(fresh, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("deadline file: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("deadline file: %w", err)
	}
	return nil
}

// ReadDeadline reads a deadline file. An absent file is os.ErrNotExist, and so
// is one of an earlier boot: either way nothing is held. Anything malformed is
// store.ErrCorrupt.
func ReadDeadline(path string) (Deadline, error) {
	f, err := os.Open(path)
	if err != nil {
		return Deadline{}, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, 1024))
	if err != nil {
		return Deadline{}, err
	}
	return parseDeadline(path, string(raw))
}

func parseDeadline(path, text string) (Deadline, error) {
	corrupt := func(what string) (Deadline, error) {
		return Deadline{}, store.Errorf(store.ErrCorrupt, "", "deadline file", path, "%s", what)
	}
	body, whole := strings.CutSuffix(text, "\n")
	lines := strings.Split(body, "\n")
	if !whole || len(lines) != 4 {
		return corrupt("it does not have its four lines")
	}
	value := make([]string, len(lines))
	for i, name := range []string{"boot_ns", "unix_ms", "token", "boot_id"} {
		v, ok := strings.CutPrefix(lines[i], name+"=")
		if !ok {
			return corrupt("line " + strconv.Itoa(i+1) + " is not " + name)
		}
		value[i] = v
	}
	boot, err1 := strconv.ParseInt(value[0], 10, 64)
	ms, err2 := strconv.ParseInt(value[1], 10, 64)
	token, err3 := strconv.ParseUint(value[2], 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil || boot < 0 {
		return corrupt("a number is malformed")
	}
	if value[3] != bootID() {
		return Deadline{}, fmt.Errorf("deadline file %s: of another boot: %w", path, os.ErrNotExist)
	}
	return Deadline{Boot: time.Duration(boot), Wall: time.UnixMilli(ms), Token: token}, nil
}
