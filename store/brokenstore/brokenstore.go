// Package brokenstore is a family of stores that are not fit for leases, each in
// one way that was met in practice: for tests of a program that should refuse
// them, as store.Probe does.
//
// They are made of package faultstore, which has many more faults, and faults at
// chosen calls. They have the powers of the store that they are put over.
package brokenstore

import (
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Kind is one way to be broken.
type Kind struct {
	// Name says what such a store does.
	Name string
	// Rare says that it does so now and then, so that only a deep probe can be
	// expected to find it (see store.Report.Escape).
	Rare bool
	// Break puts the fault over a sound store, which the result owns.
	Break func(inner store.Store) store.Store
}

// Kinds lists the family.
func Kinds() []Kind {
	return []Kind{
		{Name: "ignores If-None-Match", Break: IgnoresIfNoneMatch},
		{Name: "ignores If-Match", Break: IgnoresIfMatch},
		{Name: "ignores 1 condition in 50", Rare: true, Break: func(s store.Store) store.Store { return IgnoresSomeConditions(s, 50, 1) }},
		{Name: "both racers win", Break: LetsBothRacersWin},
		{Name: "reads are stale", Break: ReadsStale},
		{Name: "lists without the newest key", Break: ListsWithoutNewest},
		{Name: "repeats versions", Break: RepeatsVersions},
		{Name: "forgets deletes", Break: ForgetsDeletes},
		{Name: "answers writes with 409 for ever", Break: AlwaysConflicts},
		{Name: "rewrites ETags", Break: RewritesVersions},
		{Name: "answers with an error page", Break: AnswersErrorPage},
	}
}

// racy is how long a torn store takes from its check to its write: longer than
// racers need to start.
const racy = 5 * time.Millisecond

func with(inner store.Store, rules ...faultstore.Rule) store.Store {
	return faultstore.New(inner, faultstore.Options{Rules: rules})
}

func on(f faultstore.Fault, ops ...faultstore.Op) faultstore.Rule {
	return faultstore.Rule{Ops: ops, Fault: f}
}

// IgnoresIfNoneMatch lets every create succeed, over what is there.
func IgnoresIfNoneMatch(inner store.Store) store.Store {
	return with(inner, on(faultstore.IgnoreCondition(), faultstore.OpCreate))
}

// IgnoresIfMatch lets every replace succeed, from whatever version.
func IgnoresIfMatch(inner store.Store) store.Store {
	return with(inner, on(faultstore.IgnoreCondition(), faultstore.OpReplace))
}

// IgnoresSomeConditions ignores the condition of a create or a replace with a
// chance of 1 in oneIn, drawn by the seed.
func IgnoresSomeConditions(inner store.Store, oneIn int, seed uint64) store.Store {
	return faultstore.New(inner, faultstore.Options{Seed: seed, Rules: []faultstore.Rule{{
		Odds: 1 / float64(oneIn), Fault: faultstore.IgnoreCondition(), Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace},
	}}})
}

// LetsBothRacersWin looks first and writes then, so that whoever comes in
// between wins too.
func LetsBothRacersWin(inner store.Store) store.Store {
	return with(inner, on(faultstore.TearCondition(racy), faultstore.OpCreate, faultstore.OpReplace))
}

// ReadsStale reads the state before the present one.
func ReadsStale(inner store.Store) store.Store {
	return with(inner, on(faultstore.StaleRead(1), faultstore.OpGet))
}

// ListsWithoutNewest leaves the key that was created last out of listings.
func ListsWithoutNewest(inner store.Store) store.Store {
	return with(inner, on(faultstore.ListWithoutNewest(), faultstore.OpList))
}

// RepeatsVersions gives equal bytes equal versions, and does not declare it.
func RepeatsVersions(inner store.Store) store.Store {
	return faultstore.New(inner, faultstore.Options{ContentVersions: true})
}

// ForgetsDeletes acknowledges deletes, and the keys stay.
func ForgetsDeletes(inner store.Store) store.Store {
	return with(inner, on(faultstore.ForgetDelete(), faultstore.OpDelete))
}

// AlwaysConflicts answers every create and every replace with "try again".
func AlwaysConflicts(inner store.Store) store.Store {
	return with(inner, on(faultstore.Fail(store.ErrUnavailable), faultstore.OpCreate, faultstore.OpReplace))
}

// RewritesVersions gives readers another version than the writer got, like a
// proxy that compresses.
func RewritesVersions(inner store.Store) store.Store {
	return with(inner, on(faultstore.RewriteVersion("-gzip"), faultstore.OpGet))
}

// AnswersErrorPage answers reads of what is there with a page for people, as a
// success.
func AnswersErrorPage(inner store.Store) store.Store {
	return with(inner, on(faultstore.AnswerBody("<html><body><h1>503 Service Unavailable</h1></body></html>"), faultstore.OpGet))
}
