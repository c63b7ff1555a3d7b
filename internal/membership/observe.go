package membership

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// observe continues or begins the observation of h's state. Every observer in this
// process shares one per node, and a short command leaves it for the next (LS2).
func (i *Identities) observe(h Head) identity.Observation {
	i.mu.Lock()
	before, known := i.observed.get(h.Node)
	i.mu.Unlock()
	o := before.Observe(h.Record, h.Version, h.At)
	if known && o == before {
		return o
	}
	name, state := "identity/"+h.Node, append([]byte(h.Version+"\x00"), h.Body...)
	if i.cfg.Recall != nil {
		if from, ok := i.cfg.Recall(name, state); ok {
			o.From = min(o.From, from)
		}
	}
	if i.cfg.Remember != nil {
		i.cfg.Remember(name, state, o.From)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.observed.put(h.Node, o)
	return o
}

// ground says on what ground h's name may be taken over now; otherwise how much
// longer its state must be observed (PL2, LS3, LS14).
func (i *Identities) ground(ctx context.Context, h Head) (g identity.Ground, left time.Duration, err error) {
	rho := i.cfg.Timing.Rho
	d, possible := h.Record.Wait()
	if !possible || d == 0 {
		return identity.Observation{}.Ground(h.Record, h.Version, h.At, rho)
	}
	if i.provenGone(ctx, h.Record) {
		g, err = identity.Proven(h.Record, h.Version)
		return g, 0, err
	}
	if g, ok := i.silentByStoreClock(ctx, h); ok {
		return g, 0, nil
	}
	return i.observe(h).Ground(h.Record, h.Version, h.At, rho)
}

// provenGone reports whether the kernel proves that nothing of r's owner is left
// (LS14). Trouble means no.
func (i *Identities) provenGone(ctx context.Context, r *identity.Record) bool {
	p, can := store.AsProver(i.cfg.Store)
	if !can || !provable(r) {
		return false
	}
	// Of an earlier boot of this kernel nothing is left, whatever tree it was.
	tree := r.Lock.Tree == "cgroup" && r.Lock.Boot == bootid.Boot()
	if tree && i.cfg.TreeEmpty == nil {
		return false
	}
	call, cancel := i.limit(ctx)
	defer cancel()
	gone, err := p.Gone(call, r.Lock.Mark)
	if err == nil && gone && tree {
		gone, err = i.cfg.TreeEmpty(r.Lock.Cgroup)
	}
	if err != nil {
		i.cfg.Log.Warn("identity: cannot tell whether the owner's process is gone", "node", r.Node, "error", err)
		return false
	}
	return gone
}

func provable(r *identity.Record) bool { return r.Held() && r.Revoker == nil && r.Lock != nil }

// silentByStoreClock is the ground where the store's own clock proves the owner
// silent (LS3). Trouble means no.
func (i *Identities) silentByStoreClock(ctx context.Context, h Head) (identity.Ground, bool) {
	r := h.Record
	if i.cfg.StoreClock == nil || r.ClockInstance == "" || h.Modified.IsZero() {
		return identity.Ground{}, false
	}
	call, cancel := i.limit(ctx)
	defer cancel()
	instance, now, err := i.cfg.StoreClock(call)
	if err != nil {
		return identity.Ground{}, false
	}
	margin := lease.Timing{TTL: r.TTL()}.Defaults().Margin
	g, err := identity.StoreClock(r, h.Version, instance, now.Sub(h.Modified), margin, i.cfg.Timing.Rho)
	return g, err == nil
}

// await blocks until the state of h may have changed, its owner may be proven
// gone, or left has passed since h was read.
func (i *Identities) await(ctx context.Context, h Head, left time.Duration) {
	ctx, cancel := i.untilBoot(ctx, h.At+left)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if p, can := store.AsProver(i.cfg.Store); can && provable(h.Record) {
		wg.Go(func() {
			if p.WatchGone(ctx, h.Record.Lock.Mark) == nil {
				cancel()
			}
		})
	}
	i.awaitChange(ctx, i.recordKey(h.Node), h.Version)
}

// untilBoot is ctx, ended when the boot clock reaches at.
func (i *Identities) untilBoot(ctx context.Context, at time.Duration) (context.Context, context.CancelFunc) {
	return settle.Until(ctx, i.cfg.Clock, at)
}

// awaitChange returns when key may be at another version than v, after a jittered
// poll interval where the store cannot watch, or when ctx ends.
func (i *Identities) awaitChange(ctx context.Context, key string, v store.Version) {
	settle.Change(ctx, i.cfg.Store, key, v, settle.Waiting{Clock: i.cfg.Clock, Most: 2 * i.cfg.Timing.TTL, Poll: i.cfg.Poll, Rand: i.cfg.Rand, Log: i.cfg.Log})
}
