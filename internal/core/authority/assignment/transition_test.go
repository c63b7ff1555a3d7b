package assignment

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

func transition() *Transition {
	d := drain(Commit)
	return &Transition{V: 1, Authority: "jobs", Predecessor: d.Predecessor, Target: d.Target, Begun: leader}
}

// The form of a transition is fixed, and read strictly, at its own place.
//
// SPEC AS ST7
func TestTransition(t *testing.T) {
	t.Parallel()
	body := must(transition().Encode())
	recordtest.Golden(t, "transition", body)
	got, err := DecodeTransition("k", "jobs", 2, body)
	if err != nil || got.Target.State() != transition().Target.State() || got.Begun != leader {
		t.Fatalf("read back %+v, %v", got, err)
	}
	for what, bad := range map[string]struct {
		name    string
		version uint64
		body    string
	}{
		"another authority's": {"other", 2, string(body)},
		"another version's":   {"jobs", 3, string(body)},
		"a space":             {"jobs", 2, strings.Replace(string(body), `"v":1`, `"v": 1`, 1)},
		"no proof":            {"jobs", 2, strings.Replace(string(body), `"token":5`, `"token":0`, 1)},
		"another level":       {"jobs", 2, strings.Replace(string(body), `"v":1`, `"v":0`, 1)},
	} {
		if _, err := DecodeTransition("k", bad.name, bad.version, []byte(bad.body)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", what, err)
		}
	}
	skips := transition()
	skips.Target = plan(3, b1, c1).Fence()
	if _, err := skips.Encode(); err == nil {
		t.Error("a transition that skips a version was encoded")
	}
}

// Both ends of a transition are decisions of its version by what it says.
//
// SPEC AS
func TestTransitionDecides(t *testing.T) {
	t.Parallel()
	tr := transition()
	for verdict, want := range map[string]*Fence{Commit: tr.Target, Abort: tr.Predecessor.At(2)} {
		d := tr.Decide(verdict)
		if err := d.Valid(); err != nil || d.Result().State() != want.State() || *d.Begun != leader {
			t.Errorf("%s: %+v, %v", verdict, d, err)
		}
	}
	tr.Decide(Commit).Begun.Token = 9
	if tr.Begun.Token != leader.Token {
		t.Error("a decision shares its proof with the transition")
	}
}

// A map answers for its slots, is itself under another version, and is never taken
// for another one.
//
// SPEC AS
func TestMapHelpers(t *testing.T) {
	t.Parallel()
	m := plan(7, b1, a1, b1)
	for slot, want := range []Participant{b1, a1, b1} {
		if got, ok := m.Owner(slot); !ok || got != want {
			t.Errorf("slot %d: %+v, %v", slot, got, ok)
		}
	}
	for _, slot := range []int{-1, 3} {
		if _, ok := m.Owner(slot); ok {
			t.Errorf("slot %d has an owner", slot)
		}
	}
	if m.At(8).Version != 8 || m.Version != 7 || m.At(8).Fence().Digest != m.Fence().Digest {
		t.Error("the version is part of the map's digest, or was changed in place")
	}
	if _, err := m.Named("k", m.Fence()); err != nil {
		t.Error(err)
	}
	for _, other := range []*Map{m.At(8), plan(7, a1, b1, b1), plan(7, b1, a2, b1)} {
		if _, err := m.Named("k", other.Fence()); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("taken for %+v: %v", other, err)
		}
	}
}
