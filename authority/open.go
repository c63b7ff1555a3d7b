package authority

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/store"
)

// Authority is one session's standing in one authority: it may lead, decide,
// report faults and read. There is one per session and name, until the session
// leaves or is lost. All methods are safe for concurrent use.
type Authority struct {
	*files
	cfg     config
	me      core.Owner
	session *kit.Session
	reader  *Reader
	over    context.Context // ends with the session

	campaign chan struct{} // held (capacity 1) by the one campaign
	turn     chan struct{} // held (capacity 1) by the one decision that may compete with the keeper
	lock     chan struct{} // held (capacity 1) by whoever writes the head

	// Guarded by lock: what is known of the head. ver is "" where it must be read.
	head    *core.Head
	ver     store.Version
	doubt   *inDoubt
	refused []string // attempts that were refused since the head was read
	obs     core.Observation

	leader atomic.Pointer[Leader] // the last one, also when it is over

	walked walked

	mu       sync.Mutex // guards what follows, and is not held over calls of others
	cand     *core.Candidacy
	evidence map[core.Owner]core.Evidence
	wanted   int    // campaigns under way
	untidy   int    // who asked for what is settled in the background; 0: nothing is
	requests uint64 // fault reports of this process start
	reports  reports
	health   Health
	cursor   map[core.Kind]string // where the next batch of pruning begins
}

// Option sets something of an Authority.
type Option func(*config)

type config struct {
	timing     lease.Timing
	note       string
	stopLimit  time.Duration
	pruneEvery time.Duration
}

// TTL is the leadership's time to live, with every other duration following from
// it; the default is the session's. It is fixed for a token.
func TTL(d time.Duration) Option {
	return func(c *config) { c.timing = lease.Timing{TTL: d, Stop: c.timing.Stop, Rho: c.timing.Rho} }
}

// RenewEvery is the pause between two renewals; the default is TTL/5. Where a store
// takes few writes per second and key, at least twice what it takes (ST14).
func RenewEvery(d time.Duration) Option { return func(c *config) { c.timing.Renew = d } }

// Note is shown to whoever finds the authority led: at most 1 KiB encoded.
func Note(text string) Option { return func(c *config) { c.note = text } }

// Stop is the time that the work needs to stop: a leader's context ends that much
// before the instant at which somebody else may lead (DL5). The default is 0.
func Stop(d time.Duration) Option { return func(c *config) { c.timing.Stop = d } }

// StopLimit bounds how long the end of a leadership under Run waits for its
// function; the default is the TTL, or Stop if that is longer.
func StopLimit(d time.Duration) Option { return func(c *config) { c.stopLimit = d } }

// PruneEvery is the pause between two removals of unlinked objects while this
// process leads; the default is one hour, negative is never (LA8).
func PruneEvery(d time.Duration) Option { return func(c *config) { c.pruneEvery = d } }

// Open makes this session a possible leader of the authority name (LA1). It writes
// nothing. A second Open of the same name by the same session, and a renew interval
// that the store cannot take (ST14), are ErrInvalid. When the session leaves, the
// leadership ends first: its work is stopped, its writes settled, and it is given
// up (LA6).
func Open(ctx context.Context, s *tenure.Session, name string, opts ...Option) (*Authority, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	k := s.Kit()
	f, err := newFiles(k.Client, name)
	if err != nil {
		return nil, err
	}
	cfg := config{timing: k.Timing, pruneEvery: time.Hour}
	cfg.timing.Stop = 0
	for _, o := range opts {
		o(&cfg)
	}
	if err := cfg.complete(f); err != nil {
		return nil, err
	}
	own := *f.c
	own.Timing = cfg.timing
	f.c = &own
	a := &Authority{
		files: f, cfg: cfg, session: k, me: core.Owner{Node: k.Node, Incarnation: k.Owner.Incarnation, Term: k.Owner.Term},
		reader: &Reader{files: f}, over: s.Context(),
		campaign: make(chan struct{}, 1), turn: make(chan struct{}, 1), lock: make(chan struct{}, 1),
		evidence: map[core.Owner]core.Evidence{}, cursor: map[core.Kind]string{},
		reports: newReports(),
	}
	a.cand = core.NewCandidacy(a.me)
	if err := a.enter(); err != nil {
		return nil, err
	}
	return a, nil
}

// complete fills the defaults and refuses what cannot be.
func (c *config) complete(f *files) error {
	c.timing = c.timing.Defaults()
	if c.stopLimit == 0 {
		c.stopLimit = max(c.timing.TTL, c.timing.Stop)
	}
	if c.pruneEvery == 0 {
		c.pruneEvery = time.Hour
	}
	if c.stopLimit < 0 {
		return store.Errorf(store.ErrInvalid, "", "open", f.name, "the stop limit %v is negative", c.stopLimit)
	}
	if err := errors.Join(c.timing.Check(), lease.CheckNote(c.note)); err != nil {
		return err
	}
	info := f.c.Store.Info()
	if rate := info.WritesPerSecond; rate > 0 && c.timing.Renew.Seconds() < 2/rate {
		return store.Errorf(store.ErrInvalid, info.Scheme, "open", f.name,
			"a renewal every %v is more than half of the %g writes per second that one key takes here: raise the TTL to at least %v",
			c.timing.Renew, rate, time.Duration(10/rate*float64(time.Second)))
	}
	return nil
}

// standing names one candidacy.
type standing struct {
	session *deadline.Deadline
	name    string
}

// standings are the open authorities of this process: one process start has one
// candidacy per authority, which proves that its earlier leadership ended (LA3).
var standings = struct {
	sync.Mutex
	open map[standing]bool
}{open: map[standing]bool{}}

// enter makes a the one candidacy of its session, and part of the session's end.
func (a *Authority) enter() error {
	k := standing{session: a.session.Deadline, name: a.name}
	standings.Lock()
	defer standings.Unlock()
	if standings.open[k] {
		return store.Errorf(store.ErrInvalid, "", "open", a.name, "this session has authority %q open: use that", a.name)
	}
	if _, err := a.session.Attach(a.end); err != nil {
		return fmt.Errorf("authority %q: %w", a.name, err)
	}
	standings.open[k] = true
	deadline.NewUnder(a.session.Deadline).OnEnd(func() {
		standings.Lock()
		defer standings.Unlock()
		delete(standings.open, k)
	})
	return nil
}

// Name is the authority's name.
func (a *Authority) Name() string { return a.name }

// Reader reads the same authority.
func (a *Authority) Reader() *Reader { return a.reader }

// Leader is this process's present leadership; nil if it has none.
func (a *Authority) Leader() *Leader {
	if l := a.leader.Load(); l != nil && l.Live() {
		return l
	}
	return nil
}

// Leads reports whether p is this process's leadership at this instant: exactly, and
// with both its deadlines in the future (LA7). It is a local answer in memory, for
// hot paths: about two clock readings, no lock, no allocation.
func (a *Authority) Leads(p tenure.Proof) bool {
	l := a.leader.Load()
	return l != nil && l.Leads(p)
}
