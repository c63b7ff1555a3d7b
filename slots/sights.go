package slots

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
)

// sights are what the host can prove of the rows that are in the way of p, as l shows them:
// what it watched long enough (LS2), and sessions that are over (LS8). Of a session that
// is not known to be over it learns in the background, for that takes many calls.
func (h *Host) sights(l look, p *part) []core.Sight {
	var proofs []core.Sight
	seen := map[uint16]core.Observation{}
	ripe := time.Duration(0)
	for _, r := range l.table.Overlapping(p.rng) {
		if r.Host.Is(h.me) {
			continue
		}
		if r.Held() && r.Host.Kind == lease.Session {
			if s := h.sessionOver(&r); s != nil {
				proofs = append(proofs, *s)
			}
			continue
		}
		need, _ := r.Wait(h.me.Owner)
		if need == 0 {
			continue
		}
		o := h.observe(p, l.table.Birth, &r, l.at)
		seen[r.Range.A] = o
		if at := o.RipeAt(need, h.k.Timing.Rho); at <= l.at {
			proofs = append(proofs, o.Sight())
		} else {
			ripe = max(ripe, at) // all of them must fall
		}
	}
	p.obs = seen
	h.mu.Lock()
	defer h.mu.Unlock()
	p.ripe = ripe
	return proofs
}

// observe continues the observation of r, or one that an earlier process of this boot
// began.
func (h *Host) observe(p *part, birth string, r *core.Row, at time.Duration) core.Observation {
	before, watched := p.obs[r.Range.A]
	o := before.Observe(birth, r, at)
	if watched && o == before {
		return o
	}
	name := fmt.Sprintf("%s/%s/%s", kindRow, h.name, core.RowName(r.Range.A))
	body := fmt.Appendf(nil, "%s %+v", birth, r.State())
	if from, ok := h.k.Recall(name, body); ok && from <= at {
		o.From = from
		return o
	}
	h.k.Remember(name, body, o.From)
	return o
}

// sessionOver is the proof that the session of r is over, if this process knows of one;
// otherwise it begins to wait for it.
func (h *Host) sessionOver(r *core.Row) *core.Sight {
	who := identity.Owner{Incarnation: r.Host.Incarnation, Term: r.Host.Term}
	if e := h.k.Identities.Known(r.Host.Node, who); e != nil {
		return &core.Sight{State: r.State(), How: e.How, Evidence: e.Cite, Why: e.Why, By: e.By}
	}
	h.keepVigil(r.Host.Node, who)
	return nil
}

// start names one process start of a node.
type start struct {
	node  string
	owner identity.Owner
}

// vigil is a wait for the end of a session.
type vigil struct {
	since time.Duration
	quit  context.CancelFunc
}

// keepVigil waits, once for all rows of a session, until it is over or nothing of it is in
// the way any more, and makes the host look again then.
func (h *Host) keepVigil(node string, who identity.Owner) {
	k := start{node, who}
	ctx, quit := context.WithCancel(h.over)
	if _, waiting := h.vigils.LoadOrStore(k, vigil{h.boot(), quit}); waiting {
		quit()
		return
	}
	h.awaitOver(ctx, k, func() { h.vigils.Delete(k); quit() })
}

// awaitOver waits in the background until a session is over, or ctx or the client ends.
func (h *Host) awaitOver(ctx context.Context, k start, done func()) {
	h.k.Background(func(closing context.Context) {
		defer done()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(closing, cancel)()
		_, err := h.k.Identities.AwaitOver(ctx, k.node, k.owner)
		switch {
		case err == nil:
			h.sessionEnded(k.node, k.owner)
		case ctx.Err() == nil:
			h.log.Warn("slots: cannot tell whether the session in the way is over", "table", h.name, "node", k.node, "error", err)
		}
	})
}

// endVigils ends the waits for sessions that nothing waits for any more: where the store
// wakes nobody each of them is a request a second.
func (h *Host) endVigils() {
	wanted := map[start]bool{}
	h.mu.Lock()
	for _, p := range h.parts {
		if p.grant == nil && !p.leaving {
			for i := range p.rivals {
				if o := p.rivals[i].Host; o != nil {
					wanted[startOf(o)] = true
				}
			}
		}
	}
	h.mu.Unlock()
	old := h.boot() - h.every // a younger one may be of a call that runs
	h.vigils.Range(func(k, v any) bool {
		if v := v.(vigil); !wanted[k.(start)] && v.since <= old {
			v.quit()
		}
		return true
	})
}

// sessionEnded makes the host look at what that session was in the way of.
func (h *Host) sessionEnded(node string, who identity.Owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.parts {
		for _, r := range p.rivals {
			if r.Host != nil && r.Host.Node == node && r.Host.Incarnation == who.Incarnation {
				p.due = true
			}
		}
	}
	h.ring()
	poke(h.bal.kick)
}
