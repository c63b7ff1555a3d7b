// Package guard holds what the guards have in common.
//
// A lease alone does not stop a holder that was asleep: it wakes up, does not
// know yet that its lease is gone, and writes. A guard stands at the resource,
// remembers the highest token that it has seen, and refuses a lower one (GD1).
// Package fileguard guards a file or a longer action, package sqlguard what is
// in a SQL database.
//
// A new holder raises the guard to its token before its first read. Otherwise
// the old holder could still write between the new one's read and its write,
// and the new one would build on what it read before. tenure.Guards does so as
// a part of the acquisition.
package guard

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// MaxToken is the largest token (ST11).
const MaxToken = 1<<53 - 1

// The error kinds of guards. The others are those of package store:
// store.ErrUnavailable (nothing happened: try again), store.ErrUnknown (the
// write may have happened: read, or repeat it under the same token),
// store.ErrDenied, store.ErrCorrupt and store.ErrNewer.
var (
	// ErrFenced: the token is lower than one that the guard has seen. Its holder
	// was superseded and must stop. The error is a *FencedError.
	ErrFenced = errors.New("fenced")
	// ErrInvalid: the caller's input is wrong; above all, the guard belongs to
	// another namespace or resource, whose tokens mean nothing here.
	ErrInvalid = store.ErrInvalid
)

// FencedError says that a token was refused, and for which one (GD1).
type FencedError struct {
	// Namespace and Resource name the lease whose tokens the guard compares.
	Namespace, Resource string
	// Token was presented; Highest had been seen before.
	Token, Highest uint64
}

// Error names the resource and both tokens.
func (e *FencedError) Error() string {
	return fmt.Sprintf("fenced: token %d of %s/%s is refused, %d was seen: this holder was superseded", e.Token, e.Namespace, e.Resource, e.Highest)
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// CheckToken returns ErrInvalid unless token is a token: 1 to MaxToken.
func CheckToken(token uint64) error {
	if token < 1 || token > MaxToken {
		return store.Errorf(ErrInvalid, "", "check token", "", "%d is no token; tokens are 1 to %d", token, uint64(MaxToken))
	}
	return nil
}

// CheckNames returns ErrInvalid unless namespace and resource are names that a
// lease can have (ST11).
func CheckNames(namespace, resource string) error {
	if err := store.CheckName("namespace", namespace); err != nil {
		return err
	}
	return store.CheckName("resource", resource)
}

// CheckBinding returns ErrInvalid if a guard that is bound to one lease is used
// with the tokens of another (GD1). what names the guard.
func CheckBinding(what, namespace, resource, boundNamespace, boundResource string) error {
	if namespace == boundNamespace && resource == boundResource {
		return nil
	}
	return store.Errorf(ErrInvalid, "", "check guard", what, "it is bound to %s/%s; a token of %s/%s means nothing to it",
		boundNamespace, boundResource, namespace, resource)
}
