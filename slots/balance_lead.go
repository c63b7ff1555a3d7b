package slots

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// campaign stands for leader of the table until ctx ends. Where the store wakes nobody, all
// who waited for the lease would ask for it all the time: they try now and then.
func (h *Host) campaign(ctx context.Context) {
	stand, rest := h.cfg.Session.Elect, h.every
	if _, can := store.AsWatcher(h.k.Store); !can {
		stand, rest = h.cfg.Session.TryDo, h.ttl/2
	}
	for ctx.Err() == nil {
		err := stand(ctx, LeaseName(h.name), h.lead)
		if err != nil && ctx.Err() == nil && !errors.Is(err, tenure.ErrHeld) && !errors.Is(err, tenure.ErrLost) {
			h.log.Warn("slots: cannot stand for balancer, trying again", "table", h.name, "host", h.me.Owner, "error", err)
		}
		h.pause(ctx, rest)
	}
}

// leader is one leadership over a table.
type leader struct {
	h     *Host
	token uint64
	state balance.State
	seen  map[string]time.Duration // when each incarnation was first seen
	hosts *roster
	fails bool

	table, plan store.Version // at the last look
	changed     time.Duration // when one of them was another than before
}

// lead makes plans under the lease's token until ctx ends.
func (h *Host) lead(ctx context.Context, l *tenure.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	b := &leader{h: h, token: l.Token(), seen: map[string]time.Duration{}, hosts: newRoster(ctx, h)}
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	watches.Go(func() { b.hosts.keep(ctx) })
	if b.hosts.watch {
		watches.Go(func() { h.kickOn(ctx, h.tableKey) })
	}
	for ctx.Err() == nil {
		err := b.round(ctx)
		switch fenced := (*core.FencedError)(nil); {
		case errors.As(err, &fenced):
			return lostTo(err)
		case settle.LostRace(err): // a pin came first
			h.pause(ctx, h.pace().Backoff)
			continue
		case err != nil && ctx.Err() == nil && !b.fails:
			h.log.Warn("slots: cannot balance, trying again", "table", h.name, "token", b.token, "error", err)
		}
		b.fails = err != nil
		b.rest(ctx)
	}
	return nil
}

// rest waits until something changed, but looks now and then: new hosts do not call. Where
// the store wakes nobody it looks more often while something goes on.
func (b *leader) rest(ctx context.Context) {
	due := make(chan struct{})
	wait := b.h.every
	if !b.hosts.watch && b.h.boot()-b.changed < b.h.ttl {
		wait = min(wait, b.h.k.Poll)
	}
	t := b.h.k.Clock.AfterFunc(wait, func() { close(due) })
	defer t.Stop()
	select {
	case <-due:
	case <-b.h.bal.kick:
	case <-ctx.Done():
	}
	b.h.pause(ctx, b.h.limit/64) // what comes together is looked at together
}

// kickOn makes the leader look whenever key changed.
func (h *Host) kickOn(ctx context.Context, key string) {
	w := settle.Waiting{Clock: h.k.Clock, Most: h.ttl, Poll: h.k.Poll, Rand: h.k.Rand, Log: h.log}
	for last, looks := store.Version(""), 0; ctx.Err() == nil; looks++ {
		o, err := h.get(ctx, key, core.MaxTable)
		looked := h.boot()
		if err != nil && ctx.Err() == nil && retryable(err) {
			h.pause(ctx, h.every)
			continue
		}
		if o.Version != last && looks > 0 { // the end of a watch alone is no change
			poke(h.bal.kick)
		}
		last = o.Version
		settle.Change(ctx, h.k.Store, key, o.Version, w)
		clock.Sleep(h.k.Clock, looked+h.limit/32-h.boot(), ctx.Done())
	}
}

// round reads everything, computes the plan that follows, and publishes it if a target is
// another.
func (b *leader) round(ctx context.Context) error {
	h := b.h
	l, err := h.readAll(ctx)
	if err != nil {
		return err
	}
	plan, ver, err := h.readPlan(ctx)
	if err != nil || plan == nil {
		return err
	}
	if b.table != l.ver || b.plan != ver {
		b.table, b.plan, b.changed = l.ver, ver, h.boot()
	}
	hosts, err := b.hosts.announced(ctx, b.urgent(l.table, plan))
	if err != nil {
		return err
	}
	defer b.hosts.planned()
	out, err := balance.Compute(b.input(l.table, plan, hosts))
	if err != nil {
		return err
	}
	shards := append([]core.Shard(nil), plan.Shards...)
	changed := plan.Token < b.token // whoever led before is refused from now on
	for i, r := range out.Rows {
		changed = changed || shards[i].Target != r.Target
		shards[i].Target = r.Target
	}
	if !changed {
		b.state = out.State
		return nil
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	next, err := plan.Publish(l.table, core.Publication{Token: b.token, Seq: plan.Seq, Shards: shards, Attempt: h.k.NewID()})
	if err != nil {
		return err
	}
	if _, err := h.writePlan(ctx, next, ver); err != nil {
		return err
	}
	b.state = out.State
	return nil
}

// urgent are the owners whose announcements a plan must rest on as they are now: those that
// do not have what is meant for them, for they may be leaving, and this host if it leaves.
func (b *leader) urgent(t *core.Table, plan *core.Plan) map[string]bool {
	who := map[string]bool{}
	for _, s := range plan.Shards {
		if r := t.RowAt(s.Range); s.Target != "" && (r == nil || !r.Held() || r.Host.Owner != s.Target) {
			who[s.Target] = true
		}
	}
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	if b.h.bal.leaving {
		who[b.h.me.Owner] = true
	}
	return who
}

// input is what a plan rests on.
func (b *leader) input(t *core.Table, plan *core.Plan, hosts []Announced) balance.Input {
	now, before := b.h.boot(), b.seen
	b.seen = make(map[string]time.Duration, len(hosts)) // whoever is gone is forgotten
	return inputOf(balance.Input{Now: now, Config: b.h.cfg.Balance, State: b.state}, t, plan, hosts, b.hosts.lives, func(incarnation string) time.Duration {
		since, known := before[incarnation]
		if !known {
			since = now
		}
		b.seen[incarnation] = since
		return since
	})
}

// inputOf completes in. Who lives is told by the sessions, never by a clock.
func inputOf(in balance.Input, t *core.Table, plan *core.Plan, hosts []Announced, lives func(*core.Host) bool, since func(incarnation string) time.Duration) balance.Input {
	for i := range hosts {
		a := &hosts[i]
		in.Hosts = append(in.Hosts, balance.Host{
			ID: a.Host.Owner, Incarnation: a.Host.Incarnation, Weight: a.Weight, Capacity: a.Capacity, Leaving: a.Leaving,
			Alive: lives(&a.Host), Since: since(a.Host.Incarnation),
		})
	}
	for _, s := range plan.Shards {
		x := balance.Shard{Range: balance.Range(s.Range), Load: int64(min(s.Load, balance.MaxLoad)), Pin: s.Pin, Target: s.Target}
		if r := t.RowAt(s.Range); r != nil && r.Held() {
			x.Owner, x.Held = r.Host.Owner, lives(r.Host)
		}
		in.Shards = append(in.Shards, x)
	}
	if len(in.Hosts) > balance.MaxHosts {
		in.Hosts = mostOf(in.Hosts, in.Shards)
	}
	return in
}

// mostOf are as many hosts as a plan takes: those first that have something or are meant to,
// then those that may get something. What is left of hosts that are gone comes last.
func mostOf(hosts []balance.Host, shards []balance.Shard) []balance.Host {
	named := map[string]bool{}
	for i := range shards {
		named[shards[i].Owner], named[shards[i].Target], named[shards[i].Pin] = true, true, true
	}
	rank := func(h *balance.Host) int {
		switch {
		case named[h.ID] && h.Alive:
			return 0
		case h.Alive && !h.Leaving && h.Weight > 0:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(hosts, func(a, b balance.Host) int { return rank(&a) - rank(&b) })
	return hosts[:balance.MaxHosts]
}

// BalancePlan is who should have what, and why (SL8).
type BalancePlan = balance.Plan

// Preview is the plan that a host with this policy would make now if it began to lead, of
// what the table, the pins and the announcements say; nothing is written. Hosts whose
// sessions are over are left out as far as the store can tell at once. A table without
// shards is ErrNotFound.
func (t *Table) Preview(ctx context.Context, policy Balance) (*BalancePlan, error) {
	v, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	if v.Plan == nil {
		return nil, store.Errorf(store.ErrNotFound, t.identity(), "preview", t.planKey, "table %q has no plan: make the table with shards", t.name)
	}
	known := map[string]bool{}
	var fault error
	lives := func(o *core.Host) bool {
		alive, asked := known[o.Incarnation]
		if !asked {
			over, err := t.over(ctx, &core.Row{Host: o})
			fault = errors.Join(fault, err)
			alive = over == nil
			known[o.Incarnation] = alive
		}
		return alive
	}
	now := t.boot()
	in := inputOf(balance.Input{Now: now, Config: policy}, &core.Table{Rows: v.Rows}, v.Plan, v.Hosts, lives, func(string) time.Duration { return now })
	if fault != nil {
		return nil, fault
	}
	return balance.Compute(in)
}
