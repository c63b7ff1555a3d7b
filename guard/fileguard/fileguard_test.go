package fileguard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

func newGuard(t *testing.T) (path string, g *Guard) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "report.txt")
	g, err := Open(path, "prod", "report")
	if err != nil {
		t.Fatal(err)
	}
	return path, g
}

// dataOf is what is written under a token: more than one page, and whole only
// if it is exactly this.
func dataOf(token uint64) []byte { return []byte(fmt.Sprintf("%-9000d.", token)) }

func wantData(t *testing.T, path string, token uint64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != string(dataOf(token)) {
		t.Fatalf("the file holds %.20q (%v), want what was written under %d", data, err, token)
	}
}

// wantOnlyGuardFiles fails the test if anything but what the package documents
// is left beside path.
func wantOnlyGuardFiles(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Base(path)
	for _, e := range entries {
		if suffix, ok := strings.CutPrefix(e.Name(), base); !ok || !slices.Contains([]string{"", folderSuffix}, suffix) {
			t.Errorf("%s was left behind", e.Name())
		}
	}
	names, err := os.ReadDir(path + folderSuffix)
	if err != nil {
		t.Fatal(err)
	}
	marks := 0
	for _, e := range names {
		switch name := e.Name(); {
		case name == boundName, name == holdName:
		case tokenIn(name, markPrefix) > 0:
			marks++
		default:
			t.Errorf("%s was left behind", name)
		}
	}
	if marks != 1 {
		t.Errorf("%d marks are left, want the highest only", marks)
	}
}

func wantFenced(t *testing.T, err error, token, highest uint64) {
	t.Helper()
	var fenced *guard.FencedError
	if !errors.Is(err, guard.ErrFenced) || !errors.As(err, &fenced) || fenced.Token != token || fenced.Highest != highest {
		t.Fatalf("got %v, want token %d to be fenced by %d", err, token, highest)
	}
}

func wantKind(t *testing.T, err, kind error) {
	t.Helper()
	if err == nil || store.KindOf(err) != kind {
		t.Fatalf("got %v, want the kind %q", err, kind)
	}
}

// SPEC GD1
func TestLowerTokensAreRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path, g := newGuard(t)
	if h, err := g.Highest(); h != 0 || err != nil {
		t.Fatalf("Highest before any token: %d, %v", h, err)
	}
	for _, token := range []uint64{7, 7, 9} { // equal is admitted
		if err := g.Write(ctx, token, dataOf(token)); err != nil {
			t.Fatalf("Write under %d: %v", token, err)
		}
		wantData(t, path, token)
	}
	wantFenced(t, g.Write(ctx, 8, dataOf(8)), 8, 9)
	wantData(t, path, 9)
	if err := g.Raise(ctx, 12); err != nil {
		t.Fatal(err)
	}
	wantFenced(t, g.Write(ctx, 9, dataOf(8)), 9, 12)
	wantFenced(t, g.Raise(ctx, 11), 11, 12)
	_, err := g.Hold(ctx, 11)
	wantFenced(t, err, 11, 12)
	if err := g.Raise(ctx, 12); err != nil {
		t.Errorf("raising again to the same token: %v", err)
	}
	for _, token := range []uint64{0, guard.MaxToken + 1} {
		wantKind(t, g.Write(ctx, token, nil), guard.ErrInvalid)
		wantKind(t, g.Raise(ctx, token), guard.ErrInvalid)
	}
	if err := g.Raise(ctx, guard.MaxToken); err != nil {
		t.Errorf("raising to the largest token: %v", err)
	}
	wantData(t, path, 9)
	wantOnlyGuardFiles(t, path)
}

// The mark is a documented file.
//
// SPEC GD1 ST7
func TestMarkFormat(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	if err := g.Raise(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(path + ".guard/mark-00000000000000000007")
	if want := `{"v":1,"namespace":"prod","resource":"report","token":7}`; err != nil || string(body) != want {
		t.Errorf("the mark is %s (%v), want %s", body, err, want)
	}
}

// A mark that cannot be right stops everybody; it is never taken for none.
//
// SPEC GD3 ST7 ST15
func TestBadMarks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		kind error
	}{
		"empty":           {"", store.ErrCorrupt},
		"cut off":         {`{"v":1,"namespace":"prod","resource":"rep`, store.ErrCorrupt},
		"zero token":      {`{"v":1,"namespace":"prod","resource":"report","token":0}`, store.ErrCorrupt},
		"large token":     {`{"v":1,"namespace":"prod","resource":"report","token":9007199254740992}`, store.ErrCorrupt},
		"unknown field":   {`{"v":1,"namespace":"prod","resource":"report","token":7,"x":1}`, store.ErrCorrupt},
		"white space":     {`{"v":1,"namespace":"prod","resource":"report","token": 7}`, store.ErrCorrupt},
		"bytes behind it": {`{"v":1,"namespace":"prod","resource":"report","token":7}` + "\n", store.ErrCorrupt},
		"very long":       {strings.Repeat(" ", 1<<20), store.ErrCorrupt},
		"newer":           {`{"v":2,"namespace":"prod","resource":"report","token":7}`, store.ErrNewer},
		"other namespace": {`{"v":1,"namespace":"test","resource":"report","token":7}`, guard.ErrInvalid},
		"other resource":  {`{"v":1,"namespace":"prod","resource":"invoice","token":7}`, guard.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, g := newGuard(t)
			name := filepath.Join(path+folderSuffix, markName(7))
			if err := errors.Join(os.Mkdir(path+folderSuffix, 0o700), os.WriteFile(name, []byte(c.body), 0o600)); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, "prod", "report")
			wantKind(t, err, c.kind)
			wantKind(t, g.Write(t.Context(), 500, nil), c.kind)
			wantKind(t, g.Raise(t.Context(), 500), c.kind)
			_, err = g.Hold(t.Context(), 500)
			wantKind(t, err, c.kind)
			if body, err := os.ReadFile(name); err != nil || string(body) != c.body {
				t.Errorf("the mark was changed: %v", err)
			}
		})
	}
}

// A mark that was removed is noticed, by those inside too.
//
// SPEC GD3
func TestRemovedMark(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	h, err := g.Hold(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if err := os.Remove(filepath.Join(path+folderSuffix, markName(7))); err != nil {
		t.Fatal(err)
	}
	<-h.Context().Done()
	wantKind(t, context.Cause(h.Context()), store.ErrCorrupt)
	wantKind(t, h.Write(t.Context(), nil), store.ErrCorrupt)
	wantKind(t, g.Raise(t.Context(), 6), store.ErrCorrupt)
	h.Release()
	wantKind(t, g.Write(t.Context(), 8, nil), store.ErrCorrupt)
}

// SPEC ST8
func TestOpenRefusesBadInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][3]string{
		"no path":       {"", "n", "r"},
		"folder":        {dir + "/", "n", "r"},
		"absent folder": {filepath.Join(dir, "absent", "f"), "n", "r"},
		"dangling link": {filepath.Join(dir, "dangling"), "n", "r"},
		"no namespace":  {filepath.Join(dir, "f"), "", "r"},
		"no resource":   {filepath.Join(dir, "f"), "n", ""},
	} {
		_, err := Open(c[0], c[1], c[2])
		if store.KindOf(err) != guard.ErrInvalid {
			t.Errorf("%s: Open gave %v", name, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("a refused Open left something behind: %v, %v", entries, err)
	}
}

// A file has one guard, by whatever name it is reached.
//
// SPEC GD1
func TestLinksLeadToOneGuard(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	if err := g.Write(t.Context(), 7, dataOf(7)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	other, err := Open(link, "prod", "report")
	if err != nil {
		t.Fatal(err)
	}
	wantFenced(t, other.Write(t.Context(), 6, dataOf(6)), 6, 7)
	if err := other.Write(t.Context(), 8, dataOf(8)); err != nil {
		t.Fatal(err)
	}
	wantData(t, path, 8)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v", err)
	}
}

func TestWriteKeepsTheMode(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Write(t.Context(), 7, dataOf(7)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}

// A folder can be held, but not replaced.
//
// SPEC GD2
func TestGuardOfAFolder(t *testing.T) {
	t.Parallel()
	g, err := Open(filepath.Join(t.TempDir()), "prod", "report")
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.Hold(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	wantKind(t, h.Write(t.Context(), nil), guard.ErrInvalid)
}

// One inside keeps equal tokens waiting and lets the raise of its own token
// through.
//
// SPEC GD1 GD2
func TestHold(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	h, err := g.Hold(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Raise(t.Context(), 7); err != nil {
		t.Errorf("Raise of the holder's own token: %v", err)
	}
	if err := h.Write(t.Context(), dataOf(7)); err != nil {
		t.Errorf("Write of the holder: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { waiting <- g.Write(ctx, 7, nil) }()
	cancel()
	wantKind(t, <-waiting, store.ErrUnavailable)
	wantData(t, path, 7)
	if err := h.Context().Err(); err != nil {
		t.Errorf("an equal token ended the holder's context: %v", err)
	}

	h.Release()
	h.Release()
	if h.Context().Err() == nil || h.Token() != 7 {
		t.Error("the context lives on after Release")
	}
	wantKind(t, h.Write(t.Context(), nil), guard.ErrInvalid)
	_, err = h.File()
	wantKind(t, err, guard.ErrInvalid)
	if err := g.Write(t.Context(), 7, dataOf(7)); err != nil {
		t.Errorf("Write after Release: %v", err)
	}
}

// One who slept on the way in, while a higher token came and went, does not get
// inside any more.
//
// SPEC GD1 GD2
// CASE B16 B40
func TestZombieOnTheWayIn(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	zombie, err := Open(path, "prod", "report")
	if err != nil {
		t.Fatal(err)
	}
	zombie.beforeHold = func() {
		if err := g.Raise(t.Context(), 8); err != nil {
			t.Errorf("Raise while the zombie is on its way: %v", err)
		}
	}
	_, err = zombie.Hold(t.Context(), 7)
	wantFenced(t, err, 7, 8)
	if err := g.Write(t.Context(), 8, dataOf(8)); err != nil {
		t.Errorf("Write under 8: %v", err)
	}
}

// One who waits to get in is told at once when a still higher token is seen.
//
// SPEC GD1
func TestWaiterIsFenced(t *testing.T) {
	t.Parallel()
	_, g := newGuard(t)
	seven, err := g.Hold(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := g.Hold(t.Context(), 8)
		waiting <- err
	}()
	<-seven.Context().Done() // 8 has asked
	wantFenced(t, context.Cause(seven.Context()), 7, 8)
	ctx, cancel := context.WithCancel(t.Context())
	raised := make(chan error, 1)
	go func() { raised <- g.Raise(ctx, 9) }()
	wantFenced(t, <-waiting, 8, 9)
	seven.Release()
	if err := <-raised; err != nil {
		t.Errorf("Raise to 9: %v", err)
	}
	cancel()
}

// Whatever the order, no write under a lower token is admitted after a higher
// token was, the highest gets through, and the file is whole.
//
// SPEC GD1
func TestRace(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	const workers, each = 6, 15
	var wg sync.WaitGroup
	var mu sync.Mutex
	admitted := uint64(0)
	for worker := range workers {
		wg.Go(func() {
			own, err := Open(path, "prod", "report")
			if err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				token := uint64(i*workers + worker + 1)
				mu.Lock()
				before := admitted
				mu.Unlock()
				step := own.Write
				if token < workers*each && rand.N(3) == 0 {
					step = func(ctx context.Context, token uint64, _ []byte) error { return own.Raise(ctx, token) }
				}
				err := step(t.Context(), token, dataOf(token))
				switch {
				case err == nil && token < before:
					t.Errorf("token %d was admitted after %d", token, before)
				case err == nil:
					mu.Lock()
					admitted = max(admitted, token)
					mu.Unlock()
				case token == workers*each || !errors.Is(err, guard.ErrFenced):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if h, err := g.Highest(); err != nil || h != workers*each {
		t.Errorf("the mark is %d (%v), want %d", h, err, workers*each)
	}
	wantData(t, path, workers*each)
	wantOnlyGuardFiles(t, path)
}

// A reader beside many raises never takes a listing that was changed under it
// for marks that were removed.
//
// SPEC GD3
func TestReadBesideRaises(t *testing.T) {
	t.Parallel()
	_, g := newGuard(t)
	if err := g.Raise(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			last := uint64(0)
			for {
				select {
				case <-done:
					return
				default:
				}
				h, err := g.Highest()
				if err != nil || h < last {
					t.Errorf("the mark is %d after %d (%v)", h, last, err)
					return
				}
				last = h
			}
		})
	}
	for token := uint64(2); token < 300; token++ {
		if err := g.Raise(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

// SPEC ST13
func TestEndedContext(t *testing.T) {
	t.Parallel()
	path, g := newGuard(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	boom := errors.New("boom")
	cancel(boom)
	for _, err := range []error{g.Write(ctx, 7, nil), g.Raise(ctx, 7)} {
		wantKind(t, err, store.ErrUnavailable)
		if !errors.Is(err, boom) {
			t.Errorf("%v does not say why the context ended", err)
		}
	}
	if _, err := os.Stat(path + folderSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a call with an ended context left a mark: %v", err)
	}
}
