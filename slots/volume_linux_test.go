package slots

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// on makes a host serve from a volume.
func on(v *Volume) func(*hostSetup) { return func(s *hostSetup) { s.cfg.Volume = v } }

func openedVolume(t *testing.T, dir string) *Volume {
	t.Helper()
	v, err := OpenVolume(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v
}

// closeVolume closes v once its last host has freed it.
func closeVolume(t *testing.T, v *Volume) {
	t.Helper()
	synctest.Wait()
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
}

// A restart on its volume goes on at once under the same epoch; the process before it can
// renew nothing any more.
//
// SPEC SL3 LS14
func TestRestartOnItsVolume(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		dir := t.TempDir()
		v := openedVolume(t, dir)
		a := w.host("a", []Range{rng(0, 9)}, on(v))
		a.refresh().is(t, "claimed 0-9@1")
		a.die()
		closeVolume(t, v)
		again := w.host("a", []Range{rng(0, 9)}, on(openedVolume(t, dir)))
		again.refresh().is(t, "claimed 0-9@1")
		again.epoch(0, 1)
		w.pass(time.Minute)
		again.refresh().is(t, "renewed 0-9")
	})
}

// Its epoch must be above what was seen where epochs are checked.
//
// SPEC SL3 SL6
func TestRestartBelowAFence(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		dir := t.TempDir()
		v := openedVolume(t, dir)
		w.host("x", []Range{rng(0, 9)}).refresh()
		a := w.host("a", []Range{rng(10, 19)}, on(v))
		a.refresh().is(t, "claimed 10-19@2")
		a.die()
		closeVolume(t, v)
		again := w.host("a", []Range{rng(10, 19)}, on(openedVolume(t, dir)))
		again.Lose(12, 7)
		again.refresh().is(t, "claimed 10-19@8")
	})
}

// A copy of the volume is a rival, and so is the owner without it, and another shape.
//
// SPEC SL3
func TestCopiedVolume(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		dir, other := t.TempDir(), t.TempDir()
		a := w.host("a", []Range{rng(0, 9)}, on(openedVolume(t, dir)))
		a.refresh().is(t, "claimed 0-9@1")
		body, err := os.ReadFile(filepath.Join(dir, volumeFile))
		if err == nil {
			err = os.WriteFile(filepath.Join(other, volumeFile), body, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		copied := w.host("a", []Range{rng(0, 9)}, on(openedVolume(t, other)))
		copied.refresh().is(t, "waiting 0-9")
		w.host("a", []Range{rng(0, 9)}).refresh().is(t, "waiting 0-9")
		a.refresh().is(t, "renewed 0-9")
	})
}

// One process at a time, one host at a time, one owner for good; and it is not closed under
// a host.
//
// SPEC SL3 FL2
func TestVolumeIsExclusive(t *testing.T) {
	t.Parallel()
	inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
		dir := t.TempDir()
		v := openedVolume(t, dir)
		_, err := OpenVolume(dir)
		wantKinds(t, err, store.ErrUnavailable)
		a := w.host("a", []Range{rng(0, 9)}, on(v))
		wantKinds(t, v.Close(), store.ErrInvalid)
		_, err = a.table.Host(HostConfig{Owner: "a", Ranges: []Range{All}, Volume: v})
		wantKinds(t, err, store.ErrInvalid)
		a.Close()
		closeVolume(t, v)
		v = openedVolume(t, dir)
		_, err = a.table.Host(HostConfig{Owner: "b", Ranges: []Range{All}, Volume: v})
		wantKinds(t, err, store.ErrInvalid)
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = a.table.Host(HostConfig{Owner: "a", Ranges: []Range{All}, Volume: v})
		wantKinds(t, err, store.ErrInvalid)
		_, err = OpenVolume(filepath.Join(dir, "absent"))
		wantKinds(t, err, store.ErrInvalid)
		if err := os.WriteFile(filepath.Join(dir, volumeFile), []byte("something else\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = OpenVolume(dir)
		wantKinds(t, err, store.ErrCorrupt)
		if err := os.WriteFile(filepath.Join(dir, volumeFile), []byte(volumeMark+"cut o"), 0o600); err != nil {
			t.Fatal(err)
		}
		openedVolume(t, dir) // a first write that a crash cut off
	})
}

// A host under a session that is closed goes on releasing in the volume's name: nobody else
// has the volume before that is over, or its restart would lose what it was just given.
//
// SPEC SL3 LS8
func TestVolumeIsKeptUntilReleased(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		v := openedVolume(t, t.TempDir())
		a := w.host("a", []Range{rng(0, 9)}, as("n1"), on(v))
		a.refresh().is(t, "claimed 0-9@1")
		a.link.SetLink(faultstore.Refused)
		a.Close()
		bubbleSleep(time.Second)
		synctest.Wait()
		if err := v.Close(); err == nil {
			t.Fatal("the volume is free while its host still writes")
		}
		a.link.SetLink(faultstore.Up)
		bubbleSleep(15 * time.Second)
		closeVolume(t, v)
		if r := w.rows(); r[0].Held() {
			t.Errorf("%+v", r[0])
		}
	})
}
