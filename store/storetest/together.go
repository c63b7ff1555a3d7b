package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST8 ST10 ST13
func togetherClauses() []Clause {
	return []Clause{{
		Rule: "ST13", Name: "concurrent-use",
		Says: "All methods are safe for concurrent use: together they give the answers that each may give alone.",
		run:  concurrentUse,
	}, {
		Rule: "ST10", Name: "probe",
		Says: "A store that keeps the contract passes its probe, which leaves nothing behind.",
		run: func(c *check) {
			r, err := store.Probe(c.ctx(), c.s, store.ProbeOptions{Prefix: store.Prefix("suite", "probe"), Deep: true, Limit: 5 * c.h.Limit, CleanUp: c.h.Limit})
			switch can := c.s.Info().Can; {
			case err != nil:
				c.Fatalf("the probe failed: %v", err)
			case !r.Sound:
				c.Errorf("the probe did not come to its end:\n%s", r)
			case r.DeleteIfSound != can.Has(store.CanDeleteIf):
				c.Errorf("conditional delete is declared: %v, but %s", can.Has(store.CanDeleteIf), r.DeleteIfFlaw)
			}
			c.lists("", "")
		},
	}}
}

// concurrentUse calls everything at once for few keys.
func concurrentUse(c *check) {
	const workers = 8
	keys := []string{key("a"), key("b"), key("c")}
	flaws := make([]string, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for n := range c.rounds(60) {
				if flaws[i] == "" {
					flaws[i] = c.oneOfAll(c.ctx(), n*workers+i, keys[(n+i)%len(keys)])
				}
			}
		})
	}
	wg.Wait()
	for _, flaw := range flaws {
		if flaw != "" {
			c.Errorf("%s", flaw)
		}
	}
	for _, k := range c.list(c.s, "", "") {
		if !slices.Contains(keys, k) {
			c.Errorf("the listing shows %s, which nobody wrote", k)
		}
		c.get(c.s, k)
	}
}

// oneOfAll makes call number n and says what is wrong with its answer.
func (c *check) oneOfAll(ctx context.Context, n int, k string) string {
	o, err := c.s.Get(ctx, k, readLimit)
	switch {
	case err == nil && string(o.Body) != "body of "+k:
		return fmt.Sprintf("Get(%s) gives the body %s", k, brief(string(o.Body)))
	case err != nil && !isAny(err, []error{store.ErrNotFound, store.ErrUnavailable}):
		return fmt.Sprintf("Get(%s) beside other calls gave %q of kind %q", k, err, store.KindOf(err))
	}
	what, allowed := "", []error(nil)
	err = nil
	switch body := []byte("body of " + k); n % 9 {
	case 0:
		what, allowed = "Create", []error{store.ErrExists}
		_, err = c.s.Create(ctx, k, body)
	case 1, 2:
		what, allowed = "Replace", []error{store.ErrConflict, store.ErrNotFound}
		_, err = c.s.Replace(ctx, k, body, o.Version)
	case 3:
		what = "List"
		for _, err = range c.s.List(ctx, "", "") {
			if err != nil {
				break
			}
		}
	case 4:
		what = "Delete"
		err = c.s.Delete(ctx, k)
	case 5:
		if d, ok := store.AsConditionalDeleter(c.s); ok {
			what, allowed = "DeleteIf", []error{store.ErrConflict, store.ErrNotFound}
			err = d.DeleteIf(ctx, k, o.Version)
		}
	case 6:
		if q, ok := store.AsQueuer(c.s); ok {
			what = "Enqueue"
			var t store.Ticket
			if t, err = q.Enqueue(ctx, k); err == nil {
				t.Leave()
			}
		}
	case 7:
		if t, ok := store.AsCommitter(c.s); ok {
			what, allowed = "Commit", []error{store.ErrConflict}
			_, err = t.Commit(ctx, []store.Change{{Key: k, Over: o.Version, Body: body}})
		}
	case 8:
		if t, ok := store.AsCommitter(c.s); ok {
			what = "Scan"
			_, err = t.Scan(ctx, c.all())
		}
	}
	if err == nil || isAny(err, append(allowed, store.ErrUnavailable)) {
		return ""
	}
	return fmt.Sprintf("%s(%s) beside other calls gave %q of kind %q", what, k, err, store.KindOf(err))
}
