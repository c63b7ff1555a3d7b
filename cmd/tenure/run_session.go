package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
)

// The ways to use an agent's session.
const (
	sessionAuto   = "auto"   // if one listens for the very store and namespace, and it fits
	sessionAlways = "always" // or fail
	sessionNever  = "never"
)

// envNode and envTerm name the session that keeps the lease of a command, where one
// does.
const (
	envNode = "TENURE_NODE"
	envTerm = "TENURE_TERM"
)

// envHeld lists the leases that a command runs under, its own last: owner, token and
// name of each, with a tab behind it, which no name has.
const envHeld = "TENURE_HELD"

// sessionFlag is auto, always or never.
type sessionFlag struct{ p *string }

func (f sessionFlag) String() string {
	if f.p == nil {
		return sessionAuto
	}
	return *f.p
}

func (f sessionFlag) Type() string { return "auto|always|never" }

func (f sessionFlag) Set(s string) error {
	switch s {
	case sessionAuto, sessionAlways, sessionNever:
		*f.p = s
		return nil
	}
	return fmt.Errorf("give auto, always or never, not %q", s)
}

// holding is a lease, of this process's own or kept by an agent, as the rest of run
// sees it.
type holding interface {
	proc.Hold
	Name() string
	Token() uint64
	Owner() string
	Proof() tenure.Proof
	Release(ctx context.Context) error
}

// noAgentError says why no agent's session is used. It is no failure unless the
// user insists on one.
type noAgentError struct{ err error }

func (e *noAgentError) Error() string { return "no agent's session can be used: " + e.err.Error() }

func (e *noAgentError) Unwrap() error { return e.err }

// take gets the lease: from the agent if there is one, else by itself. A client
// that is not needed any more is nil then.
func (r *running) take(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (holding, *tenure.Client, error) {
	if err := r.lookFirst(ctx, c); err != nil {
		return nil, c, err
	}
	if r.session != sessionNever {
		h, err := r.borrow(ctx, s, c)
		var none *noAgentError
		switch {
		case err == nil: // many commands of an agent need few connections to the store
			if err := c.Close(); err != nil {
				r.a.warn("%v", err)
			}
			return h, nil, nil
		case r.session == sessionAlways || !errors.As(err, &none) || ctx.Err() != nil:
			return nil, c, err
		case r.a.flags.verbose:
			r.a.warn("%v; this command takes a lease of its own", err)
		}
		s.SetTimes(r.grace, r.reserve)
	}
	l, err := r.acquire(ctx, s, c)
	if err != nil {
		return nil, c, err
	}
	return l, c, nil
}

// borrowAgain is the pause before an agent is asked anew.
const borrowAgain = 100 * time.Millisecond

// borrow gets the lease from the agent of this store and namespace, and raises the
// guards. A grant that came while this process was stopped was given back, and an
// agent that hung up on it may be there: it is asked again.
func (r *running) borrow(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (holding, error) {
	for {
		h, err := r.borrowOnce(ctx, s, c)
		again := errors.Is(err, agent.ErrLate) || errors.Is(err, agent.ErrHungUp) && r.wait != 0
		switch {
		case err == nil:
			return r.raise(ctx, h)
		case again && clock.Sleep(r.a.clk, borrowAgain, ctx.Done()):
			continue
		case errors.Is(err, agent.ErrSilent) && isA[*waitedError](err) && s.Context().Err() == nil:
			return nil, r.notLent(s.Context(), c, err)
		case errors.Is(err, agent.ErrWaited):
			err = errors.Join(&waitedError{r.wait}, err)
		case (errors.Is(err, agent.ErrEnding) || errors.Is(err, agent.ErrSilent) || errors.Is(err, agent.ErrLate)) && !isA[*waitedError](err):
			return nil, asNoAgent(err)
		}
		if isA[*waitedError](err) && s.Context().Err() == nil {
			err = r.notHad(s.Context(), c, err)
		}
		return nil, err
	}
}

func (r *running) borrowOnce(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (*agent.Hold, error) {
	identity := c.Store().Info().Identity
	conn, err := r.a.dialAgent(ctx, identity, r.t.namespace)
	if err != nil {
		return nil, &noAgentError{err}
	}
	hello := conn.Hello()
	grace, reserve, err := r.timesUnder(hello.TTL)
	if err == nil {
		err = r.sameStore(ctx, c, hello, identity)
	}
	if err == nil {
		err = asNoAgent(conn.MayBorrow())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s.SetTimes(grace, reserve)
	if r.a.flags.verbose {
		fmt.Fprintf(r.a.stderr, "tenure: the agent of node %s, term %d, at %s is asked for the lease\n", showName(hello.Proof.Node), hello.Proof.Term, printable(conn.Path()))
	}
	return conn.Acquire(ctx, agent.Request{
		Lease: r.lease, Note: r.note, Wait: r.wait, Stop: proc.StopTime(grace, reserve), Group: s.Contain(),
		Silent: func() bool {
			on := r.session == sessionAlways && r.wait != 0
			if on {
				r.a.warn("the agent of node %s at %s does not answer; waiting on, for --session insists on it", showName(hello.Proof.Node), conn.Path())
			}
			return on
		},
	})
}

// asNoAgent is err, nil or not, as the reason to do without an agent.
func asNoAgent(err error) error {
	if err == nil {
		return nil
	}
	return &noAgentError{err}
}

// notLent says why the lease was not had from an agent that does not answer: what the
// store says of it, or that it is for the agent's sake alone.
func (r *running) notLent(ctx context.Context, c *tenure.Client, silent error) error {
	st, err := c.Status(ctx, r.lease)
	if err != nil {
		return fmt.Errorf("%w; and the store does not say who holds the lease: %w", silent, err)
	}
	if st.State == tenure.Held || st.FreeAfter > 0 {
		return fmt.Errorf("%w: %w", silent, heldError(st))
	}
	return &unlentError{fmt.Errorf("%w; nobody else holds the lease (last token %d)", silent, st.Token)}
}

// unlentError says that a lease was free, but not had from an agent. It is an ErrHeld
// all the same: a later try may get it.
type unlentError struct{ err error }

func (e *unlentError) Error() string { return e.err.Error() }

func (e *unlentError) Unwrap() []error { return []error{e.err, tenure.ErrHeld} }

// timesUnder are grace and reserve for an agent's TTL, unless that does not fit what
// the user wants.
func (r *running) timesUnder(ttl time.Duration) (grace, reserve time.Duration, err error) {
	under := *r
	under.ttl, under.borrows = ttl, true
	switch err := under.fitGrace(r.graceGiven); {
	case r.ttl > 0 && r.ttl != ttl:
		return 0, 0, &noAgentError{invalid("its TTL is %v, not %v: leave --ttl away, or give --session=never", ttl, r.ttl)}
	case err != nil:
		return 0, 0, &noAgentError{err}
	}
	return under.grace, under.reserve, nil
}

// sameStore wants the agent's own record in our store: names alone can mean two
// places, and a lease in another one would be worth nothing.
func (r *running) sameStore(ctx context.Context, c *tenure.Client, hello agent.Hello, identity string) error {
	if hello.Store != identity || hello.Namespace != r.t.namespace {
		return &noAgentError{invalid("it keeps leases of the namespace %q in %s", hello.Namespace, hello.Store)}
	}
	n, err := c.Node(ctx, hello.Proof.Node)
	if err == nil && (n.Incarnation != hello.Proof.Incarnation || n.Term != hello.Proof.Term) {
		err = invalid("this store knows nothing of its node %q in term %d: it works on another one of the same name, or its session is over", hello.Proof.Node, hello.Proof.Term)
	}
	if err != nil {
		return &noAgentError{err}
	}
	return nil
}

// sessionPairs tell the command of the session that keeps its lease, and of none if
// this process itself runs under one.
func (r *running) sessionPairs(p tenure.Proof) []string {
	switch {
	case p.Node != "":
		return []string{envNode, p.Node, envTerm, fmt.Sprint(p.Term)}
	case r.a.env.get(envNode) != "":
		return []string{envNode, "", envTerm, ""}
	}
	return nil
}

// heldPairs add l to the leases that the command runs under, which may be many: a run
// inside a run.
func (r *running) heldPairs(l holding) []string {
	return []string{envHeld, r.a.env.get(envHeld) + heldEntry(l.Owner(), l.Token(), l.Name()) + "\t"}
}

// heldEntry is one lease in envHeld. Owners are never used twice.
func heldEntry(owner string, token uint64, lease string) string {
	return fmt.Sprintf("%s %d %s", owner, token, lease)
}

// runsUnder says whether this process runs under the very tenure that st shows, be it
// some runs further up.
func (a *app) runsUnder(st tenure.Status) bool {
	entry := heldEntry(st.Owner, st.Token, st.Name)
	return st.State == tenure.Held && slices.Contains(strings.Split(a.env.get(envHeld), "\t"), entry)
}

// raise lifts the guards to the new token (GD1).
func (r *running) raise(ctx context.Context, h *agent.Hold) (holding, error) {
	for _, g := range r.raisers {
		if err := g.Raise(ctx, h.Token()); err != nil {
			err = fmt.Errorf("lease %q: raise the guard to token %d: %w", r.lease, h.Token(), err)
			if errors.Is(err, guard.ErrFenced) {
				err = &guardAheadError{err}
			}
			return nil, errors.Join(err, h.Release(ctx))
		}
	}
	return h, nil
}
