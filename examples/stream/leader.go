package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/fileguard"
)

// leader decides, one thing after the other, for as long as its leadership lives. It
// keeps nothing that its successor would miss: every step begins with what stands in
// the store.
type leader struct {
	*member
	eyes *looker
	l    *authority.Leader
	// gone are participants that were proven to be over, with the certificates.
	gone map[assignment.Participant][]byte
	// alive are the processes that gave a sign of life at the last roll call.
	alive  []assignment.Participant
	roll   map[assignment.Participant]uint64
	called time.Time
}

func newLeader(m *member, l *authority.Leader) *leader {
	return &leader{
		member: m, eyes: newLooker(m.input, m.authority.Reader()), l: l,
		gone: map[assignment.Participant][]byte{}, alive: []assignment.Participant{m.me},
	}
}

// run leads until ctx ends. Errors that pass are left to the next step, or to the
// next leader.
func (l *leader) run(ctx context.Context) error {
	l.log.Info("leading", "token", l.l.Token())
	for ctx.Err() == nil {
		if err := l.step(ctx); err != nil {
			if !passing(err) {
				return err
			}
			l.log.Debug("leader: looking again", "why", err)
			pause(ctx, l.poll)
		}
	}
	return nil
}

// step takes the next decision.
func (l *leader) step(ctx context.Context) error {
	v, err := l.eyes.look(ctx)
	if err != nil {
		return err
	}
	_, round := v.head.Round()
	switch {
	case v.sealed:
		<-ctx.Done() // all processes see it and leave
		return nil
	case v.assigned == nil:
		_, _, err := l.assignments.Seed(ctx, spread(make([]assignment.Participant, len(l.input.paths)), []assignment.Participant{l.me}))
		return err
	case round || v.admission.Faulty() || len(l.gone) > 0:
		return l.recover(ctx, v)
	case v.state.finished(l.input):
		return l.seal(ctx, v)
	}
	if moved, err := l.rebalance(ctx, v); moved || err != nil {
		return err
	}
	return l.checkpoint(ctx, v)
}

// checkpoint gathers one part of every participant and commits them together. One
// that does not come is looked into.
func (l *leader) checkpoint(ctx context.Context, v *view) error {
	parts, missing, err := l.gather(ctx, v)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return l.fence(ctx, missing)
	}
	next, err := l.fold(v, parts)
	if err != nil {
		return err
	}
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	res, err := l.checkpoints.Commit(ctx, l.l.Proof(), checkpoint.Capsule{Attempt: v.attempt, Fence: v.assigned.Fence, Data: data})
	if err = decided(res.Result, err); err != nil {
		return err
	}
	l.log.Info("committed", "epoch", v.attempt.Epoch, "commits", next.Commits, "assignment", v.assigned.Fence.Version)
	if err := l.publish(ctx, next); err != nil {
		return err
	}
	if next.Commits%8 == 0 {
		l.tidy(ctx, res.Outcome, v.assigned.Fence.Version)
	}
	return nil
}

// gather waits for the parts of the open attempt: for as long as they come, and no
// fault is made.
func (l *leader) gather(ctx context.Context, v *view) (parts []*part, missing []assignment.Participant, err error) {
	missing = v.assigned.Fence.Participants
	for patience := time.Now().Add(l.pace + l.ttl/2); ; pause(ctx, l.poll) {
		var open []assignment.Participant
		for _, p := range missing {
			found, err := l.getPart(ctx, l.partKey(v.attempt, v.assigned.Fence, p))
			switch {
			case err != nil:
				return nil, nil, err
			case found == nil:
				open = append(open, p)
			default:
				parts = append(parts, found)
			}
		}
		if missing = open; len(missing) == 0 || time.Now().After(patience) || ctx.Err() != nil {
			return parts, missing, context.Cause(ctx)
		}
		if err := v.head.Validate(ctx, authority.PartFaults); err != nil {
			return nil, nil, err
		}
	}
}

// publish writes the counts to the output file. The store fences decisions; a file
// needs a guard of its own, so that a leader that slept through its succession does
// not put older counts over newer ones.
func (l *leader) publish(ctx context.Context, s *state) error {
	if l.output == "" {
		return nil
	}
	g, err := fileguard.Open(l.output, l.client.Namespace(), l.job)
	if err != nil {
		return err
	}
	err = g.Write(ctx, l.l.Token(), []byte(s.Counts.text()))
	if errors.Is(err, guard.ErrFenced) && l.l.Live() { // nobody has a higher token than a live leader's
		return fmt.Errorf("--output %s was used with another store: give a new one (%v)", l.output, err)
	}
	return err
}

// seal ends the stream: the result, under the names by which others look for it, can
// never be another one.
func (l *leader) seal(ctx context.Context, v *view) error {
	if err := l.publish(ctx, v.state); err != nil {
		return err
	}
	res, err := catalog.Seal(ctx, l.authority, l.l.Proof(), definitions(l.input, v))
	if err = decided(res.Result, err); err != nil {
		return err
	}
	l.log.Info("sealed", "commits", v.state.Commits)
	return nil
}

func definitions(in *input, v *view) []catalog.Definition {
	return []catalog.Definition{
		{Name: "input", Text: in.id},
		{Name: "commit", Text: fmt.Sprintf("epoch %d, after %d checkpoints", v.base, v.state.Commits)},
		{Name: "result", Text: v.state.digest()},
	}
}

func (s *state) digest() string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s.Counts.text())))
}

// tidy gives up what no recovery needs: commits and capsules below the newest one,
// old assignments, parts of settled attempts. Nothing depends on it.
func (l *leader) tidy(ctx context.Context, newest *checkpoint.Outcome, version uint64) {
	_, err := l.checkpoints.Advance(ctx, l.l.Proof(), newest.Epoch, func(_ context.Context, _ *checkpoint.Outcome, c *checkpoint.Capsule) error {
		return json.Unmarshal(c.Data, &state{})
	})
	_, swept := l.checkpoints.Sweep(ctx)
	_, pruned := l.assignments.Prune(ctx, l.l.Proof(), version)
	// What the end of the leadership cut short, the next leader does.
	if err := errors.Join(err, swept, pruned, l.sweepParts(ctx, newest.Epoch)); err != nil && ctx.Err() == nil {
		l.log.Warn("tidying failed", "error", err)
	}
}

// decided turns a decision that does not stand into a reason to look again.
func decided(res authority.Result, err error) error {
	if err == nil && !res.Stands() {
		err = fmt.Errorf("the decision does not stand (%s): %w", res.Answer, authority.ErrChanged)
	}
	return err
}
