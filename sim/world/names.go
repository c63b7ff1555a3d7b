package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// nodeState is what the oracle knows of one node's name.
type nodeState struct {
	name   string
	prefix string           // of the keys of its certificates
	rec    *identity.Record // nil: absent
	landed time.Time        // when rec arrived
	states []stateAt        // that the record ever had, in order
	starts map[string]*nodeStart
	live   []*Session                   // that were handed out and may be live
	sealed map[string]string            // what stands under the name of a certificate
	made   map[string]string            // name to the certificate that a takeover made
	folded map[string]bool              // names that were removed
	posted map[identity.Revocation]bool // revocations that the record ever showed
}

// nodeStart is one process start that the record ever named.
type nodeStart struct {
	identity.Owner
	p       *Proc // who wrote it; nil if unknown
	s       *Session
	revoker bool
	how     string // how it ended; empty while the record names it
	ended   time.Time
	wait    time.Duration         // superseded by force
	cert    *identity.Certificate // that ended it
	left    string                // a lease that it held yet when it gave the name up
	clean   bool                  // it was told to have left in order
}

// stateAt is a state of a node's record, and since when.
type stateAt struct {
	since time.Time
	nodeLook
}

// nodeLook is what a look at a node tells of its record's state.
type nodeLook struct {
	incarnation             string
	held                    bool
	term, counter, sequence uint64
}

func lookOf(r *identity.Record) nodeLook {
	return nodeLook{r.Last().Incarnation, r.Held(), r.Term, r.Counter, r.Sequence}
}

// was reports whether the record had that state at some instant from then on: a
// read that began then may tell of it.
func (ns *nodeState) was(look nodeLook, then time.Time) bool {
	for i := len(ns.states) - 1; i >= 0; i-- {
		if ns.states[i].nodeLook == look {
			return true
		}
		if !ns.states[i].since.After(then) {
			break
		}
	}
	return false
}

func newNodeState(name string) *nodeState {
	return &nodeState{
		name: name, prefix: store.Key(Namespace, "certificate", name) + "/", starts: map[string]*nodeStart{},
		sealed: map[string]string{}, made: map[string]string{}, folded: map[string]bool{}, posted: map[identity.Revocation]bool{},
	}
}

// identityEffect judges one write of a node's record (R18 to R20).
func (o *oracle) identityEffect(e effect) {
	var ns *nodeState
	for _, n := range o.nodes {
		if e.key == store.Key(Namespace, "identity", n.name) {
			ns = n
		}
	}
	if ns == nil {
		return
	}
	if e.op == faultstore.OpDelete || e.op == faultstore.OpDeleteIf {
		o.fail("R19", "%s: the record of a node was removed", ns.name)
		return
	}
	prev := ns.rec
	next, err := identity.Decode(e.key, ns.name, e.body)
	if err != nil {
		o.fail("R19", "%s: an unreadable record was written: %v", ns.name, err)
		return
	}
	st, err := identityStep(prev, next)
	o.w.trace.add(who(e.from), "%s: %s", e.op, describeName{st, next})
	if err != nil {
		o.fail("R19", "%s (by %s): %v", ns.name, who(e.from), err)
	}
	o.stats["name "+string(st)]++
	switch st {
	case granted, tookOver:
		o.nameTaken(ns, prev, next, e.from)
	case gaveUp, forcedOut:
		o.nameEnded(ns, next, st, e.from)
	case renewed:
		o.nameRenewed(ns, prev, next)
	}
	for _, v := range next.Revocations {
		ns.posted[v] = true
	}
	ns.rec, ns.landed = next, time.Now()
	ns.states = append(ns.states, stateAt{ns.landed, lookOf(next)})
	o.checkDropped(ns, prev, next)
	o.oneSession(ns)
}

// describeName is a step of a node's record for the trace, without ids.
type describeName struct {
	st step
	r  *identity.Record
}

func (d describeName) String() string {
	r := d.r
	s := fmt.Sprintf("%s %s: term %d, counter %d, sequence %d", r.Node, d.st, r.Term, r.Counter, r.Sequence)
	if c := r.Certificate; c != nil {
		s += ", unsealed " + c.How
	}
	if len(r.Revocations) > 0 {
		s += fmt.Sprintf(", %d revocations", len(r.Revocations))
	}
	switch {
	case r.Revoker != nil:
		s += ", a revoker's"
	case !r.Held():
		s += ", " + r.Ended.How
	}
	return s
}

// nameTaken judges a new owner: on what ground (R20), with what evidence sealed
// (R21), and that its incarnation is new.
func (o *oracle) nameTaken(ns *nodeState, prev, next *identity.Record, by *Proc) {
	if ns.starts[next.Incarnation] != nil {
		o.fail("R19", "%s: term %d belongs to an incarnation that owned the name before", ns.name, next.Term)
	}
	ns.starts[next.Incarnation] = &nodeStart{Owner: next.Last(), p: by, revoker: next.Revoker != nil}
	if by != nil {
		by.began.Store(next.Incarnation)
	}
	if next.Revoker != nil {
		o.stats["revokers"]++
	}
	if prev == nil {
		if next.Term > o.floor+1 {
			o.fail("R19", "%s: the first term is %d, and the floor %d", ns.name, next.Term, o.floor)
		}
		return
	}
	if prev.Certificate != nil {
		o.wantSealed(ns, prev.Certificate, "its record was replaced by term %d", next.Term)
	}
	c := next.Certificate
	if c == nil {
		return // said already
	}
	o.stats["name fell "+c.How]++
	o.checkFall(ns, prev, next, by)
	body, err := c.Encode()
	for _, name := range c.Names() {
		if err != nil || ns.made[name] != "" {
			o.fail("R21", "%s: a second certificate for %s, by %s", ns.name, kindOf(name), who(by))
		}
		ns.made[name] = string(body)
	}
	last := ns.starts[prev.Last().Incarnation]
	if last == nil {
		return
	}
	last.cert = c
	if last.how == "" {
		last.how, last.ended = c.How, time.Now()
	}
	if prev.Revoker != nil { // one that was ended by force fell by that
		last.how = lease.HowReleased
	}
}

// checkFall judges when and on what evidence a name passed on (R20).
func (o *oracle) checkFall(ns *nodeState, prev, next *identity.Record, by *Proc) {
	stood := time.Since(ns.landed) + 2 // a rounding each of two clocks
	need := time.Duration(0)
	switch {
	case prev.Revoker != nil:
		need = time.Duration(prev.Revoker.SupersededTTLMS) * time.Millisecond
	case prev.Held() && next.Certificate.How != lease.HowProven:
		need = prev.TTL()
	case prev.Held():
		if s := ns.starts[prev.Incarnation]; s == nil || s.p == nil || !s.p.crashed.Load() {
			o.fail("R20", "%s: term %d fell as proven gone, and its process lives", ns.name, prev.Term)
		}
	case prev.Ended.How == lease.HowForced:
		need = time.Duration(prev.Ended.SupersededTTLMS) * time.Millisecond
	}
	if stood < need {
		o.fail("R20", "%s: term %d was taken by %s although the record before it stood for %v only, want %v", ns.name, next.Term, who(by), stood, need)
	}
}

// nameEnded judges an end without a successor (R20, R23).
func (o *oracle) nameEnded(ns *nodeState, next *identity.Record, st step, by *Proc) {
	s := ns.starts[next.Ended.Incarnation]
	if s == nil {
		return
	}
	s.how, s.ended, s.wait = next.Ended.How, time.Now(), time.Duration(next.Ended.SupersededTTLMS)*time.Millisecond
	if st != gaveUp || s.p == nil {
		return
	}
	if s.s != nil && s.s.Live() { // and so are all its leases (R24)
		o.fail("R23", "%s: term %d was released in the store by %s while its session is live", ns.name, s.Term, who(by))
	}
	for _, name := range o.w.Plan.Names() {
		r := o.byName[name].rec
		if r != nil && r.Held() && r.Kind == lease.Session && r.Owner.Incarnation == s.Incarnation && !ns.posted[identity.Revocation{Resource: name, Token: r.Token}] {
			s.left = name
		}
	}
}

// nameRenewed judges a sign of life: whoever acts has its certificate under both
// names (R21), and a lease whose revocation it met has ended (R26).
func (o *oracle) nameRenewed(ns *nodeState, prev, next *identity.Record) {
	if prev.Term != prev.FirstTerm && prev.Certificate != nil {
		o.wantSealed(ns, prev.Certificate, "term %d renewed", prev.Term)
	}
	for _, v := range prev.Revocations {
		ls := o.byName[v.Resource]
		if h := ls.handle(tenureID{next.Incarnation, v.Token}); h != nil && h.live() {
			o.fail("R26", "%s: token %d is live after its session at %s renewed over its revocation", v.Resource, v.Token, h.p.name)
		}
		o.stats["revocations met"]++
	}
}

// checkDropped judges that a certificate leaves its record only when it stands
// under both names (R21).
func (o *oracle) checkDropped(ns *nodeState, prev, next *identity.Record) {
	if prev != nil && prev.Certificate != nil && next.Certificate == nil && next.Last() == prev.Last() {
		o.wantSealed(ns, prev.Certificate, "term %d dropped it", next.Term)
	}
}

// wantSealed judges that c stands under both names now, or did until it was
// folded (R21).
func (o *oracle) wantSealed(ns *nodeState, c *identity.Certificate, why string, args ...any) {
	body, err := c.Encode()
	for _, name := range c.Names() {
		if err != nil || ns.sealed[name] != string(body) && !ns.folded[name] {
			o.fail("R21", "%s: the certificate of term %d does not stand under the name of the %s, and %s", ns.name, c.Successor.Term, kindOf(name), fmt.Sprintf(why, args...))
		}
	}
}

// kindOf is the name of a certificate for people: without ids.
func kindOf(name string) string { kind, _, _ := strings.Cut(name, "-"); return kind }

// certificateEffect judges what happens to the name of a certificate (R21).
func (o *oracle) certificateEffect(e effect) {
	for _, ns := range o.nodes {
		if name, is := strings.CutPrefix(e.key, ns.prefix); is {
			o.certificateOf(ns, name, e)
		}
	}
}

func (o *oracle) certificateOf(ns *nodeState, name string, e effect) {
	o.w.trace.add(who(e.from), "%s: certificate of %s, %s", e.op, ns.name, kindOf(name))
	switch e.op {
	case faultstore.OpCreate:
		o.stats["sealed"]++
		if ns.made[name] != string(e.body) {
			o.fail("R21", "%s: %s sealed under the name of the %s what no takeover made", ns.name, who(e.from), kindOf(name))
		}
		ns.sealed[name] = string(e.body)
		delete(ns.folded, name)
	case faultstore.OpDelete, faultstore.OpDeleteIf:
		o.stats["folded"]++
		c, err := identity.ParseCertificate([]byte(ns.sealed[name]))
		if err == nil && !foldable(c, ns.rec) {
			o.fail("R21", "%s: the certificate of term %d was removed, and the head is at term %d", ns.name, c.Successor.Term, ns.rec.Term)
		}
		delete(ns.sealed, name)
		ns.folded[name] = true
	default:
		o.fail("R21", "%s: a certificate was replaced", ns.name)
	}
}

// foldable: the head speaks for c's two sides, and remembers its force (PL5).
func foldable(c *identity.Certificate, head *identity.Record) bool {
	if head == nil || head.Term <= c.Successor.Term {
		return false
	}
	f := head.Forced
	return c.SupersededTTLMS == 0 || f != nil && f.Term > c.Predecessor.Term && f.TTLMS >= c.SupersededTTLMS
}

// oneSession judges R18 at this instant. Under mu.
func (o *oracle) oneSession(ns *nodeState) {
	ns.live = slices.DeleteFunc(ns.live, func(s *Session) bool { return !s.Live() && s.Err() != nil })
	var first *Session
	for _, s := range ns.live {
		st := ns.starts[s.Proof().Incarnation]
		if !s.Live() || st == nil || s.p.crashed.Load() && (st.how == lease.HowVouched || st.how == lease.HowProven) {
			continue
		}
		if st.how != "" && st.wait == 0 {
			o.fail("R18", "%s: the session of term %d at %s is live although it ended: %s", ns.name, st.Term, s.p.name, st.how)
		}
		if st.wait > 0 && time.Since(st.ended) > st.wait && st.how == lease.HowForced {
			o.fail("R18", "%s: the session of term %d at %s is live %v after it was forced out", ns.name, st.Term, s.p.name, time.Since(st.ended))
		}
		if first != nil {
			o.fail("R18", "%s: the sessions of term %d at %s and term %d at %s are both live", ns.name, first.Proof().Term, first.p.name, st.Term, s.p.name)
		}
		first = s
	}
}

// sessionEvent judges what a client says of its session (R11, R13).
func (o *oracle) sessionEvent(p *Proc, e tenure.Event) {
	if e.Kind != tenure.EventRenewed {
		o.w.trace.add(p.name, "%s: %s, term %d: %s", e.Node, e.Kind, e.Term, kind(e.Err))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["session "+string(e.Kind)]++
	if e.Kind != tenure.EventLost || p.crashed.Load() {
		return
	}
	if o.w.Plan.Calm {
		o.fail("R13", "%s: the session of term %d at %s was lost: %v", e.Node, e.Term, p.name, e.Err)
	}
	if errors.Is(e.Err, tenure.ErrExpired) {
		o.stats["session expired"]++
		return
	}
	ns := o.nodes[e.Node]
	if r := ns.rec; r != nil && r.Held() && r.Term == e.Term && ns.starts[r.Incarnation].p == p && !r.Raised() && r.Sequence < record.MaxNumber && !p.misled() {
		o.fail("R11", "%s: %s calls term %d lost, and the record is still its own: %v", e.Node, p.name, e.Term, e.Err)
	}
}
