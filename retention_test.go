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
