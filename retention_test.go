package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// A store that says it deletes by version, but does not do it atomically, gets no
// retention, and nothing is pruned in it.
//
// SPEC LS15
func TestRetentionNeedsASoundDelete(t *testing.T) {
	t.Parallel()
	st := unsoundDelete{memstore.New()}
	_, err := New(t.Context(), st, WithRetention(72*time.Hour))
	wantErr(t, err, ErrInvalid)
	c, err := New(t.Context(), st, WithRetention(72*time.Hour), WithoutProbe())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if c, err = New(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Prune(t.Context())
	wantErr(t, err, ErrInvalid)
}

// unsoundDelete deletes whatever is there.
type unsoundDelete struct{ *memstore.Store }

func (s unsoundDelete) Info() store.Info {
	i := s.Store.Info()
	i.SingleHost = false
	return i
}

func (s unsoundDelete) DeleteIf(ctx context.Context, key string, _ store.Version) error {
	return s.Store.Delete(ctx, key)
}

// A record that everyone first has to watch stays, whatever a wall clock says of
// when that began: without the record there is nothing to watch, and the next
// acquire would come while the robbed holder may still act.
//
// SPEC LS15 LS11 ST12
func TestPruneKeepsWhatIsWatched(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(WithRetention(48*time.Hour)), w.join()
		stolen := w.acquire(a, "stolen", TTL(24*time.Hour))
		if _, err := b.Steal(t.Context(), "stolen", StealOptions{Token: stolen.Token(), Reason: "test", By: "op"}); err != nil {
			t.Fatal(err)
		}
		handed := w.acquire(a, "handed", TTL(24*time.Hour))
		if err := handed.ReleaseTo(t.Context(), "next", 24*time.Hour); err != nil {
			t.Fatal(err)
		}
		w.release(w.acquire(a, "free"))
		time.Sleep(49 * time.Hour) // as a wall clock that was 49 hours behind would have it
		p, err := b.Prune(t.Context())
		if err != nil || p.Leases != 1 || p.Kept != 2 {
			t.Fatalf("%+v, %v; want 1 removed and 2 kept", p, err)
		}
	})
}
