package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
)

// state is what a committed checkpoint's capsule holds: everything that the stream
// recovers from. The counts are exactly those of the input below the offsets.
type state struct {
	Commits uint64  `json:"commits"` // checkpoints that led here
	Offsets []int64 `json:"offsets"` // by slot: where the next line begins
	Counts  counts  `json:"counts"`
}

func (s *state) finished(in *input) bool { return slices.Equal(s.Offsets, in.sizes) }

// part is one worker's contribution to one attempt at a checkpoint: what it counted
// since the last commit. It is a wish only: it counts once a commit took it in.
type part struct {
	Attempt checkpoint.Attempt `json:"attempt"`
	// Base is the epoch of the commit that it goes on from, 0 for the beginning.
	Base uint64 `json:"base"`
	// Fence is the assignment that it was made under, and Owner the process that
	// owned Pieces then.
	Fence  string                 `json:"fence"`
	Owner  assignment.Participant `json:"owner"`
	Pieces []piece                `json:"pieces"`
	Counts counts                 `json:"counts"`
}

// piece is a stretch of one partition.
type piece struct {
	Slot     int
	From, To int64
}

// partKey is where a worker puts its part. Everything that makes a part stale is in
// the name: another attempt, assignment or process start is another key, at which
// no leader looks any more.
func (n *node) partKey(a checkpoint.Attempt, f *assignment.Fence, owner assignment.Participant) string {
	return fmt.Sprintf("%s%016d-%016d-%s", n.partPrefix(), a.Epoch, f.Version, owner.Incarnation)
}

func (n *node) partPrefix() string {
	return store.Prefix(n.client.Namespace(), "stream-part") + store.EncodeName(n.job) + "/"
}

// putPart writes a part once: what stands there already was written by this process.
func (n *node) putPart(ctx context.Context, key string, p *part) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if len(body) > checkpoint.MaxData {
		return fmt.Errorf("a part of %d bytes is too large for a checkpoint of at most %d", len(body), checkpoint.MaxData)
	}
	ctx, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	if _, err = n.client.Store().Create(ctx, key, body); errors.Is(err, store.ErrExists) {
		err = nil
	}
	return err
}

// getPart reads a part; nil if there is none yet.
func (n *node) getPart(ctx context.Context, key string) (*part, error) {
	ctx, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	o, err := n.client.Store().Get(ctx, key, checkpoint.MaxData)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &part{}
	return p, json.Unmarshal(o.Body, p)
}

// sweepParts removes the parts of settled attempts. Nobody reads one again, so it
// does not matter who removes them, when, or whether one lands late.
func (n *node) sweepParts(ctx context.Context, settled uint64) error {
	ctx, cancel := context.WithTimeout(ctx, n.ttl)
	defer cancel()
	end := fmt.Sprintf("%s%016d", n.partPrefix(), settled+1)
	for key, err := range n.client.Store().List(ctx, n.partPrefix(), "") {
		if err != nil || key >= end {
			return err
		}
		if err := n.client.Store().Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// fold makes the next state of v's and of all parts. They come from this very
// attempt; that they go on exactly where the state ends is checked all the same.
func fold(v *view, parts []*part) (*state, error) {
	next := &state{Commits: v.state.Commits + 1, Offsets: slices.Clone(v.state.Offsets), Counts: counts{}}
	next.Counts.add(v.state.Counts)
	for _, p := range parts {
		if p.Attempt != v.attempt || p.Base != v.base || p.Fence != v.assigned.Fence.State() {
			return nil, fmt.Errorf("the part of %s is of attempt %+v on commit %d, not %+v on %d", p.Owner.Node, p.Attempt, p.Base, v.attempt, v.base)
		}
		for _, piece := range p.Pieces {
			if v.owner(piece.Slot) != p.Owner || piece.From != next.Offsets[piece.Slot] || piece.To < piece.From {
				return nil, fmt.Errorf("the part of %s has bytes %d to %d of slot %d, which is at %d and owned by %v",
					p.Owner.Node, piece.From, piece.To, piece.Slot, next.Offsets[piece.Slot], v.owner(piece.Slot))
			}
			next.Offsets[piece.Slot] = piece.To
		}
		next.Counts.add(p.Counts)
	}
	return next, nil
}

// pause sleeps, or ends early with ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
