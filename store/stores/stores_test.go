package stores_test

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every driver has a scheme of its own, and the core accepts them beside the
// schemes that it knows by itself.
//
// SPEC UI4
func TestAllSchemes(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{"mem": true, "file": true}
	for _, d := range stores.All() {
		if d.Scheme == "" || d.Open == nil || seen[d.Scheme] {
			t.Errorf("driver %q is incomplete or stands here twice", d.Scheme)
		}
		seen[d.Scheme] = true
	}
}

// A URL of each scheme that works without a server opens, and says so itself.
//
// SPEC UI4
func TestOpenByURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for scheme, url := range map[string]string{
		"mem":    "mem:",
		"file":   "file://" + filepath.Join(dir, "store"),
		"sqlite": "sqlite://" + filepath.Join(dir, "store.db"),
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			st, _, err := tenure.OpenStore(context.Background(), url, tenure.WithDrivers(stores.All()...))
			if err != nil {
				t.Fatal(err)
			}
			if got := st.Info().Scheme; got != scheme {
				t.Errorf("the store says its scheme is %q", got)
			}
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
