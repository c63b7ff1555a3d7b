package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST8
func TestEachKindIsItself(t *testing.T) {
	t.Parallel()
	if n := len(store.Kinds()); n != 9 {
		t.Errorf("there are %d kinds, want 9", n)
	}
	for _, kind := range store.Kinds() {
		for _, err := range []error{
			store.Errorf(kind, "s", "op", "k", "detail"),
			store.Wrap(kind, "s", "op", "k", io.EOF),
			fmt.Errorf("outer: %w", store.Errorf(kind, "s", "op", "k", "detail")),
			errors.Join(store.Errorf(kind, "s", "op", "k", "detail"), io.EOF),
			fmt.Errorf("bare: %w", kind),
		} {
			for _, other := range store.Kinds() {
				if errors.Is(err, other) != (other == kind) {
					t.Errorf("errors.Is(%v, %v) is %v", err, other, errors.Is(err, other))
				}
			}
			if got := store.KindOf(err); got != kind {
				t.Errorf("KindOf(%v) is %v, want %v", err, got, kind)
			}
		}
	}
}

// SPEC ST8
func TestMessagesNameEverything(t *testing.T) {
	t.Parallel()
	err := &store.Error{Kind: store.ErrConflict, Store: "file:/x", Op: "replace", Key: "n/lease/a", Detail: "it moved on", Cause: io.ErrUnexpectedEOF}
	want := "file:/x: replace n/lease/a: version conflict: it moved on: unexpected EOF"
	if err.Error() != want {
		t.Errorf("the message is %q, want %q", err, want)
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("the cause is lost")
	}
	short := store.Errorf(store.ErrInvalid, "", "check name", "", "bad")
	if got := short.Error(); got != "check name: invalid: bad" {
		t.Errorf("the message is %q", got)
	}
	if got := store.Errorf(store.ErrCorrupt, "s", "op", "k", "read %q: %w", "x", io.EOF).Error(); !strings.HasSuffix(got, `read "x": EOF`) {
		t.Errorf("a detail with a cause's text is %q", got)
	}
}

// The outermost error decides: a driver's "unknown" must not be taken for the
// refusal that caused it.
//
// SPEC ST8 ST9
func TestKindOf(t *testing.T) {
	t.Parallel()
	inner := store.Errorf(store.ErrConflict, "s", "replace", "k", "")
	for _, c := range []struct {
		err  error
		want error
	}{
		{nil, nil},
		{io.EOF, store.ErrUnavailable},
		{context.Canceled, store.ErrUnavailable},
		{store.Wrap(store.ErrUnknown, "s", "replace", "k", inner), store.ErrUnknown},
		{fmt.Errorf("outer: %w", store.Wrap(store.ErrUnknown, "s", "replace", "k", inner)), store.ErrUnknown},
	} {
		if got := store.KindOf(c.err); got != c.want {
			t.Errorf("KindOf(%v) is %v, want %v", c.err, got, c.want)
		}
	}
}

// SPEC ST13
func TestCtxErr(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := store.CtxErr(ctx, "s", "get", "k"); err != nil {
		t.Errorf("a living context gives %v", err)
	}
	cause := errors.New("the lease is lost")
	cancel(cause)
	err := store.CtxErr(ctx, "s", "get", "k")
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("an ended context gives %v, want ErrUnavailable and the cause", err)
	}
}

// SPEC UI4
func TestCheckParams(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ raw, says string }{
		{"x:?a=1&b=2", ""}, {"x:", ""}, {"x:?c=1", `unknown parameter "c"`}, {"x:?a=1&a=2", "2 times"}, {"x:?A=1", `unknown parameter "A"`},
	} {
		u, err := url.Parse(c.raw)
		if err != nil {
			t.Fatal(err)
		}
		err = store.CheckParams(u, "a", "b")
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("CheckParams(%s): %v, want %q", c.raw, err, c.says)
		}
	}
}
