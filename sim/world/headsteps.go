package world

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// reported is the step of a head by which somebody else than its leader makes faults.
// The other legal steps have the names of those of leases and nodes.
const reported step = "reported"

// headStep says which step leads from prev (nil: absent) to next, or why none does
// (R28). It knows nothing of who wrote and when, nor of what else is stored. What the
// chains and the faults say is judged elsewhere; here it only says when they may
// change at all.
func headStep(prev, next *core.Head) (step, error) {
	switch {
	case prev == nil:
		return granted, firstHead(next)
	case next.Token < prev.Token || next.Counter < prev.Counter || next.Renewal < prev.Renewal || next.Dropped < prev.Dropped || next.Revision < prev.Revision:
		return "", fmt.Errorf("a number fell: token %d to %d, counter %d to %d, renewal %d to %d", prev.Token, next.Token, prev.Counter, next.Counter, prev.Renewal, next.Renewal)
	case next.WriterAttempt == prev.WriterAttempt:
		return "", errors.New("two states by one attempt")
	}
	st, err := leadershipStep(prev, next)
	switch {
	case err != nil:
		return st, err
	case st == jumped && next.Sequence > prev.Sequence:
		return st, nil
	case next.Sequence != prev.Sequence+1:
		return st, fmt.Errorf("the sequence %d follows %d", next.Sequence, prev.Sequence)
	}
	return st, nil
}

func firstHead(h *core.Head) error {
	if !h.Led() || h.Sequence != 1 || h.Renewal != 1 || h.Began != 1 || h.Token != h.Counter || len(h.Recent) > 0 || h.Revision != 0 || h.Round != nil {
		return fmt.Errorf("an authority begins with sequence %d, token %d, counter %d", h.Sequence, h.Token, h.Counter)
	}
	for _, name := range core.ChainNames() {
		if h.Chain(name) != nil {
			return fmt.Errorf("an authority begins with a chain %s", name)
		}
	}
	return nil
}

func leadershipStep(prev, next *core.Head) (step, error) {
	same := prev.Led() && next.Leads(prev.Last())
	switch {
	case same && next.Renewal == prev.Renewal+1:
		return renewed, keptLead(prev, next)
	case same || !prev.Led() && !next.Led():
		return foreignStep(prev, next)
	case next.Led():
		return tookOver, headTaken(prev, next)
	}
	return headEnded(prev, next)
}

// unlike is what differs between two heads beside the fields that edit makes alike.
func unlike(prev, next *core.Head, edit func(want *core.Head)) error {
	want := *prev
	want.Sequence, want.WriterAttempt = next.Sequence, next.WriterAttempt
	edit(&want)
	a, b := reflect.ValueOf(want), reflect.ValueOf(*next)
	for i := range a.NumField() {
		if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return fmt.Errorf("the step changed %s", a.Type().Field(i).Name)
		}
	}
	return nil
}

// keptLead wants a write of the leader itself: all standing state may change by its
// own rules, nothing of the leadership may.
func keptLead(prev, next *core.Head) error {
	if prev.Counter > prev.Token {
		return errors.New("a leader wrote whose counter was raised")
	}
	if next.HolderAttempt != next.WriterAttempt {
		return errors.New("a renewal that its leader did not write")
	}
	return unlike(prev, next, func(want *core.Head) {
		want.Renewal, want.HolderAttempt = next.Renewal, next.HolderAttempt
		want.Checkpoint, want.Assignment, want.Recovery, want.Catalog = next.Checkpoint, next.Assignment, next.Recovery, next.Catalog
		want.Round, want.Revision, want.Slots = next.Round, next.Revision, next.Slots
	})
}

// foreignStep wants a report or a jump.
func foreignStep(prev, next *core.Head) (step, error) {
	if next.Revision != prev.Revision {
		return reported, unlike(prev, next, func(want *core.Head) { want.Revision, want.Slots = next.Revision, next.Slots })
	}
	if next.Counter == prev.Counter && next.Sequence == prev.Sequence+1 {
		// A jump of the sequence by one looks like this, too.
		return jumped, unlike(prev, next, func(*core.Head) {})
	}
	return jumped, unlike(prev, next, func(want *core.Head) { want.Counter = next.Counter })
}

// headTaken wants a new leadership with the next token, which carries all that stood.
func headTaken(prev, next *core.Head) error {
	switch {
	case next.Token != prev.Counter+1 || next.Counter != next.Token:
		return fmt.Errorf("token %d with counter %d follows counter %d", next.Token, next.Counter, prev.Counter)
	case next.Renewal != prev.Renewal+1 || next.Began != next.Sequence || next.HolderAttempt != next.WriterAttempt:
		return errors.New("a leadership that its leader did not begin")
	}
	if prev.Led() {
		hows := []string{lease.HowObserved, lease.HowProven, lease.HowStoreClock, lease.HowReleased, lease.HowForced, lease.HowVouched}
		if err := remembers(prev, next, hows...); err != nil {
			return err
		}
	}
	return unlike(prev, next, func(want *core.Head) {
		want.Leader, want.Token, want.Counter, want.Renewal, want.Began = next.Leader, next.Token, next.Counter, next.Renewal, next.Began
		want.TTLMS, want.HolderAttempt, want.Note, want.Since, want.SecretHash = next.TTLMS, next.HolderAttempt, next.Note, next.Since, next.SecretHash
		if prev.Led() {
			want.Recent, want.Dropped = next.Recent, next.Dropped
		}
	})
}

// headEnded wants the end of a leadership without a successor.
func headEnded(prev, next *core.Head) (step, error) {
	if next.Token != prev.Token {
		return "", fmt.Errorf("the end of token %d left token %d", prev.Token, next.Token)
	}
	if err := remembers(prev, next, lease.HowReleased, lease.HowForced, lease.HowVouched); err != nil {
		return "", err
	}
	err := unlike(prev, next, func(want *core.Head) {
		want.Leader, want.HolderAttempt, want.Note, want.SecretHash = nil, "", "", ""
		want.Recent, want.Dropped, want.Counter = next.Recent, next.Dropped, next.Counter
	})
	e, rise := next.Ended(), next.Counter-prev.Counter
	switch {
	case err != nil:
		return "", err
	case e.How == lease.HowReleased && rise == 0 && e.SupersededTTLMS == 0:
		return gaveUp, nil
	case e.How != lease.HowReleased && rise == 1 && e.SupersededTTLMS == prev.TTLMS:
		return forcedOut, nil
	}
	return "", fmt.Errorf("a leadership ended by %q with %d ms superseded, and its counter rose by %d", e.How, e.SupersededTTLMS, rise)
}

// remembers wants prev's leadership as the newest past one, after all that prev
// remembered, less its oldest part, which is counted.
func remembers(prev, next *core.Head, hows ...string) error {
	all := len(prev.Recent) + int(prev.Dropped) + 1
	n := len(next.Recent)
	if n == 0 || n+int(next.Dropped) != all {
		return fmt.Errorf("%d past leaderships and %d dropped, want %d in all", n, next.Dropped, all)
	}
	l := next.Recent[n-1]
	if l.Token != prev.Token || l.Owner != *prev.Leader || l.First != prev.Began || l.Last != prev.Sequence || !slices.Contains(hows, l.How) {
		return fmt.Errorf("the newest past leadership is token %d, %s; want %d", l.Token, l.How, prev.Token)
	}
	if !slices.Equal(prev.Recent[len(prev.Recent)-(n-1):], next.Recent[:n-1]) {
		return errors.New("what was remembered of past leaderships changed")
	}
	return nil
}
