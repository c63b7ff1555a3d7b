package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

// SPEC GD1
func TestFencedErrorNamesBothTokens(t *testing.T) {
	t.Parallel()
	var err error = &guard.FencedError{Namespace: "prod", Resource: "report", Token: 7, Highest: 8}
	if !errors.Is(err, guard.ErrFenced) || errors.Is(err, guard.ErrInvalid) {
		t.Errorf("%v is not of the kind ErrFenced alone", err)
	}
	for _, part := range []string{"prod/report", "token 7", "8 was seen"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// SPEC GD1 ST11
func TestInput(t *testing.T) {
	t.Parallel()
	for token, ok := range map[uint64]bool{0: false, 1: true, guard.MaxToken: true, guard.MaxToken + 1: false, 1<<64 - 1: false} {
		if err := guard.CheckToken(token); (err == nil) != ok || err != nil && !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("CheckToken(%d) = %v", token, err)
		}
	}
	for _, c := range []struct {
		namespace, resource string
		ok                  bool
	}{{"a", "b", true}, {"", "b", false}, {"a", "", false}, {"a", " b", false}, {"a\n", "b", false}} {
		if err := guard.CheckNames(c.namespace, c.resource); (err == nil) != c.ok || err != nil && store.KindOf(err) != guard.ErrInvalid {
			t.Errorf("CheckNames(%q, %q) = %v", c.namespace, c.resource, err)
		}
	}
	if err := guard.CheckBinding("x", "a", "b", "a", "b"); err != nil {
		t.Errorf("CheckBinding of the same lease: %v", err)
	}
	for _, other := range [][2]string{{"a", "c"}, {"c", "b"}, {"ab", ""}} {
		if err := guard.CheckBinding("x", other[0], other[1], "a", "b"); !errors.Is(err, guard.ErrInvalid) {
			t.Errorf("CheckBinding of %v: %v", other, err)
		}
	}
}
