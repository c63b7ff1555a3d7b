package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
)

// fenceWithin is how long it may take to observe a process: it has a TTL of its own.
const fenceWithin = time.Hour

// fence finds out which of the suspects are over, and makes that durable. One that
// lives shows it by renewing, and is left alone.
func (l *leader) fence(ctx context.Context, suspects []assignment.Participant) error {
	certs, errs := make([]tenure.Certificate, len(suspects)), make([]error, len(suspects))
	var all sync.WaitGroup
	for i, p := range suspects {
		all.Go(func() { certs[i], errs[i] = l.client.FenceIncarnation(ctx, p.Node, p.Incarnation, fenceWithin) })
	}
	all.Wait()
	for i, p := range suspects {
		switch {
		case errs[i] == nil:
			l.log.Info("proven to be over", "node", p.Node, "incarnation", p.Incarnation, "how", certs[i].How)
			l.gone[p] = certs[i].Body
		case errors.Is(errs[i], tenure.ErrAlive):
			errs[i] = nil
		}
	}
	return errors.Join(errs...)
}

// recover runs one recovery round: faults are frozen, processes that are over lose
// their slots by proof, what they had on its way is void, and the faults of those
// that stopped are cleared. Work goes on from the newest commit.
func (l *leader) recover(ctx context.Context, v *view) error {
	p := l.l.Proof()
	round, err := l.recovery.Begin(ctx, p, fmt.Appendf(nil, "void attempt %d, replace who is gone", v.attempt.Epoch))
	if err != nil {
		return err
	}
	faults, revision, err := l.reporters(ctx)
	if err != nil || revision != round.Revision {
		return errors.Join(err, authority.ErrChanged)
	}
	if err := l.superseded(ctx, v.assigned.Fence); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(v.assigned.Fence.Participants), func(p assignment.Participant) bool { return l.gone[p] == nil })
	if len(gone) > 0 {
		if err := l.replace(ctx, v, gone); err != nil {
			return err
		}
	}
	// Whoever reported had stopped before it did: see worker.turn. A release names each
	// node once: the start that reported, if there is one.
	stopped := byNode(append(faults, gone...))
	res, err := l.recovery.Release(ctx, p, round, stopped)
	if err = decided(res, err); err != nil {
		return err
	}
	clear(l.gone)
	l.log.Info("round released", "generation", round.Generation, "stopped", nodes(stopped))
	return nil
}

// reporters are the processes that reported a fault.
func (l *leader) reporters(ctx context.Context) (all []assignment.Participant, revision uint64, err error) {
	s, err := l.authority.Reader().Snapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	faults, revision := s.Faults()
	for _, f := range faults {
		if f.Active {
			all = append(all, assignment.Participant{Node: f.Proof.Node, Incarnation: f.Proof.Incarnation})
		}
	}
	return all, revision, nil
}

// superseded adds to gone whom a later start of its node, or a leave, ended already:
// that is known without a wait.
func (l *leader) superseded(ctx context.Context, f *assignment.Fence) error {
	var over []assignment.Participant
	for _, p := range f.Participants {
		err := l.client.VerifyCurrent(ctx, tenure.Proof{Node: p.Node, Incarnation: p.Incarnation})
		switch {
		case errors.Is(err, tenure.ErrNotCurrent) && l.gone[p] == nil:
			over = append(over, p)
		case errors.Is(err, tenure.ErrNotCurrent):
		case err != nil:
			return err
		}
	}
	return l.fence(ctx, over)
}

// replace voids the open attempt and gives the slots of who is gone to others.
func (l *leader) replace(ctx context.Context, v *view, gone []assignment.Participant) error {
	aborted, err := l.checkpoints.Abort(ctx, l.l.Proof(), v.attempt, v.assigned.Fence)
	if err = decided(aborted.Result, err); err != nil {
		return err // it may have been committed: look again
	}
	proposal, err := l.assignments.Stage(ctx, spread(v.owners(), l.candidates(v, gone)))
	if err != nil {
		return err
	}
	var certificates [][]byte
	for _, p := range gone {
		certificates = append(certificates, l.gone[p])
	}
	res, err := l.assignments.Recover(ctx, l.l.Proof(), proposal, certificates...)
	if err = decided(res.Result, err); err != nil {
		return err
	}
	l.log.Info("slots of processes that are gone are taken over", "gone", nodes(gone), "assignment", res.Decision.Result.Version)
	return nil
}

// rebalance gives slots to processes that joined. It is a drain between processes
// that live. Nobody has to acknowledge it: it comes between two checkpoints, and a
// part that was made under the old assignment is in nobody's sight.
func (l *leader) rebalance(ctx context.Context, v *view) (moved bool, err error) {
	if time.Since(l.called) < l.ttl/5 { // no process gives more signs of life
		return false, nil
	}
	if err := l.callRoll(ctx); err != nil {
		return false, err
	}
	owners := v.owners()
	target := spread(owners, l.candidates(v, nil))
	if slices.Equal(owners, target) {
		return false, nil
	}
	t, err := l.assignments.BeginDrain(ctx, l.l.Proof(), target)
	var pending *assignment.PendingError
	switch {
	case errors.As(err, &pending): // of an earlier leader, or to another target
		res, err := l.assignments.AbortDrain(ctx, l.l.Proof(), pending.Pending)
		return true, decided(res.Result, err)
	case err != nil:
		return false, err
	}
	res, err := l.assignments.CommitDrain(ctx, l.l.Proof(), t)
	if err = decided(res.Result, err); err != nil {
		return false, err
	}
	l.log.Info("slots are rebalanced", "owners", nodes(t.Target.Participants), "assignment", t.Target.Version)
	return true, nil
}

// callRoll notes who lives: whoever gave a sign of life since the last call, or came
// since then. That a record names an owner does not say that the owner lives.
func (l *leader) callRoll(ctx context.Context) error {
	first := l.roll == nil
	roll, alive := map[assignment.Participant]uint64{}, []assignment.Participant{l.me}
	for s, err := range l.client.Nodes(ctx, l.job+"/") {
		if err != nil {
			return err
		}
		p := assignment.Participant{Node: s.Node, Incarnation: s.Incarnation}
		roll[p] = s.Sequence
		if s.State == tenure.Held && !s.Revoker && p != l.me && !first && l.roll[p] < s.Sequence {
			alive = append(alive, p)
		}
	}
	l.roll, l.alive, l.called = roll, alive, time.Now()
	return nil
}

// candidates are the participants that are not gone, and whoever else lives. One node
// is one of them: while an earlier start of it is a participant, the new one waits.
func (l *leader) candidates(v *view, gone []assignment.Participant) []assignment.Participant {
	all := slices.DeleteFunc(slices.Clone(v.assigned.Fence.Participants), func(p assignment.Participant) bool { return slices.Contains(gone, p) })
	for _, p := range l.alive { // at the last roll call
		if !slices.Contains(gone, p) && !slices.ContainsFunc(all, func(q assignment.Participant) bool { return q.Node == p.Node }) {
			all = append(all, p)
		}
	}
	return all
}

// spread gives every slot one of the candidates, to each about as many, and moves as
// few as it can.
func spread(owners, candidates []assignment.Participant) []assignment.Participant {
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, compareNodes)
	share, more := len(owners)/len(candidates), len(owners)%len(candidates)
	load, next := map[assignment.Participant]int{}, make([]assignment.Participant, len(owners))
	for slot, p := range owners {
		switch {
		case !slices.Contains(candidates, p) || load[p] > share || load[p] == share && more == 0:
			continue
		case load[p] == share:
			more--
		}
		next[slot] = p
		load[p]++
	}
	for slot, p := range next {
		if p == (assignment.Participant{}) {
			p = slices.MinFunc(candidates, func(p, q assignment.Participant) int { return load[p] - load[q] })
			next[slot] = p
			load[p]++
		}
	}
	return next
}

// byNode sorts by node and keeps the first of each.
func byNode(all []assignment.Participant) []assignment.Participant {
	slices.SortStableFunc(all, compareNodes)
	return slices.CompactFunc(all, func(p, q assignment.Participant) bool { return p.Node == q.Node })
}

func compareNodes(p, q assignment.Participant) int { return strings.Compare(p.Node, q.Node) }

func nodes(all []assignment.Participant) string {
	var names []string
	for _, p := range all {
		names = append(names, p.Node)
	}
	return strings.Join(names, " ")
}
