package assignment

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/record"
)

// Pruned is what one Prune removed.
type Pruned struct {
	// Floor is the lowest version that is kept.
	Floor uint64
	// Removed counts maps, proposals and transitions of lower versions that were
	// removed; Failed those that could not be: the next call tries them again.
	Removed, Failed int
	// More says that PruneStep came first: call again.
	More bool
}

// Prune gives versions below floor up, as p's leader: the current assignment is
// written down first, then the chain's floor moves, then what is of lower versions is
// removed, at most PruneStep objects (AS, LA8). The current version always stays: a
// floor above it is store.ErrConflict.
func (c *Client) Prune(ctx context.Context, p tenure.Proof, floor uint64) (Pruned, error) {
	cur, err := c.Materialize(ctx)
	if err != nil {
		return Pruned{}, err
	}
	if cur.Decision != nil {
		if _, err := c.a.Advance(ctx, p, authority.Assignment, floor, 0, nil); err != nil {
			return Pruned{}, err
		}
	}
	return c.Reader.Prune(ctx)
}

// Prune removes what is of versions below the chain's floor, at most PruneStep
// objects, for any process that has the right to delete. No decision of such a version
// can be admitted any more, and the map of the current one is written down, so that
// nothing of them is ever needed again; where it is not, nothing is removed (AS, LA8).
func (r *Reader) Prune(ctx context.Context) (Pruned, error) {
	cur, err := r.Current(ctx)
	if err != nil {
		return Pruned{}, err
	}
	chain, ok := cur.Snapshot.Chain(authority.Assignment)
	done := Pruned{Floor: chain.Floor}
	if !ok || chain.Floor == 0 || !cur.Materialized {
		return done, nil
	}
	var failed []error
	for _, kind := range []string{kindInstalled, kindProposal, kindDrain} {
		failed = append(failed, r.pruneKind(ctx, kind, &done))
	}
	return done, errors.Join(failed...)
}

func (r *Reader) pruneKind(ctx context.Context, kind string, done *Pruned) error {
	var failed []error
	for element, err := range r.r.Elements(ctx, kind, "") {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		version := versionOf(element)
		switch {
		case version == 0: // not one of ours: leave it alone
			continue
		case version >= done.Floor:
			return errors.Join(failed...)
		case done.Removed+done.Failed >= PruneStep:
			done.More = true
			return errors.Join(failed...)
		}
		key := r.r.Key(kind, element)
		if err := r.r.Kit().Store.Delete(ctx, key); err != nil {
			done.Failed++
			failed = append(failed, fmt.Errorf("%s: %w", key, err))
			continue
		}
		done.Removed++
	}
	return errors.Join(failed...)
}

// versionOf is the version that an element begins with, 0 if it is none of ours.
func versionOf(element string) uint64 {
	text, _, _ := strings.Cut(element, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > record.MaxNumber || versionElement(n) != text {
		return 0
	}
	return n
}
