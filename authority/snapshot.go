package authority

import (
	"context"
	"fmt"
	"reflect"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
)

// Snapshot is one state of the head: it says who leads, and pins everything that
// stands. It is a value and does not change. The zero Snapshot is none, and has
// nothing to say: its methods panic.
type Snapshot struct {
	head *core.Head
	ver  store.Version
	f    *files
}

// Part is what a snapshot may be validated by.
type Part string

// The parts of a snapshot. A chain's is its newest entry and bounds.
const (
	// PartLeader is who leads.
	PartLeader Part = "leader"
	// PartFaults is the inventory of faults.
	PartFaults Part = "faults"
	// PartRound is the recovery round that stands.
	PartRound      Part = "round"
	PartCheckpoint Part = core.Checkpoint
	PartAssignment Part = core.Assignment
	PartRecovery   Part = core.Recovery
	PartCatalog    Part = core.Catalog
)

func parts() []Part {
	return []Part{PartLeader, PartFaults, PartRound, PartCheckpoint, PartAssignment, PartRecovery, PartCatalog}
}

// Authority is the authority's name.
func (s Snapshot) Authority() string { return s.head.Authority }

// Sequence numbers the state: +1 with every change.
func (s Snapshot) Sequence() uint64 { return s.head.Sequence }

// Token is the present or last leader's.
func (s Snapshot) Token() uint64 { return s.head.Token }

// Counter is the highest token ever given or reserved.
func (s Snapshot) Counter() uint64 { return s.head.Counter }

// Renewal counts the leaders' signs of life.
func (s Snapshot) Renewal() uint64 { return s.head.Renewal }

// Leader is the leadership that the head names, false if it names none. It does not
// say that its process lives.
func (s Snapshot) Leader() (tenure.Proof, bool) {
	if !s.head.Led() {
		return tenure.Proof{}, false
	}
	return tenure.Proof(s.head.Last()), true
}

// Leads reports whether the head names exactly p, and no jump raised its counter
// above p's token.
func (s Snapshot) Leads(p tenure.Proof) bool { return s.head.Leads(core.Proof(p)) && !s.head.Raised() }

// Over reports whether nothing that is on its way under p is ever admitted after
// this state: it named another leadership, or none, at p's token or above it. A
// leadership that is newer than the state is not over by it.
func (s Snapshot) Over(p tenure.Proof) bool { return p.Token <= s.head.Token && !s.Leads(p) }

// Since is when the present or last leadership began, by its leader's wall clock.
func (s Snapshot) Since() time.Time { return time.UnixMilli(s.head.Since) }

// TTL is the head's time to live.
func (s Snapshot) TTL() time.Duration { return s.head.TTL() }

// Note is the leader's.
func (s Snapshot) Note() string { return s.head.Note }

// Chain is what the head says of the named chain, false if it is empty.
func (s Snapshot) Chain(name string) (ChainStatus, bool) {
	c := s.head.Chain(name)
	if c == nil {
		return ChainStatus{}, false
	}
	return ChainStatus{
		Name: name, Head: c.Head, Live: c.Live, Floor: c.Floor, Anchor: copied(c.Anchor), Mark: copied(c.Mark), Marks: c.Marks,
		Horizon: c.Horizon, Binding: c.Binding, State: c.State,
	}, true
}

func copied(l *Link) *Link {
	if l == nil {
		return nil
	}
	c := *l
	return &c
}

// Past are the last leaderships that ended, oldest first; older ones are dropped.
func (s Snapshot) Past() (recent []Leadership, dropped uint64) {
	for _, l := range s.head.Recent {
		recent = append(recent, Leadership{
			Proof: tenure.Proof(l.Owner.Proof(l.Token)), First: l.First, Last: l.Last,
			Since: time.UnixMilli(l.Since), Until: time.UnixMilli(l.Until), How: l.How, Why: l.Why, By: l.By,
		})
	}
	return recent, s.head.Dropped
}

// Faults are the newest fault reports of all nodes, by node; active are those that
// no release cleared (RF). revision is the sequence at which they last changed.
func (s Snapshot) Faults() (all []Fault, revision uint64) {
	for _, f := range s.head.Slots {
		all = append(all, faultOf(f))
	}
	return all, s.head.Revision
}

// Round is the recovery round that stands, false if none does.
func (s Snapshot) Round() (Round, bool) {
	if s.head.Round == nil {
		return Round{}, false
	}
	return roundOf(s.head.Round), true
}

func roundOf(r *core.Round) Round {
	return Round{Generation: r.Generation, ID: r.ID, Proof: tenure.Proof(r.Proof), Revision: r.Revision, Began: r.Began, Plan: r.Plan}
}

// Validate reads the head again, just before acting on the snapshot, and returns
// ErrChanged unless the named parts are as they were, or all of them if none is
// named. Renewals change no part. With PartLeader, a leadership whose counter was
// raised is changed (RF, LA4).
func (s Snapshot) Validate(ctx context.Context, of ...Part) error {
	of, err := s.named(of)
	if err != nil {
		return err
	}
	now, p, err := s.compare(ctx, of)
	if err == nil && p != "" {
		err = fmt.Errorf("authority %q, sequence %d, now %d: %w: %s", s.head.Authority, s.head.Sequence, now.Sequence(), ErrChanged, p)
	}
	return err
}

// Next waits until the named parts are not as they were, any of them if none is
// named, and returns the state in which that was seen. Renewals change no part, so
// that nobody who waits for news is woken by signs of life; what came and went
// between two looks is not seen. It rides out a store that is unavailable; it
// returns ctx's cause when ctx ends, and other errors at once.
func (s Snapshot) Next(ctx context.Context, of ...Part) (Snapshot, error) {
	of, err := s.named(of)
	if err != nil {
		return Snapshot{}, err
	}
	for {
		now, p, err := s.compare(ctx, of)
		switch {
		case err == nil && p != "":
			return now, nil
		case ctx.Err() != nil:
			return Snapshot{}, context.Cause(ctx)
		case err == nil:
			s.f.awaitChange(ctx, now.ver)
		case retryable(err):
			s.f.pause(ctx, s.f.c.Timing.Renew/2)
		default:
			return Snapshot{}, err
		}
	}
}

// named are the parts asked for, all if none is named.
func (s Snapshot) named(of []Part) ([]Part, error) {
	if len(of) == 0 {
		return parts(), nil
	}
	for _, p := range of {
		if _, known := s.part(p); !known {
			return nil, store.Errorf(store.ErrInvalid, "", "compare", s.head.Authority, "no part of a snapshot is called %q", p)
		}
	}
	return of, nil
}

// compare reads the head and names the first of the parts that is not as it was.
func (s Snapshot) compare(ctx context.Context, of []Part) (now Snapshot, changed Part, err error) {
	is, err := s.f.stands(ctx)
	switch {
	case err != nil:
		return now, "", err
	case is.ver == s.ver:
		return s, "", nil
	case is.head.Sequence < s.head.Sequence:
		return now, "", store.Errorf(store.ErrCorrupt, s.f.identity(), "compare", s.f.headKey, "the head went back from sequence %d to %d", s.head.Sequence, is.head.Sequence)
	}
	now = Snapshot{head: is.head, ver: is.ver, f: s.f}
	for _, p := range of {
		was, _ := s.part(p)
		is, _ := now.part(p)
		if !reflect.DeepEqual(was, is) {
			return now, p, nil
		}
	}
	return now, "", nil
}

// part is what the head says of p.
func (s Snapshot) part(p Part) (any, bool) {
	h := s.head
	switch p {
	case PartLeader:
		return []any{h.Led(), h.Last(), h.Raised()}, true
	case PartFaults:
		return h.Revision, true
	case PartRound:
		return h.Round, true
	case PartCheckpoint, PartAssignment, PartRecovery, PartCatalog:
		return h.Chain(string(p)), true
	}
	return nil, false
}

// Kit is the head itself, for the packages of this module; do not change it.
func (s Snapshot) Kit() *core.Head { return s.head }
