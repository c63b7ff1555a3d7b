package identity

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// world is one register, the certificates beside it, and true time. Its apply is
// the oracle: it knows what each write meant, and judges the bytes.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	now  time.Duration // true time
	body []byte
	ver  int
	cert map[string][]byte

	flying []*write
	heads  []*Record // every state, in order
	procs  map[string]*proc
	tried  []string          // every incarnation of a process
	owners map[uint64]string // term → incarnation
	terms  map[string]uint64 // and back
	ended  map[string]string // incarnation → how the world ended it
	won    map[string][]byte // predecessor → certificate
	due    []promise
	count  map[string]int
	rough  bool // much force, and operators who vouch
}

// proc is one incarnation.
type proc struct {
	id      string
	owned   bool    // it has seen itself as the owner
	rate    float64 // of its clock against true time
	sent    map[string]time.Duration
	held    *Record
	until   time.Duration // true time up to which it may act
	stopped bool          // ends by its own choice, or is dead: it extends no more
	sealed  Sealed
	vouched bool
}

// write is a conditional write that was sent.
type write struct {
	over  int
	next  *Record
	what  string
	ends  string // how it is meant to end the present owner; empty if it is not
	by    *proc
	sent  time.Duration
	lands bool
}

// promise: by at, the incarnation does not act any more.
type promise struct {
	id   string
	at   time.Duration
	what string
}

const (
	rho    = 0.01
	margin = 10 // TTL/10
)

func newWorld(t *testing.T, seed uint64, count map[string]int) *world {
	return &world{t: t, rng: rand.New(rand.NewPCG(seed, 17)), cert: map[string][]byte{}, procs: map[string]*proc{},
		owners: map[uint64]string{}, terms: map[string]uint64{}, ended: map[string]string{}, won: map[string][]byte{}, count: count, rough: seed%3 == 0}
}

func (w *world) id() string {
	a, b := w.rng.Uint64(), w.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>52, b&0xffffffffffff)
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) rate() float64 { return 1 + rho/2*(2*w.rng.Float64()-1) }

func (w *world) wall() int64 { return w.rng.Int64N(1 << 40) } // wall clocks say anything

// read is a linearizable read, decoded strictly.
func (w *world) read() (*Record, string) {
	if w.body == nil {
		return nil, ""
	}
	r, err := Decode("k", "n", w.body)
	if err != nil {
		w.t.Fatalf("the register does not decode: %v\n%s", err, w.body)
	}
	return r, fmt.Sprint(w.ver)
}

func (w *world) sealedUnder(name string) *Certificate {
	body, ok := w.cert[name]
	if !ok {
		return nil
	}
	return must(DecodeCertificate("k", "n", name, body))
}

// send puts a write on its way: it lands now, later, or never. Nobody is
// answered: everyone learns by reading, as after a lost answer.
func (w *world) send(o write) {
	o.sent, o.lands = w.now, !w.chance(10)
	if w.chance(15) {
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

// apply is the register's compare-and-set, with the oracle.
func (w *world) apply(o *write) {
	if o.over != w.ver {
		return
	}
	prev, _ := w.read()
	body, err := o.next.Encode()
	if err != nil {
		w.t.Fatalf("%s: %v", o.what, err)
	}
	w.body = body
	w.ver++
	now, _ := w.read()
	w.heads = append(w.heads, now)
	w.count[o.what]++
	w.check(prev, now, o)
	if o.ends != "" {
		w.ended[prev.Incarnation] = o.ends
		if p := w.procs[prev.Incarnation]; p != nil && o.ends == lease.HowVouched {
			p.vouched = true
		}
	}
	if p := o.by; p != nil && !p.stopped && now.Incarnation == p.id {
		p.until = max(p.until, o.sent+time.Duration(float64(now.TTL()-now.TTL()/margin)/p.rate))
	}
}

// check holds every rule that one step of the register must keep.
func (w *world) check(prev, now *Record, o *write) {
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("%s: %s\nwas %+v\nis  %+v", o.what, fmt.Sprintf(format, args...), prev, now)
	}
	if now.Held() {
		if had, ok := w.owners[now.Term]; ok && had != now.Incarnation {
			fail("term %d had owner %s", now.Term, had)
		}
		if had, ok := w.terms[now.Incarnation]; ok && had != now.Term {
			fail("the owner had term %d", had)
		}
		w.owners[now.Term], w.terms[now.Incarnation] = now.Incarnation, now.Term
	}
	if prev == nil {
		if now.Term != 1 || now.Sequence != 1 {
			fail("the first owner")
		}
		return
	}
	if now.Counter < prev.Counter || now.FirstTerm != prev.FirstTerm {
		fail("the counter fell")
	}
	if prev.Forced != nil && (now.Forced == nil || now.Forced.Term < prev.Forced.Term || now.Forced.TTLMS < prev.Forced.TTLMS) {
		fail("force was forgotten")
	}
	if now.Last().Incarnation == prev.Last().Incarnation {
		step := map[string]uint64{"renew": 1}[o.what]
		if now.Term != prev.Term || now.Sequence != prev.Sequence+step {
			fail("term or sequence of one owner")
		}
		if c := prev.Certificate; c != nil && !c.Equal(now.Certificate) && (now.Certificate != nil || !w.isSealed(c)) {
			fail("a certificate was lost or changed")
		}
		if !prev.Held() && now.Held() {
			fail("an ended owner came back")
		}
		return
	}
	w.checkTakeover(prev, now, fail)
}

func (w *world) isSealed(c *Certificate) bool {
	body := must(c.Encode())
	names := c.Names()
	return bytes.Equal(w.cert[names[0]], body) && bytes.Equal(w.cert[names[1]], body)
}

// checkTakeover holds what a change of owners must keep.
func (w *world) checkTakeover(prev, now *Record, fail func(string, ...any)) {
	last := prev.Last()
	if now.Term != prev.Counter+1 || now.Sequence != prev.Sequence+1 || now.Certificate == nil {
		fail("term, sequence or certificate of a takeover")
	}
	if prev.Certificate != nil && !w.isSealed(prev.Certificate) {
		fail("what was found was not sealed first")
	}
	body := must(now.Certificate.Encode())
	if had, ok := w.won[last.Incarnation]; ok && !bytes.Equal(had, body) {
		fail("two certificates for one predecessor")
	}
	w.won[last.Incarnation] = body
	want := w.ended[last.Incarnation]
	if prev.Revoker != nil && want == "" {
		want = lease.HowReleased
	}
	how := now.Certificate.How
	if want != how && (want != "" || how != lease.HowObserved) && (want != "dead" || how != lease.HowProven && how != lease.HowObserved) {
		fail("it ended %q, the certificate says %q", want, how)
	}
	w.count["how "+how]++
	if p := w.procs[last.Incarnation]; p != nil && how != lease.HowVouched && p.until > w.now {
		fail("its owner may act for %v yet", p.until-w.now)
	}
	// Nobody at all acts beside the new owner, but who was vouched for.
	for id, p := range w.procs {
		if id != now.Incarnation && !p.vouched && p.until > w.now {
			fail("%s may act for %v yet", id, p.until-w.now)
		}
	}
}

// seal does one step of sealing what r carries: one of the two names, any order.
func (w *world) seal(c *Certificate) {
	body := must(c.Encode())
	name := c.Names()[w.rng.IntN(2)]
	if had, ok := w.cert[name]; ok && !bytes.Equal(had, body) {
		w.t.Fatalf("%s: different content under one name", name)
	}
	w.cert[name] = body
	w.count["seal"]++
}

// proof is what a caller who looks at both names may prove.
func (w *world) proof(c *Certificate) Sealed {
	if c == nil {
		return Sealed{}
	}
	names := c.Names()
	s, err := Seal(c, [2][]byte{w.cert[names[0]], w.cert[names[1]]})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		w.t.Fatal(err)
	}
	return s
}

// candidate is somebody who wants the name: a process that joins, or a revoker.
type candidate struct {
	rate  float64
	seen  Observation
	fence bool
	// target is the incarnation that a fence is to end, from is what it first saw
	// of it.
	target string
	from   Observation
}

func (w *world) local(c float64) time.Duration { return time.Duration(float64(w.now) * c) }

// try is one step of a candidate: read, observe, perhaps seal, perhaps take over.
func (w *world) try(c *candidate) {
	p := &proc{id: w.id(), rate: w.rate(), sent: map[string]time.Duration{}}
	ttl := []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}[w.rng.IntN(3)]
	r, v := w.read()
	cl := Claim{Node: "n", Incarnation: p.id, TTL: ttl, NowMS: w.wall()}
	if r == nil {
		if !c.fence {
			w.join(p, must(First(cl, 0)), 0, "first")
		}
		return
	}
	now := w.local(c.rate)
	c.seen = c.seen.Observe(r, store.Version(v), now)
	if c.fence && !w.plan(c, r) {
		return
	}
	if r.Certificate != nil && w.chance(50) {
		w.seal(r.Certificate)
	}
	g, left, err := c.seen.Ground(r, store.Version(v), now, rho)
	if err != nil {
		w.t.Fatal(err)
	}
	if q := w.procs[r.Incarnation]; q != nil && w.ended[q.id] == "dead" && r.Lock != nil {
		g, left = must(Proven(r, store.Version(v))), 0
	}
	if left > 0 {
		return
	}
	if c.fence {
		w.fence(c, r, p.id, g)
		return
	}
	cl.Lock = &lease.Lock{Mark: store.Mark{Boot: "b", Inode: w.rng.Uint64()}, Tree: "none"}
	next, err := Takeover(r, cl, g, w.proof(r.Certificate))
	if err != nil {
		w.refusedUnsealed(r, err)
		return
	}
	w.join(p, next, w.ver, "takeover")
}

func (w *world) fence(c *candidate, r *Record, revoker string, g Ground) {
	next, err := Fence(r, c.target, revoker, g, w.proof(r.Certificate), w.wall())
	if err != nil {
		w.refusedUnsealed(r, err)
		return
	}
	w.send(write{over: w.ver, next: next, what: "fence"})
}

func (w *world) refusedUnsealed(r *Record, err error) {
	if r.Certificate == nil || w.isSealed(r.Certificate) {
		w.t.Fatalf("refused: %v", err)
	}
	w.count["refused unsealed"]++
}

// join sends p's first write. Whether it won, p learns by reading.
func (w *world) join(p *proc, next *Record, over int, what string) {
	w.procs[p.id] = p
	w.tried = append(w.tried, p.id)
	p.held = next
	p.sent[p.id] = w.now
	p.until = 0
	w.send(write{over: over, next: next, what: what, by: p})
}

// live is one step of an incarnation that takes itself for the owner: it reads,
// adopts or ends, and renews or leaves.
func (w *world) live(p *proc) {
	r, _ := w.read()
	if r == nil || p.stopped {
		return
	}
	switch Adoptable(p.held, r, func(id string) bool { _, ok := p.sent[id]; return ok }) {
	case Lost:
		if p.owned || w.chance(30) { // its write may land yet
			p.stopped = true
		}
		return
	case Raised:
		w.count["raised"]++
		p.stopped, p.until = true, min(p.until, w.now)
		w.leave(p, r)
		return
	}
	p.held, p.owned = r, true
	if w.now >= p.until { // its own clock says that it lapsed: for good
		p.stopped = true
		return
	}
	if r.Certificate != nil {
		if w.chance(60) {
			w.seal(r.Certificate)
		}
		p.sealed = w.proof(r.Certificate)
	}
	switch {
	case w.chance(6):
		p.stopped, p.until = true, min(p.until, w.now)
		w.leave(p, r)
	case w.chance(4):
		p.stopped, p.until = true, min(p.until, w.now)
		w.ended[p.id] = "dead"
	default:
		in := Renewal{Attempt: w.id(), NowMS: w.wall(), Sealed: p.sealed}
		if len(r.Revocations) > 0 {
			in.Acknowledged = r.Revocations[:1]
			w.count["acknowledged"]++
		}
		p.sent[in.Attempt] = w.now
		w.send(write{over: w.ver, next: must(r.Renew(r.Last(), in)), what: "renew", by: p})
	}
}

// leave releases the name of a process that has stopped.
func (w *world) leave(p *proc, r *Record) {
	next := must(r.Release(r.Last(), Renewal{Attempt: w.id(), NowMS: w.wall(), Sealed: p.sealed}))
	w.send(write{over: w.ver, next: next, what: "release", ends: lease.HowReleased})
}

// operator forces, vouches, jumps or revokes.
func (w *world) operator() {
	r, _ := w.read()
	if r == nil {
		return
	}
	switch w.rng.IntN(4) {
	case 0:
		if next := must(r.Jump(w.id(), r.Counter+w.rng.Uint64N(3))); next != nil {
			w.send(write{over: w.ver, next: next, what: "jump"})
		}
	case 1:
		if next, err := r.Revoke(w.id(), r.Last(), Revocation{fmt.Sprint(w.rng.IntN(9)), 1}); err == nil && next != nil {
			w.send(write{over: w.ver, next: next, what: "revoke"})
		}
	default:
		if !r.Held() {
			return
		}
		how := lease.HowForced
		if w.chance(30) || w.rough && w.chance(50) {
			how = lease.HowVouched
		}
		next := must(r.Force(w.id(), r.Last(), Operator{Why: "test", NowMS: w.wall(), Vouch: how == lease.HowVouched}))
		w.send(write{over: w.ver, next: next, what: "force", ends: how})
	}
}

// fold is the pruner: it removes one name of a certificate that a head covers.
func (w *world) fold() {
	head, _ := w.read()
	for _, name := range slices.Sorted(maps.Keys(w.cert)) {
		if c := w.sealedUnder(name); Foldable(c, head) {
			delete(w.cert, name)
			w.count["folded"]++
			return
		}
	}
}
