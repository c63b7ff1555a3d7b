package slots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Balance is how far and how fast the plan of a table may change (SL8).
type Balance = balance.Config

// LeaseName is the lease of who balances a table: slots/<table>, or slots/sha256- and the
// hash where that is longer than a name may be.
func LeaseName(table string) string {
	if name := "slots/" + table; len(name) <= store.MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(table))
	return "slots/sha256-" + hex.EncodeToString(sum[:])
}

// balancing is what a balanced host has beside its ranges.
type balancing struct {
	since  int64         // wall clock, for people
	kick   chan struct{} // whoever leads looks
	leaves chan struct{} // the announcement is to be written again

	// Guarded by Host.mu.
	leaving bool
	moves   sync.WaitGroup
}

// checkBalanced refuses what a balanced host cannot be.
func (t *Table) checkBalanced(cfg HostConfig) error {
	bad := func(format string, args ...any) error { return invalid("host", cfg.Owner, format, args...) }
	switch {
	case cfg.Session == nil:
		return bad("a balanced host needs a session: its announcement and its ranges live by it")
	case len(cfg.Ranges) > 0:
		return bad("a balanced host has no ranges of its own: the plan says what it serves")
	case cfg.Weight < 0 || cfg.Weight > balance.MaxWeight:
		return bad("the weight %d is not between 1 and %d", cfg.Weight, balance.MaxWeight)
	case cfg.Capacity < 0 || cfg.Capacity > Count:
		return bad("the capacity %d is not between 0, for no limit, and %d", cfg.Capacity, Count)
	case cfg.DrainLimit < 0:
		return bad("the drain limit %v is negative", cfg.DrainLimit)
	}
	return nil
}

// balance announces the host, follows the plan, and stands for leader, until ctx ends and
// wait was called.
func (h *Host) balance(ctx context.Context) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.over, cancel)
	var all sync.WaitGroup
	all.Go(func() { h.keepAnnounced(ctx) })
	all.Go(func() { h.keepFollowing(ctx) })
	all.Go(func() { h.campaign(ctx) })
	return func() {
		cancel()
		stop()
		all.Wait()
		h.bal.moves.Wait()
	}
}

// keepAnnounced writes the announcement, again when it changed, and anew if it is gone: a
// leader that took this host for one that is gone may have removed it. It looks as seldom as
// at rows that are all there.
func (h *Host) keepAnnounced(ctx context.Context) {
	for ctx.Err() == nil {
		if err := h.announce(ctx); err != nil {
			if ctx.Err() == nil {
				h.log.Warn("slots: cannot announce the host, trying again", "table", h.name, "host", h.me.Owner, "error", err)
			}
			h.pause(ctx, h.every)
			continue
		}
		poke(h.bal.kick) // if this host leads
		for h.stands(ctx) {
		}
	}
}

// stands waits a while, and reports whether the announcement need not be written again.
func (h *Host) stands(ctx context.Context) bool {
	due := make(chan struct{})
	t := h.k.Clock.AfterFunc(h.pace().Jitter(max(slow, 2*h.ttl)), func() { close(due) })
	defer t.Stop()
	select {
	case <-due:
	case <-h.bal.leaves:
		return false
	case <-ctx.Done():
		return false
	}
	_, err := h.get(ctx, h.hostKey(h.me.Owner), core.MaxAnnounce)
	return store.KindOf(err) != store.ErrNotFound
}

// announce tells whoever balances that the host is there.
func (h *Host) announce(ctx context.Context) error {
	key := h.hostKey(h.me.Owner)
	for {
		a := &core.Announce{V: record.Level, Table: h.name, Birth: h.birth, Host: *h.me, Weight: h.cfg.Weight, Capacity: h.cfg.Capacity, Since: h.bal.since, Beat: 1, Attempt: h.k.NewID()}
		h.mu.Lock()
		a.Leaving = h.bal.leaving
		h.mu.Unlock()
		o, err := h.get(ctx, key, core.MaxAnnounce)
		if err != nil && store.KindOf(err) != store.ErrNotFound {
			return err
		}
		if err == nil {
			before, err := core.DecodeAnnounce(key, h.name, o.Body, h.hostKey)
			if err != nil {
				return err
			}
			if before.Host.Is(h.me) {
				a.Beat = before.Beat + 1
			}
		}
		body, err := a.Encode()
		if err != nil {
			return err
		}
		_, err = settle.Do(ctx, h.k.Store, settle.Write{Key: key, Body: body, Over: o.Version, Limit: core.MaxAnnounce, Mine: func(b []byte) bool {
			now, err := core.DecodeAnnounce(key, h.name, b, h.hostKey)
			return err == nil && now.Attempt == a.Attempt
		}}, h.pace())
		if !settle.LostRace(err) {
			return err
		}
		if !h.pause(ctx, h.pace().Backoff) {
			return store.CtxErr(ctx, h.identity(), "announce", key)
		}
	}
}

// Leave asks whoever balances to move everything away from this balanced host, and waits
// until it serves nothing or ctx ends. Run goes on meanwhile; stop it then (SL8).
func (h *Host) Leave(ctx context.Context) error {
	if !h.cfg.Balanced {
		return invalid("leave", h.me.Owner, "the host is not balanced: release it")
	}
	h.mu.Lock()
	h.bal.leaving = true
	h.mu.Unlock()
	poke(h.bal.leaves)
	for len(h.Held()) > 0 {
		if !h.pause(ctx, h.k.Poll) {
			return fmt.Errorf("host %q: %d ranges are not moved away yet: %w", h.me.Owner, len(h.Held()), context.Cause(ctx))
		}
	}
	return nil
}

// goodbye tells whoever balances that the host ends, so that nothing waits for its session.
func (h *Host) goodbye(ctx context.Context) {
	ctx, cancel := settle.Limit(ctx, h.k.Clock, h.limit)
	defer cancel()
	h.mu.Lock()
	h.bal.leaving = true
	h.mu.Unlock()
	if err := h.announce(ctx); err != nil {
		h.log.Warn("slots: the end of the host is not announced", "table", h.name, "host", h.me.Owner, "error", err)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keepFollowing does what the plan says, and again when it changed.
func (h *Host) keepFollowing(ctx context.Context) {
	w := settle.Waiting{Clock: h.k.Clock, Most: h.every, Rand: h.k.Rand, Log: h.log}
	last, changed := store.Version(""), h.boot()
	for ctx.Err() == nil {
		p, ver, err := h.readPlan(ctx)
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn("slots: cannot read the plan, trying again", "table", h.name, "error", err)
			}
			h.pause(ctx, h.every)
			continue
		}
		if p != nil {
			h.follow(ctx, p)
		}
		if ver != last {
			last, changed = ver, h.boot()
			poke(h.bal.kick) // whoever leads looks: it may be a pin
		}
		if w.Poll = h.k.Poll; h.boot()-changed >= h.ttl { // nothing goes on
			w.Poll = max(h.k.Poll, h.ttl/6)
		}
		settle.Change(ctx, h.k.Store, h.planKey, ver, w)
	}
}

// follow makes the parts those that are meant for the host, and hands over what is meant
// for others. An older plan than one that was seen is followed too: a plan decides where a
// range should be, never who may serve it, and one that was restored is the one that counts.
func (h *Host) follow(ctx context.Context, p *core.Plan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return
	}
	have := map[Range]*part{}
	for _, q := range h.parts {
		have[q.rng] = q
	}
	for _, s := range p.Shards {
		q := have[s.Range]
		delete(have, s.Range)
		switch {
		case q == nil && s.Target == h.me.Owner:
			h.addLocked(s.Range)
		case q != nil && (s.Target == h.me.Owner || s.Target == "" && q.grant != nil):
			if q.leaving {
				q.leaving, q.due = false, true
			}
		case q != nil:
			h.moveLocked(ctx, q, s.Target)
		}
	}
	for _, q := range have { // no shard has these bounds any more
		h.moveLocked(ctx, q, "")
	}
	h.ring()
}

// addLocked makes a range one that the host is to own.
func (h *Host) addLocked(r Range) {
	q := &part{rng: r, due: true, floor: h.gave[r], obs: map[uint16]core.Observation{}}
	at, _ := slices.BinarySearchFunc(h.parts, r, func(q *part, r Range) int { return int(q.rng.A) - int(r.A) })
	h.parts = slices.Insert(h.parts, at, q)
	h.units[0].parts = h.parts
}

// removeLocked forgets a range.
func (h *Host) removeLocked(q *part) {
	h.parts = slices.DeleteFunc(slices.Clone(h.parts), func(p *part) bool { return p == q })
	h.units[0].parts = h.parts
}

// moveLocked begins to hand a range over, unless that is under way.
func (h *Host) moveLocked(ctx context.Context, q *part, to string) {
	q.leaving, q.to = true, to
	if q.moving {
		return
	}
	q.moving = true
	h.bal.moves.Go(func() {
		err := h.move(ctx, q)
		h.mu.Lock()
		defer h.mu.Unlock()
		q.moving = false
		if err != nil && ctx.Err() == nil && !h.done {
			h.log.Warn("slots: a range is not handed over yet, trying again", "table", h.name, "range", q.rng, "to", q.to, "error", err)
		}
	})
}

// move hands a range over: its work stops, its grant ends, and then its row is freed for
// the successor (LS10). The range is not served between the end and the successor's
// claim.
func (h *Host) move(ctx context.Context, q *part) error {
	u := h.units[0]
	if err := h.drain(ctx, q); err != nil {
		return err
	}
	select {
	case u.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer h.ring() // for what came due meanwhile
	defer func() { <-u.turn }()
	h.mu.Lock()
	h.dropLocked(q, fmt.Errorf("it moves to %q: %w", q.to, tenure.ErrReleased))
	to, back := q.to, !q.leaving
	if back { // the plan thought better of it: a new grant tells whoever drained
		q.due = true
		h.ring()
	}
	q.freeing = !back
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		q.freeing = false
	}()
	if back {
		return nil
	}
	hold := h.ttl
	if to == "" || to == h.me.Owner {
		to, hold = "", 0
	}
	limited, cancel := settle.Limit(ctx, h.k.Clock, h.limit)
	defer cancel()
	if err := h.handOver(limited, u, []*part{q}, to, hold); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.leaving {
		h.removeLocked(q)
	}
	return nil
}

// drain lets the work of a range stop, within its limit.
func (h *Host) drain(ctx context.Context, q *part) error {
	g := h.heldBy(q)
	if g == nil || h.cfg.Drain == nil || !g.Live() {
		return nil
	}
	limit := h.cfg.DrainLimit
	if limit == 0 {
		limit = h.ttl
	}
	limited, cancel := settle.Limit(ctx, h.k.Clock, limit)
	defer cancel()
	defer context.AfterFunc(g.Context(), cancel)()
	drained := make(chan error, 1) // one that never returns holds up neither the range nor the end
	go func() { drained <- h.cfg.Drain(limited, g) }()
	select {
	case err := <-drained:
		if err != nil && limited.Err() == nil {
			return fmt.Errorf("drain: %w", err)
		}
	case <-limited.Done():
	}
	return context.Cause(ctx)
}
