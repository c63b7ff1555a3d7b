package ledger

import (
	"io"
	"log/slog"
	"testing"

	"github.com/tenure-project/tenure/store/memstore"
)

// quiet is for worlds full of faults.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// newStore is the store of another site.
func newStore(t *testing.T) *memstore.Store {
	st := memstore.New()
	t.Cleanup(func() { _ = st.Close() })
	return st
}
