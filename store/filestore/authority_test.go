//go:build linux || darwin

package filestore_test

import (
	"testing"

	"github.com/tenure-project/tenure/authority/authoritytest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/storetest"
)

// folder is a store that remembers where it is, for its peers.
type folder struct {
	*filestore.Store
	path string
}

// An authority has one leader at a time, and a fenced log. The root package knows
// this one, so that its tests are outside.
//
// SPEC LA2 LA3 LA4 LA5 LA8 CK AS RF CT ST9
func TestAuthorities(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB, path string) store.Store {
		s, err := filestore.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return folder{s, path}
	}
	authoritytest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, t.TempDir()) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(folder).path) },
	})
}
