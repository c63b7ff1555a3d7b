package storetest

import (
	"context"
	"errors"

	"github.com/tenure-project/tenure/store"
)

// SPEC LS14
func proofClauses() []Clause {
	clauses := []Clause{{
		Rule: "LS14", Name: "a-living-process-is-not-gone",
		Says: "Gone is true only if the process that made the witness is proven gone; one that lives is not.",
		run: func(c *check) {
			w := c.witness(c.s)
			c.notGone(c.s, w.Mark(), "a witness of this process")
		},
	}, {
		Rule: "LS14", Name: "a-living-process-is-not-gone-for-others", Peers: true,
		Says: "Gone is true only if the process that made the witness is proven gone, whoever asks.",
		run: func(c *check) {
			w := c.witness(c.s)
			c.notGone(c.peer(), w.Mark(), "a witness seen through another handle")
			c.notGone(c.s, w.Mark(), "the same witness after another handle had looked")
		},
	}, {
		Rule: "LS14", Name: "a-missing-witness-proves-nothing",
		Says: "A missing or other file proves nothing.",
		run: func(c *check) {
			w := c.witness(c.s)
			m := w.Mark()
			if err := w.Close(); err != nil {
				c.Errorf("closing a witness: %v", err)
			}
			c.notGone(c.s, m, "a witness that was closed and removed")
			m.Inode++
			c.notGone(c.s, m, "a mark that names no file of ours")
			c.notGone(c.s, store.Mark{}, "the zero mark")
			if a, b := c.witness(c.s), c.witness(c.s); a.Mark() == b.Mark() {
				c.Errorf("two witnesses have the mark %+v", a.Mark())
			}
		},
	}, {
		Rule: "LS14", Name: "watching-a-living-process-ends-with-the-context",
		Says: "WatchGone returns once Gone may be true, or the context's error.",
		run: func(c *check) {
			m := c.witness(c.s).Mark()
			p, _ := store.AsProver(c.s)
			ctx, cancel := context.WithCancel(c.ctx())
			ended := make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					_ = p.WatchGone(ctx, m)
				}
				ended <- p.WatchGone(ctx, m)
			}()
			pause(c.ctx(), c.quiet())
			cancel()
			if err := c.arrives(ended, "the end of a WatchGone whose context ended"); !errors.Is(err, context.Canceled) {
				c.Errorf("WatchGone whose context was cancelled gave %v, which does not wrap context.Canceled", err)
			}
		},
	}}
	for i := range clauses {
		clauses[i].Needs = store.CanProve
	}
	return clauses
}

func (c *check) witness(s store.Store) store.Witness {
	c.Helper()
	p, _ := store.AsProver(s)
	w, err := p.NewWitness(c.ctx())
	if err != nil {
		c.Fatalf("NewWitness failed: %v", err)
	}
	c.Cleanup(func() { _ = w.Close() })
	return w
}

func (c *check) notGone(s store.Store, m store.Mark, what string) {
	c.Helper()
	p, _ := store.AsProver(s)
	gone, err := p.Gone(c.ctx(), m)
	if gone || err != nil {
		c.Errorf("Gone of %s: %v, %v; want false and no error", what, gone, err)
	}
}
