package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
	"github.com/tenure-project/tenure/guard"
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
		case r.a.flags.verbose && !errors.Is(err, agent.ErrNone):
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

// borrow gets the lease from the agent of this store and namespace, and raises the
// guards.
func (r *running) borrow(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (holding, error) {
	identity := c.Store().Info().Identity
	path, err := r.a.agentSocket("", identity, r.t.namespace)
	if err != nil {
		return nil, &noAgentError{err}
	}
	conn, err := agent.Dial(ctx, path, r.a.clk)
	if err != nil {
		return nil, &noAgentError{err}
	}
	hello := conn.Hello()
	grace, reserve, err := r.timesUnder(hello.TTL)
	if err == nil {
		err = r.sameStore(ctx, c, hello, identity)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s.SetTimes(grace, reserve)
	h, err := conn.Acquire(ctx, agent.Request{Lease: r.lease, Note: r.note, Wait: r.wait, Stop: proc.StopTime(grace, reserve), Group: s.Contain()})
	switch {
	case err == nil:
		return r.raise(ctx, h)
	case errors.Is(err, agent.ErrWaited):
		err = errors.Join(&waitedError{r.wait}, err)
	case errors.Is(err, agent.ErrEnding) && !isA[*waitedError](err):
		return nil, &noAgentError{err}
	}
	if isA[*waitedError](err) && s.Context().Err() == nil {
		err = r.notHad(s.Context(), c, err)
	}
	return nil, err
}

// timesUnder are grace and reserve for an agent's TTL, unless that does not fit what
// the user wants.
func (r *running) timesUnder(ttl time.Duration) (grace, reserve time.Duration, err error) {
	under := *r
	under.ttl = ttl
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
