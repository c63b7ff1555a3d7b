package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The error kinds (ST8). Each tells the caller what to do next; errors.Is
// works on every error that a store returns. Messages are for people and may
// change.
var (
	// ErrNotFound: the key is absent. Returned by Get, Replace and DeleteIf.
	ErrNotFound = errors.New("not found")
	// ErrExists: the key is present. Returned by Create.
	ErrExists = errors.New("already exists")
	// ErrConflict: the key is at another version. The write certainly did not
	// happen: read again. Returned by Replace and DeleteIf.
	ErrConflict = errors.New("version conflict")
	// ErrUnavailable: nothing happened. Try again later.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknown: the write may or may not have happened, or may happen yet.
	// Settle it before anything else. Returned by writes only.
	ErrUnknown = errors.New("outcome unknown")
	// ErrDenied: credentials or rights are missing; the message names the
	// action. Nothing happened.
	ErrDenied = errors.New("denied")
	// ErrCorrupt: what is stored cannot be right. Stop and call a person.
	ErrCorrupt = errors.New("corrupt")
	// ErrNewer: the record is of a newer format level. Upgrade this program.
	ErrNewer = errors.New("newer format")
	// ErrInvalid: the caller's input is wrong. Nothing happened.
	ErrInvalid = errors.New("invalid")
)

// Kinds lists every error kind, for callers that map them to codes.
func Kinds() []error {
	return []error{ErrNotFound, ErrExists, ErrConflict, ErrUnavailable, ErrUnknown, ErrDenied, ErrCorrupt, ErrNewer, ErrInvalid}
}

// Error is the error type of every store: a kind, and where it happened.
type Error struct {
	// Kind is one of the Err... values above.
	Kind error
	// Store is the store's scheme or identity, without secrets.
	Store string
	// Op is the operation, such as "replace".
	Op string
	// Key is the key concerned; empty where there is none.
	Key string
	// Detail says what was wrong and what to do, in words.
	Detail string
	// Cause is the underlying error; may be nil.
	Cause error
}

// Error names store, operation, key, kind and cause.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Store != "" {
		b.WriteString(e.Store + ": ")
	}
	b.WriteString(e.Op)
	if e.Key != "" {
		b.WriteString(" " + e.Key)
	}
	b.WriteString(": " + e.Kind.Error())
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Is reports whether target is e's kind.
func (e *Error) Is(target error) bool { return target == e.Kind }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an *Error whose detail is formatted. An argument wrapped with
// %w becomes the cause's text only; use [Wrap] to keep a cause.
func Errorf(kind error, store, op, key, format string, args ...any) *Error {
	return &Error{Kind: kind, Store: store, Op: op, Key: key, Detail: fmt.Errorf(format, args...).Error()}
}

// Wrap makes an *Error with a cause.
func Wrap(kind error, store, op, key string, cause error) *Error {
	return &Error{Kind: kind, Store: store, Op: op, Key: key, Cause: cause}
}

// KindOf returns err's kind: that of the outermost *Error, whatever its cause
// says. An ended context is ErrUnavailable: it says that
// nobody waited, so a writer must map it to ErrUnknown itself once the request
// left. Any other foreign error is ErrUnavailable too. nil has no kind.
func KindOf(err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Kind
	}
	for _, k := range Kinds() {
		if errors.Is(err, k) {
			return k
		}
	}
	return ErrUnavailable
}

// CtxErr is the error for a call that found its context ended before anything
// was sent: ErrUnavailable with the context's cause. It is nil while ctx lives.
func CtxErr(ctx context.Context, store, op, key string) error {
	if ctx.Err() == nil {
		return nil
	}
	return Wrap(ErrUnavailable, store, op, key, context.Cause(ctx))
}
