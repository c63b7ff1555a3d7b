package store

import (
	"context"
	"fmt"
	"strings"
)

const (
	// MaxChanges is how many changes one Commit takes at most. An etcd cluster
	// compares 128 things in a transaction by default, of which a version takes
	// three.
	MaxChanges = 40
	// MaxScan is the largest ScanRange.Most.
	MaxScan = 1 << 15
)

// Committer changes several keys in one transaction and reads several from one
// snapshot. Its versions are those of Get, Create and Replace, and a Commit is
// linearizable with every other call of the store: a register and a row may be
// changed together, and each also alone (SL2, SL4).
type Committer interface {
	// Commit makes every change if each condition holds, and otherwise none. It is
	// durable and atomic: no reader, by Get or by Scan, sees a part of it. It
	// returns one version for each change: the new one of a Put, and "" for a
	// Remove or a Keep.
	//
	// A condition that does not hold is ErrConflict, whether the key is absent,
	// present or at another version; the error names one such key, and nothing
	// happened. Every other error names the first key. A reply that may be lost is ErrUnknown for all changes together
	// (ST9): they all happened, may all happen yet, or never will. A driver never
	// repeats a Commit that may have happened.
	//
	// The conditions need not be on the keys that change: a decision that rests on
	// rows which it only read names each of them with Keep, and so no other commit
	// can come between its reading and its writing. A row that was not there is
	// covered only if its key is named.
	//
	// ErrInvalid, before anything happens, are: no change or more than MaxChanges,
	// a key that is bad or named twice, bodies that are longer than Info.MaxBody
	// together, and a Change that makes no sense. A context that ends, a closed
	// store and every other error are as for Replace.
	Commit(ctx context.Context, changes []Change) ([]Version, error)

	// Scan returns the objects whose keys are in r, in the order of r, at most
	// r.Most of them. They are from one snapshot, which shows every write that was
	// acknowledged before the call began (ST3). It takes no write lock: neither
	// does it wait for a writer, nor a writer for it. No key in r is an empty
	// answer and no error. A body of more than r.Limit bytes is ErrCorrupt; no more
	// is loaded than r.Most bodies of r.Limit bytes (ST7). A range that makes no
	// sense is ErrInvalid.
	Scan(ctx context.Context, r ScanRange) ([]Keyed, error)
}

// ChangeKind says what a Change does to its key.
type ChangeKind uint8

// What a Change does once all conditions hold.
const (
	// Put stores Body.
	Put ChangeKind = iota
	// Remove takes the key away; Over names the version that it is at.
	Remove
	// Keep changes nothing: the Change is a condition only.
	Keep
)

// String is the kind's name, for messages.
func (k ChangeKind) String() string {
	switch k {
	case Put:
		return "put"
	case Remove:
		return "remove"
	case Keep:
		return "keep"
	}
	return fmt.Sprintf("ChangeKind(%d)", uint8(k))
}

// Change is one part of a Commit: a condition on a key, and what happens to it.
type Change struct {
	// Key is the key concerned.
	Key string
	// Over is the condition: the version that Key must be at, "" if Key must be
	// absent.
	Over Version
	// Do is what happens to Key; the zero value is Put.
	Do ChangeKind
	// Body is what a Put stores; it is empty for the other kinds. The driver does
	// not keep it after the call.
	Body []byte
}

// ScanRange says which objects a Scan returns.
type ScanRange struct {
	// From and To bound the keys in byte order: From <= key < To. They need not be
	// keys, but hold only characters of keys. From may be empty, To may not:
	// PrefixEnd makes one from a prefix. From == To is an empty range, From > To is
	// ErrInvalid.
	From, To string
	// Backwards begins with the greatest key.
	Backwards bool
	// Most is how many objects are returned at most, 1 to MaxScan.
	Most int
	// Limit is the length in bytes that each body may have, as for Get.
	Limit int
}

// Keyed is an object with its key.
type Keyed struct {
	Key string
	Object
}

// PrefixEnd is the least ScanRange.To that is greater than every key with the
// prefix, which must end in "/", as those of [Prefix] do.
func PrefixEnd(prefix string) string {
	return strings.TrimSuffix(prefix, "/") + "0" // the character after the slash
}

// CheckChanges returns ErrInvalid unless changes are what [Committer] accepts of
// a store whose Info.MaxBody is maxBody. Drivers call it first.
func CheckChanges(changes []Change, maxBody int) error {
	if len(changes) == 0 || len(changes) > MaxChanges {
		return Errorf(ErrInvalid, "", "check changes", "", "a commit has 1 to %d changes, this one %d", MaxChanges, len(changes))
	}
	seen := make(map[string]bool, len(changes))
	total := 0
	for _, c := range changes {
		if err := c.check(); err != nil {
			return err
		}
		if seen[c.Key] {
			return Errorf(ErrInvalid, "", "check changes", c.Key, "it is named twice in one commit; make one change of the two")
		}
		seen[c.Key] = true
		total += len(c.Body)
	}
	if total > maxBody {
		return Errorf(ErrInvalid, "", "check changes", "", "the bodies have %d bytes together, at most %d are accepted", total, maxBody)
	}
	return nil
}

func (c Change) check() error {
	if err := CheckKey(c.Key); err != nil {
		return err
	}
	switch {
	case c.Do > Keep:
		return Errorf(ErrInvalid, "", "check changes", c.Key, "there is no change of the kind %d", uint8(c.Do))
	case c.Do == Remove && c.Over == "":
		return Errorf(ErrInvalid, "", "check changes", c.Key, "a removal needs the version it is over: an absent key cannot be removed")
	case c.Do != Put && len(c.Body) > 0:
		return Errorf(ErrInvalid, "", "check changes", c.Key, "a %v has no body, this one has %d bytes", c.Do, len(c.Body))
	}
	return nil
}

// CheckScan returns ErrInvalid unless r is a range that [Committer] accepts.
// Drivers call it first.
func CheckScan(r ScanRange) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalid, "", "check scan", "", format, args...)
	}
	for _, bound := range []string{r.From, r.To} {
		if len(bound) > 800 {
			return bad("a bound has at most 800 bytes, one has %d", len(bound))
		}
		for i := 0; i < len(bound); i++ {
			if c := bound[i]; !plainByte(c) && c != '=' && c != '/' {
				return bad("the bound %q has the character %q, which no key has", bound, c)
			}
		}
	}
	switch {
	case r.To == "":
		return bad("it has no upper bound; name one")
	case r.From > r.To:
		return bad("its bounds are upside down: from %q to %q", r.From, r.To)
	case r.Most < 1 || r.Most > MaxScan:
		return bad("it wants at most %d objects, give 1 to %d", r.Most, MaxScan)
	case r.Limit < 0:
		return bad("the limit of a body is %d bytes", r.Limit)
	}
	return nil
}
