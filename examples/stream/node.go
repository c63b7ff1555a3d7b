package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

// config is what a process is told.
type config struct {
	url     string
	drivers []store.Driver
	job     string // the authority's name, and the beginning of all node names
	name    string
	output  string // "" for none
	ttl     time.Duration
	poll    time.Duration
	pace    time.Duration
	batch   int
	input   *input
	log     *slog.Logger
}

// node is one process of the stream: always a worker, and the leader if it is
// elected.
type node struct {
	config
	client *tenure.Client
	fold   func(v *view, parts []*part) (*state, error)
}

// run works until the result is sealed, or ctx ends.
func (n *node) run(ctx context.Context) (err error) {
	if n.fold == nil {
		n.fold = fold
	}
	for n.client == nil {
		n.client, err = tenure.Open(ctx, n.url, tenure.WithDrivers(n.drivers...), tenure.WithTTL(n.ttl), tenure.WithLogger(n.log))
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case err != nil && !passing(err):
			return err
		case err != nil:
			n.log.Warn("the store does not answer yet", "error", err)
			pause(ctx, n.poll)
		}
	}
	defer func() { err = errors.Join(err, n.client.Close()) }()
	for {
		err := n.live(ctx)
		if !errors.Is(err, tenure.ErrLost) {
			return err
		}
		// It was silent for too long: somebody may have proven it to be over. It
		// begins again as what it now is, a new process start that owns nothing.
		n.log.Warn("the session is lost, joining again", "error", err)
	}
}

// live joins and works for as long as the session lives. It returns nil when the
// result is sealed or ctx ended, and a tenure.ErrLost if it should join again.
func (n *node) live(ctx context.Context) error {
	s, err := n.client.Join(ctx, n.job+"/"+n.name, tenure.NoChildren())
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	m, err := n.member(ctx, s)
	if err == nil {
		n.log.Info("joined", "incarnation", m.me.Incarnation, "term", s.Proof().Term)
		err = m.work(ctx, s)
	}
	left := s.Leave(ctx) // after the work, so that the name and the slots are free at once
	if errors.Is(err, tenure.ErrLost) {
		return err
	}
	return errors.Join(err, left)
}

// member is a node while one session of it lives.
type member struct {
	*node
	me          assignment.Participant
	authority   *authority.Authority
	checkpoints *checkpoint.Client
	assignments *assignment.Client
	recovery    *recovery.Client
}

func (n *node) member(ctx context.Context, s *tenure.Session) (*member, error) {
	a, err := authority.Open(ctx, s, n.job)
	if err != nil {
		return nil, err
	}
	ck, err := checkpoint.Open(a, n.input.id)
	p := s.Proof()
	return &member{
		node: n, me: assignment.Participant{Node: p.Node, Incarnation: p.Incarnation}, authority: a,
		checkpoints: ck, assignments: assignment.Open(a), recovery: recovery.Open(a),
	}, err
}

// work works and campaigns until the session is over, ctx ends, or either is done or
// cannot go on.
func (m *member) work(ctx context.Context, s *tenure.Session) error {
	both, stop := context.WithCancelCause(s.Context())
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(tenure.ErrShutdown) })()
	var ended sync.WaitGroup
	var led, worked error
	ended.Go(func() {
		led = m.authority.Run(both, func(ctx context.Context, l *authority.Leader) error { return newLeader(m, l).run(ctx) })
		stop(led)
	})
	ended.Go(func() {
		worked = (&worker{member: m, eyes: newLooker(m.input, m.authority.Reader())}).run(both)
		stop(worked)
	})
	ended.Wait()
	switch {
	case worked == nil || ctx.Err() != nil:
		return nil
	case s.Err() != nil:
		return s.Err()
	case errors.Is(worked, led): // it was stopped by that
		return worked
	}
	return errors.Join(led, worked)
}

// passing reports whether an error says only that this process should look again:
// the store did not answer, somebody else decided first, or it is superseded itself.
func passing(err error) bool {
	for _, kind := range []error{
		store.ErrUnavailable, store.ErrUnknown, store.ErrConflict, authority.ErrFenced, guard.ErrFenced, authority.ErrChanged, authority.ErrSuperseded,
		tenure.ErrHeld, tenure.ErrLost, tenure.ErrReleased, tenure.ErrShutdown, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
