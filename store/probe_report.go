package store

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Report is what Probe found.
type Report struct {
	// Store is what the store declares.
	Store Info
	// Sound says that every property was shown.
	Sound bool
	// RepeatsVersions says that equal bytes got an equal version. That is sound
	// only where Info.ContentVersions declares it.
	RepeatsVersions bool
	// DeleteIfSound says that a stale DeleteIf was refused and that DeleteIf was
	// atomic against Replace in every race. False also if the store does not
	// declare store.CanDeleteIf; nothing but retention (LS15) rests on it.
	DeleteIfSound bool
	// DeleteIfFlaw says in words why DeleteIfSound is false.
	DeleteIfFlaw string
	// Keys are the keys that were used, Leftover those that were not removed.
	Keys, Leftover []string
	// DeleteDenied says that the rights to delete are missing; see Note.
	DeleteDenied bool
	// RefusedCreates and RefusedReplaces count the writes that the store had to
	// refuse, and did.
	RefusedCreates, RefusedReplaces int
	// Repeated counts the calls that had to be sent again, because the store was
	// unavailable or the outcome unknown.
	Repeated int
	// Took is how long it all took, clean-up included.
	Took time.Duration
	// Latencies are by operation, in the order of their names.
	Latencies []Latency
}

// Latency is how long the calls of one operation took.
type Latency struct {
	Op       string
	Calls    int
	P50, Max time.Duration
}

// Escape is the chance that a store which ignores a condition on one of oneIn
// conditional writes, at random, would have passed as this one did: for all
// kinds of writes alike, and for the worse case that it does so for creates or
// for replaces only. It is 1 if oneIn is less than 1.
func (r Report) Escape(oneIn int) (alike, oneKind float64) {
	if oneIn < 1 {
		return 1, 1
	}
	pass := 1 - 1/float64(oneIn)
	return math.Pow(pass, float64(r.RefusedCreates+r.RefusedReplaces)),
		math.Pow(pass, float64(min(r.RefusedCreates, r.RefusedReplaces)))
}

// Odds says in words what the number of refusals proves.
func (r Report) Odds() string {
	alike, oneKind := r.Escape(50)
	return fmt.Sprintf("the store refused all of %d creates and %d replaces that it had to refuse; one that ignores 1 condition in 50 "+
		"would pass this with a chance of %.2g %%, or of %.2g %% if it does so for one kind of write only",
		r.RefusedCreates, r.RefusedReplaces, 100*alike, 100*oneKind)
}

// Note says what missing rights to delete mean; empty if nothing is left over.
func (r Report) Note() string {
	switch {
	case len(r.Leftover) == 0:
		return ""
	case r.DeleteDenied:
		return fmt.Sprintf("these credentials may not delete: leases are safe, since no release deletes anything, but retention and clean-up "+
			"will not work, and each probe leaves its keys behind (now %d, such as %s)", len(r.Leftover), r.Leftover[0])
	}
	return fmt.Sprintf("%d keys of the probe are left behind, such as %s; they may be deleted by hand", len(r.Leftover), r.Leftover[0])
}

// Property is what a store must have so that leases can be kept in it.
type Property string

// The properties that Probe shows.
const (
	// CreateRefuses: a second create is refused (ST1).
	CreateRefuses Property = "create refuses a present key"
	// ReadShowsWrite: a read shows the last write (ST3).
	ReadShowsWrite Property = "a read shows the last write"
	// RefusalKeeps: a refused write changes nothing (ST1, ST2).
	RefusalKeeps Property = "a refused write changes nothing"
	// ReplaceWorks: a replace at the present version works (ST2).
	ReplaceWorks Property = "replace works"
	// VersionChanges: a write changes the version (ST4).
	VersionChanges Property = "a write changes the version"
	// VersionsUnique: equal bytes get another version, unless declared
	// otherwise (ST4).
	VersionsUnique Property = "equal bytes get another version"
	// ReplaceRefuses: a replace at another version is refused (ST2).
	ReplaceRefuses Property = "replace refuses another version"
	// ReplaceNeverCreates: a replace of an absent key is ErrNotFound (ST2).
	ReplaceNeverCreates Property = "replace never creates"
	// OneCreator: of racing creates one wins (ST1).
	OneCreator Property = "one creator wins"
	// OneReplacer: of racing replaces of one version one wins (ST2).
	OneReplacer Property = "one replacer wins"
	// VersionAgrees: a read gives the version that the write returned (ST3).
	VersionAgrees Property = "a read gives the version that the write gave"
	// BodyKept: a read gives a body that somebody wrote (ST3).
	BodyKept Property = "a read gives what was written"
	// DeleteRemoves: a deleted key is absent (ST5).
	DeleteRemoves Property = "a deleted key is gone"
	// ListShows: a listing shows every finished write (ST6).
	ListShows Property = "a listing shows every finished write"
)

// consequences say what the lack of a property means, to an operator.
var consequences = map[Property]string{
	CreateRefuses:       "the store let a second create of one key succeed, as if it ignored the condition: every contender for a new lease would get it",
	ReadShowsWrite:      "a read did not show a write that the store had acknowledged: holders and contenders would act on what was true before",
	RefusalKeeps:        "a write that the store refused took effect all the same: a contender that lost would have overwritten the holder",
	ReplaceWorks:        "the store refused a replace at the version that it had just given: no lease could be renewed",
	VersionChanges:      "a write did not change the version: a holder that lost its lease could overwrite the next one unnoticed",
	VersionsUnique:      "writing the same bytes again gave an old version back, although the driver declares that versions are unique: a change to and fro would go unnoticed",
	ReplaceRefuses:      "the store let a replace at an old version succeed, as if it ignored the condition: a holder that lost its lease would overwrite the next one",
	ReplaceNeverCreates: "a replace of an absent key was not answered with \"not found\": a removed record would come back, or its loss look like a rival",
	OneCreator:          "the store did not let exactly one of several creators of one key win: leases on it could have two holders, or none",
	OneReplacer:         "the store did not let exactly one of several writers that replace one version win: two contenders could take over one lease, or none",
	VersionAgrees:       "a read gave another version than the write that it shows had given, as if a proxy that compresses rewrote ETags: every renewal would look like a loss",
	BodyKept:            "a read succeeded with something that nobody wrote, such as an error page: no record could be told from it",
	DeleteRemoves:       "a record was still there after the store had acknowledged its deletion: what was cleaned away would come back",
	ListShows:           "a listing did not show a key that had been written: leases would be missing from what operators and recovery see",
}

// ProbeError says which property a store lacks (ST10). It is of no error kind:
// callers ask for it with errors.As before they ask for a kind.
type ProbeError struct {
	// Store is the store's identity.
	Store string
	// Property is what it lacks.
	Property Property
	// Seen is what the probe saw.
	Seen string
}

// Error names the store, what it did, and what that would mean for leases.
func (e *ProbeError) Error() string {
	return fmt.Sprintf("%s: the store failed its probe: %s (seen: %s)", e.Store, consequences[e.Property], e.Seen)
}

// String is the report in a few lines, for an operator.
func (r Report) String() string {
	var b strings.Builder
	verdict := "not shown to be sound"
	if r.Sound {
		verdict = "sound"
	}
	fmt.Fprintf(&b, "%s (%s): %s in %v\n", r.Store.Identity, r.Store.Driver, verdict, r.Took.Round(1e6))
	fmt.Fprintln(&b, r.Odds())
	if r.DeleteIfFlaw != "" {
		fmt.Fprintf(&b, "conditional delete: %s\n", r.DeleteIfFlaw)
	}
	if note := r.Note(); note != "" {
		fmt.Fprintln(&b, note)
	}
	for _, l := range r.Latencies {
		fmt.Fprintf(&b, "%-9s %4d calls, median %v, longest %v\n", l.Op, l.Calls, l.P50.Round(1e3), l.Max.Round(1e3))
	}
	return b.String()
}
