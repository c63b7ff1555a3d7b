package tenure

import (
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// A server that lost its data and got another identity with it is still known by
// the way to it: a client that remembers more does not act.
//
// SPEC LS12
// CASE B46
func TestLossIsSeenThroughTheWayToTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(identity, place string) *Client {
		t.Helper()
		st := placed{memstore.New(), identity, place}
		c, err := New(t.Context(), st, WithStateDir(dir), WithoutProbe())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); st.Close() })
		return c
	}
	take := func(c *Client) (uint64, error) {
		l, err := c.TryAcquire(t.Context(), "job")
		if err != nil {
			return 0, err
		}
		return l.Token(), l.Release(t.Context())
	}
	first := open("db:1", "db://host/x")
	for want := uint64(1); want <= 3; want++ {
		if got, err := take(first); err != nil || got != want {
			t.Fatalf("token %d, %v", got, err)
		}
	}
	_, err := take(open("db:2", "db://host/x")) // wiped, or made anew
	wantErr(t, err, ErrRegressed)
	_, err = take(open("db:1", "db://other/x")) // the same, restored elsewhere
	wantErr(t, err, ErrRegressed)
	if got, err := take(open("db:3", "db://third/x")); err != nil || got != 1 {
		t.Fatalf("another place: token %d, %v", got, err)
	}
}

type placed struct {
	*memstore.Store
	identity, place string
}

func (p placed) Info() store.Info {
	i := p.Store.Info()
	i.Identity, i.Place = p.identity, p.place
	return i
}
