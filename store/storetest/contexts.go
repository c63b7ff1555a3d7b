package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tenure-project/tenure/store"
)

// keyOp is one operation on one key, for clauses that hold for all of them.
type keyOp struct {
	name string
	call func(ctx context.Context, key string) error
}

// keyOps are all operations that take a key, of the powers that s has.
func (c *check) keyOps(s store.Store) []keyOp {
	ops := []keyOp{
		{"Get", func(ctx context.Context, k string) error { _, err := s.Get(ctx, k, readLimit); return err }},
		{"Create", func(ctx context.Context, k string) error { _, err := s.Create(ctx, k, []byte("x")); return err }},
		{"Replace", func(ctx context.Context, k string) error { _, err := s.Replace(ctx, k, []byte("x"), "v"); return err }},
		{"Delete", s.Delete},
	}
	if d, ok := store.AsConditionalDeleter(s); ok {
		ops = append(ops, keyOp{"DeleteIf", func(ctx context.Context, k string) error { return d.DeleteIf(ctx, k, "v") }})
	}
	if w, ok := store.AsWatcher(s); ok {
		ops = append(ops, keyOp{"Watch", func(ctx context.Context, k string) error { return w.Watch(ctx, k, "v") }})
	}
	if t, ok := store.AsCommitter(s); ok {
		ops = append(ops, keyOp{"Commit", func(ctx context.Context, k string) error {
			_, err := t.Commit(ctx, []store.Change{{Key: k, Over: "v", Body: []byte("x")}})
			return err
		}})
	}
	if q, ok := store.AsQueuer(s); ok {
		ops = append(ops, keyOp{"Waiting", func(ctx context.Context, k string) error { _, err := q.Waiting(ctx, k); return err }},
			keyOp{"Enqueue", func(ctx context.Context, k string) error {
				t, err := q.Enqueue(ctx, k)
				if err == nil {
					t.Leave()
				}
				return err
			}})
	}
	return ops
}

// SPEC ST13
// CASE B24
func contextClauses() []Clause {
	return []Clause{{
		Rule: "ST13", Name: "an-ended-context-does-nothing",
		Says: "A call whose context has ended returns at once with ErrUnavailable, and nothing happened.",
		run:  endedContexts,
	}, {
		Rule: "ST13", Name: "cancel-in-mid-call",
		Says: "A call returns soon after its context ends; ErrUnavailable says that nothing happened, ErrUnknown that it may have, and a refusal that it certainly did not.",
		run:  cancelInMidCall,
	}, {
		Rule: "ST13", Name: "cancel-in-mid-listing",
		Says: "A listing whose context ends says so with an error: it never looks complete when it is not.",
		run: func(c *check) {
			keys := c.fill(c.rounds(1200))
			for stop := range 3 {
				ctx, cancel := context.WithCancel(c.ctx())
				n, failed := 0, error(nil)
				c.promptly("a listing whose context ended", func() {
					for _, err := range c.s.List(ctx, "", "") {
						if failed = err; err != nil {
							continue // it must stop by itself
						}
						if n++; n == stop+1 {
							cancel()
						}
					}
				})
				cancel()
				if failed != nil {
					c.kind(failed, store.ErrUnavailable, c.s, "", "List whose context ended after %d keys", stop+1)
				} else if n != len(keys) {
					c.Errorf("List gave %d of %d keys and no error after its context had ended", n, len(keys))
				}
			}
		},
	}}
}

func endedContexts(c *check) {
	k := key("present")
	v := c.create(c.s, k, "body")
	cancelled, cancel := context.WithCancel(c.ctx())
	cancel()
	late, cancelLate := context.WithDeadline(c.ctx(), time.Now().Add(-time.Second))
	defer cancelLate()
	for _, ctx := range []context.Context{cancelled, late} {
		for _, op := range c.keyOps(c.s) {
			for _, k := range []string{k, key("absent")} {
				c.promptly(op.name+" with an ended context", func() {
					err := op.call(ctx, k)
					c.kind(err, store.ErrUnavailable, c.s, k, "%s with an ended context", op.name)
					if err != nil && !errors.Is(err, ctx.Err()) {
						c.Errorf("%s with an ended context gave %q, which does not wrap %q", op.name, err, ctx.Err())
					}
				})
			}
		}
		_, err := c.s.Replace(ctx, k, []byte("x"), v)
		c.kind(err, store.ErrUnavailable, c.s, k, "Replace at the present version with an ended context")
		for _, err := range c.s.List(ctx, "", "") {
			c.kind(err, store.ErrUnavailable, c.s, "", "List with an ended context")
		}
		if t, ok := store.AsCommitter(c.s); ok {
			_, err := t.Commit(ctx, []store.Change{{Key: k, Over: v, Do: store.Remove}, {Key: key("absent"), Body: []byte("x")}})
			c.kind(err, store.ErrUnavailable, c.s, k, "Commit at the present version with an ended context")
			_, err = t.Scan(ctx, c.all())
			c.kind(err, store.ErrUnavailable, c.s, "", "Scan with an ended context")
		}
		if clk, ok := store.AsClocker(c.s); ok {
			_, err := clk.Now(ctx)
			c.kind(err, store.ErrUnavailable, c.s, "", "Now with an ended context")
		}
	}
	c.state(c.s, k, "body", v)
	c.lists("", "", k)
}

// cancelInMidCall ends contexts at all kinds of instants of a write and holds
// the answer against what is found afterwards.
func cancelInMidCall(c *check) {
	k, absent := key("k"), []string{}
	v := c.create(c.s, k, "start")
	present := "start"
	typical := c.typicalWrite()
	for i := range c.rounds(200) {
		limit := typical * time.Duration(i%20+1) / 15
		body := "round " + strconv.Itoa(i)
		err := c.cut(limit, "Replace", func(ctx context.Context) error {
			_, err := c.s.Replace(ctx, k, []byte(body), v)
			return err
		})
		o := c.get(c.s, k)
		if want := c.after(err, body, present, string(o.Body)); string(o.Body) != want {
			c.Fatalf("Replace cut off after %v answered %v, but the body is %q, want %q", limit, err, o.Body, want)
		}
		if errors.Is(err, store.ErrUnknown) && string(o.Body) == present {
			o = c.overtake(k, body, o)
		}
		present, v = string(o.Body), o.Version

		fresh := key(fmt.Sprintf("new-%d", i))
		err = c.cut(limit, "Create", func(ctx context.Context) error {
			_, err := c.s.Create(ctx, fresh, []byte(body))
			return err
		})
		if errors.Is(err, store.ErrUnavailable) {
			absent = append(absent, fresh)
		}
		if err == nil {
			c.get(c.s, fresh)
		}
		err = c.cut(limit, "Get", func(ctx context.Context) error { _, err := c.s.Get(ctx, k, readLimit); return err })
		if errors.Is(err, store.ErrUnknown) {
			c.Fatalf("Get cut off after %v answered %v; a read has no unknown outcome", limit, err)
		}
	}
	for _, k := range absent { // also long after the answer
		c.absent(c.s, k)
	}
}

// overtake ends the wait for a write whose outcome is unknown and that has not
// landed on o yet: once another write has, it never can.
func (c *check) overtake(k, late string, o store.Object) store.Object {
	c.Helper()
	want := string(o.Body) + "."
	_, err := c.s.Replace(c.ctx(), k, []byte(want), o.Version)
	if errors.Is(err, store.ErrConflict) {
		want = late
	} else if err != nil {
		c.Fatalf("Replace after one whose outcome is unknown failed: %v", err)
	}
	now := c.get(c.s, k)
	if string(now.Body) != want {
		c.Fatalf("Replace after one whose outcome is unknown answered %v, and the body is %q, want %q", err, now.Body, want)
	}
	return now
}

// typicalWrite is about how long a write takes here.
func (c *check) typicalWrite() time.Duration {
	start := time.Now()
	for i := range 10 {
		c.create(c.s, key(fmt.Sprintf("typical-%d", i)), "x")
	}
	return max(time.Since(start)/10, 20*time.Microsecond)
}

// cut runs call with a context that ends after limit, and reports a breach if
// the error is none that the end of a context can cause.
func (c *check) cut(limit time.Duration, what string, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx(), limit)
	defer cancel()
	var err error
	c.promptly(what+" cut off", func() { err = call(ctx) })
	if err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrUnknown) {
		c.Fatalf("%s cut off after %v answered %q of kind %q", what, limit, err, store.KindOf(err))
	}
	return err
}

// after is the body that must be found after a write that answered err.
func (c *check) after(err error, wrote, before, found string) string {
	switch {
	case err == nil:
		return wrote
	case errors.Is(err, store.ErrUnknown) && found == wrote:
		return wrote
	}
	return before
}
