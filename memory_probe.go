package tenure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
)

const (
	// probeTrust is how long a probe's verdict stands (ST10).
	probeTrust = 24 * time.Hour
	// probeRenewal is how long an old verdict still serves the others while one process
	// renews it: they would all probe at once else, such as at midnight.
	probeRenewal = probeTrust / 10
	// probeWait is how long a process waits for another's probe, which is as long as a
	// probe may take.
	probeWait = 30 * time.Second
	// The pause between two looks doubles from the one to the other.
	probeLooksFirst = 10 * time.Millisecond
	probeLooksLast  = 250 * time.Millisecond
)

// standing is what a kept verdict is worth.
type standing int

const (
	unproven standing = iota
	ageing            // one process should renew it, and the others may use it
	proven
)

// probeLockPath is of the store, whatever the namespace: it is the store that many
// probes at once are too much for.
func (m *memory) probeLockPath(info store.Info) string {
	sum := sha256.Sum256([]byte("probing\x00" + info.Identity))
	return filepath.Join(m.dir, hex.EncodeToString(sum[:16])+".lock")
}

// probedOnce calls probe unless a verdict stands, and keeps its success. On one host one
// process at a time probes a store, and whoever waited for it uses what it found. The
// lock is a hint: without it, or after a while, everybody probes for himself.
func (m *memory) probedOnce(ctx context.Context, clk clock.Clock, info store.Info, probe func() error) error {
	unlock, stands := m.awaitProbe(ctx, clk, info)
	defer unlock()
	if stands {
		return nil
	}
	if err := store.CtxErr(ctx, info.Identity, "probe", ""); err != nil {
		return err
	}
	if err := probe(); err != nil {
		return err
	}
	m.setProbed(info)
	return nil
}

// awaitProbe waits until a verdict stands, or until it is for this process to probe.
func (m *memory) awaitProbe(ctx context.Context, clk clock.Clock, info store.Info) (unlock func(), stands bool) {
	nothing := func() {}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer clk.AfterFunc(probeWait, cancel).Stop()
	for pause := probeLooksFirst; ; pause = min(2*pause, probeLooksLast) {
		if m.dir == "" || m.standing(info) == proven {
			return nothing, m.dir != ""
		}
		lock, err := tryLockFile(m.probeLockPath(info))
		switch {
		case err != nil:
			return nothing, false
		case lock != nil: // perhaps of one that has just probed
			return func() { _ = lock.Close() }, m.standing(info) == proven
		case m.standing(info) != unproven: // another is renewing it
			return nothing, true
		}
		if !clock.Sleep(clk, pause, ctx.Done()) {
			return nothing, false
		}
	}
}
