package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

// Of many that begin at once one probes, whatever the namespace is; a failure is
// nobody else's.
//
// SPEC ST10
func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		info := store.Info{Identity: "db:1", Driver: "d/1"}
		dir := t.TempDir()
		var now, most, probes atomic.Int32
		down := errors.New("down")
		var wg sync.WaitGroup
		for i := range 40 {
			m, err := openMemory(dir, info, []string{"a", "b"}[i%2])
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				first := false
				err := m.probedOnce(t.Context(), clock.NewSystem(), info, func() error {
					if n := now.Add(1); n > most.Load() {
						most.Store(n)
					}
					first = probes.Add(1) == 1
					rest := time.NewTimer(2 * time.Second)
					<-rest.C
					now.Add(-1)
					if first {
						return down
					}
					return nil
				})
				if first != errors.Is(err, down) || !first && err != nil {
					t.Errorf("first %v: %v", first, err)
				}
			})
		}
		wg.Wait()
		if probes.Load() != 3 || most.Load() != 1 { // the one that failed, and one for each namespace
			t.Errorf("%d probes, %d at once", probes.Load(), most.Load())
		}
	})
}

// A verdict stands for a day; then one process renews it, and the others go on with the
// old one for a while. Older ones, and those from the future or of another driver, are
// worth nothing.
//
// SPEC ST10
func TestAgeOfAVerdict(t *testing.T) {
	t.Parallel()
	info := store.Info{Identity: "db:1", Driver: "d/1"}
	for _, c := range []struct {
		age               time.Duration
		driver            string
		probes, alongside bool // whether it is probed again, and beside one that does so already
	}{
		{probeTrust - time.Hour, "d/1", false, false},
		{probeTrust + time.Minute, "d/1", true, false},
		{probeTrust + probeRenewal + time.Minute, "d/1", true, true},
		{-time.Hour, "d/1", true, true},
		{time.Hour, "d/2", true, true},
	} {
		for _, busy := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				m, err := openMemory(t.TempDir(), info, "ns")
				if err != nil {
					t.Fatal(err)
				}
				if err := writeAtomic(m.verdictPath(), verdict{info.Identity, c.driver, time.Now().Add(-c.age)}); err != nil {
					t.Fatal(err)
				}
				want, waits := c.probes, time.Duration(0)
				if busy { // for ever: it is stopped
					lock, err := tryLockFile(m.probeLockPath(info))
					if err != nil || lock == nil {
						t.Fatal(lock, err)
					}
					defer lock.Close()
					if want = c.alongside; want {
						waits = probeWait
					}
				}
				probed, begun := false, time.Now()
				err = m.probedOnce(t.Context(), clock.NewSystem(), info, func() error { probed = true; return nil })
				if took := time.Since(begun); err != nil || probed != want || took != waits {
					t.Errorf("age %v, driver %s, busy %v: probed %v after %v, %v; want %v after %v", c.age, c.driver, busy, probed, took, err, want, waits)
				}
				if s := m.standing(info); want && s != proven {
					t.Errorf("age %v: the new verdict was not kept: %v", c.age, s)
				}
			})
		}
	}
}

// The lock is a hint: without a folder, or one that is gone, everybody probes. A wait
// that is ended ends.
//
// SPEC ST10
func TestProbeWithoutTheLock(t *testing.T) {
	t.Parallel()
	info := store.Info{Identity: "db:1", Driver: "d/1"}
	probes := 0
	probe := func() error { probes++; return nil }
	for _, dir := range []string{"", t.TempDir() + "/gone"} {
		m, err := openMemory(dir, info, "ns")
		if err == nil && dir != "" {
			err = os.Remove(dir)
		}
		if err = errors.Join(err, m.probedOnce(t.Context(), clock.NewSystem(), info, probe)); err != nil {
			t.Errorf("folder %q: %v", dir, err)
		}
	}
	m, err := openMemory(t.TempDir(), info, "ns")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := tryLockFile(m.probeLockPath(info))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	wantErr(t, m.probedOnce(ctx, clock.NewSystem(), info, probe), ErrUnavailable)
	if body, err := os.ReadFile(m.verdictPath()); probes != 2 || err == nil || json.Valid(body) {
		t.Errorf("%d probes; a verdict %q, %v", probes, body, err)
	}
}
