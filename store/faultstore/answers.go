package faultstore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// RewriteVersion puts more behind the version that a read returns, like a proxy
// that compresses bodies and changes ETags with them. Writes return the true
// version and take no other.
func RewriteVersion(more string) Fault {
	return answer("rewrite version", func(o *store.Object) { o.Version += store.Version(more) })
}

// AnswerBody lets every read that finds a record succeed with this body, like a
// server that sends an error page as a success.
func AnswerBody(page string) Fault {
	return answer("answer body", func(o *store.Object) { o.Body = []byte(page) })
}

func answer(name string, edit func(o *store.Object)) Fault {
	return Fault{name: name, applies: only(OpGet), wrap: func(s *Store, next handler) handler {
		return func(ctx context.Context, r *request) reply {
			out := next(ctx, r)
			if out.err == nil {
				edit(&out.object)
				out = state{object: out.object}.reply(s, r) // still bounded by the limit
			}
			return out
		}
	}}
}

// ForgetDelete acknowledges a Delete and leaves the key as it was.
func ForgetDelete() Fault {
	return Fault{name: "forget delete", applies: only(OpDelete), effect: func(*Store, handler) handler {
		return func(context.Context, *request) reply { return reply{} }
	}}
}
