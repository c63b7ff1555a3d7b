//go:build linux || darwin

package filestore_test

import (
	"testing"

	"github.com/tenure-project/tenure/slots/slotstest"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/storetest"
)

// Each slot has one owner at a time, under epochs that rise.
//
// SPEC SL2 SL3 SL4 SL5 SL7 SL8 SL9 LS8 LS11 LS12 ST9
func TestSlots(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB, path string) store.Store {
		s, err := filestore.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return folder{s, path}
	}
	slotstest.Run(t, storetest.Harness{
		Open: func(t testing.TB) store.Store { return open(t, t.TempDir()) },
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(folder).path) },
	})
}
