// Package stores names every driver, for programs that open any URL (UI4).
package stores

import (
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/sqlstore"
)

// All returns a driver for every scheme beyond mem: and file:, which package
// tenure knows by itself. Pass them to tenure.WithDrivers. The slice is the
// caller's own.
func All() []store.Driver {
	return []store.Driver{sqlstore.Driver()}
}
