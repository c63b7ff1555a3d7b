package gcsstore

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// listing runs List and gives the keys up to the first error.
func listing(t testing.TB, s *Store, prefix, after string) (keys []string, err error) {
	t.Helper()
	for k, err := range s.List(t.Context(), prefix, after) {
		if err != nil {
			return keys, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// Each page is asked for once, and a page that fails ends the listing with an
// error after the keys before it.
//
// SPEC ST6 ST9
func TestListPages(t *testing.T) {
	t.Parallel()
	fail := 0
	cl := newCloud(t, nil)
	cl.script = func(w http.ResponseWriter, _ *http.Request) bool {
		if fail == 0 || len(cl.requests()) != fail {
			return false
		}
		refuse(w, 503, "backendError", "Backend error")
		return true
	}
	cl.page = 10
	all := []string{}
	for i := range 35 {
		all = append(all, fmt.Sprintf("n/lease/%02d", i))
		cl.put("p/"+all[i], "")
	}
	s := cl.open(t, "p")
	if keys, err := listing(t, s, "n/", ""); err != nil || !slices.Equal(keys, all) || len(cl.requests()) != 4 {
		t.Errorf("%d keys, %v, %d requests; want 35 keys in 4 requests", len(keys), err, len(cl.requests()))
	}
	if keys, err := listing(t, s, "n/", all[20]); err != nil || !slices.Equal(keys, all[21:]) {
		t.Errorf("after %s: %q, %v", all[20], keys, err)
	}
	fail = len(cl.requests()) + 3
	keys, err := listing(t, s, "n/", "")
	is(t, err, store.ErrUnavailable)
	if !slices.Equal(keys, all[:20]) || len(cl.requests()) != fail {
		t.Errorf("%d keys before the error, and %d requests; want 20 and %d", len(keys), len(cl.requests()), fail)
	}
}

// Names that are no keys belong to somebody else.
//
// SPEC ST6
func TestListPassesOverForeignObjects(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	for _, name := range []string{"p/", "p/n/", "p/n/lease/", "p/n/lease/READ ME.txt", "p/n/lease/a", "p2/n/lease/b", "q"} {
		cl.put(name, "")
	}
	if keys, err := listing(t, cl.open(t, "p"), "", ""); err != nil || !slices.Equal(keys, []string{"n/lease/a"}) {
		t.Errorf("the keys are %q, %v", keys, err)
	}
}

// A listing that cannot be right ends with an error, and ends.
//
// SPEC ST6
func TestListRefusesNonsense(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]string{
		"endless":     `{"items":[{"name":"p/n/a"}],"nextPageToken":"again"}`,
		"no progress": `{"nextPageToken":"again"}`,
		"order":       `{"items":[{"name":"p/n/b"},{"name":"p/n/a"}]}`,
		"twice":       `{"items":[{"name":"p/n/a"},{"name":"p/n/a"}]}`,
		"other keys":  `{"items":[{"name":"p/o/a"}]}`,
		"elsewhere":   `{"items":[{"name":"q/n/a"}]}`,
		"error":       `{"items":[{"name":"p/n/a"}],"error":{"code":503}}`,
		"null":        `null`,
		"array":       `[]`,
		"cut":         `{"items":[{"name":"p/n/a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCloud(t, func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = fmt.Fprint(w, page)
				return true
			})
			_, err := listing(t, cl.open(t, "p"), "n/", "")
			is(t, err, store.ErrUnavailable)
			if n := len(cl.requests()); n > 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
