package authority

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
)

// Stopped names one process that stopped for a round, or is proven to be over.
type Stopped struct {
	// Node is the node's name.
	Node string
	// Incarnation is the process start's.
	Incarnation string
}

// Release ends round as p's leader, and clears exactly the faults of the processes
// that stopped (RF). Right before, it lists the pending reports once more and folds
// what it finds. It is admitted only while the inventory is the frozen one; else it
// is ErrInventoryChanged. Asking again after a lost answer converges.
func (a *Authority) Release(ctx context.Context, p tenure.Proof, round Round, stopped []Stopped) (Result, error) {
	var list []assignment.Participant
	for _, s := range stopped {
		list = append(list, assignment.Participant{Node: s.Node, Incarnation: s.Incarnation})
	}
	slices.SortFunc(list, func(x, y assignment.Participant) int { return strings.Compare(x.Node, y.Node) })
	release := recovery.NewRelease(&core.Round{
		Generation: round.Generation, ID: round.ID, Proof: core.Proof(round.Proof), Revision: round.Revision, Began: round.Began, Plan: round.Plan,
	}, list)
	body, err := release.Encode()
	if err != nil {
		return Result{}, err
	}
	if a.Leads(p) {
		if err := a.foldPending(ctx, p); err != nil {
			return Result{}, fmt.Errorf("authority %q: the pending fault reports: %w", a.name, err)
		}
	}
	return a.append(ctx, p, recovery.Rules{}, Draft{Body: body})
}

// foldPending lists what is pending, and folds it into the head at once.
func (a *Authority) foldPending(ctx context.Context, p tenure.Proof) error {
	if err := a.gather(ctx, false); err != nil {
		return err
	}
	if !a.reports.waiting() {
		return nil
	}
	_, err := a.change(ctx, p, func(h *core.Head, attempt string) (*core.Head, error) {
		a.reports.shown(h) // the head may show them already
		if !a.reports.waiting() {
			return nil, nil
		}
		next, _, err := h.Renew(core.Proof(p), attempt, a.reports.take()...)
		return next, err
	})
	return err
}
