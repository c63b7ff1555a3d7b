// Package prices says what holding leases costs: how many requests a lease and a
// waiter send in a month, and what the storage providers take for them.
//
// The prices are list prices of one region, read on one day. They are for
// telling whether a lease costs cents or hundreds of dollars, not for
// checking a bill.
package prices

import (
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Month is what "a month" means here.
const Month = 30 * 24 * time.Hour

// Read is when the prices were read.
const Read = "November 2026"

// List is a provider's list price, in US dollars per million requests. Writes
// are creates, replaces and listings; deletes are free at all of them.
type List struct {
	// Provider names the service and its storage class.
	Provider string
	// Region is where these prices apply.
	Region string
	// Writes and Reads are dollars per million.
	Writes, Reads float64
}

var (
	amazon     = List{"Amazon S3 Standard", "us-east-1", 5.00, 0.40}
	google     = List{"Google Cloud Storage Standard", "one region in the US", 5.00, 0.40}
	azure      = List{"Azure Blob Storage hot LRS", "about, for East US", 5.50, 0.44}
	cloudflare = List{"Cloudflare R2 Standard", "everywhere", 4.50, 0.36}
	tigris     = List{"Tigris Standard", "one region", 5.00, 0.50}
)

// Of finds the price list for a store by what it says of itself. ok is false
// where requests have no price, and where the price is not known, such as at
// other S3-compatible services.
func Of(i store.Info) (list List, ok bool) {
	u, err := url.Parse(i.Identity)
	if err != nil {
		return List{}, false
	}
	host := ""
	if e := u.Query().Get("endpoint"); e != "" {
		eu, err := url.Parse(e)
		if err != nil || eu.Hostname() == "" {
			return List{}, false
		}
		host = eu.Hostname()
	}
	switch {
	case i.Scheme == "s3" && (host == "" || under(host, "amazonaws.com", "api.aws")):
		return amazon, true
	case i.Scheme == "s3" && under(host, "r2.cloudflarestorage.com"):
		return cloudflare, true
	case i.Scheme == "s3" && under(host, "tigris.dev", "tigrisfiles.io", "t3.storage.dev"):
		return tigris, true
	case i.Scheme == "gs" && host == "":
		return google, true
	case i.Scheme == "azblob" && under(u.Hostname(), "blob.core.windows.net"):
		return azure, true
	}
	return List{}, false
}

// under reports whether host is one of domains or below it.
func under(host string, domains ...string) bool {
	for _, d := range domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

// Billed says whether requests to stores of this kind cost money somewhere, so
// that "no price" means "not known" and not "none".
func Billed(scheme string) bool { return scheme == "s3" || scheme == "gs" || scheme == "azblob" }

// Requests are numbers of requests, by what providers tell apart.
type Requests struct{ Writes, Reads float64 }

// Classify turns calls by operation into requests. Deletes are free, and a
// listing costs as much as a write.
func Classify(calls map[string]float64) Requests {
	var r Requests
	for op, n := range calls {
		switch op {
		case "create", "replace", "list":
			r.Writes += n
		case "delete", "delete-if":
		default:
			r.Reads += n
		}
	}
	return r
}

// Times is r, n times.
func (r Requests) Times(n float64) Requests { return Requests{r.Writes * n, r.Reads * n} }

// Total is all of them.
func (r Requests) Total() float64 { return r.Writes + r.Reads }

// Dollars is what r costs.
func (l List) Dollars(r Requests) float64 { return (r.Writes*l.Writes + r.Reads*l.Reads) / 1e6 }

// PerMonth is how often something happens in a month that happens once in every.
func PerMonth(every time.Duration) float64 { return float64(Month) / float64(every) }

// jitter is the mean of the part of its interval after which the library renews:
// it shortens each pause by a random part, up to one eighth, so that many holders
// do not renew in step.
const jitter = 1 - 1.0/16

// Renewals is how often a lease of this TTL is renewed in a month: by the
// interval as it stands, and on average, which is a fifteenth more.
func Renewals(ttl time.Duration) (even, average float64) {
	even = PerMonth(RenewEvery(ttl))
	return even, even / jitter
}

// RenewEvery is the interval between the renewals of a lease (DL5).
func RenewEvery(ttl time.Duration) time.Duration { return lease.Timing{TTL: ttl}.Defaults().Renew }

// LeastTTL is the shortest TTL in whole seconds, and at least floor, at which the
// renewals of one lease cost less than limit dollars a month.
func (l List) LeastTTL(limit float64, perRenewal Requests, floor time.Duration) time.Duration {
	_, perMonth := Renewals(time.Hour) // in inverse proportion to the TTL
	seconds := l.Dollars(perRenewal.Times(perMonth)) * time.Hour.Seconds() / limit
	least := time.Duration(math.Floor(seconds)+1) * time.Second
	return max(least, (floor + time.Second - 1).Truncate(time.Second))
}

// LowestTTL is the shortest TTL that a store takes by how often one of its keys
// may be written (ST14).
func LowestTTL(i store.Info) time.Duration {
	if i.WritesPerSecond <= 0 {
		return lease.MinTTL
	}
	return max(lease.MinTTL, time.Duration(10/i.WritesPerSecond*float64(time.Second)))
}

// Waiter is what one who waits for a held lease sends.
type Waiter struct {
	// Poll is the mean pause between two looks; 0 where the store wakes the waiter,
	// who then looks once per renewal.
	Poll time.Duration
	// Month are the requests of a month.
	Month Requests
}

// WaiterFor is what waiting for a lease of this TTL takes: one read per look.
func WaiterFor(i store.Info, ttl time.Duration) Waiter {
	if i.Can.Has(store.CanWatch) {
		_, looks := Renewals(ttl)
		return Waiter{Month: Requests{Reads: looks}}
	}
	poll := min(max(ttl/15, 100*time.Millisecond), time.Second) // as tenure.WithPollEvery says
	return Waiter{Poll: poll, Month: Requests{Reads: PerMonth(poll)}}
}
