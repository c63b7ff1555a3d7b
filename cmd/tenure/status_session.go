package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure"
)

// kindSession is the kind of a lease that rests on a session (LS1).
const kindSession = "session"

// What is known of the session that a lease rests on.
const (
	sessionCurrent = "current" // its node's record names it
	sessionOver    = "over"    // there is evidence that it ended
	sessionUnknown = "unknown" // nothing tells of it, or the record cannot be read
)

// session is the session that one lease rests on, and its node's record.
type session struct {
	proof tenure.Proof
	state string
	how   string // it ended; "" where only a later term tells of that
	node  tenure.NodeStatus
	// failed says that it could not be looked up.
	failed bool
}

// sessions looks up each session once, however many leases rest on it.
type sessions struct {
	c     *tenure.Client
	known map[tenure.Proof]*session
}

func newSessions(c *tenure.Client) *sessions {
	return &sessions{c: c, known: map[tenure.Proof]*session{}}
}

// of returns the session of the lease that s shows: nil if it rests on none. With
// an error the session is unknown.
func (l *sessions) of(ctx context.Context, s tenure.Status) (*session, error) {
	if s.State != tenure.Held || s.Kind != kindSession {
		return nil, nil
	}
	p := tenure.Proof{Node: s.Label, Incarnation: s.Owner, Term: s.Term}
	if found := l.known[p]; found != nil {
		return found, nil
	}
	found, err := lookSession(ctx, l.c, p)
	l.known[p] = found
	if found.failed = err != nil; found.failed {
		err = fmt.Errorf("lease %q: its session cannot be looked up: %w", s.Name, err)
	}
	return found, err
}

// lookSession reads the node's record, and asks for a judgement only where that
// does not name p.
func lookSession(ctx context.Context, c *tenure.Client, p tenure.Proof) (*session, error) {
	found := &session{proof: p, state: sessionUnknown}
	var err error
	if found.node, err = c.Node(ctx, p.Node); err != nil {
		return found, err
	}
	if ownedBy(found.node, p.Incarnation, p.Term) {
		found.state = sessionCurrent
		return found, nil
	}
	over, how, err := c.SessionOver(ctx, p)
	switch {
	case errors.Is(err, tenure.ErrMissingEvidence):
		return found, nil
	case err != nil:
		return found, err
	case over:
		found.state, found.how = sessionOver, how
	default:
		found.state = sessionCurrent
	}
	return found, nil
}

func newSessionJSON(s *session) *sessionJSON {
	return &sessionJSON{
		Node: s.proof.Node, Incarnation: s.proof.Incarnation, Term: s.proof.Term, State: s.state, How: s.how,
		Sequence: s.node.Sequence, NodeTTLMS: s.node.TTL.Milliseconds(),
	}
}

// String is the session for people.
func (s *session) String() string {
	switch {
	case s.state == sessionCurrent:
		return fmt.Sprintf("current: its node's record names it since %s, sequence %d, ttl %v", stamp(s.node.Since), s.node.Sequence, s.node.TTL)
	case s.state == sessionOver && s.how == "":
		return fmt.Sprintf("over: its node is %s at term %d by now", nodeState(s.node), s.node.Term)
	case s.state == sessionOver:
		return fmt.Sprintf("over: %s; its node is %s at term %d", s.how, nodeState(s.node), s.node.Term)
	}
	return "unknown: its node's record does not tell of it, so it must be taken for alive"
}

// next is what becomes of a lease of s.
func (s *session) next() string {
	switch {
	case s.state == sessionCurrent && s.node.Proof != "":
		return "it is free when its holder releases it, or when its session is certainly over: its process is proven gone, or silent for " + s.node.TTL.String()
	case s.state == sessionCurrent:
		return "it is free when its holder releases it, or when its session is certainly over: for example after silence of " + s.node.TTL.String()
	case s.state == sessionOver && (s.how == "forced" || s.how == "vouched"):
		return "whoever wants it waits its session's TTL first, for that was ended by force"
	case s.state == sessionOver:
		return "whoever wants it takes it over at once, for its session is over"
	}
	return "nobody takes it over while nothing tells of its session; `tenure steal` ends the tenure"
}
