package authority_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/core/authority/recovery"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

func (w *world) decode(body []byte, v record.Value) {
	w.t.Helper()
	if err := record.Decode("k", body, v); err != nil {
		w.t.Fatalf("an entry that a head admits: %v", err)
	}
}

// op is one decision that a process wants to stand, through all its attempts.
type op struct {
	rules    authority.Rules
	d        authority.Decision
	attempts map[string]bool
	names    []authority.Name
	puts     map[string][]byte // what must be there before the head
	plan     authority.Plan
	over     int // the version that the plan is for
}

// sweep is a clean-up between its listing and its deletes.
type sweep struct {
	names  []string
	flight authority.Flight
}

// write sends a head as p's, which then waits to be settled.
func (w *world) write(p *proc, what string, next *authority.Head) {
	o := sent{what: what, over: w.ver, head: next, by: p}
	p.cand.Sending(next.WriterAttempt)
	p.doubt = &o
	w.send(o)
}

// settled reports whether p has no write in doubt, after a look at h.
func (w *world) settled(p *proc, h *authority.Head) bool {
	if p.doubt == nil {
		return true
	}
	if w.ver == p.doubt.over { // it may land yet
		if w.chance(50) {
			w.send(*p.doubt)
		}
		return false
	}
	attempt, fate := p.doubt.head.WriterAttempt, authority.Settle(p.doubt.head, h)
	w.count["settled "+fmt.Sprint(fate)]++
	switch applied := w.applied[attempt]; {
	case fate == authority.Pending, fate == authority.Applied && !applied, fate == authority.Rejected && applied:
		w.t.Fatalf("settled as %v, applied %v: %+v, found %+v", fate, applied, p.doubt.head, h)
	case !applied:
		w.refused[attempt] = "settled"
	}
	p.cand.Settled(attempt, fate == authority.Applied)
	p.doubt = nil
	return true
}

// step is one thing that a process does: it reads, settles, and goes on.
func (w *world) step(p *proc) {
	h := w.read()
	if h == nil {
		if p.doubt == nil && w.chance(30) {
			w.write(p, "first", must(authority.First(w.claim(p))))
		}
		return
	}
	p.seen = p.seen.Observe(h, w.local(p))
	if !w.settled(p, h) {
		return
	}
	if h.Led() && *h.Leader == p.me && !p.ended[h.Token] {
		if _, live := p.cand.Proof(); !live {
			if err := p.cand.Granted(h); err != nil {
				w.t.Fatal(err)
			}
			p.held = h
			w.count["granted"]++
		}
	}
	proof, live := p.cand.Proof()
	if live && w.stands(p, h, proof) {
		w.lead(p, h, proof)
		return
	}
	if len(p.ops) > 0 && w.chance(50) {
		w.decide(p, h, p.ops[0])
		return
	}
	if !p.gone {
		w.begin(p, h)
	}
}

// stands reports whether p's leadership goes on, and ends it in p otherwise.
func (w *world) stands(p *proc, h *authority.Head, proof authority.Proof) bool {
	adoption := authority.Adoptable(p.held, h, p.cand.Mine)
	if adoption == authority.Adopted && w.now < p.until {
		p.held = h
		return true
	}
	w.count["lost "+fmt.Sprint(adoption)]++
	p.cand.Ended()
	p.ended[proof.Token] = true
	p.until = min(p.until, w.now)
	return false
}

func (w *world) claim(p *proc) authority.Claim {
	ttl := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}[w.rng.IntN(3)]
	if w.calm {
		ttl = 9 * time.Second
	}
	return authority.Claim{Authority: name, Owner: p.me, TTL: ttl, Attempt: w.id(), NowMS: w.wall()}
}

// begin takes the head over where p may.
func (w *world) begin(p *proc, h *authority.Head) {
	v := store.Version(fmt.Sprint(w.ver))
	var g authority.Ground
	var left time.Duration
	var err error
	if h.Led() && *h.Leader == p.me {
		q, quiet := p.cand.Quiet()
		if quiet != nil {
			w.t.Fatal(quiet)
		}
		g, err = q.Ground(h, v)
		w.count["again"]++
	} else if verdict, over := w.over[w.leader(h)]; over && w.chance(70) {
		gone := *h.Leader
		if _, ok := p.first[gone]; !ok {
			p.first[gone] = w.local(p)
		}
		e := authority.Evidence{Node: gone.Node, Owner: identity.Owner{Incarnation: gone.Incarnation, Term: gone.Term}, Verdict: verdict, From: p.first[gone]}
		g, left, err = e.Ground(h, v, p.me, w.local(p), rho)
		w.count["by evidence"]++
	} else {
		g, left, err = p.seen.Ground(h, v, p.me, w.local(p), rho)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if left == 0 {
		w.write(p, "takeover", must(authority.Takeover(h, w.claim(p), g)))
	}
}

func (w *world) leader(h *authority.Head) authority.Owner {
	if h.Led() {
		return *h.Leader
	}
	return authority.Owner{}
}

// lead is one thing that a leader does.
func (w *world) lead(p *proc, h *authority.Head, proof authority.Proof) {
	switch k := w.rng.IntN(100); {
	case k < 25:
		var pending []authority.Report
		if h.Round == nil || w.chance(20) {
			pending = w.reports()
		}
		next, _, err := h.Renew(proof, w.id(), pending...)
		w.write(p, "renew", must(next, err))
	case k < 26:
		p.cand.Ended()
		p.ended[proof.Token], p.until = true, min(p.until, w.now)
		w.write(p, "step down", must(h.StepDown(proof, w.id(), w.wall())))
	case k < 33 && (h.Round == nil || h.Round.Proof != proof || h.Round.Revision != h.Revision):
		w.write(p, "round", must(h.BeginRound(proof, w.id(), authority.DigestOf("plan", nil))))
	case k < 35 && h.Checkpoint != nil:
		w.advance(p, h, proof)
	case k < 45:
		w.clean(p, h)
	case len(p.ops) > 0:
		w.decide(p, h, p.ops[w.rng.IntN(len(p.ops))])
	default:
		if o := w.propose(p, h, proof); o != nil {
			p.ops = append(p.ops, o)
		}
	}
}

// advance moves the horizon of the checkpoints, or the floor of the assignments.
func (w *world) advance(p *proc, h *authority.Head, proof authority.Proof) {
	if h.Assignment != nil && w.chance(30) {
		next := must(w.trails(h)[1].Advance(h, proof, w.id(), h.Assignment.Head.Key-min(h.Assignment.Head.Key, 3), 0))
		if next != nil {
			w.write(p, "floor", next)
		}
		return
	}
	cut, err := w.history(h).Cut(max(1, h.Checkpoint.Head.Key-min(h.Checkpoint.Head.Key, w.rng.Uint64N(12))))
	if err != nil {
		return
	}
	n, _ := cut.CapsuleName()
	ok := must(cut.Accept("k", w.objects[capsule(n)], func(s *checkpoint.Stands, c *checkpoint.Capsule) error {
		if c.Epoch != s.Outcome.Epoch {
			w.t.Fatal("another capsule")
		}
		return nil
	}))
	if next := must(checkpoint.Advance(h, proof, w.id(), ok)); next != nil {
		w.write(p, "horizon", next)
	}
}

// propose is a decision that p may want; its Mine and its attempts grow with it.
func (w *world) propose(p *proc, h *authority.Head, proof authority.Proof) *op {
	o := &op{attempts: map[string]bool{}, puts: map[string][]byte{}}
	o.d = authority.Decision{Proof: proof, NowMS: w.wall(), Mine: func(id string) bool { return o.attempts[id] }}
	switch k := w.rng.IntN(100); {
	case k < 60 && (h.Round == nil || k < 45):
		o.rules, o.d.Body = quick{}, w.outcome(p, h, proof, o)
	case k < 80 && (h.Round == nil || k < 70):
		o.rules, o.d.Body = assignment.Rules{}, w.drain(proof)
	case k < 83:
		text := []string{"a", "b"}[w.rng.IntN(2)] + strings.Repeat("x", w.rng.IntN(2)*authority.MaxInline)
		m := &catalog.Manifest{V: 1, Definitions: []catalog.Definition{{Name: "t", Text: text}}}
		o.rules, o.d.Body = catalog.Rules{}, must(m.Encode())
	case h.Round != nil:
		var stopped []assignment.Participant
		for _, s := range h.Faults() {
			if w.chance(80) {
				stopped = append(stopped, assignment.Participant{Node: s.Node, Incarnation: s.Incarnation})
			}
		}
		o.rules, o.d.Body = recovery.Rules{}, must(recovery.NewRelease(h.Round, stopped).Encode())
	default:
		return nil
	}
	return o
}

func (w *world) outcome(p *proc, h *authority.Head, proof authority.Proof, o *op) []byte {
	epoch := uint64(1)
	if c := h.Checkpoint; c != nil {
		epoch = c.Head.Key + 1 + w.rng.Uint64N(2)
		if w.chance(15) {
			epoch = 1 + w.rng.Uint64N(c.Head.Key)
		}
	}
	c := &checkpoint.Capsule{V: 1, Attempt: checkpoint.Attempt{Epoch: epoch, Checkpoint: 10 * epoch}, Deployment: deployment, Fence: w.assign(1, 2)}
	if w.chance(50) {
		return must(checkpoint.NewAbort(c.Attempt, deployment, c.Fence).Encode())
	}
	body := must(c.Encode())
	n := checkpoint.CapsuleName{Epoch: epoch, Token: proof.Token, Attempt: w.id()}
	if err := p.cand.Writing(n.Name(), authority.DigestOf(authority.BodyDomain, body)); err != nil {
		w.t.Fatal(err)
	}
	o.names = append(o.names, n.Name())
	o.puts[capsule(n)] = body
	return must(checkpoint.NewCommit(c, n.Attempt, body).Encode())
}

func (w *world) drain(proof authority.Proof) []byte {
	begun := proof
	d := &assignment.Decision{V: 1, Kind: assignment.Drain, Verdict: assignment.Commit, Predecessor: w.fence,
		Target: w.assign(w.fence.Version+1, len(w.fence.Participants)), Begun: &begun}
	switch k := w.rng.IntN(100); {
	case k < 40:
		d.Verdict, begun.Token = assignment.Abort, max(1, begun.Token-1)
	case k < 50: // of a predecessor that never was
		d.Predecessor = w.assign(w.fence.Version, len(w.fence.Participants))
	}
	return must(d.Encode())
}

// decide brings o one step further.
func (w *world) decide(p *proc, h *authority.Head, o *op) {
	if o.plan.Answer == authority.Admit && o.over == w.ver {
		w.admit(p, o)
		return
	}
	t := authority.Follow(h, o.rules.Chain(), nil)
	if w.chance(70) {
		t = w.trails(h)[slices.Index(authority.ChainNames(), o.rules.Chain())]
	}
	o.d.Attempt = w.id()
	if o.d.Blob == "" || w.chance(30) {
		o.d.Blob = w.id()
	}
	plan, err := authority.Append(h, o.rules, t, o.d)
	if err != nil {
		if !errors.Is(err, recovery.ErrInventoryChanged) {
			w.t.Fatalf("%v: %s", err, o.d.Body)
		}
		w.count["inventory changed"]++
		w.drop(p, o, "the inventory changed")
		return
	}
	w.count["answer "+plan.Answer.String()]++
	o.plan, o.over = plan, w.ver
	switch plan.Answer {
	case authority.Look:
	case authority.Admit:
		w.admit(p, o)
	default:
		w.answered(p, o)
	}
}

// admit writes what the plan needs: objects first, and the head once they are
// there.
func (w *world) admit(p *proc, o *op) {
	e := o.plan.Entry
	names := map[authority.Name]string{e.Name(): o.plan.Link.Digest}
	o.puts[key(e.Name())] = o.plan.Body
	if n, ok := e.BlobName(); ok {
		names[n] = e.Blob.Digest
		o.puts[key(n)] = o.d.Body
	}
	for n, digest := range names {
		if err := p.cand.Writing(n, digest); err != nil {
			w.t.Fatal(err)
		}
		if !slices.Contains(o.names, n) {
			o.names = append(o.names, n)
		}
	}
	missing := false
	for _, name := range slices.Sorted(keys(o.puts)) {
		if _, there := w.objects[name]; !there {
			missing = true
			w.send(sent{what: "put", put: name, body: o.puts[name]})
		}
	}
	if missing {
		return
	}
	o.attempts[e.Attempt] = true
	if proof, live := p.cand.Proof(); live && proof == e.Proof && p.doubt == nil && w.chance(90) {
		w.count["compacted"] += map[bool]int{true: 1}[o.plan.Compacted]
		w.write(p, "append", o.plan.Head)
	} else if o.over == w.ver { // a zombie: it sends what it had planned, whatever it should do
		w.send(sent{what: "append", over: o.over, head: o.plan.Head, by: p})
	}
}

// answered checks a final answer against what the world knows.
func (w *world) answered(p *proc, o *op) {
	a, l := o.plan.Answer, o.plan.Winner
	it := must(o.rules.Item("k", o.d.Proof, o.d.Body))
	stands, there := w.admitted[o.rules.Chain()][it.Key]
	switch {
	case a == authority.Created && (!there || stands != l || !o.attempts[l.Attempt]), a == authority.Unchanged && (!there || stands != l):
		w.t.Fatalf("%v, and it does not stand: %+v", a, l)
	case (a == authority.Conflict || a == authority.Fenced) && there && o.attempts[stands.Attempt]:
		w.t.Fatalf("%v, and its own attempt stands: %+v", a, stands)
	case a == authority.Fenced && there:
		w.t.Fatalf("fenced, and another stands: %+v", stands)
	}
	if a == authority.Conflict || a == authority.Fenced {
		w.drop(p, o, a.String())
		return
	}
	w.drop(p, o, "")
	if a == authority.Created && w.chance(20) { // somebody else tries the same again
		q := w.procs[w.rng.IntN(len(w.procs))]
		again := &op{rules: o.rules, d: o.d, attempts: map[string]bool{}, puts: map[string][]byte{}}
		again.d.Mine = nil
		q.ops = append(q.ops, again)
	}
}

// drop ends o; with a why, none of its attempts was or will be admitted.
func (w *world) drop(p *proc, o *op, why string) {
	for id := range o.attempts {
		if why != "" {
			w.refused[id] = why
		}
	}
	for _, n := range o.names {
		p.cand.Landed(n)
	}
	p.ops = slices.DeleteFunc(p.ops, func(x *op) bool { return x == o })
}

// clean lists at one time and deletes at a later one.
func (w *world) clean(p *proc, h *authority.Head) {
	if p.sweep == nil {
		p.sweep = &sweep{names: slices.Sorted(keys(w.objects)), flight: p.cand.Flight()}
		return
	}
	s := p.sweep
	p.sweep = nil
	linked := must(authority.Reached(h, w.trails(h)...))
	capsules, below := checkpoint.NewSweep(h, s.flight)
	for _, name := range s.names {
		kind, element, _ := strings.Cut(name, "/")
		if kind == "capsule" {
			if below && capsules.Judge(element) == checkpoint.Examine && w.objects[name] != nil && capsules.Examined(element, w.objects[name]) == checkpoint.Delete {
				p.cand.Deleting(must(checkpoint.ParseCapsuleName(element)).Name())
				w.send(sent{what: "delete", del: name})
				w.count["capsule swept"]++
			}
			continue
		}
		n := must(authority.ParseName(authority.Kind(kind), element))
		if linked.Removable(n, s.flight) {
			if n.Token == h.Token {
				w.count["removed within a token"]++
			}
			p.cand.Deleting(n)
			w.send(sent{what: "delete", del: name})
		}
	}
}
