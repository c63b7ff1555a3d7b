package world

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// maxBroken is how many violations are kept.
const maxBroken = 20

// oracle sees every effect on the records, every hand-out and every answer.
type oracle struct {
	w *World

	mu          sync.Mutex
	leases      map[string]*leaseState // by key
	byName      map[string]*leaseState
	archived    map[string]map[tenureID]bool // resource to tenures that are archived
	nodes       map[string]*nodeState
	authorities map[string]*authorityState
	jobs        map[string]*jobState
	tables      map[string]*tableState
	floor       uint64
	broken      []string
	closed      bool // nothing counts any more
	stats       map[string]int
}

// leaseState is what the oracle knows of one lease.
type leaseState struct {
	name    string
	rec     *lease.Record // nil: absent
	landed  time.Time     // when rec arrived
	tenures []*tenancy    // every one that the record ever showed
	handles []*Handle     // that were handed out and may still be live
	highest uint64        // token handed out
	handed  map[tenureID]*Handle
	pruned  bool // something of its past was removed
	runs    []*run
	guard   guard
}

// tenancy is one tenure as the record showed it.
type tenancy struct {
	tenureID
	kind   lease.Kind
	how    string // how it ended; empty while it lasts
	byProc *Proc  // who ended it; nil if unknown
	taken  bool   // by the next holder's grant
}

// tenureID names one tenure of one lease. A session owns many under one name.
type tenureID struct {
	owner string
	token uint64
}

func tenureOf(t lease.Tenure) tenureID { return tenureID{t.Owner.Incarnation, t.Token} }

func newOracle(w *World) *oracle {
	o := &oracle{w: w, leases: map[string]*leaseState{}, byName: map[string]*leaseState{}, archived: map[string]map[tenureID]bool{}, nodes: map[string]*nodeState{}, authorities: map[string]*authorityState{}, jobs: map[string]*jobState{}, tables: map[string]*tableState{}, stats: map[string]int{}}
	for _, name := range w.Plan.Names() {
		ls := &leaseState{name: name, handed: map[tenureID]*Handle{}, guard: guard{owners: map[uint64]*Handle{}}}
		o.leases[store.Key(Namespace, "lease", name)] = ls
		o.byName[name] = ls
		o.archived[name] = map[tenureID]bool{}
	}
	for _, name := range w.Plan.NodeNames() {
		o.nodes[name] = newNodeState(name)
	}
	for _, name := range w.Plan.AuthorityNames() {
		o.authorities[name] = newAuthorityState(name)
	}
	for _, name := range w.Plan.JobNames() {
		o.jobs[name] = newJobState(o, name)
	}
	for _, name := range w.Plan.TableNames() {
		o.tables[name] = newTableState(w.Plan, name)
	}
	return o
}

// fail notes that a rule is broken. Under mu.
func (o *oracle) fail(rule, format string, args ...any) {
	if o.closed || len(o.broken) >= maxBroken {
		return
	}
	text := fmt.Sprintf("%.9fs %s: ", time.Since(o.w.trace.began).Seconds(), rule) + fmt.Sprintf(format, args...)
	o.broken = append(o.broken, text)
	o.w.trace.add("oracle", "BROKEN %s", text)
	o.w.alarm()
}

// Fail notes that a rule is broken, for tests with rules of their own.
func (o *oracle) failNow(rule, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(rule, format, args...)
}

func (o *oracle) count(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats[what]++
}

// refused notes a conditional write that had no effect.
func (o *oracle) refused(e effect, err error) {
	o.w.trace.add(who(e.from), "%s %s refused: %v", e.op, short(e.key), store.KindOf(err))
}

func who(p *Proc) string {
	if p == nil {
		return "world"
	}
	return p.name
}

// short is a key for people.
func short(key string) string { return strings.TrimPrefix(key, Namespace+"/") }

// applied judges one effect on the place. It runs before the next can happen.
func (o *oracle) applied(e effect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["effects"]++
	if ls := o.leases[e.key]; ls != nil {
		o.leaseEffect(ls, e)
		return
	}
	if as := o.authorityOf(e.key); as != nil {
		o.authorityEffect(as, e)
		return
	}
	if js := o.jobOf(e.key); js != nil {
		o.ledgerEffect(js, e)
		return
	}
	if ts := o.tableOf(e.key); ts != nil {
		o.tableEffect(ts, e)
		return
	}
	switch {
	case e.key == store.Key(Namespace, "meta", "namespace"):
		o.spaceEffect(e)
	case strings.HasPrefix(e.key, store.Prefix(Namespace, "hist")):
		o.archiveEffect(e)
	case strings.HasPrefix(e.key, store.Prefix(Namespace, "identity")):
		o.identityEffect(e)
	case strings.HasPrefix(e.key, store.Prefix(Namespace, "certificate")):
		o.certificateEffect(e)
	}
}

func (o *oracle) leaseEffect(ls *leaseState, e effect) {
	prev := ls.rec
	if e.op == faultstore.OpDelete || e.op == faultstore.OpDeleteIf {
		o.removal(ls, prev, e)
		return
	}
	next, err := lease.Decode(e.key, ls.name, e.body)
	if err != nil {
		o.fail("R3", "%s: an unreadable record was written: %v", ls.name, err)
		return
	}
	st, err := stepOf(prev, next)
	o.w.trace.add(who(e.from), "%s: %s", e.op, describe{ls.name, st, next})
	if err != nil {
		o.fail("R3", "%s (by %s): %v", ls.name, who(e.from), err)
	}
	o.stats[string(st)]++
	o.checkLineage(ls, prev, next)
	o.checkEnd(ls, prev, next, st, e.from)
	o.checkSessionStep(ls, prev, next, st, e.from)
	if st == granted || st == tookOver {
		o.checkGrant(ls, prev, next, st, e.from)
		ls.tenures = append(ls.tenures, &tenancy{tenureID: tenureID{next.Owner.Incarnation, next.Token}, kind: next.Kind})
	}
	ls.rec, ls.landed = next, time.Now()
	o.exclusive(ls)
}

// describe is a step for the trace, without ids.
type describe struct {
	name string
	st   step
	r    *lease.Record
}

func (d describe) String() string {
	r := d.r
	s := fmt.Sprintf("%s %s: token %d, counter %d", d.name, d.st, r.Token, r.Counter)
	if r.Held() {
		return s + fmt.Sprintf(", held by %s, renewal %d, TTL %v, %d past", r.Owner.Node, r.Renewal, r.TTL(), len(r.Recent))
	}
	return s + fmt.Sprintf(", %s %s, %d past", r.Ended.How, r.Ended.Why, len(r.Recent))
}

// removal judges the deletion of a lease's record (R10).
func (o *oracle) removal(ls *leaseState, prev *lease.Record, e effect) {
	o.w.trace.add(who(e.from), "%s: %s removed, floor %d", e.op, ls.name, o.floor)
	if prev == nil {
		return
	}
	o.stats["pruned"]++
	if prev.Held() || o.floor < prev.Counter || e.op != faultstore.OpDeleteIf {
		o.fail("R10", "%s: removed by %s while held is %v, counter %d, floor %d", ls.name, e.op, prev.Held(), prev.Counter, o.floor)
	}
	for _, t := range prev.Recent {
		if !o.archived[ls.name][tenureOf(t)] {
			o.fail("R9", "%s: token %d was removed and is not archived", ls.name, t.Token)
		}
	}
	ls.rec, ls.landed, ls.pruned = nil, time.Now(), true
}

// checkLineage: what left the history is archived or counted (R9).
func (o *oracle) checkLineage(ls *leaseState, prev, next *lease.Record) {
	gone, err := missing(prev, next)
	if err != nil {
		o.fail("R9", "%s: %v", ls.name, err)
		return
	}
	lost := 0
	for _, t := range gone {
		if !o.archived[ls.name][tenureOf(t)] {
			lost++
		}
	}
	dropped := next.Dropped
	if prev != nil {
		dropped -= prev.Dropped
	}
	if lost > int(dropped) || int(dropped) > len(gone) {
		o.fail("R9", "%s: %d past tenures left the record, %d of them not archived, and %d were counted as dropped", ls.name, len(gone), lost, dropped)
	}
	o.stats["dropped"] += int(dropped)
}

// checkEnd notes how prev's tenure ended and whether that is true.
func (o *oracle) checkEnd(ls *leaseState, prev, next *lease.Record, st step, by *Proc) {
	if prev == nil || !prev.Held() || st == renewed || st == jumped || len(next.Recent) == 0 {
		return
	}
	t := ls.tenancy(tenureID{prev.Owner.Incarnation, prev.Token})
	how := next.Recent[len(next.Recent)-1].How
	o.stats["ended "+how]++
	if t == nil {
		o.fail("R3", "%s: token %d ended and was never granted", ls.name, prev.Token)
		return
	}
	t.how, t.byProc, t.taken = how, by, st == tookOver
	h := ls.handle(t.tenureID)
	if h := ls.handed[t.tenureID]; h != nil && h.to != "" && st == endedBy && by == h.p && how == lease.HowReleased && next.Successor != h.to && next.Ended.Why != "shutdown" {
		o.fail("R12", "%s: token %d was handed over to %s, and released to %q", ls.name, t.token, h.to, next.Successor)
	}
	if how == lease.HowReleased && st == endedBy && h != nil && h.live() && !h.p.crashed.Load() {
		o.fail("R6", "%s: token %d was released in the store by %s while its holder %s is live", ls.name, t.token, who(by), h.p.name)
	}
}

// checkGrant judges when and on what evidence a grant came (R4, R5).
func (o *oracle) checkGrant(ls *leaseState, prev, next *lease.Record, st step, by *Proc) {
	if prev == nil {
		return
	}
	stood := time.Since(ls.landed) + 2 // a rounding each of two clocks
	need := time.Duration(0)
	switch {
	case st == tookOver && prev.Kind == lease.Session:
		o.checkInherited(ls, prev, next, by)
	case st == tookOver && next.Recent[len(next.Recent)-1].How != lease.HowProven:
		need = prev.TTL()
	case st == tookOver:
		if p := o.w.procNamed(prev.Owner.Node); p == nil || !p.crashed.Load() {
			o.fail("R5", "%s: token %d of %s fell as proven gone, and it lives", ls.name, prev.Token, prev.Owner.Node)
		}
	case prev.Ended.SupersededTTLMS > 0:
		need = time.Duration(prev.Ended.SupersededTTLMS) * time.Millisecond
	case prev.Successor != "" && by != nil && acquiredAs(next, by) != prev.Successor:
		need = time.Duration(prev.HoldMS) * time.Millisecond
	}
	if stood < need {
		o.fail("R4", "%s: token %d was granted to %s although the record before it stood for %v only, want %v", ls.name, next.Token, who(by), stood, need)
	}
}

// spaceEffect judges a write of the namespace's settings (R10).
func (o *oracle) spaceEffect(e effect) {
	n, err := lease.DecodeNamespace(e.key, Namespace, e.body)
	if err != nil {
		o.fail("R10", "unreadable settings were written: %v", err)
		return
	}
	o.w.trace.add(who(e.from), "%s: floor %d", e.op, n.Floor)
	if n.Floor < o.floor {
		o.fail("R10", "the floor fell from %d to %d", o.floor, n.Floor)
	}
	if n.Floor > o.floor {
		o.stats["floor raised"]++
	}
	o.floor = n.Floor
}

// archiveEffect notes what is archived from now on (R9).
func (o *oracle) archiveEffect(e effect) {
	if e.op == faultstore.OpDeleteIf {
		o.stats["archives pruned"]++
		for name, ls := range o.byName {
			ls.pruned = ls.pruned || strings.HasPrefix(e.key, store.Key(Namespace, "hist", name)+"/")
		}
		return
	}
	a, err := lease.DecodeAnyArchive(e.key, e.body)
	if err != nil || e.op != faultstore.OpCreate {
		o.fail("R9", "a bad archive was written to %s by %s: %v", short(e.key), e.op, err)
		return
	}
	ls := o.byName[a.Resource]
	for _, t := range a.Tenures {
		if known := ls.tenancy(tenureOf(t)); known == nil || known.token != t.Token || known.how != t.How {
			o.fail("R9", "%s: an archive says that token %d was %s, which the record never said", a.Resource, t.Token, t.How)
		}
		o.archived[a.Resource][tenureOf(t)] = true
	}
	o.stats["archives"]++
	o.w.trace.add(who(e.from), "%s archived up to token %d", a.Resource, a.Tenures[len(a.Tenures)-1].Token)
}

// forgot reports whether something of a lease's past was removed.
func (o *oracle) forgot(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byName[name].pruned
}

// tenancy is the tenure with that name, nil if the record never showed it.
func (ls *leaseState) tenancy(id tenureID) *tenancy {
	for _, t := range slices.Backward(ls.tenures) {
		if t.tenureID == id {
			return t
		}
	}
	return nil
}

// observer passes a client's events to the oracle.
type observer struct {
	o *oracle
	p *Proc
}

// Observe judges what the client says of its leases (R11, R13).
func (v observer) Observe(e tenure.Event) {
	o := v.o
	if e.Authority != "" {
		o.leadershipEvent(v.p, e)
		return
	}
	if e.Node != "" {
		o.sessionEvent(v.p, e)
		return
	}
	o.w.trace.add(v.p.name, "%s: %s, token %d", e.Lease, e.Kind, e.Token)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["event "+string(e.Kind)]++
	if e.Kind != tenure.EventLost || v.p.crashed.Load() {
		return
	}
	if o.w.Plan.Calm {
		o.fail("R13", "%s: token %d of %s was lost: %v", e.Lease, e.Token, v.p.name, e.Err)
	}
	o.lost(v.p, e)
}
