// Package storetest is the public conformance suite of package store. A
// driver's test is a harness and one call:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Harness{
//			Open: func(t testing.TB) store.Store { ... },
//			Peer: func(t testing.TB, s store.Store) store.Store { ... },
//		})
//	}
//
// Each clause of the contract that can be seen from outside is a subtest named
// after its rule. A failure quotes the sentence that the driver breaks, then
// says what was seen. [Lost] repeats the racing clauses while replies get lost;
// [Bench] measures.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Harness tells the suite how to reach a driver.
type Harness struct {
	// Open opens a fresh, empty place that no other test uses. The suite closes
	// the store; what else must go, Open gives to t.Cleanup before it returns.
	Open func(t testing.TB) store.Store
	// Peer opens another handle to the place of s, which Open returned, as a
	// second process would: with nothing shared in memory, if the driver can
	// help it. s may be closed already. The suite closes the peer. If Peer is
	// nil, the clauses that need two handles do not run, and Run logs which.
	Peer func(t testing.TB, s store.Store) store.Store
	// Slow says that a call takes more than a few milliseconds: fewer rounds,
	// longer patience.
	Slow bool
	// Limit is how long the suite waits for something that should happen
	// promptly before it calls it a breach; 0 is 10 seconds, or 60 if Slow.
	Limit time.Duration
}

// Clause is one sentence of the contract and the subtest that holds it.
type Clause struct {
	// Rule is the number of the rule, such as "ST1".
	Rule string
	// Name is the subtest's name under its rule.
	Name string
	// Says is the sentence that a failure quotes.
	Says string
	// Needs are the powers without which the clause does not apply.
	Needs store.Power
	// Peers says that the clause needs a second handle.
	Peers bool

	run func(c *check)
}

// Clauses lists everything that Run holds a driver to, by rule.
func Clauses() []Clause {
	all := slices.Concat(createClauses(), replaceClauses(), readClauses(), versionClauses(), deleteClauses(),
		listClauses(), nameClauses(), contextClauses(), infoClauses(), watchClauses(), queueClauses(), clockClauses(),
		proofClauses(), closeClauses(), togetherClauses(), commitClauses(), commitRaceClauses(), scanClauses(), commitModelClauses())
	slices.SortStableFunc(all, func(a, b Clause) int {
		return cmp.Or(cmp.Compare(len(a.Rule), len(b.Rule)), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// Run holds the harness's driver to every clause, each in a parallel subtest
// with a store of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	runClauses(t, h, Clauses())
}

func runClauses(t *testing.T, h Harness, clauses []Clause) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("storetest: the harness has no Open")
	}
	can := h.Open(t)
	powers := can.Info().Can
	if err := can.Close(); err != nil {
		t.Fatalf("storetest: closing an unused store: %v", err)
	}
	for _, cl := range clauses {
		switch {
		case !powers.Has(cl.Needs):
			continue
		case cl.Peers && h.Peer == nil:
			t.Logf("not checked, the harness has no Peer: %s %s", cl.Rule, cl.Name)
			continue
		}
		t.Run(cl.Rule+"/"+cl.Name, func(t *testing.T) {
			t.Parallel()
			runClause(t, h, cl)
		})
	}
}

// runClause holds one fresh store to one clause.
func runClause(t testing.TB, h Harness, cl Clause) {
	cl.run(newCheck(t, h, cl))
}

func newCheck(t testing.TB, h Harness, cl Clause) *check {
	if h.Limit == 0 {
		h.Limit = 10 * time.Second
		if h.Slow {
			h.Limit = time.Minute
		}
	}
	// A hang becomes a failure, and not a test that never ends.
	ctx, cancel := context.WithTimeout(t.Context(), 10*h.Limit)
	t.Cleanup(cancel)
	c := &check{TB: t, clause: cl, h: h, bounded: ctx}
	c.s = c.opened(h.Open(t))
	return c
}

// check is one run of one clause. Its failure messages quote the clause.
type check struct {
	testing.TB
	clause  Clause
	h       Harness
	s       store.Store
	bounded context.Context
}

// opened sees to it that a handle is closed at the end.
func (c *check) opened(s store.Store) store.Store {
	if s == nil {
		c.TB.Fatal("storetest: the harness opened no store")
	}
	c.Cleanup(func() { _ = s.Close() })
	return s
}

// peer opens a second handle to the same place.
func (c *check) peer() store.Store {
	c.Helper()
	return c.opened(c.h.Peer(c.TB, c.s))
}

// ctx ends long after everything should be done.
func (c *check) ctx() context.Context { return c.bounded }

// quiet is how long the suite watches for something that must not happen.
func (c *check) quiet() time.Duration {
	if c.h.Slow {
		return 500 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// rounds is n, or a part of it if the driver is slow.
func (c *check) rounds(n int) int {
	if c.h.Slow {
		return max(n/10, 2)
	}
	return n
}

// Errorf reports a breach of the clause.
func (c *check) Errorf(format string, args ...any) {
	c.Helper()
	c.TB.Errorf("%s", c.breach(format, args...))
}

// Fatalf reports a breach of the clause and ends it.
func (c *check) Fatalf(format string, args ...any) {
	c.Helper()
	c.TB.Fatalf("%s", c.breach(format, args...))
}

func (c *check) breach(format string, args ...any) string {
	return fmt.Sprintf("%s: the contract says: %s\n    seen: %s", c.clause.Rule, c.clause.Says, fmt.Sprintf(format, args...))
}

// key is a key as Tenure makes them.
func key(name string) string { return store.Key("suite", "lease", name) }

// readLimit is more than any body of the suite but the largest.
const readLimit = 1 << 20

func (c *check) get(s store.Store, key string) store.Object {
	c.Helper()
	o, err := s.Get(c.ctx(), key, readLimit)
	if err != nil {
		c.Fatalf("Get(%s) failed: %v", key, err)
	}
	return o
}

func (c *check) create(s store.Store, key, body string) store.Version {
	c.Helper()
	v, err := s.Create(c.ctx(), key, []byte(body))
	if err != nil {
		c.Fatalf("Create(%s) of an absent key failed: %v", key, err)
	}
	if v == "" {
		c.Fatalf("Create(%s) succeeded with the zero Version", key)
	}
	return v
}

func (c *check) replace(s store.Store, key, body string, from store.Version) store.Version {
	c.Helper()
	v, err := s.Replace(c.ctx(), key, []byte(body), from)
	if err != nil {
		c.Fatalf("Replace(%s) at its present version %q failed: %v", key, from, err)
	}
	if v == "" {
		c.Fatalf("Replace(%s) succeeded with the zero Version", key)
	}
	return v
}

func (c *check) delete(s store.Store, key string) {
	c.Helper()
	if err := s.Delete(c.ctx(), key); err != nil {
		c.Fatalf("Delete(%s) failed: %v", key, err)
	}
}

// state reports a breach unless key holds body at version v.
func (c *check) state(s store.Store, key, body string, v store.Version) {
	c.Helper()
	o := c.get(s, key)
	if string(o.Body) != body {
		c.Errorf("Get(%s) gives the body %s, want %s", key, brief(string(o.Body)), brief(body))
	}
	if o.Version != v {
		c.Errorf("Get(%s) gives version %q, the write returned %q", key, o.Version, v)
	}
}

// absent reports a breach unless key is not there.
func (c *check) absent(s store.Store, key string) {
	c.Helper()
	_, err := s.Get(c.ctx(), key, readLimit)
	c.kind(err, store.ErrNotFound, s, key, "Get(%s), which should be absent,", key)
}

// list collects a whole listing.
func (c *check) list(s store.Store, prefix, after string) []string {
	c.Helper()
	keys := []string{}
	for k, err := range s.List(c.ctx(), prefix, after) {
		if err != nil {
			c.Fatalf("List(%q, %q) failed after %d keys: %v", prefix, after, len(keys), err)
		}
		keys = append(keys, k)
	}
	return keys
}

// kind reports a breach unless err is of exactly the kind want, is a
// *store.Error, and names its store, operation and key (ST8).
func (c *check) kind(err, want error, s store.Store, key, format string, args ...any) {
	c.Helper()
	call := fmt.Sprintf(format, args...)
	if err == nil {
		c.Errorf("%s succeeded, want the kind %q", call, want)
		return
	}
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == want) {
			c.Errorf("%s gave the error %q of kind %q, want the kind %q and no other", call, err, store.KindOf(err), want)
			return
		}
	}
	if flaw := messageFlaw(err, s.Info(), key); flaw != "" {
		c.Errorf("%s gave the error %q, %s (ST8)", call, err, flaw)
	}
}

// messageFlaw says what an error lacks that a person needs to find the fault.
func messageFlaw(err error, info store.Info, key string) string {
	var e *store.Error
	switch {
	case !errors.As(err, &e):
		return "which is no *store.Error"
	case e.Op == "":
		return "whose operation is empty"
	case !strings.Contains(err.Error(), info.Scheme):
		return fmt.Sprintf("which does not name the store (%q)", info.Scheme)
	case key != "" && !strings.Contains(err.Error(), key):
		return "which does not name the key"
	}
	return ""
}

// promptly runs f and reports a breach if it takes longer than the limit. It
// returns only when f does, so that no goroutine outlives its clause.
func (c *check) promptly(what string, f func()) {
	c.Helper()
	start := time.Now()
	f()
	if d := time.Since(start); d > c.h.Limit {
		c.Errorf("%s took %v; the suite allows %v", what, d.Round(time.Millisecond), c.h.Limit)
	}
}

// brief is a body as a message can bear it.
func brief(body string) string {
	if len(body) <= 60 {
		return fmt.Sprintf("%q", body)
	}
	return fmt.Sprintf("%q... (%d bytes)", body[:40], len(body))
}
