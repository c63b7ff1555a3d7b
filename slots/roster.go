package slots

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

const (
	// mostReread bounds the announcements that one planning reads again; new ones it reads.
	mostReread = 8
	// mostLooks bounds the looks at sessions at the same time, mostRemoved the
	// announcements of hosts that are gone that are removed in one renew interval.
	mostLooks   = 4
	mostRemoved = 4
	// keepGone is how long an announcement stays at least once its session is over.
	keepGone = 10 * time.Minute
)

// roster is what a leader knows of the hosts that announced themselves. What they said and
// whether they live is looked at now and then, so that an idle table of many hosts costs
// little: an announcement changes when its host begins or leaves.
type roster struct {
	h     *Host
	ctx   context.Context // the leadership's
	watch bool            // the store wakes whoever waits for the end of a session

	mu    sync.Mutex
	known map[string]announcement // by key
	looks map[start]time.Duration // when each session is to be looked at next
	over  map[start]time.Duration // since when each was seen to be over
	asked map[start]bool          // in this planning
	waits map[start]bool          // for their ends, where the store tells of them
	odd   map[string]bool         // keys of announcements that cannot be read
}

// announcement is one as it was read.
type announcement struct {
	*core.Announce
	at time.Duration
}

func newRoster(ctx context.Context, h *Host) *roster {
	_, watch := store.AsWatcher(h.k.Store)
	return &roster{
		h: h, ctx: ctx, watch: watch, waits: map[start]bool{}, odd: map[string]bool{}, known: map[string]announcement{},
		looks: map[start]time.Duration{}, over: map[start]time.Duration{}, asked: map[start]bool{},
	}
}

// startOf is the process start that a host lives by.
func startOf(o *core.Host) start {
	return start{o.Node, identity.Owner{Incarnation: o.Incarnation, Term: o.Term}}
}

// stale is how old an announcement may get. Where the store wakes nobody, requests cost.
func (r *roster) stale() time.Duration {
	if r.watch {
		return r.h.every
	}
	return max(slow, r.h.ttl)
}

// announced are the announcements. Those of urgent owners are read anew.
func (r *roster) announced(ctx context.Context, urgent map[string]bool) ([]Announced, error) {
	var err error
	if _, can := store.AsCommitter(r.h.k.Store); can {
		err = r.scan(ctx)
	} else {
		err = r.list(ctx, urgent)
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	known := r.known // it is replaced, not changed
	r.mu.Unlock()
	var all []Announced
	for _, key := range slices.Sorted(maps.Keys(known)) {
		if a := known[key]; a.Birth == r.h.birth {
			all = append(all, *a.Announce)
		} else {
			r.lives(&a.Host) // of a former table: only to be removed one day
		}
	}
	return all, nil
}

// scan reads them all in one request.
func (r *roster) scan(ctx context.Context) error {
	found, err := r.h.announcements(ctx)
	if err != nil {
		return err
	}
	now := map[string]announcement{}
	for _, o := range found {
		if a := r.decode(o.Key, o.Body); a != nil {
			now[o.Key] = announcement{a, r.h.boot()}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = now
	return nil
}

// list reads those that are new or urgent, and a few of those that may have changed.
func (r *roster) list(ctx context.Context, urgent map[string]bool) error {
	now := map[string]announcement{}
	for key, err := range settle.Keys(ctx, r.h.k.Store, r.h.k.Clock, r.h.limit, r.h.hosts, "") {
		if err != nil {
			return err
		}
		r.mu.Lock()
		now[key] = r.known[key]
		r.mu.Unlock()
	}
	for _, key := range r.toRead(now, urgent) {
		o, err := r.h.get(ctx, key, core.MaxAnnounce)
		switch {
		case store.KindOf(err) == store.ErrNotFound:
			delete(now, key)
			continue
		case err != nil && now[key].Announce != nil && retryable(err):
			continue // what is known of it serves for now
		case err != nil:
			return err
		}
		if now[key] = (announcement{r.decode(key, o.Body), r.h.boot()}); now[key].Announce == nil {
			delete(now, key)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = now
	return nil
}

// decode is the announcement, nil if it cannot be read: that is told once.
func (r *roster) decode(key string, body []byte) *core.Announce {
	a, err := core.DecodeAnnounce(key, r.h.name, body, r.h.hostKey)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !r.odd[key] {
		r.odd[key] = true
		r.h.log.Warn("slots: an announcement cannot be read, it is left out", "table", r.h.name, "key", key, "error", err)
	}
	if err != nil {
		return nil
	}
	return a
}

// toRead are the keys to be read: all that are new, and of the others the oldest, those
// first that a plan waits for or whose session ended since.
func (r *roster) toRead(known map[string]announcement, urgent map[string]bool) []string {
	at, stale := r.h.boot(), r.stale()
	r.mu.Lock()
	defer r.mu.Unlock()
	var fresh, first, then []string
	for _, key := range slices.Sorted(maps.Keys(known)) {
		a := known[key]
		if a.Announce == nil {
			fresh = append(fresh, key)
			continue
		}
		ended, over := r.over[startOf(&a.Host)]
		switch {
		case urgent[a.Host.Owner], over && ended >= a.at:
			first = append(first, key)
		case at-a.at >= stale:
			then = append(then, key)
		}
	}
	oldest := func(a, b string) int { return int(known[a].at - known[b].at) }
	slices.SortStableFunc(first, oldest)
	slices.SortStableFunc(then, oldest)
	again := append(first, then...)
	return append(fresh, again[:min(len(again), mostReread)]...)
}

// lives reports whether a host is not known to be over, and has it looked at. Of one that
// renews itself the table alone says nothing.
func (r *roster) lives(o *core.Host) bool {
	if o.Kind != lease.Session || o.Is(r.h.me) {
		return true
	}
	k := startOf(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[k] = true
	if _, over := r.over[k]; over {
		return false
	}
	if r.h.k.Identities.Known(k.node, k.owner) != nil {
		r.over[k] = r.h.boot()
		return false
	}
	if r.watch && !r.waits[k] {
		r.waits[k] = true
		r.h.awaitOver(r.ctx, k, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.waits, k)
		})
	} else if _, known := r.looks[k]; !known && !r.watch {
		r.looks[k] = 0
	}
	return true
}

// planned forgets the sessions that the planning did not ask about.
func (r *roster) planned() {
	r.mu.Lock()
	defer r.mu.Unlock()
	gone := func(k start, _ time.Duration) bool { return !r.asked[k] }
	maps.DeleteFunc(r.looks, gone)
	maps.DeleteFunc(r.over, gone)
	r.asked = map[start]bool{}
}

// keep looks at sessions and removes what is left of hosts that are gone, until ctx ends.
// It holds no planning up.
func (r *roster) keep(ctx context.Context) {
	swept := r.h.boot()
	for clock.Sleep(r.h.k.Clock, max(r.h.limit/8, r.h.k.Poll), ctx.Done()) {
		r.look(ctx)
		if r.h.boot()-swept >= r.h.every {
			r.sweep(ctx)
			swept = r.h.boot()
		}
	}
}

// look looks at the sessions whose turn it is, a few at the same time.
func (r *roster) look(ctx context.Context) {
	now := r.h.boot()
	var due []start
	r.mu.Lock()
	for k, at := range r.looks {
		if at <= now {
			due = append(due, k)
		}
	}
	r.mu.Unlock()
	work := make(chan start)
	var all sync.WaitGroup
	for range min(mostLooks, len(due)) {
		all.Go(func() {
			for k := range work {
				r.lookAt(ctx, k)
			}
		})
	}
	for _, k := range due {
		if ctx.Err() != nil {
			break
		}
		work <- k
	}
	close(work)
	all.Wait()
}

// lookAt looks at one session: about twice in a TTL, and when its silence is long enough.
func (r *roster) lookAt(ctx context.Context, k start) {
	h := r.h
	call, cancel := settle.Limit(ctx, h.k.Clock, h.ttl)
	defer cancel()
	e, left, err := h.k.Identities.Over(call, k.node, k.owner)
	if err != nil || left <= 0 || left > h.ttl/2 {
		left = h.pace().Jitter(2 * h.ttl / 3)
	}
	r.mu.Lock()
	if _, asked := r.looks[k]; asked {
		r.looks[k] = h.boot() + left
	}
	if e != nil {
		delete(r.looks, k)
		r.over[k] = h.boot()
	}
	r.mu.Unlock()
	if e != nil {
		h.sessionEnded(k.node, k.owner)
	}
}

// sweep removes a few announcements whose sessions this leader has seen to be over for a
// while: hosts whose names are never used again would leave more and more of them.
func (r *roster) sweep(ctx context.Context) {
	since := r.h.boot() - max(keepGone, 10*r.h.ttl)
	var gone []string
	r.mu.Lock()
	for key, a := range r.known {
		if at, over := r.over[startOf(&a.Host)]; over && a.Host.Kind == lease.Session && at <= since && len(gone) < mostRemoved {
			gone = append(gone, key)
		}
	}
	r.mu.Unlock()
	for _, key := range gone {
		if err := r.remove(ctx, key); err != nil && ctx.Err() == nil {
			r.h.log.Debug("slots: the announcement of a host that is gone cannot be removed, trying again", "table", r.h.name, "key", key, "error", err)
		}
	}
}

// remove removes an announcement if it is yet that of the session that is over. Where the
// store cannot make that one step, a host of the same name that comes back at that very
// moment finds out by its next look that it is not announced (see keepAnnounced).
func (r *roster) remove(ctx context.Context, key string) error {
	o, err := r.h.get(ctx, key, core.MaxAnnounce)
	if err != nil {
		return err
	}
	a, err := core.DecodeAnnounce(key, r.h.name, o.Body, r.h.hostKey)
	if err != nil {
		return err
	}
	r.mu.Lock()
	_, over := r.over[startOf(&a.Host)]
	r.mu.Unlock()
	if !over || a.Host.Kind != lease.Session {
		return nil
	}
	call, cancel := settle.Limit(ctx, r.h.k.Clock, r.h.limit)
	defer cancel()
	if d, can := store.AsConditionalDeleter(r.h.k.Store); can {
		return d.DeleteIf(call, key, o.Version)
	}
	return r.h.k.Store.Delete(call, key)
}
