package faultstore

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Fault is what becomes of a call. Faults come from this package's functions.
type Fault struct {
	name    string
	applies func(Op) bool
	// wrap stands between caller and operation; effect takes the operation's
	// place.
	wrap   func(s *Store, next handler) handler
	effect func(s *Store, next handler) handler
}

// String names the fault as in Event.Faults and Store.Fired.
func (f Fault) String() string { return f.name }

func anyOp(Op) bool            { return true }
func writeOps(o Op) bool       { return o.Writes() }
func readOps(o Op) bool        { return o == OpGet || o == OpScan }
func guardOps(o Op) bool       { return o.Writes() && o != OpDelete }
func only(op Op) func(Op) bool { return func(o Op) bool { return o == op } }

// Fail refuses the call with an error of the given kind before it has any
// effect: store.ErrUnavailable for a store that is down or answers with a
// passing 409, store.ErrDenied for missing rights, and so on.
func Fail(kind error) Fault {
	return Fault{name: "fail: " + kind.Error(), applies: anyOp, wrap: func(s *Store, _ handler) handler {
		return func(_ context.Context, r *request) reply {
			return reply{err: store.Errorf(kind, s.info.Identity, string(r.op), r.key, "injected before any effect")}
		}
	}}
}

// LoseReply carries the call out and loses the answer: a write returns
// store.ErrUnknown, anything else store.ErrUnavailable (ST9).
func LoseReply() Fault {
	return Fault{name: "lose reply", applies: anyOp, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			forget(next(ctx, r))
			return s.lost(r, nil, "injected: the reply was lost")
		}
	}}
}

// forget frees what a lost answer held.
func forget(out reply) {
	switch v := out.value.(type) {
	case store.Ticket:
		v.Leave()
	case store.Witness:
		_ = v.Close()
	}
}

// LoseRequest returns store.ErrUnknown for a write that never arrived, and
// store.ErrUnavailable for anything else.
func LoseRequest() Fault {
	return Fault{name: "lose request", applies: anyOp, wrap: func(s *Store, _ handler) handler {
		return func(_ context.Context, r *request) reply {
			return s.lost(r, nil, "injected: the request was lost")
		}
	}}
}

// Delay holds the call up, for a time from least to most drawn by the seed,
// before it has any effect. If its context ends first the call has none.
func Delay(least, most time.Duration) Fault {
	return Fault{name: "delay", applies: anyOp, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			if err := s.sleep(ctx, r.roll.between(forDelay, least, most)); err != nil {
				return s.lost(r, err, "injected: the request was held up")
			}
			return next(ctx, r)
		}
	}}
}

// DelayReply holds the answer up, for a time from least to most drawn by the
// seed. If the context ends first the caller does not learn it.
func DelayReply(least, most time.Duration) Fault {
	return Fault{name: "delay reply", applies: anyOp, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			if err := s.sleep(ctx, r.roll.between(forReply, least, most)); err != nil {
				forget(out)
				return s.lost(r, err, "injected: the reply was held up")
			}
			return out
		}
	}}
}

// Hang holds the call up until its context ends or the store is closed. It has
// no effect. There is no hang beyond the context: drivers return when it ends
// (ST13).
func Hang() Fault {
	return Fault{name: "hang", applies: anyOp, wrap: func(s *Store, _ handler) handler {
		return func(ctx context.Context, r *request) reply {
			return s.lost(r, s.hang(ctx), "injected: the store did not answer")
		}
	}}
}

// HangApplied carries the call out and then holds its answer up until the
// context ends or the store is closed.
func HangApplied() Fault {
	return Fault{name: "hang applied", applies: anyOp, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			forget(next(ctx, r))
			return s.lost(r, s.hang(ctx), "injected: the store did not answer")
		}
	}}
}

// LandLate returns store.ErrUnknown at once; the write arrives after a time
// from least to most drawn by the seed, and takes effect if its condition holds
// then. The caller's context does not stop it; Close does.
func LandLate(least, most time.Duration) Fault {
	return Fault{name: "land late", applies: writeOps, wrap: func(s *Store, next handler) handler {
		return func(_ context.Context, r *request) reply {
			s.launch(r, next, r.roll.between(forLanding, least, most))
			return s.lost(r, nil, "injected: the request is still on its way")
		}
	}}
}

// LandOnCall is like LandLate, but the write arrives when Land is called.
func LandOnCall() Fault {
	return Fault{name: "land on call", applies: writeOps, wrap: func(s *Store, next handler) handler {
		return func(_ context.Context, r *request) reply {
			s.launch(r, next, -1)
			return s.lost(r, nil, "injected: the request is still on its way")
		}
	}}
}

// Duplicate carries the write out, answers truly, and lets the same request
// arrive once more after a time from least to most drawn by the seed, unless
// it never arrived at all.
func Duplicate(least, most time.Duration) Fault {
	return Fault{name: "duplicate", applies: writeOps, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			if !errors.Is(out.err, store.ErrUnavailable) {
				s.launch(r, next, r.roll.between(forLanding, least, most))
			}
			return out
		}
	}}
}

// RetrySelf carries the write out twice and answers as the second time: the
// driver's own success comes back as a refusal. No driver may do this (ST9).
func RetrySelf() Fault {
	return Fault{name: "retry self", applies: writeOps, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			next(ctx, r)
			return next(ctx, r)
		}
	}}
}

// sleep waits for d and returns why it could not.
func (s *Store) sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.life.Done():
		return context.Cause(s.life)
	}
}

// hang waits for the end of ctx or of the store, and returns which it was.
func (s *Store) hang(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.life.Done():
		return context.Cause(s.life)
	}
}
