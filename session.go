package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Session is one process's ownership of its node's name, and everything that it
// holds by it: one renewal per interval keeps any number of leases (LS8, PL). It is
// renewed in the background until it leaves or is lost; once over it is over for
// good, and the process joins again. All methods are safe for concurrent use.
type Session struct {
	c      *Client
	m      *membership.Member
	owner  lease.Owner
	timing lease.Timing
	closes bool // leaving closes the client, too

	ready  chan struct{}   // closed when what stands above and below is set
	ctx    context.Context // ends with the session
	cancel context.CancelCauseFunc
	accept context.Context // ends when nothing more is acquired
	refuse context.CancelCauseFunc

	acquiring sync.WaitGroup // calls of Acquire under way
	settling  sync.WaitGroup // writes in doubt that are being settled
	leaving   chan struct{}  // held (capacity 1) by the caller that leaves

	mu       sync.Mutex
	sent     deadline.Stamp // from which the present grant counts
	leases   map[*Lease]struct{}
	attached map[*attachment]struct{}
	stops    map[time.Duration]*deadline.Deadline
	revoked  map[identity.Revocation]struct{}
	doubts   int           // writes that are being settled
	calm     chan struct{} // closed when none is any more; nil while none is
	trouble  error         // of the last renewal

	left    bool // guarded by leaving, like leftErr
	leftErr error
}

// Proof names exactly one ownership. All parts must match.
type Proof struct {
	// Node, Incarnation and Term name a process start.
	Node, Incarnation string
	Term              uint64
	// Token is the fencing token of a lease; 0 names the process only.
	Token uint64
}

// Join makes this process the owner of the node's name, and waits for that until
// ctx ends. ctx governs the waiting only. A name that its owner left is free at
// once; one whose owner died is free after its TTL, or at once where the death can
// be proven. Every start of a process is a new owner; so is a second process of the
// same name, which waits.
//
// Leave the session when it is done with, also one that was lost: until then Close
// counts it.
//
// The options TTL, Note, NoChildren and ContainedIn apply; the TTL is that of the
// session and of all its leases.
func (c *Client) Join(ctx context.Context, node string, opts ...AcquireOption) (*Session, error) {
	return c.join(ctx, node, true, opts)
}

// TryJoin joins if the node's name is free, and returns a *[HeldError] otherwise.
func (c *Client) TryJoin(ctx context.Context, node string, opts ...AcquireOption) (*Session, error) {
	return c.join(ctx, node, false, opts)
}

// Join makes a client on st and joins with it; the client is closed when the
// session leaves. See [Client.Join].
func Join(ctx context.Context, st store.Store, node string, opts ...Option) (*Session, error) {
	c, err := New(ctx, st, opts...)
	if err != nil {
		return nil, err
	}
	s, err := c.Join(ctx, node)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.closes = true
	return s, nil
}

func (c *Client) join(ctx context.Context, node string, wait bool, opts []AcquireOption) (*Session, error) {
	req := request{timing: c.timing}
	for _, o := range opts {
		o(&req)
	}
	req.timing = req.timing.Defaults()
	if err := c.checkJoin(node, req); err != nil {
		return nil, err
	}
	if c.lookOnly {
		return nil, store.Errorf(ErrInvalid, "", "join", node, "this client only looks (WithoutCreate)")
	}
	if err := c.beginJoin(); err != nil {
		return nil, err
	}
	defer c.acquiring.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.accept, func() { cancel(ErrClosed) })()

	s := &Session{
		c: c, timing: req.timing, ready: make(chan struct{}), leaving: make(chan struct{}, 1), leases: map[*Lease]struct{}{},
		attached: map[*attachment]struct{}{}, stops: map[time.Duration]*deadline.Deadline{}, revoked: map[identity.Revocation]struct{}{},
	}
	if req.lock != nil && !c.st.Info().Can.Has(store.CanProve) {
		req.lock = nil // as for a lease: nobody could prove anything by it
	}
	lock, err := c.lockFor(ctx, req.lock)
	if err != nil {
		return nil, err
	}
	claim := membership.Claim{
		Node: node, Note: req.note, Timing: req.timing, Lock: lock,
		Revoked: s.revoke, Extended: s.extended, Observe: s.observe,
	}
	if s.m, err = c.ids.Join(ctx, claim, wait); err != nil {
		return nil, joinErr(ctx, node, err)
	}
	s.start()
	return s, nil
}

// checkJoin refuses what cannot be before anything happens.
func (c *Client) checkJoin(node string, r request) error {
	if r.timing.Stop != 0 || r.stopLimit != 0 || r.guards != nil || r.as != "" {
		return store.Errorf(ErrInvalid, "", "join", node, "Stop, StopLimit, Guards and As are options of a lease, not of a session")
	}
	return errors.Join(c.fitsRate("join", node, r), store.CheckName("node name", node), r.timing.Check(), lease.CheckNote(r.note))
}

func (c *Client) beginJoin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.acquiring.Add(1)
	return nil
}

// joinErr is err in the words of this package.
func joinErr(ctx context.Context, node string, err error) error {
	var held *membership.HeldError
	switch {
	case errors.As(err, &held):
		return &HeldError{Node: held.Node, Owner: held.Owner.Incarnation, Label: held.Node, Token: held.Owner.Term,
			Since: held.Since, Note: held.Note, Free: held.Free}
	case ctx.Err() != nil:
		return fmt.Errorf("node %q: %w (%w)", node, context.Cause(ctx), err)
	}
	return err
}

// start makes s ready: from here on its end is told.
func (s *Session) start() {
	o := s.m.Owner()
	s.owner = lease.Owner{Node: s.m.Node(), Incarnation: o.Incarnation, Term: o.Term}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.accept, s.refuse = context.WithCancelCause(s.ctx)
	close(s.ready)
	s.c.mu.Lock()
	s.c.sessions[s] = struct{}{}
	s.c.mu.Unlock()
	s.c.observe(Event{Node: s.owner.Node, Term: s.owner.Term, Kind: EventAcquired})
	s.m.Deadline().OnEnd(s.ended)
}

// ended tells everything that lives by the session that it is over. The leases
// themselves are over already: they have no other deadline.
func (s *Session) ended() {
	cause := s.cause(s.m.Deadline().Cause())
	s.endStops()
	s.mu.Lock()
	left := len(s.leases)
	s.mu.Unlock()
	if errors.Is(cause, ErrLost) {
		s.c.log.Error("session: lost, all its leases ended", "node", s.owner.Node, "term", s.owner.Term, "leases", left, "error", cause)
		s.c.observe(Event{Node: s.owner.Node, Term: s.owner.Term, Kind: EventLost, Err: cause})
	}
	s.cancel(cause)
}

// endStops ends the deadlines of work that needs time to stop, and their timers.
func (s *Session) endStops() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.stops {
		d.End(s.m.Deadline().Cause())
	}
}

// cause is the end of the session in the words of this package.
func (s *Session) cause(err error) error {
	switch {
	case errors.Is(err, deadline.ErrExpired):
		if trouble := s.m.Health().Err; trouble != nil {
			return fmt.Errorf("session of node %q (term %d): %w; the last try: %w", s.owner.Node, s.owner.Term, ErrExpired, trouble)
		}
		return fmt.Errorf("session of node %q (term %d): %w", s.owner.Node, s.owner.Term, ErrExpired)
	case errors.Is(err, membership.ErrLost):
		return fmt.Errorf("session of node %q (term %d): %w: %w", s.owner.Node, s.owner.Term, ErrLost, err)
	case errors.Is(err, membership.ErrReleased):
		return fmt.Errorf("session of node %q (term %d): %w", s.owner.Node, s.owner.Term, ErrReleased)
	}
	return err
}

// Node is the node's name.
func (s *Session) Node() string { return s.owner.Node }

// Proof names this exact process start: node, incarnation and term.
func (s *Session) Proof() Proof {
	return Proof{Node: s.owner.Node, Incarnation: s.owner.Incarnation, Term: s.owner.Term}
}

// TTL is the session's time to live, and that of all its leases.
func (s *Session) TTL() time.Duration { return s.timing.TTL }

// Lost is closed when the session is over, for whatever reason: see Err.
func (s *Session) Lost() <-chan struct{} { return s.ctx.Done() }

// Context ends when the session is over. Its cause is an ErrLost, ErrExpired,
// ErrReleased or ErrShutdown.
func (s *Session) Context() context.Context { return s.ctx }

// Err says why the session is over, nil before that.
func (s *Session) Err() error {
	if s.ctx.Err() == nil {
		return nil
	}
	return context.Cause(s.ctx)
}

// Live reports whether this process may act under the session at this instant. It
// costs about one clock reading and allocates nothing. It is a local answer;
// [Client.VerifyCurrent] asks the store.
func (s *Session) Live() bool { return s.m.Deadline().Live() }

// Deadline is the instant on the clock's boot-time scale until which the session
// is live unless it is renewed; ok is false once it is over.
func (s *Session) Deadline() (at time.Duration, ok bool) { return s.m.Deadline().T() }

// Remaining is the time left until Deadline, 0 if there is none.
func (s *Session) Remaining() time.Duration { return s.m.Deadline().Remaining() }

// SessionHealth is how a session fares.
type SessionHealth struct {
	// Leases counts the leases that it holds; Stuck those whose work was asked to
	// stop and did not in time: they stay until it returns or the session ends.
	Leases, Stuck int
	// InDoubt counts writes whose outcome is not known yet.
	InDoubt int
	// RenewErr is why renewing fails at present, nil if it does not.
	RenewErr error
	// PruneErr is why old certificates could not be removed, which costs space only.
	PruneErr error
	// Margin is the time left until the session's end unless it is renewed.
	Margin time.Duration
	// Unsealed says that the session's own certificate is still in its record only.
	Unsealed bool
}

// Health reports how the session fares.
func (s *Session) Health() SessionHealth {
	h := s.m.Health()
	s.mu.Lock()
	defer s.mu.Unlock()
	stuck := 0
	for l := range s.leases {
		if l.stuck.Load() {
			stuck++
		}
	}
	return SessionHealth{
		Leases: len(s.leases), Stuck: stuck, InDoubt: s.doubts + h.InDoubt, RenewErr: h.Err, PruneErr: h.PruneErr,
		Margin: s.m.Deadline().Remaining(), Unsealed: h.Unsealed,
	}
}

// extended keeps the deadlines of work that needs time to stop in step with the
// session's own.
func (s *Session) extended(sent deadline.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = sent
	for stop, d := range s.stops {
		if !d.Extend(sent, s.timing.Life()-stop) {
			delete(s.stops, stop) // the next lease gets a new one
		}
	}
}

// stopDeadline is when work that needs stop to end must begin to.
func (s *Session) stopDeadline(stop time.Duration) *deadline.Deadline {
	if stop == 0 {
		return s.m.Deadline()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.stops[stop]
	if d == nil || d.Cause() != nil {
		d = deadline.New(s.c.clk, s.timing.Margin)
		d.Extend(s.sent, s.timing.Life()-stop)
		s.stops[stop] = d
	}
	return d
}

// revoke ends the lease that an operator took from the session (LS11). A grant of
// that token that is in the air yet is not handed out either.
func (s *Session) revoke(v identity.Revocation) {
	s.mu.Lock()
	s.revoked[v] = struct{}{}
	var found *Lease
	for l := range s.leases {
		if l.name == v.Resource && l.token == v.Token {
			found = l
		}
	}
	s.mu.Unlock()
	if found != nil {
		_ = found.lose(errRevoked)
		found.freeRevoked()
	}
}

var errRevoked = fmt.Errorf("%w: an operator revoked it", ErrLost)

// observe tells of a renewal, which may come before the join has returned.
func (s *Session) observe(e membership.RenewalEvent) {
	<-s.ready
	ev := Event{Node: s.owner.Node, Term: s.owner.Term, Kind: EventRenewed, Took: e.Took, Margin: e.Margin, Err: e.Err}
	if e.Err != nil {
		ev.Kind = EventRenewFailed
		s.mu.Lock()
		first := s.trouble == nil
		s.mu.Unlock()
		if first && !settle.LostRace(e.Err) { // another's write in between is read next
			s.c.log.Warn("session: a renewal fails, trying again", "node", ev.Node, "left", e.Margin, "error", e.Err)
		}
	}
	s.mu.Lock()
	s.trouble = e.Err
	s.mu.Unlock()
	s.c.observe(ev)
}
