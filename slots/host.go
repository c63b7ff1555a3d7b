package slots

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of a host's TTL (SL5).
const (
	MinTTL     = 3 * time.Second
	MaxTTL     = time.Hour
	DefaultTTL = 30 * time.Second
)

// HostConfig says what a host serves, and how its rows are kept alive.
type HostConfig struct {
	// Owner is the host's stable name, the same after a restart. Required, but under a
	// session, whose node's name is the default.
	Owner string
	// Addr is where requests are sent: host and port, or a URL of scheme and host.
	Addr string
	// Ranges are what it is to own. They do not overlap. A balanced host has none.
	Ranges []Range
	// TTL is how long the rows outlive their last renewal, MinTTL to MaxTTL in whole
	// milliseconds, by default DefaultTTL; it must not be set under a session.
	TTL time.Duration
	// Session, if any, is what the rows live by; it is of the table's client. It has one
	// host of an owner in a table at a time: another is ErrUnavailable until the one before
	// has released everything, or the session is over.
	Session *tenure.Session
	// Volume, if any, lets a restart go on with its rows. It serves one host.
	Volume *Volume
	// Log receives what a person should know later; the client's if nil.
	Log *slog.Logger
	// OnClaim is told of each grant, and OnLoss of its end, for whatever cause, also a
	// release: see Grant.Err. Calls for one range never overlap and are in order; those
	// for several may be at the same time. They hold up nothing but later ones.
	OnClaim func(*Grant)
	OnLoss  func(g *Grant, cause error)

	// Balanced: the host serves what the table's plan means for it, and hands over what is
	// meant for others; hosts choose one among them that makes the plan (SL8). It needs a
	// Session, a table with shards, and Run.
	Balanced bool
	// Weight is its part of the whole beside the other hosts' weights; 0 is 1.
	Weight int
	// Capacity is the most shards that it takes; 0 is no limit.
	Capacity int
	// Drain is called before a range is handed over: stop new work on it and return when
	// none is left. EpochFor answers until it has returned, or DrainLimit is over, by
	// default the TTL; then the range goes. An error keeps the range for now, and Drain
	// is called again a while later. ctx ends with the limit, the grant, or the host.
	Drain      func(ctx context.Context, g *Grant) error
	DrainLimit time.Duration
	// Balance is how this host plans while it leads.
	Balance Balance
}

// Host serves ranges of a table. Make one with [Table.Host], then call Run, or Refresh
// often enough. It is safe for concurrent use.
type Host struct {
	*files
	cfg     HostConfig
	me      *core.Host
	session *kit.Session // nil: the rows are renewed by themselves
	log     *slog.Logger
	detach  func()
	under   *deadline.Deadline // ends with the session

	ttl   time.Duration
	life  time.Duration // of a grant, from the first send of its last renewal (SL5)
	every time.Duration // the renew interval
	total time.Duration // of what a refresh does about one unit

	over   context.Context // ends when the host claims and renews no more
	finish context.CancelCauseFunc
	calls  sync.WaitGroup
	bell   chan struct{} // something is to be done before the next refresh is due
	claims chan struct{} // who writes the counter; see claimRow
	vigils sync.Map      // of sessions whose end is waited for

	bal balancing

	index [Count]atomic.Pointer[Grant]

	tenant tenancy // that no other host acts in this one's name

	mu     sync.Mutex       // guards what follows and what parts say; is not held over calls of others
	parts  []*part          // in configured order
	gave   map[Range]uint64 // the last epoch of each range that a release was begun of
	units  []*unit
	latest map[Range]*Grant // the last grant of each range that was published
	begun  time.Duration    // the last whole refresh, on the boot clock
	early  time.Duration    // by how much the next comes before its time; see crowd
	crowd  bool             // others renew in the same register
	told   bool             // that they are too many
	done   bool             // it grants no more
	ended  bool             // see finishAs
}

// part is one range that the host is to own.
type part struct {
	rng Range

	// Guarded by Host.mu.
	floor   uint64        // every epoch of the range is at least this
	grant   *Grant        // what was given last, until the range is lost; it may have lapsed
	ripe    time.Duration // when a rival's row may fall (boot clock); 0 is not known
	due     bool          // a look at it is wanted before the next refresh
	rivals  []core.Row    // in the way at the last look
	last    outcome       // of the last call
	fails   int           // how many calls failed in a row
	again   time.Duration // when the next try is due after one that failed (boot clock); 0 is none
	stale   *Grant        // the last lapsed one that was looked at
	leaving bool          // it is to be handed over, to whom is meant for it, or to nobody
	to      string
	moving  bool // that is under way
	freeing bool // its row is being freed: no grant is given

	// Of the call that has the unit's turn.
	row   *core.Row     // the host's own row as it was last confirmed; nil: none
	ver   store.Version // of row in the rows form; "" if it must be read
	tried []string      // attempts since, any of which may have taken effect (ST9)
	doubt bool          // a claim may have taken effect, or may yet, that was not confirmed
	obs   map[uint16]core.Observation
}

// unit is what one store call is about: a range, or all of them.
type unit struct {
	turn  chan struct{} // held by the call that runs
	parts []*part       // guarded by Host.mu
	known look          // the table as this host left it; ver is "" if it must be read
}

// Host makes a host. It does no I/O but for a Volume, and starts nothing. Bad input is
// ErrInvalid, and so is a renew interval that the store cannot take (ST14): hang the
// ranges on a session there.
func (t *Table) Host(cfg HostConfig) (*Host, error) {
	if cfg.Session != nil && cfg.Owner == "" {
		cfg.Owner = cfg.Session.Node()
	}
	if cfg.TTL == 0 && cfg.Session == nil {
		cfg.TTL = DefaultTTL
	}
	if cfg.Balanced && cfg.Weight == 0 {
		cfg.Weight = 1
	}
	cfg.Ranges = slices.Clone(cfg.Ranges)
	if err := t.checkHost(cfg); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, ttl: cfg.TTL, bell: make(chan struct{}, 1), claims: make(chan struct{}, 1), gave: map[Range]uint64{}, latest: map[Range]*Grant{}}
	h.me = &core.Host{Owner: cfg.Owner, Kind: lease.Self, Incarnation: t.k.NewID(), Addr: cfg.Addr}
	if cfg.Session != nil {
		h.session = cfg.Session.Kit()
		h.ttl = h.session.Timing.TTL
		h.me.Kind, h.me.Incarnation, h.me.Node, h.me.Term = lease.Session, h.session.Owner.Incarnation, h.session.Node, h.session.Owner.Term
	}
	h.me.TTLMS = h.ttl.Milliseconds()
	h.life, h.every = h.ttl-h.ttl/3, h.ttl/4
	h.files = t.bounded(h.ttl / 6)
	h.total = h.limit
	if h.session != nil {
		h.total = h.ttl // 16,384 ranges are claimed in many commits
	}
	if h.log = cfg.Log; h.log == nil {
		h.log = t.k.Log
	}
	if err := h.me.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "host", cfg.Owner, err)
	}
	h.bal = balancing{since: t.k.NowMS(), kick: make(chan struct{}, 1), leaves: make(chan struct{}, 1)}
	h.divide(cfg.Ranges)
	return h, h.begin()
}

// begin makes the host part of what ends it, and takes the volume.
func (h *Host) begin() error {
	h.over, h.finish = context.WithCancelCause(context.Background())
	h.detach = func() {}
	if v := h.cfg.Volume; v != nil {
		if err := v.bind(h.me.Owner); err != nil {
			return err
		}
		h.me.Volume = &v.mark
	}
	if h.session != nil {
		if err := h.tenant.enter(h); err != nil {
			h.finishAs(err)
			return err
		}
		detach, err := h.session.Attach(h.Release)
		if err != nil {
			h.Close()
			return err
		}
		h.detach = detach
		h.under = deadline.NewUnder(h.session.Deadline)
		h.under.OnEnd(func() {
			h.closeFor(endOf(h.under.Cause()))
			if !h.session.Deadline.Live() {
				h.tenant.leave() // nothing is written in its name any more
			}
		})
	}
	h.k.Background(func(ctx context.Context) {
		select {
		case <-ctx.Done():
			h.Close()
		case <-h.over.Done():
		}
		h.calls.Wait()
	})
	return nil
}

func (t *Table) checkHost(cfg HostConfig) error {
	bad := func(format string, args ...any) error { return invalid("host", cfg.Owner, format, args...) }
	switch {
	case cfg.Session != nil && cfg.TTL != 0:
		return bad("the TTL is the session's: leave it out")
	case cfg.Session == nil && (cfg.TTL < MinTTL || cfg.TTL > MaxTTL || cfg.TTL%time.Millisecond != 0):
		return bad("the TTL %v is not between %v and %v in whole milliseconds", cfg.TTL, MinTTL, MaxTTL)
	case cfg.Session != nil && !t.knows(cfg.Session.Kit()):
		return bad("the session is of another client, or another namespace, than the table")
	}
	if err := store.CheckName("owner", cfg.Owner); err != nil {
		return err
	}
	if cfg.Balanced {
		return t.checkBalanced(cfg)
	}
	return errors.Join(checkRanges(cfg.Owner, cfg.Ranges), t.fitsRate(cfg, 1))
}

// knows reports whether whoever reads the table finds the session: a node of the same name
// in another namespace is another one, and its end is no end of this.
func (t *files) knows(s *kit.Session) bool {
	return s.Store == t.k.Store && s.Namespace == t.k.Namespace
}

func checkRanges(owner string, ranges []Range) error {
	if len(ranges) == 0 {
		return invalid("host", owner, "no range: give at least one")
	}
	order := slices.SortedFunc(slices.Values(ranges), func(a, b Range) int { return int(a.A) - int(b.A) })
	for i, r := range order {
		if err := r.Valid(); err != nil {
			return store.Wrap(store.ErrInvalid, "", "host", owner, err)
		}
		if i > 0 && order[i-1].Overlaps(r) {
			return invalid("host", owner, "the ranges %v and %v overlap", order[i-1], r)
		}
	}
	return nil
}

// fitsRate refuses renewals that would take more than half of the writes that one key takes
// (ST14, SL5). In a register all hosts write to the same key.
func (t *files) fitsRate(cfg HostConfig, hosts int) error {
	info := t.k.Store.Info()
	if info.WritesPerSecond <= 0 || cfg.Session != nil {
		return nil
	}
	least := time.Duration(8 * float64(hosts) / info.WritesPerSecond * float64(time.Second))
	if cfg.TTL >= least {
		return nil
	}
	return store.Errorf(store.ErrInvalid, info.Scheme, "host", cfg.Owner,
		"renewals of %d hosts with a TTL of %v are more than half of the %g writes per second that one key takes here: give HostConfig.Session, or a TTL of at least %v",
		hosts, cfg.TTL, info.WritesPerSecond, least)
}

// divide makes the parts, and the units that they are renewed in.
func (h *Host) divide(ranges []Range) {
	all := &unit{turn: make(chan struct{}, 1)}
	for _, r := range ranges {
		p := &part{rng: r, obs: map[uint16]core.Observation{}}
		h.parts = append(h.parts, p)
		if h.alone() {
			h.units = append(h.units, &unit{turn: make(chan struct{}, 1), parts: []*part{p}})
		} else {
			all.parts = append(all.parts, p)
		}
	}
	if !h.alone() {
		h.units = []*unit{all}
	}
}

// alone reports whether each range is renewed by itself.
func (h *Host) alone() bool { return h.form == core.RowsForm && h.session == nil }

// Owner is the host's stable name.
func (h *Host) Owner() string { return h.me.Owner }

// TTL is how long its rows outlive their last renewal, or the session's.
func (h *Host) TTL() time.Duration { return h.ttl }

// EpochFor is the epoch under which the host may serve slot at this instant; ok is false if
// it may not. It answers from memory, costs about one clock reading, takes no lock and
// allocates nothing (SL6). Hand the epoch to the resource with every write.
func (h *Host) EpochFor(slot uint16) (epoch uint64, ok bool) {
	if slot >= Count {
		return 0, false
	}
	g := h.index[slot].Load()
	if g == nil || !g.d.Live() {
		return 0, false
	}
	return g.epoch, true
}

// Grant is what EpochFor rests on: hang work on its Context. ok is false if the host may
// not serve slot.
func (h *Host) Grant(slot uint16) (g *Grant, ok bool) {
	if slot >= Count {
		return nil, false
	}
	g = h.index[slot].Load()
	if g == nil || !g.d.Live() {
		return nil, false
	}
	return g, true
}

// Lose tells the host that the epoch newer was seen where epochs are checked: a range of
// slot that it holds under an older one ends at once, and no epoch below newer is served
// again. It reports whether a range ended (SL6). What is above guard.MaxToken is no epoch,
// and ignored. One that leaves no room for later ones, which no table gives, ends the range
// on this host for good.
func (h *Host) Lose(slot uint16, newer uint64) bool {
	if newer > record.MaxNumber {
		h.log.Warn("slots: what was seen is no epoch, it is ignored", "table", h.name, "slot", slot, "number", newer)
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := false
	for _, p := range h.parts {
		if !p.rng.Contains(slot) {
			continue
		}
		p.floor = max(p.floor, newer)
		if p.grant == nil || p.grant.epoch >= newer {
			continue
		}
		h.log.Warn("slots: a newer epoch was seen, the range ends", "table", h.name, "range", p.rng, "epoch", p.grant.epoch, "newer", newer)
		h.dropLocked(p, lostTo(&NewerError{Epoch: p.grant.epoch, Newer: newer}))
		p.due, lost = true, true
	}
	if lost {
		h.ring()
	}
	return lost
}

// dropLocked takes the part's grant away, for that cause. Who may serve, and from which
// epoch on, change under one lock.
func (h *Host) dropLocked(p *part, cause error) {
	g := p.grant
	if g == nil {
		return
	}
	g.d.End(cause) // before anything else: nobody is answered any more
	p.grant = nil
	h.place(g, nil)
}

// place puts next where g is in the index.
func (h *Host) place(g, next *Grant) {
	for s := int(g.rng.A); s <= int(g.rng.B); s++ {
		h.index[s].Store(next)
	}
}

// ring makes Run look before the next refresh is due.
func (h *Host) ring() {
	select {
	case h.bell <- struct{}{}:
	default:
	}
}
