package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Kinds of objects, beside the capsules.
const (
	kindCursor     = "cursor"     // where sweeps go on
	kindQuarantine = "quarantine" // what was set aside
	cursorElement  = "capsule"
)

// maxElement is how much of a malformed name the quarantine keeps: a key of any
// store has room for it beside the digest.
const maxElement = 64

// Swept is what one step of a sweep did.
type Swept struct {
	// Examined counts the capsules that were looked at, at most SweepStep.
	Examined int
	// Deleted counts capsules below the horizon that were removed, Quarantined objects
	// that are no capsules and were set aside, Kept what stays, Failed what could not
	// be worked: the next pass tries it again.
	Deleted, Quarantined, Kept, Failed int
	// More says that the step ended before the last capsule: call again.
	More bool
}

// Sweep looks at the next capsules, at most SweepStep, and removes those below the
// horizon (CK). Nothing is touched before a horizon was set. Live capsules stay, and
// so does what an outcome that is on its way may name (LA8). An object that is no
// capsule is set aside, never deleted. The place is kept in the store, so that any
// process goes on where the last one stopped; after the last capsule the next pass
// begins. The error joins what failed for single capsules; nothing depends on it.
func (c *Client) Sweep(ctx context.Context) (Swept, error) {
	return sweep(ctx, &sweeper{r: c.r, flight: c.k.Flight, remove: c.k.Delete})
}

// Sweep is Client.Sweep for a process that does not lead: it removes only what was
// written under tokens below the head's.
func (r *Reader) Sweep(ctx context.Context) (Swept, error) {
	return sweep(ctx, &sweeper{
		r:      r.r,
		flight: func() coreauthority.Flight { return coreauthority.Flight{} },
		remove: func(ctx context.Context, _ coreauthority.Name, element string) error {
			return r.r.Kit().Store.Delete(ctx, r.r.Key(string(core.KindCapsule), element))
		},
	})
}

// sweeper is one step of a sweep.
type sweeper struct {
	r      *authority.Reader
	flight func() coreauthority.Flight
	remove func(ctx context.Context, n coreauthority.Name, element string) error
	done   Swept
}

func sweep(ctx context.Context, s *sweeper) (Swept, error) {
	first, err := s.r.Snapshot(ctx)
	if err != nil {
		return s.done, err
	}
	if c, ok := first.Chain(authority.Checkpoint); !ok || c.Horizon == 0 {
		return s.done, nil
	}
	cursor, version, err := s.cursor(ctx)
	if err != nil {
		return s.done, err
	}
	elements, err := s.list(ctx, cursor.After)
	if err != nil {
		return s.done, err
	}
	flight := s.flight() // after the listing, before the head (LA8)
	now, err := s.r.Snapshot(ctx)
	if err != nil {
		return s.done, err
	}
	judge, ok := core.NewSweep(now.Kit(), flight)
	if !ok {
		return s.done, nil
	}
	var failed []error
	for _, element := range elements {
		if err := s.one(ctx, judge, element); err != nil {
			s.done.Failed++
			failed = append(failed, fmt.Errorf("capsule %s: %w", element, err))
		}
	}
	if ctx.Err() == nil {
		failed = append(failed, s.move(ctx, cursor, version, elements))
	}
	s.done.More = len(elements) == SweepStep
	return s.done, errors.Join(failed...)
}

// list is the next elements after one.
func (s *sweeper) list(ctx context.Context, after string) ([]string, error) {
	var elements []string
	for element, err := range s.r.Elements(ctx, string(core.KindCapsule), after) {
		if err != nil {
			return nil, err
		}
		if elements = append(elements, element); len(elements) == SweepStep {
			break
		}
	}
	return elements, nil
}

func (s *sweeper) one(ctx context.Context, judge *core.Sweep, element string) error {
	s.done.Examined++
	act := judge.Judge(element)
	if act == core.Keep {
		s.done.Kept++
		return nil
	}
	body, err := s.r.Object(ctx, string(core.KindCapsule), element, MaxCapsule)
	if err != nil || body == nil { // nil: somebody else was faster
		return err
	}
	if act == core.Examine {
		act = judge.Examined(element, body)
	}
	if act == core.Quarantine {
		if err := s.setAside(ctx, element, body); err != nil {
			return err
		}
	}
	if err := s.remove(ctx, nameOf(element), element); err != nil {
		return err
	}
	if act == core.Quarantine {
		s.done.Quarantined++
	} else {
		s.done.Deleted++
	}
	return nil
}

// nameOf is the object's name for a candidacy. A malformed element is no name that
// anything is ever written under.
func nameOf(element string) coreauthority.Name {
	n, err := core.ParseCapsuleName(element)
	if err != nil {
		return coreauthority.Name{Kind: core.KindCapsule, Attempt: element}
	}
	return n.Name()
}

// setAside copies an object that is no capsule into the quarantine, under its name
// and the digest of name and bytes.
func (s *sweeper) setAside(ctx context.Context, element string, body []byte) error {
	digest := coreauthority.DigestOf(kindQuarantine, append([]byte(element+"\n"), body...))
	to := fmt.Sprintf("capsule-%.*s-%s", maxElement, element, digest[:32])
	stands, _, err := chains.Create(ctx, s.r.Kit(), s.r.Key(kindQuarantine, to), body, MaxCapsule)
	if err == nil && !bytes.Equal(stands, body) {
		err = store.Errorf(store.ErrCorrupt, "", "set aside", to, "other bytes stand there")
	}
	return err
}

// cursor reads where sweeps go on. A cursor that cannot be read costs one pass from
// the beginning, and is replaced.
func (s *sweeper) cursor(ctx context.Context) (core.Cursor, store.Version, error) {
	fresh := core.Cursor{V: record.Level, Authority: s.r.Name()}
	key := s.r.Key(kindCursor, cursorElement)
	o, err := s.r.Kit().Store.Get(ctx, key, coreauthority.MaxInline)
	if errors.Is(err, store.ErrNotFound) {
		return fresh, "", nil
	}
	if err != nil {
		return fresh, "", err
	}
	var c core.Cursor
	switch err := record.Decode(key, o.Body, &c); {
	case errors.Is(err, store.ErrNewer):
		return fresh, "", err
	case err != nil || c.Authority != s.r.Name():
		return fresh, o.Version, nil
	}
	return c, o.Version, nil
}

// move moves the cursor on. Another sweeper that was faster is no failure.
func (s *sweeper) move(ctx context.Context, from core.Cursor, v store.Version, elements []string) error {
	kit := s.r.Kit()
	next := from.Move(kit.NewID(), elements)
	if next.After == from.After && v != "" {
		return nil
	}
	body, err := next.Encode()
	if err != nil { // the last element is no key of ours: begin anew
		next.After = ""
		if body, err = next.Encode(); err != nil {
			return err
		}
	}
	w := settle.Write{Key: s.r.Key(kindCursor, cursorElement), Body: body, Over: v, Limit: coreauthority.MaxInline,
		Mine: func(found []byte) bool { return bytes.Equal(found, body) }}
	_, err = settle.Do(ctx, kit.Store, w, kit.Pace(kit.Timing))
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}
