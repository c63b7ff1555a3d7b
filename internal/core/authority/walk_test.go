package authority_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
)

var seeds = flag.Uint64("seeds", 6, "how many random walks")

const (
	rho        = 0.01
	name       = "jobs"
	deployment = "dddddddd-4444-4444-8444-444444444444"
	idTTL      = 3 * time.Second
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// world is one authority's register and objects, and true time. Its apply is the
// oracle: it knows what each write meant, and judges the bytes.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Duration
	body    []byte
	ver     int
	objects map[string][]byte
	flying  []*sent
	procs   []*proc
	count   map[string]int

	owners   map[uint64]authority.Owner           // token → who got it
	admitted map[string]map[uint64]authority.Link // chain → key → entry
	refused  map[string]string                    // attempt → why it was certainly not admitted
	over     map[authority.Owner]identity.Verdict
	vouched  map[authority.Owner]bool
	reporter map[string][2]uint64 // node → term and request of its newest report
	fence    *assignment.Fence    // what is installed
	round    *authority.Round
	large    bool // assignments that need blobs
	calm     bool // little happens from outside
	walked   map[string]*authority.Trail
	applied  map[string]bool // attempts on the head
}

// quick are the rules of the checkpoints, with a history that is soon compacted.
type quick struct{ checkpoint.Rules }

func (quick) Policy() authority.Policy { return authority.Policy{CompactAt: 8, Keep: 3} }

// proc is one process start.
type proc struct {
	me    authority.Owner
	cand  *authority.Candidacy
	rate  float64 // of its clock against true time
	seen  authority.Observation
	first map[authority.Owner]time.Duration // when it first read that somebody is over
	held  *authority.Head
	until time.Duration // true time up to which it may act
	ended map[uint64]bool
	gone  bool // dead, or forced out: it extends no more
	doubt *sent
	ops   []*op
	sweep *sweep
}

// sent is a write on its way: of the head, or of an object, or a delete.
type sent struct {
	what    string
	over    int
	head    *authority.Head
	by      *proc
	vouched bool
	put     string
	body    []byte
	del     string
	at      time.Duration
	lands   bool
}

func newWorld(t *testing.T, seed uint64, count map[string]int) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 23)), objects: map[string][]byte{}, count: count,
		owners: map[uint64]authority.Owner{}, admitted: map[string]map[uint64]authority.Link{}, refused: map[string]string{},
		over: map[authority.Owner]identity.Verdict{}, vouched: map[authority.Owner]bool{}, reporter: map[string][2]uint64{}, walked: map[string]*authority.Trail{},
		applied: map[string]bool{}, large: seed%8 == 5, calm: seed%2 == 0}
	n := 2
	if w.large {
		n = assignment.MaxParticipants
	}
	w.fence = w.assign(1, n)
	for i := range 3 {
		w.procs = append(w.procs, w.start(fmt.Sprint("n", i), 1))
	}
	return w
}

func (w *world) start(node string, term uint64) *proc {
	me := authority.Owner{Node: node, Incarnation: w.id(), Term: term}
	return &proc{me: me, cand: authority.NewCandidacy(me), rate: 1 + rho/2*(2*w.rng.Float64()-1),
		first: map[authority.Owner]time.Duration{}, ended: map[uint64]bool{}}
}

// assign is some assignment of a version to n participants.
func (w *world) assign(version uint64, n int) *assignment.Fence {
	var owners []assignment.Participant
	for i := range n {
		p := assignment.Participant{Node: fmt.Sprintf("n%03d", i), Incarnation: w.id()}
		if w.large {
			p.Node += strings.Repeat(`"`, 120)
		}
		owners = append(owners, p)
	}
	return must(assignment.NewMap(version, owners)).Fence()
}

func (w *world) id() string {
	a, b := w.rng.Uint64(), w.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff)
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) wall() int64 { return w.rng.Int64N(1 << 40) } // wall clocks say anything

func (w *world) local(p *proc) time.Duration { return time.Duration(float64(w.now) * p.rate) }

// read is a linearizable read, decoded strictly.
func (w *world) read() *authority.Head {
	if w.body == nil {
		return nil
	}
	h, err := authority.Decode("k", name, w.body)
	if err != nil {
		w.t.Fatalf("the register does not decode: %v\n%s", err, w.body)
	}
	return h
}

// send puts a write on its way: it lands now, later, or never. Nobody is answered:
// everyone learns by reading, as after a lost answer.
func (w *world) send(o sent) {
	o.at, o.lands = w.now, !w.chance(8)
	if w.chance(12) {
		w.flying = append(w.flying, &o)
	} else if o.lands {
		w.apply(&o)
	}
}

// land applies one late write.
func (w *world) land() {
	if len(w.flying) == 0 {
		return
	}
	i := w.rng.IntN(len(w.flying))
	o := w.flying[i]
	w.flying = append(w.flying[:i], w.flying[i+1:]...)
	if o.lands {
		w.apply(o)
	}
}

func key(n authority.Name) string { return string(n.Kind) + "/" + n.Element() }

func capsule(n checkpoint.CapsuleName) string { return "capsule/" + n.Element() }

// apply is the store: create-only objects, deletes, and the register's
// compare-and-set with the oracle.
func (w *world) apply(o *sent) {
	switch {
	case o.put != "":
		if had, ok := w.objects[o.put]; ok && !bytes.Equal(had, o.body) {
			w.t.Fatalf("two bodies under one name: %s", o.put)
		}
		w.objects[o.put] = o.body
		return
	case o.del != "":
		w.noneLinked(o.del)
		delete(w.objects, o.del)
		w.count["deleted"]++
		return
	case o.over != w.ver:
		return
	}
	prev := w.read()
	body, err := o.head.Encode()
	if err != nil {
		w.t.Fatalf("%s: %v", o.what, err)
	}
	w.body = body
	w.ver++
	now := w.read()
	w.count[o.what]++
	w.applied[now.WriterAttempt] = true
	if why, not := w.refused[now.WriterAttempt]; not {
		w.t.Fatalf("a write landed after it was refused: %s", why)
	}
	w.check(prev, now, o)
	if o.vouched {
		w.vouched[*prev.Leader] = true
	}
	if p := o.by; p != nil && !p.gone && now.Led() && *now.Leader == p.me && !p.ended[now.Token] {
		p.until = max(p.until, o.at+time.Duration(float64(now.TTL()-now.TTL()/10)/p.rate))
	}
}

// check holds every rule that one step of the register must keep.
func (w *world) check(prev, now *authority.Head, o *sent) {
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("%s: %s\nwas %+v\nis  %+v", o.what, fmt.Sprintf(format, args...), prev, now)
	}
	if prev == nil {
		if now.Sequence != 1 || now.Token != 1 {
			fail("the first head")
		}
		w.owners[1] = *now.Leader
		return
	}
	if now.Sequence != prev.Sequence+1 && (o.what != "jump" || now.Sequence <= prev.Sequence) {
		fail("a gap or a fork of the sequence")
	}
	if now.Counter < prev.Counter || now.Renewal < prev.Renewal || now.Revision < prev.Revision {
		fail("a count fell")
	}
	if sign := now.Renewal != prev.Renewal; sign != (now.Led() && now.WriterAttempt == now.HolderAttempt) {
		fail("a sign of life of nobody, or none of the leader's")
	}
	if now.Led() && (!prev.Led() || now.Token != prev.Token) {
		w.checkTakeover(prev, now, fail)
	} else if now.Token != prev.Token || prev.Led() && now.Led() && *prev.Leader != *now.Leader || !prev.Led() && now.Led() {
		fail("a leadership changed without a new token")
	}
	for _, chain := range authority.ChainNames() {
		w.checkChain(chain, prev, now, fail)
	}
	w.checkFaults(prev, now, fail)
}

func (w *world) checkTakeover(prev, now *authority.Head, fail func(string, ...any)) {
	if _, had := w.owners[now.Token]; had || now.Token != prev.Counter+1 {
		fail("a token was used before")
	}
	w.owners[now.Token] = *now.Leader
	if prev.Led() {
		w.count["how "+now.Recent[len(now.Recent)-1].How]++
	} else {
		w.count["how "+prev.Ended().How]++
	}
	for _, p := range w.procs {
		if p.me != *now.Leader && p.until > w.now && !w.vouched[p.me] {
			fail("%v may act for %v yet", p.me, p.until-w.now)
		}
	}
}

func (w *world) checkChain(chain string, prev, now *authority.Head, fail func(string, ...any)) {
	a, b := prev.Chain(chain), now.Chain(chain)
	if b == nil {
		if a != nil {
			fail("chain %s is gone", chain)
		}
		return
	}
	if a != nil && (b.Floor < a.Floor || b.Horizon < a.Horizon || b.Binding != a.Binding || b.Head.Key < a.Head.Key) {
		fail("chain %s went back", chain)
	}
	if b.Horizon > 0 && b.Mark.Key < b.Horizon {
		fail("no commit stays")
	}
	if a != nil && a.Head == b.Head {
		return
	}
	l := b.Head
	var e authority.Entry
	w.decode(w.objects[key(l.Name())], &e)
	if !prev.Leads(e.Proof) || !now.Leads(e.Proof) || e.Sequence != now.Sequence || prev.Raised() {
		fail("chain %s: decided by a proof that did not lead then: %+v", chain, e)
	}
	if why, not := w.refused[l.Attempt]; not {
		fail("chain %s: an attempt was admitted that was certainly not: %s", chain, why)
	}
	if w.admitted[chain] == nil {
		w.admitted[chain] = map[uint64]authority.Link{}
	}
	if _, had := w.admitted[chain][l.Key]; had || chain == authority.Catalog && a != nil {
		fail("chain %s: a second decision of key %d", chain, l.Key)
	}
	w.admitted[chain][l.Key] = l
	w.count["admitted "+chain]++
	if chain == authority.Assignment {
		w.checkAssignment(&e, fail)
	}
}

func (w *world) checkAssignment(e *authority.Entry, fail func(string, ...any)) {
	var blob []byte
	if n, ok := e.BlobName(); ok {
		blob = w.objects[key(n)]
		w.count["blob"]++
	}
	d := must(authority.Verify(assignment.Rules{}, "k", e, blob)).Value.(*assignment.Decision)
	if e.Previous != nil && d.Predecessor.State() != w.fence.State() {
		fail("an assignment that builds on nothing installed")
	}
	w.fence = d.Result()
}

// checkFaults: a fault stays active until a release of a round that froze it clears
// it, or a later report of its node takes its place.
func (w *world) checkFaults(prev, now *authority.Head, fail func(string, ...any)) {
	slots := map[string]authority.Slot{}
	for _, s := range now.Slots {
		slots[s.Node] = s
	}
	released := prev.Recovery == nil && now.Recovery != nil || prev.Recovery != nil && prev.Recovery.Head != now.Recovery.Head
	if released && (prev.Round == nil || prev.Round.Revision != prev.Revision || now.Round != nil || now.Revision != now.Sequence) {
		fail("a release of another inventory than the frozen one")
	}
	for _, s := range prev.Slots {
		n, ok := slots[s.Node]
		switch {
		case !ok:
			fail("the slot of %s is gone", s.Node)
		case n.Report != s.Report && (n.Term < s.Term || n.Term == s.Term && n.Request <= s.Request || !n.Active):
			fail("the slot of %s went back", s.Node)
		case n.Report == s.Report && s.Active && !n.Active && !released, n.Report == s.Report && !s.Active && n.Active:
			fail("the fault of %s was cleared without a release, or came back", s.Node)
		}
		if n.Report == s.Report && s.Active && !n.Active {
			w.count["cleared"]++
		}
	}
	w.round = now.Round
}

// noneLinked: no deleted object is reached by the head.
func (w *world) noneLinked(name string) {
	h := w.read()
	kind, element, _ := strings.Cut(name, "/")
	if kind == "capsule" {
		n := must(checkpoint.ParseCapsuleName(element))
		for _, s := range w.history(h).Inventory() {
			if live, ok := s.CapsuleName(); ok && live == n {
				w.t.Fatalf("the capsule of epoch %d is deleted and live", n.Epoch)
			}
		}
		return
	}
	if w.links(h, must(authority.ParseName(authority.Kind(kind), element))) {
		w.t.Fatalf("%s is deleted and linked", name)
	}
}

func (w *world) links(h *authority.Head, n authority.Name) bool {
	for _, t := range w.trails(h) {
		for _, s := range t.Steps() {
			if b, ok := s.Entry.BlobName(); s.Link.Name() == n || ok && b == n {
				return true
			}
		}
	}
	return false
}

// trails are whole walks of all chains of h.
func (w *world) trails(h *authority.Head) []*authority.Trail {
	var all []*authority.Trail
	for _, chain := range authority.ChainNames() {
		t := authority.Follow(h, chain, w.walked[chain])
		for l, ok := t.Next(); ok; l, ok = t.Next() {
			if err := t.Take(w.objects[key(l.Name())]); err != nil {
				w.t.Fatal(err)
			}
		}
		w.walked[chain] = t
		all = append(all, t)
	}
	return all
}

func (w *world) history(h *authority.Head) *checkpoint.History {
	return must(checkpoint.Read(h, w.trails(h)[0]))
}

// audit walks everything that stands.
func (w *world) audit() {
	h := w.read()
	if h == nil {
		return
	}
	a := must(authority.NewAudit(h, checkpoint.Rules{}, assignment.Rules{}, recovery.Rules{}, catalog.Rules{}))
	for n, ok := a.Next(); ok; n, ok = a.Next() {
		a.Take(w.objects[key(n.Name)])
	}
	if a.First() != nil {
		w.t.Fatalf("%v\n%s", a.First(), w.body)
	}
	w.count["audit"]++
	x := w.history(h)
	if s := x.HighestCommit(); s != nil {
		n, _ := s.CapsuleName()
		if _, err := s.Load("k", w.objects[capsule(n)]); err != nil {
			w.t.Fatal(err)
		}
	} else if h.Checkpoint != nil && h.Checkpoint.Horizon > 0 {
		w.t.Fatal("no commit to recover from")
	}
}

// kill ends a process, or forces it out, and its node starts anew.
func (w *world) kill(i int) {
	p := w.procs[i]
	p.gone = true
	v := identity.Verdict{State: identity.Over, How: lease.HowObserved}
	if w.chance(40) { // it is forced out, and may act until its session's deadline
		v.How, v.Wait = lease.HowForced, idTTL
		p.until = min(p.until, w.now+time.Duration(float64(idTTL-idTTL/10)/p.rate))
	} else {
		p.until = min(p.until, w.now)
	}
	w.over[p.me] = v
	w.procs = append(w.procs, p) // whoever is forced out goes on as far as it may
	w.procs[i] = w.start(p.me.Node, p.me.Term+1)
	w.count["killed"]++
}
