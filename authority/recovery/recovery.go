// Package recovery ends faults through an authority's log (RF): any process reports
// one, the leader begins a round that freezes the inventory of faults, and releases it
// once every process that the round needs has stopped. A fault that is made meanwhile
// forces a new round.
//
// Whoever is about to take up work reads an [Admission] when it gathers its evidence,
// and checks it just before it begins.
package recovery

import (
	"context"
	"iter"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Limits.
const (
	// MaxFaults is how many nodes have a fault slot at most: they, the rest of the head
	// and the room for a release fit into 256 KiB (LA9).
	MaxFaults = coreauthority.MaxSlots
	// MaxWhy bounds the reason of a report in encoded bytes: it is for people, and a
	// report is read by the leader beside its renewals.
	MaxWhy = lease.MaxWhy
)

// Client reports faults, and runs rounds as the leader. All methods are safe for
// concurrent use.
type Client struct {
	Reader
	a *authority.Authority
}

// Open returns a client. It does no I/O.
func Open(a *authority.Authority) *Client { return &Client{Reader: Reader{a.Reader()}, a: a} }

// Report reports a fault of this process, leader or not, and answers once the head
// shows it (RF): see [authority.Authority.Report].
func (c *Client) Report(ctx context.Context, why string) (authority.Fault, error) {
	return c.a.Report(ctx, why)
}

// Begin begins a round as p's leader, of the next generation: it freezes the
// inventory of faults (RF). plan describes what the round is to do; its digest is
// recorded. A round that was not released, of this leader or an earlier one, is
// replaced.
func (c *Client) Begin(ctx context.Context, p tenure.Proof, plan []byte) (authority.Round, error) {
	return c.a.BeginRound(ctx, p, plan)
}

// Release ends round as p's leader (RF). stopped are the processes that stopped for
// it, or are proven to be over; exactly their faults are cleared. A node has one fault
// at a time: of its starts name the one that reported it, and each node once, in any
// order; a node that is named twice is store.ErrInvalid. Pending reports are looked
// for right before. If a fault was made since the round began, or another round was,
// it is [authority.ErrInventoryChanged], and nothing was cleared: begin a new round.
// The same release again is Unchanged.
func (c *Client) Release(ctx context.Context, p tenure.Proof, round authority.Round, stopped []assignment.Participant) (authority.Result, error) {
	var all []authority.Stopped
	named := map[string]string{}
	for _, s := range stopped {
		if other, twice := named[s.Node]; twice {
			return authority.Result{}, store.Errorf(store.ErrInvalid, "", "release", c.a.Name(),
				"node %q is named twice, with incarnation %s and %s: name only the start that reported the fault", s.Node, other, s.Incarnation)
		}
		named[s.Node] = s.Incarnation
		all = append(all, authority.Stopped{Node: s.Node, Incarnation: s.Incarnation})
	}
	return c.a.Release(ctx, p, round, all)
}

// Reader reads rounds and releases of one authority. All methods are safe for
// concurrent use.
type Reader struct{ r *authority.Reader }

// Read returns a reader for processes that only look.
func Read(r *authority.Reader) *Reader { return &Reader{r} }

// Admission is what a process saw of the authority before it takes up work: the
// faults and the last release. It is a value and does not change.
type Admission struct {
	// Snapshot is the state of the head that was seen.
	Snapshot authority.Snapshot

	seen core.Snapshot
	r    *Reader
}

// Admission takes a snapshot to check later. Gather all other evidence after it.
func (r *Reader) Admission(ctx context.Context) (Admission, error) {
	s, err := r.r.Snapshot(ctx)
	if err != nil {
		return Admission{}, err
	}
	return Admission{Snapshot: s, seen: core.Look(s.Kit()), r: r}, nil
}

// Faulty reports whether a fault was active: no such snapshot admits anything.
func (a Admission) Faulty() bool { return len(a.seen.Faults) > 0 }

// Check reads the head again, just before the work begins (RF): nil if no fault is
// active, none was made or cleared since, no round was released since, and p, whose
// decisions the work follows, leads. Otherwise it is [authority.ErrChanged]: take a
// new snapshot, and gather the evidence again.
func (a Admission) Check(ctx context.Context, p tenure.Proof) error {
	now, err := a.r.r.Snapshot(ctx)
	if err != nil {
		return err
	}
	if !a.seen.Admits(now.Kit(), coreauthority.Proof(p)) {
		return authority.ErrChanged
	}
	return nil
}

// Release is a round that was released.
type Release struct {
	// Generation is the round's; it rises from release to release.
	Generation uint64
	// Round is its id, Revision the inventory's that it froze, Plan the digest of what
	// it was to do.
	Round    string
	Revision uint64
	Plan     string
	// Stopped are the processes whose faults it cleared.
	Stopped []assignment.Participant
	// Proof is the leadership that ran the round.
	Proof tenure.Proof
	// Link pins the release's bytes.
	Link authority.Link
}

func newRelease(r *core.Release, p tenure.Proof, l authority.Link) *Release {
	return &Release{Generation: r.Generation, Round: r.Round, Revision: r.Revision, Plan: r.Plan, Stopped: r.Stopped, Proof: p, Link: l}
}

// Last is the last release, nil before the first: it says that everything of its
// round, and of rounds before it, is over (RF).
func (r *Reader) Last(ctx context.Context) (last *Release, err error) {
	err = chains.Reread(ctx, r.r, authority.Recovery, func(s authority.Snapshot) error {
		c, ok := s.Chain(authority.Recovery)
		if !ok {
			return nil
		}
		d, err := chains.Decode(ctx, r.r, core.Rules{}, c.Head)
		if err == nil {
			last = newRelease(d.Item.Value.(*core.Release), d.Proof, c.Head)
		}
		return err
	})
	return last, err
}

// Releases yields the releases that are kept, newest first.
func (r *Reader) Releases(ctx context.Context) iter.Seq2[*Release, error] {
	return func(yield func(*Release, error) bool) {
		for e, err := range r.r.Entries(ctx, authority.Recovery) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(newRelease(e.Value.(*core.Release), e.Proof, e.Link), nil) {
				return
			}
		}
	}
}
