package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// State is what a lease's record says.
type State string

// The states of a lease. A record that says held does not say that its holder
// lives: only a renewal that arrives does.
const (
	// Absent: the name was never used, or was removed by retention.
	Absent State = "absent"
	// Held: the record names a holder.
	Held State = "held"
	// Released: nobody holds it.
	Released State = "released"
)

// Status is one look at a lease's record.
type Status struct {
	// Name is the lease's name.
	Name string
	// Kind is self or session (LS1).
	Kind string
	// State is what the record says.
	State State
	// Token is the present or last holder's token, Counter the highest token
	// ever given or reserved.
	Token, Counter uint64
	// Owner and Label name the present holder; empty unless held. Of a session's
	// lease they are its incarnation and its node's name, and Term is its term: see
	// Client.Node.
	Owner, Label string
	Term         uint64
	// Note is the holder's note.
	Note string
	// Since is when the holder acquired it, or when it ended, by the wall clock
	// of whoever wrote that.
	Since time.Time
	// TTL is the lease's time to live, Renewal counts its renewals.
	TTL     time.Duration
	Renewal uint64
	// Successor is who may acquire it at once after a hand-over.
	Successor string
	// Ended says how, why and by whom the last tenure ended.
	EndedHow, EndedWhy, EndedBy string
	// FreeAfter is how long everyone must watch the record before the next
	// acquire, 0 if it is free or held.
	FreeAfter time.Duration
	// Proof says how a waiter can know at once that the holder is gone ("none",
	// "pidns" or "cgroup"), empty if it has to wait (LS14).
	Proof string
}

func statusOf(name string, r *lease.Record) Status {
	s := Status{Name: name, State: Absent}
	if r == nil {
		return s
	}
	s.Kind, s.State, s.Token, s.Counter = string(r.Kind), Released, r.Token, r.Counter
	s.Note, s.TTL, s.Renewal, s.Successor = r.Note, r.TTL(), r.Renewal, r.Successor
	if r.Held() {
		s.State, s.Owner, s.Label, s.Term, s.Since = Held, r.Owner.Incarnation, r.Owner.Node, r.Owner.Term, time.UnixMilli(r.Since)
		if r.Lock != nil {
			s.Proof = r.Lock.Tree
		}
		return s
	}
	s.Since = time.UnixMilli(r.Ended.At)
	s.EndedHow, s.EndedWhy, s.EndedBy = r.Ended.How, r.Ended.Why, r.Ended.By
	s.FreeAfter, _ = r.Wait("")
	return s
}

// Status reads the lease name once, linearizably.
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	if err := store.CheckName("lease name", name); err != nil {
		return Status{}, err
	}
	f, err := c.read(ctx, name, c.timing.Defaults().Attempt)
	if err != nil {
		return Status{}, err
	}
	return statusOf(name, f.rec), nil
}

// List yields every lease whose name starts with prefix, in the order of their
// keys. A record that cannot be read is yielded as an error with its name or
// key, and the listing goes on.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		for f, err := range c.records(ctx) {
			if err != nil {
				if !yield(Status{}, err) {
					return
				}
				continue
			}
			if strings.HasPrefix(f.rec.Resource, prefix) && !yield(statusOf(f.rec.Resource, f.rec), nil) {
				return
			}
		}
	}
}

// records yields every lease record of the namespace.
func (c *Client) records(ctx context.Context) iter.Seq2[found, error] {
	return func(yield func(found, error) bool) {
		for key, err := range c.list(ctx, store.Prefix(c.namespace, "lease")) {
			if err != nil {
				yield(found{}, err)
				return
			}
			f, err := c.readKey(ctx, key)
			if errors.Is(err, store.ErrNotFound) {
				continue // removed since it was listed
			}
			if !yield(f, err) {
				return
			}
		}
	}
}

func (c *Client) readKey(ctx context.Context, key string) (found, error) {
	call, cancel := settle.Limit(ctx, c.clk, c.timing.Defaults().Attempt)
	defer cancel()
	o, err := c.st.Get(call, key, lease.MaxBody)
	if err != nil {
		return found{}, err
	}
	r, err := lease.DecodeAny(key, o.Body, c.leaseKey)
	return found{rec: r, ver: o.Version, at: c.clk.Boot()}, err
}

// CheckToken asks the store whether token is the lease's current one: nil if it
// is held with exactly that token, ErrNotCurrent otherwise.
func (c *Client) CheckToken(ctx context.Context, name string, token uint64) error {
	s, err := c.Status(ctx, name)
	switch {
	case err != nil:
		return err
	case s.State == Held && s.Token == token:
		return nil
	case s.State == Held:
		return fmt.Errorf("lease %q: %w: %d; it is held with token %d by %s (owner %s)", name, ErrNotCurrent, token, s.Token, s.Label, s.Owner)
	}
	return fmt.Errorf("lease %q: %w: %d; it is %s, the last token was %d", name, ErrNotCurrent, token, s.State, s.Token)
}

// Change is one transition of a lease, as Watch yields them.
type Change struct {
	// Name is the lease's name.
	Name string
	// State after the change.
	State State
	// Tenure that began (State held) or ended (State released).
	Tenure Tenure
	// Missed counts transitions before this one that were too many to be told.
	Missed uint64
}

// Watch yields the present state of the lease name, then every transition in
// order, vacancies too, until ctx ends or the caller stops. Transitions that
// came between two looks are told from the record's history. While the store
// cannot be read it yields the error and goes on.
func (c *Client) Watch(ctx context.Context, name string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if err := store.CheckName("lease name", name); err != nil {
			yield(Change{}, err)
			return
		}
		w := watcher{name: name}
		for ctx.Err() == nil {
			f, err := c.read(ctx, name, c.timing.Defaults().Attempt)
			var archived []lease.Tenure
			if err == nil {
				archived, err = c.missing(ctx, &w, f.rec)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				if !yield(Change{}, err) || !c.pauseWatch(ctx) {
					return
				}
				continue
			}
			for _, ch := range w.advance(f.rec, archived) {
				if !yield(ch, nil) {
					return
				}
			}
			c.awaitChange(ctx, c.leaseKey(name), f.ver, c.pollInterval(c.timing.Defaults()))
		}
	}
}

func (c *Client) pauseWatch(ctx context.Context) bool {
	wctx, cancel := settle.Limit(ctx, c.clk, c.pollInterval(c.timing.Defaults()))
	defer cancel()
	<-wctx.Done()
	return ctx.Err() == nil
}

// watcher turns looks at a record into transitions.
type watcher struct {
	name    string
	started bool
	token   uint64 // of the last tenure told
	ended   bool   // that its end was told
	dropped uint64
}

// missing reads from the archives what happened between the last tenure that
// was told and the oldest that the record still tells of.
func (c *Client) missing(ctx context.Context, w *watcher, r *lease.Record) ([]lease.Tenure, error) {
	need := w.token // the oldest tenure of which something is still to tell
	if w.ended {
		need++
	}
	if r == nil || !w.started || r.Token < need || r.Held() && r.Token == need || len(r.Recent) > 0 && r.Recent[0].Token <= need {
		return nil, nil
	}
	var out []lease.Tenure
	for key, err := range c.list(ctx, c.archivePrefix(w.name)) {
		if err != nil {
			return nil, err
		}
		a, err := c.readArchive(ctx, key, w.name)
		if err != nil {
			return nil, err
		}
		out = append(out, a.Tenures...)
	}
	slices.SortFunc(out, func(a, b lease.Tenure) int { return cmp.Compare(a.Token, b.Token) })
	return slices.CompactFunc(out, func(a, b lease.Tenure) bool { return a.Token == b.Token }), nil
}

func (w *watcher) advance(r *lease.Record, archived []lease.Tenure) []Change {
	if r == nil {
		if w.started {
			return nil
		}
		w.started, w.ended = true, true
		return []Change{{Name: w.name, State: Absent}}
	}
	var out []Change
	if w.started {
		out = w.past(r, append(archived, r.Recent...))
	} else {
		w.started = true
		if !r.Held() { // the present vacancy is the first thing told
			w.token, w.ended, w.dropped = r.Token, true, r.Dropped
			return []Change{{Name: w.name, State: Released, Tenure: lastTenure(r)}}
		}
	}
	w.dropped = r.Dropped
	if r.Held() && (r.Token > w.token || w.ended) && r.Token != w.token {
		w.token, w.ended = r.Token, false
		out = append(out, Change{Name: w.name, State: Held, Tenure: Tenure{
			Token: r.Token, Owner: r.Owner.Incarnation, Label: r.Owner.Node, Since: time.UnixMilli(r.Since),
		}})
	}
	return out
}

// past tells the ends (and beginnings) that tenures, in order, show.
func (w *watcher) past(r *lease.Record, tenures []lease.Tenure) []Change {
	var out []Change
	missed := r.Dropped - min(w.dropped, r.Dropped)
	for _, t := range tenures {
		if t.Token < w.token || t.Token == w.token && w.ended {
			continue
		}
		p := publicTenure(t)
		if t.Token > w.token {
			begun := p
			begun.Until, begun.How, begun.Why, begun.By = time.Time{}, "", "", ""
			out = append(out, Change{Name: w.name, State: Held, Tenure: begun, Missed: missed})
			missed = 0
		}
		out = append(out, Change{Name: w.name, State: Released, Tenure: p, Missed: missed})
		missed = 0
		w.token, w.ended = t.Token, true
	}
	return out
}

func lastTenure(r *lease.Record) Tenure {
	if n := len(r.Recent); n > 0 && r.Recent[n-1].Token == r.Token {
		return publicTenure(r.Recent[n-1])
	}
	return Tenure{Token: r.Token, Until: time.UnixMilli(r.Ended.At), How: r.Ended.How, Why: r.Ended.Why, By: r.Ended.By}
}
