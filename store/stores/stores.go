// Package stores names every driver, for programs that open any URL (UI4). A
// program that needs only some of them passes those drivers instead, and links
// no other provider's client.
package stores

import (
	"slices"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/azurestore"
	"github.com/tenure-project/tenure/store/etcdstore"
	"github.com/tenure-project/tenure/store/gcsstore"
	"github.com/tenure-project/tenure/store/natsstore"
	"github.com/tenure-project/tenure/store/s3store"
	"github.com/tenure-project/tenure/store/sqlstore"
	"github.com/tenure-project/tenure/store/sqlstore/pgstore"
)

// All returns a driver for every scheme beyond mem: and file:, which package
// tenure knows by itself. Pass them to tenure.WithDrivers. The slice is the
// caller's own.
func All() []store.Driver {
	return slices.Concat([]store.Driver{
		sqlstore.Driver(), s3store.Driver(), gcsstore.Driver(), azurestore.Driver(), etcdstore.Driver(), natsstore.Driver(),
	}, pgstore.Drivers())
}
