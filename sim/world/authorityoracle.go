package world

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// authorityState is what the oracle knows of one authority.
type authorityState struct {
	name    string
	headKey string
	logKey  string // what the keys of all its objects begin with
	head    *core.Head
	heads   []headAt  // every state that the head ever had, in order
	signed  time.Time // of the last sign of life, or of the end
	chains  map[string]*chainModel
	objects map[string][]byte // what stands, by kind and element
	tokens  map[uint64]*reign
	leaders []*Leadership // that were handed out and may be live
	highest uint64        // token handed out
	written map[core.Report]bool
	made    map[core.Report]bool
	never   map[string]string // decisions of which somebody was told that they will not stand
	failed  map[string]string // decisions whose last call ended with an error that says so
	doubted map[string]bool   // decisions that may be on their way
	calls   map[string]int    // under way, by decision
	handed  map[uint64]bool   // tokens that were handed out
}

// headAt is a state of a head, and since when.
type headAt struct {
	since time.Time
	head  *core.Head
}

// reign is one leadership as the head showed it.
type reign struct {
	core.Owner
	p     *Proc
	how   string // how it ended; empty while the head names it
	ended time.Time
}

func newAuthorityState(name string) *authorityState {
	as := &authorityState{
		name: name, headKey: store.Key(Namespace, "authority", name), logKey: store.Key(Namespace, "authority-log", name) + "/",
		chains: map[string]*chainModel{}, objects: map[string][]byte{}, tokens: map[uint64]*reign{},
		written: map[core.Report]bool{}, made: map[core.Report]bool{}, never: map[string]string{}, failed: map[string]string{}, doubted: map[string]bool{}, calls: map[string]int{}, handed: map[uint64]bool{},
	}
	for _, c := range core.ChainNames() {
		as.chains[c] = &chainModel{name: c}
	}
	return as
}

// authorityOf is the authority that a key belongs to, nil if it is none's.
func (o *oracle) authorityOf(key string) *authorityState {
	for _, as := range o.authorities {
		if key == as.headKey || strings.HasPrefix(key, as.logKey) {
			return as
		}
	}
	return nil
}

func (as *authorityState) object(kind core.Kind, element string) []byte {
	return as.objects[string(kind)+"/"+element]
}

// authorityEffect judges one effect on an authority (R28 to R34).
func (o *oracle) authorityEffect(as *authorityState, e effect) {
	if e.key != as.headKey {
		o.objectEffect(as, strings.TrimPrefix(e.key, as.logKey), e)
		return
	}
	if e.op == faultstore.OpDelete || e.op == faultstore.OpDeleteIf {
		o.fail("R28", "%s: the head was removed", as.name)
		return
	}
	prev := as.head
	next, err := core.Decode(e.key, as.name, e.body)
	if err != nil {
		o.fail("R28", "%s: an unreadable head was written: %v", as.name, err)
		return
	}
	st, err := headStep(prev, next)
	o.w.trace.add(who(e.from), "%s: %s", e.op, describeHead{st, prev, next})
	if err != nil {
		o.fail("R28", "%s (by %s): %v", as.name, who(e.from), err)
	}
	o.stats["head "+string(st)]++
	o.checkReign(as, prev, next, st, e.from)
	released := o.checkChains(as, prev, next, e.from)
	o.checkFaults(as, prev, next, released)
	if st != reported && st != jumped {
		as.signed = time.Now()
	}
	as.head = next
	as.heads = append(as.heads, headAt{time.Now(), next})
	o.oneLeader(as)
}

// describeHead is a step of a head for the trace, without ids.
type describeHead struct {
	st         step
	prev, next *core.Head
}

func (d describeHead) String() string {
	h := d.next
	s := fmt.Sprintf("authority %s %s: sequence %d, token %d, counter %d, renewal %d", h.Authority, d.st, h.Sequence, h.Token, h.Counter, h.Renewal)
	switch {
	case h.Led():
		s += ", led by " + h.Leader.Node
	default:
		s += ", " + h.Ended().How
	}
	for _, name := range core.ChainNames() {
		c := h.Chain(name)
		if c == nil || d.prev != nil && reflect.DeepEqual(c, d.prev.Chain(name)) {
			continue
		}
		s += fmt.Sprintf(", %s %d of sequence %d, %d live from %d, horizon %d", name, c.Head.Key, c.Head.Sequence, c.Live, c.Floor, c.Horizon)
	}
	if h.Round != nil && (d.prev == nil || d.prev.Round == nil || d.prev.Round.Generation != h.Round.Generation) {
		s += fmt.Sprintf(", round %d at revision %d", h.Round.Generation, h.Round.Revision)
	}
	if d.prev == nil || d.prev.Revision != h.Revision {
		s += fmt.Sprintf(", %d faults", len(h.Faults()))
	}
	return s
}

// checkReign judges who begins, goes on or ends to lead, and on what ground (R31).
func (o *oracle) checkReign(as *authorityState, prev, next *core.Head, st step, by *Proc) {
	if prev != nil && prev.Led() && !next.Leads(prev.Last()) {
		o.reignEnded(as, prev, next, st, by)
	}
	switch st {
	case granted, tookOver:
		_, start := o.startOf(lease.Owner(*next.Leader))
		if start == nil || start.p != by {
			o.fail("R31", "%s: %s made token %d a session's that is not its own", as.name, who(by), next.Token)
		}
		if as.tokens[next.Token] != nil {
			o.fail("R28", "%s: token %d was given twice", as.name, next.Token)
		}
		as.tokens[next.Token] = &reign{Owner: *next.Leader, p: by}
		if prev != nil {
			o.checkGround(as, prev, next, by)
		}
	case renewed:
		if r := as.tokens[next.Token]; r != nil && r.p != by {
			o.fail("R28", "%s: token %d of %s was renewed by %s", as.name, next.Token, who(r.p), who(by))
		}
	}
}

// reignEnded notes how prev's leadership ended.
func (o *oracle) reignEnded(as *authorityState, prev, next *core.Head, st step, by *Proc) {
	r := as.tokens[prev.Token]
	if r == nil || len(next.Recent) == 0 {
		return
	}
	r.how, r.ended = next.Recent[len(next.Recent)-1].How, time.Now()
	o.stats["reign ended "+r.how]++
	if st == gaveUp && r.p != by {
		o.fail("R28", "%s: token %d of %s was given up by %s", as.name, prev.Token, who(r.p), who(by))
	}
}

// checkGround judges when and on what evidence a leadership passed on (R31).
func (o *oracle) checkGround(as *authorityState, prev, next *core.Head, by *Proc) {
	stood := time.Since(as.signed) + 2 // a rounding each of two clocks
	need := time.Duration(0)
	how := ""
	switch {
	case !prev.Led() && prev.Ended().How == lease.HowForced:
		need = time.Duration(prev.Ended().SupersededTTLMS) * time.Millisecond
	case prev.Led() && *prev.Leader != *next.Leader:
		need, how = prev.TTL(), next.Recent[len(next.Recent)-1].How
	}
	if stood >= need {
		return
	}
	if _, s := o.startOf(lease.Owner(prev.Last().Owner())); how != "" && s != nil && s.how != "" {
		o.stats["led after a session "+s.how]++
		if since := time.Since(s.ended) + 2; since < s.wait {
			o.fail("R31", "%s: token %d was given %v after the session before was %s, want %v", as.name, next.Token, since, s.how, s.wait)
		}
		return
	}
	o.fail("R31", "%s: token %d was given to %s although the leadership before it was silent for %v only, want %v", as.name, next.Token, who(by), stood, need)
}

// checkChains judges what a write says of the chains (R29, R30), and returns the
// release that it admits, if any.
func (o *oracle) checkChains(as *authorityState, prev, next *core.Head, by *Proc) (released *recovery.Release) {
	entries := 0
	for _, name := range core.ChainNames() {
		m, c := as.chains[name], next.Chain(name)
		var was *core.Chain
		if prev != nil {
			was = prev.Chain(name)
		}
		if reflect.DeepEqual(c, was) {
			continue
		}
		if c == nil {
			o.fail("R29", "%s: chain %s is gone", as.name, name)
			continue
		}
		if was == nil || was.Head != c.Head {
			entries++
			if !o.decided(as, m, c.Head, prev, next, by) {
				return released
			}
			if r, ok := m.last().value.(*recovery.Release); ok {
				released = r
			}
			if was != nil && c.Floor > m.floor {
				o.compacted(as, name, was, c)
			}
		}
		o.checkBounds(as, m, c)
		if want := m.chain(); !reflect.DeepEqual(want, c) {
			o.fail("R29", "%s: the head says of chain %s %+v, and what was admitted is %+v", as.name, name, *c, *want)
		}
	}
	if entries > 1 {
		o.fail("R29", "%s: one write admitted %d decisions", as.name, entries)
	}
	return released
}

// decided notes the decision that a write admits, and judges it (R29, R33); false if
// it is none.
func (o *oracle) decided(as *authorityState, m *chainModel, l core.Link, prev, next *core.Head, by *Proc) bool {
	a, err := newAdmitted(l, as.object(core.KindEntry, l.Name().Element()), as.object)
	a.by = by
	if err == nil {
		err = o.checkAdmitted(as, m, a, prev, next)
	}
	if err != nil {
		o.fail("R29", "%s: chain %s, key %d, by %s: %v", as.name, m.name, l.Key, who(by), err)
		return false
	}
	if why := as.refused(decided(m.name, a.what, a.entry.Proof)); why != "" {
		o.fail("R33", "%s: chain %s, key %d was admitted after somebody was told that it would not be: %s", as.name, m.name, l.Key, why)
	}
	m.all = append(m.all, a)
	o.stats["admitted "+m.name]++
	return true
}

// compacted judges a floor that moved with a decision (R30).
func (o *oracle) compacted(as *authorityState, name string, was, is *core.Chain) {
	o.stats["compacted "+name]++
	if was.Live < checkpoint.CompactAt || is.Live != checkpoint.Kept+1 {
		o.fail("R30", "%s: chain %s was compacted from %d live entries to %d", as.name, name, was.Live, is.Live)
	}
}

// checkBounds judges the bounds of a chain, and notes them (R30).
func (o *oracle) checkBounds(as *authorityState, m *chainModel, c *core.Chain) {
	if c.Floor < m.floor || c.Horizon < m.horizon {
		o.fail("R30", "%s: chain %s: a bound fell: floor %d to %d, horizon %d to %d", as.name, m.name, m.floor, c.Floor, m.horizon, c.Horizon)
	}
	if c.Floor > m.floor {
		o.stats["floor moved "+m.name]++
	}
	if c.Horizon > m.horizon {
		o.stats["horizon moved"]++
		if c.Mark == nil || c.Mark.Key < c.Horizon {
			o.fail("R30", "%s: no commit is left at or above the horizon %d", as.name, c.Horizon)
		}
	}
	m.floor, m.horizon = c.Floor, c.Horizon
}

// checkAdmitted judges one decision that a write admits over prev.
func (o *oracle) checkAdmitted(as *authorityState, m *chainModel, a admitted, prev, next *core.Head) error {
	e, last := a.entry, m.last()
	switch r := as.tokens[e.Proof.Token]; {
	case prev == nil || !prev.Leads(e.Proof) || prev.Raised():
		return fmt.Errorf("its proof, of token %d, did not lead at sequence %d", e.Proof.Token, next.Sequence)
	case r == nil || r.p != a.by:
		return fmt.Errorf("token %d is another process's", e.Proof.Token)
	case e.Authority != as.name || e.Chain != m.name || e.Sequence != next.Sequence || a.link.Sequence != next.Sequence || e.Proof.Token != a.link.Token:
		return fmt.Errorf("it is not of this place: chain %s, sequence %d", e.Chain, e.Sequence)
	case last == nil && e.Previous != nil, last != nil && (e.Previous == nil || *e.Previous != last.link):
		return fmt.Errorf("it does not follow the newest one")
	case last != nil && e.Key <= last.link.Key:
		return fmt.Errorf("it follows key %d", last.link.Key)
	case !sameMark(e.Mark, m.mark()):
		return fmt.Errorf("it names another newest marked one")
	case m.name == core.Catalog && last != nil:
		return fmt.Errorf("a sealed catalog was sealed again")
	}
	if o2, ok := a.value.(*checkpoint.Outcome); ok && last != nil {
		if was := last.value.(*checkpoint.Outcome); o2.Checkpoint <= was.Checkpoint || o2.Deployment != was.Deployment {
			return fmt.Errorf("checkpoint %d of its deployment follows %d", o2.Checkpoint, was.Checkpoint)
		}
	}
	if d, ok := a.value.(*assignment.Decision); ok {
		return o.checkAssigned(as, m, d, e.Proof)
	}
	return nil
}

func sameMark(a, b *core.Link) bool { return a == b || a != nil && b != nil && *a == *b }

// checkAssigned judges a decision on an assignment: it builds on what stands, a drain
// is committed by who began it, and who is replaced by a recovery is over.
func (o *oracle) checkAssigned(as *authorityState, m *chainModel, d *assignment.Decision, by core.Proof) error {
	base := ""
	if last := m.last(); last != nil {
		base = last.value.(*assignment.Decision).Result().State()
	} else if seeded, err := assignment.DecodeMap("", as.object("assignment", versionElement(1))); err == nil {
		base = seeded.Fence().State()
	}
	if base != d.Predecessor.State() {
		return fmt.Errorf("it does not build on the assignment that stands")
	}
	if d.Kind == assignment.Drain && d.Verdict == assignment.Commit && *d.Begun != by {
		return fmt.Errorf("token %d commits the drain of token %d", by.Token, d.Begun.Token)
	}
	if as.object("proposal", versionElement(d.Target.Version)+"-"+d.Target.State()) == nil && d.Verdict != assignment.Abort {
		return fmt.Errorf("its proposal does not stand")
	}
	if d.Kind != assignment.Replace {
		return nil
	}
	for _, gone := range d.Gone() {
		ns := o.nodes[gone.Node]
		if ns == nil || ns.starts[gone.Incarnation] == nil {
			return fmt.Errorf("it replaces a process that never was")
		}
		if s := ns.starts[gone.Incarnation]; s.how == "" || time.Since(s.ended)+2 < s.wait {
			return fmt.Errorf("it replaces term %d of node %s, which is not over", s.Term, gone.Node)
		}
	}
	o.stats["replaced"] += len(d.Gone())
	return nil
}

func versionElement(v uint64) string { return fmt.Sprintf("%016d", v) }
