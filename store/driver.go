package store

import (
	"context"
	"net/url"
)

// Driver opens stores of one URL scheme. Drivers are values that a program
// passes to tenure.Open; there is no global registry.
type Driver struct {
	// Scheme is the URL scheme it serves, such as "sqlite".
	Scheme string
	// Open opens the store named by u. Unknown query parameters are ErrInvalid,
	// so that a misspelt setting is not silently ignored; parameters in
	// [CommonParams] belong to the caller and are removed before Open.
	Open func(ctx context.Context, u *url.URL) (Store, error)
}

// Inspector is a store that can look at the settings of the place it is in.
// `tenure doctor` asks it; leases do not need it, nor the rights it takes.
type Inspector interface {
	// Inspect says in one sentence each which settings make leases costly, slow
	// or unsafe, and what could not be seen. It writes nothing.
	Inspect(ctx context.Context) ([]string, error)
}

// CommonParams are the URL query parameters that tenure.Open itself reads:
// namespace chooses a namespace, register=numbered keeps records in a numbered
// register over the store (ST17).
var CommonParams = []string{"namespace", "register"}

// CheckParams returns ErrInvalid if u's query has a parameter that is not in
// allowed or has one more than once.
func CheckParams(u *url.URL, allowed ...string) error {
	for name, values := range u.Query() {
		known := false
		for _, a := range allowed {
			known = known || a == name
		}
		if !known && !plain(name) {
			return Errorf(ErrInvalid, u.Scheme, "open", "", "the store URL has a parameter that is none (known: %q); a question mark in a password is written %%3F", allowed)
		}
		if !known {
			return Errorf(ErrInvalid, u.Scheme, "open", "", "unknown parameter %q in the store URL (known: %q)", name, allowed)
		}
		if len(values) > 1 {
			return Errorf(ErrInvalid, u.Scheme, "open", "", "parameter %q is given %d times in the store URL", name, len(values))
		}
	}
	return nil
}

// plain reports whether name may stand in a message: a part of a password that
// was taken for a parameter does not look like one.
func plain(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_' && c != '-' {
			return false
		}
	}
	return name != "" && len(name) <= 32
}
