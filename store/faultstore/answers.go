package faultstore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// RewriteVersion puts more behind the version that a read returns, like a proxy
// that compresses bodies and changes ETags with them. Writes return the true
// version and take no other.
func RewriteVersion(more string) Fault {
	return answer("rewrite version", func(_ context.Context, _ *Store, _ *request, o *store.Object) error {
		o.Version += store.Version(more)
		return nil
	})
}

// AnswerBody lets every read that finds a record succeed with this body, like a
// server that sends an error page as a success.
func AnswerBody(page string) Fault {
	return answer("answer body", func(_ context.Context, _ *Store, _ *request, o *store.Object) error {
		o.Body = []byte(page)
		return nil
	})
}

// answer edits each object that a read or a scan returns.
func answer(name string, edit func(ctx context.Context, s *Store, r *request, o *store.Object) error) Fault {
	return Fault{name: name, applies: readOps, wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			switch {
			case out.err != nil:
				return out
			case r.op == OpScan:
				found, _ := out.value.([]store.Keyed)
				for i := range found {
					if err := edit(ctx, s, r, &found[i].Object); err != nil {
						return reply{err: err}
					}
				}
				return s.scanned(r, found)
			}
			if err := edit(ctx, s, r, &out.object); err != nil {
				return reply{err: err}
			}
			return state{object: out.object}.reply(s, r) // still bounded by the limit
		}
	}}
}

// ForgetDelete acknowledges a Delete and leaves the key as it was.
func ForgetDelete() Fault {
	return Fault{name: "forget delete", applies: only(OpDelete), effect: func(*Store, handler) handler {
		return func(context.Context, *request) reply { return reply{} }
	}}
}
