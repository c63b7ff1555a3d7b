//go:build linux || darwin

package filestore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
)

// TestMain runs the tests, or plays the part of another process in one.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	goleak.VerifyTestMain(m)
}

// limit is how long a test waits for what should happen at once.
const limit = 20 * time.Second

// diskVariable, if set, makes all tests use the disk of the temporary directory.
const diskVariable = "TENURE_FILESTORE_ON_DISK"

// quick is a path for a store on a file system in memory, if there is one, so
// that the tests do not wait for a disk.
func quick(t testing.TB) string {
	t.Helper()
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() || os.Getenv(diskVariable) != "" {
		return filepath.Join(t.TempDir(), "store")
	}
	dir, err := os.MkdirTemp(memory, "filestore-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "store")
}

// opened is a store that the test closes.
func opened(t testing.TB, path string, opts ...Option) *Store {
	t.Helper()
	s, err := Open(path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// hasty is for tests in which those whom a store would wait for never come.
func hasty(c *config) { c.grace = graces{clear: time.Millisecond, close: 50 * time.Millisecond} }

// traced opens a store whose steps tr sees.
func traced(tr tracer) Option { return func(c *config) { c.tracer = tr } }

// within is a context that ends a test that hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

func create(t testing.TB, s *Store, key, body string) store.Version {
	t.Helper()
	v, err := s.Create(within(t), key, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func replace(t testing.TB, s *Store, key, body string, from store.Version) store.Version {
	t.Helper()
	v, err := s.Replace(within(t), key, []byte(body), from)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func remove(t testing.TB, s *Store, key string, at store.Version) {
	t.Helper()
	if err := s.DeleteIf(within(t), key, at); err != nil {
		t.Fatal(err)
	}
}

// body is what key holds; absence is "-".
func body(t testing.TB, s *Store, key string) (string, store.Version) {
	t.Helper()
	o, err := s.Get(within(t), key, MaxBody)
	if errors.Is(err, store.ErrNotFound) {
		return "-", ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(o.Body), o.Version
}

func holds(t testing.TB, s *Store, key, want string) {
	t.Helper()
	if got, _ := body(t, s, key); got != want {
		t.Errorf("%s holds %q, want %q", key, got, want)
	}
}

func isKind(t testing.TB, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want the kind %q", what, err, kind)
	}
}

// entries are the paths of everything in a store's directory, but for what an
// open store itself needs.
func entries(t testing.TB, s *Store) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(s.root, func(path string, _ os.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, sourceSuffix) {
			return err
		}
		rel, err := filepath.Rel(s.root, path)
		all = append(all, rel)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// gate is a tracer that holds up the first step that it is set for.
type gate struct {
	mu      sync.Mutex
	want    func(step) bool
	reached chan struct{}
	open    chan struct{}
}

// set makes the gate hold up the next step that want accepts.
func (g *gate) set(want func(step) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want, g.reached, g.open = want, make(chan struct{}), make(chan struct{})
}

func (g *gate) before(st step) error {
	g.mu.Lock()
	if g.want == nil || !g.want(st) {
		g.mu.Unlock()
		return nil
	}
	reached, open := g.reached, g.open
	g.want = nil
	g.mu.Unlock()
	close(reached)
	<-open
	return nil
}

func (g *gate) after(step, error) {}

// arrive waits until the step is held up.
func (g *gate) arrive(t testing.TB) {
	t.Helper()
	select {
	case <-g.reached:
	case <-time.After(limit):
		t.Fatal("the step was never taken")
	}
}

// of accepts steps of one kind.
func of(k stepKind) func(step) bool {
	return func(st step) bool { return st.kind == k }
}

// asleep starts f and holds it up at the step that want accepts. The function
// returned wakes it and waits for its error.
func asleep(t testing.TB, g *gate, want func(step) bool, f func() error) (wake func() error) {
	t.Helper()
	g.set(want)
	done := make(chan error, 1)
	go func() { done <- f() }()
	g.arrive(t)
	return func() error {
		t.Helper()
		close(g.open)
		select {
		case err := <-done:
			return err
		case <-time.After(limit):
			t.Fatal("a call that was woken did not return")
			return nil
		}
	}
}

// age makes a file look as if it was last changed d ago.
func age(t testing.TB, path string, d time.Duration) {
	t.Helper()
	when := time.Now().Add(-d)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}
