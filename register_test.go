package tenure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/numbered"
)

// Leases work over a store that can only create: taken, renewed, taken over from
// a holder that went silent, released.
//
// SPEC ST17 LS1 LS2 LS4 LS5
func TestLeasesInANumberedRegister(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		place := memstore.New()
		defer place.Close()
		link := faultstore.New(place.Peer(), faultstore.Options{Rules: []faultstore.Rule{
			{Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpDeleteIf}, Fault: faultstore.Fail(ErrInvalid)},
		}})
		join := func(over *faultstore.Store) *Client {
			c, err := New(t.Context(), numbered.New(over), WithTTL(ttl), WithClock(clock.NewVirtual(1)))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		holder, rival := join(link), join(faultstore.New(place.Peer(), faultstore.Options{}))
		l, err := holder.Acquire(t.Context(), "job")
		if err != nil || l.Token() != 1 {
			t.Fatalf("%v, %v", l, err)
		}
		before := link.Counts()
		time.Sleep(20 * ttl) // virtual: poll
		if err := l.Err(); err != nil {
			t.Fatalf("the lease was not kept: %v", err)
		}
		if n := link.Counts()[faultstore.OpCreate] - before[faultstore.OpCreate]; n < 60 {
			t.Errorf("it was renewed by %d creates in 20 TTLs", n)
		}
		if _, err := rival.TryAcquire(t.Context(), "job"); !errors.Is(err, ErrHeld) {
			t.Errorf("a held lease: %v", err)
		}
		link.SetLink(faultstore.Cut)
		stolen, err := rival.Acquire(t.Context(), "job")
		if err != nil || stolen.Token() != 2 {
			t.Fatalf("the take-over: %v, %v", stolen, err)
		}
		if l.Context().Err() == nil {
			t.Error("the first holder may still act")
		}
		link.SetLink(faultstore.Up)
		if err := errors.Join(stolen.Release(t.Context()), holder.Close(), rival.Close()); err != nil {
			t.Error(err)
		}
		_ = holder.Store().Close()
		_ = rival.Store().Close()
	})
}

// SPEC ST17
func TestOpenANumberedRegister(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	for token := uint64(1); token < 4; token++ {
		c, err := Open(t.Context(), url+"?register=numbered")
		if err != nil {
			t.Fatal(err)
		}
		if i := c.Store().Info(); !strings.Contains(i.Identity, "numbered") || !strings.Contains(i.Driver, "numbered") {
			t.Errorf("the register passes for %+v", i)
		}
		l, err := c.Acquire(t.Context(), "job")
		if err != nil || l.Token() != token {
			t.Errorf("acquire: token %v, %v; want %d", l, err, token)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	c, err := Open(t.Context(), "mem:?register=numbered&namespace=x")
	if err != nil || c.Namespace() != "x" {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A namespace is kept plainly or in a register, whichever comes first, and the
// other way of opening it says so.
//
// SPEC ST17
func TestANamespaceIsNotUsedBothWays(t *testing.T) {
	t.Parallel()
	url := "file://" + t.TempDir()
	open := func(ctx context.Context, url, want string) {
		t.Helper()
		c, err := Open(ctx, url)
		switch {
		case want == "" && err != nil:
			t.Errorf("open %s: %v", url, err)
		case want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("open %s: %v, want %q", url, err, want)
		}
		if err == nil {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	ctx := t.Context()
	open(ctx, url+"?namespace=plain", "")
	open(ctx, url+"?namespace=plain&register=numbered", "in use without register=numbered")
	open(ctx, url+"?namespace=plain", "")
	open(ctx, url+"?namespace=numbered&register=numbered", "")
	open(ctx, url+"?namespace=numbered", "add register=numbered")
	open(ctx, url+"?namespace=numbered&register=numbered", "")
	for _, bad := range []string{"register=", "register=no", "register=numbered&register=numbered"} {
		open(ctx, url+"?"+bad, `give "numbered" once`)
	}
}
