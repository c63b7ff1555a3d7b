package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
	"github.com/tenure-project/tenure/store"
)

// view is one look at everything that was decided.
type view struct {
	admission recovery.Admission
	head      authority.Snapshot
	leader    tenure.Proof // token 0 if nobody leads
	sealed    bool
	assigned  *assignment.Current // nil before there is one
	attempt   checkpoint.Attempt  // the one that is open: nothing settled it
	base      uint64              // the newest commit's epoch, 0 before the first
	state     *state              // the newest commit's
}

// looker looks, for one goroutine. It reads each commit once.
type looker struct {
	input       *input
	checkpoints *checkpoint.Reader
	assignments *assignment.Reader
	faults      *recovery.Reader
	digest      string // of the commit whose state it has
	state       *state
}

func newLooker(in *input, r *authority.Reader) *looker {
	return &looker{input: in, checkpoints: checkpoint.Read(r), assignments: assignment.Read(r), faults: recovery.Read(r)}
}

// look reads what stands. The admission comes first: whoever acts on the rest checks
// it last.
func (l *looker) look(ctx context.Context) (*view, error) {
	admission, err := l.faults.Admission(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound): // nobody ever led
		return &view{}, nil
	case err != nil:
		return nil, err
	}
	v := &view{admission: admission, head: admission.Snapshot, attempt: checkpoint.Attempt{Epoch: 1, Checkpoint: 1}}
	v.leader, _ = v.head.Leader()
	_, v.sealed = v.head.Chain(authority.Catalog)
	last, commit, err := l.checkpoints.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if last != nil {
		if last.Deployment != l.input.id {
			return nil, fmt.Errorf("the stream in the store counts another input (id %s) than this process's folder has (id %s)", last.Deployment, l.input.id)
		}
		v.attempt = checkpoint.Attempt{Epoch: last.Epoch + 1, Checkpoint: last.Checkpoint + 1}
	}
	if err := l.restore(ctx, v, commit); err != nil {
		return nil, err
	}
	v.assigned, err = l.assignments.Current(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return v, nil
	case err != nil:
		return nil, err
	case len(v.assigned.Map.Owners) != len(l.input.paths):
		return nil, fmt.Errorf("the stream in the store has %d partitions, this process's folder %d", len(v.assigned.Map.Owners), len(l.input.paths))
	}
	return v, nil
}

// restore reads what the newest commit holds, or begins with nothing.
func (l *looker) restore(ctx context.Context, v *view, commit *checkpoint.Outcome) error {
	if commit == nil {
		v.state = &state{Offsets: make([]int64, len(l.input.paths)), Counts: counts{}}
		return nil
	}
	if l.digest != commit.Link.Digest {
		s, err := readState(ctx, l.checkpoints, commit)
		if errors.Is(err, store.ErrNotFound) { // given up for a newer commit meanwhile, or else damage
			err = errors.Join(v.head.Validate(ctx, authority.PartCheckpoint), err)
		}
		if err != nil {
			return err
		}
		l.digest, l.state = commit.Link.Digest, s
	}
	v.base, v.state = commit.Epoch, l.state
	return nil
}

func readState(ctx context.Context, r *checkpoint.Reader, commit *checkpoint.Outcome) (*state, error) {
	c, err := r.Capsule(ctx, commit)
	if err != nil {
		return nil, err
	}
	s := &state{}
	return s, json.Unmarshal(c.Data, s)
}

func (v *view) owner(slot int) assignment.Participant {
	return v.assigned.Map.Participants[v.assigned.Map.Owners[slot]]
}

func (v *view) owners() []assignment.Participant {
	all := make([]assignment.Participant, len(v.assigned.Map.Owners))
	for slot := range all {
		all[slot] = v.owner(slot)
	}
	return all
}
