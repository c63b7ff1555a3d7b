package world

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// Deployment is the id of the deployment whose checkpoints are settled.
const Deployment = "dddddddd-4444-4444-8444-444444444444"

// Authority is one session's standing in one authority, with its chains.
type Authority struct {
	*authority.Authority
	Checkpoints *checkpoint.Client
	Assignments *assignment.Client
	Recoveries  *recovery.Client

	s *Session
	p *Proc

	mu     sync.Mutex
	past   []tenure.Proof    // every leadership that it had
	rounds []authority.Round // that it began
}

// Leadership is one that was handed out.
type Leadership struct {
	*authority.Leader
	a     *Authority
	over  time.Time // since when it was seen not to be live while its context went on
	stops int
}

// Open makes the session a possible leader of an authority.
func (s *Session) Open(ctx context.Context, name string, opts ...authority.Option) (*Authority, error) {
	a, err := authority.Open(ctx, s.Session, name, opts...)
	if err != nil {
		s.p.w.trace.add(s.p.name, "authority %s: open: %s", name, kind(err))
		return nil, err
	}
	marks, err := checkpoint.Open(a, Deployment)
	if err != nil {
		return nil, err
	}
	return &Authority{Authority: a, Checkpoints: marks, Assignments: assignment.Open(a), Recoveries: recovery.Open(a), s: s, p: s.p}, nil
}

// state is what the oracle knows of it. Under its mu.
func (a *Authority) state() *authorityState { return a.p.w.oracle.authorities[a.Name()] }

// Led tells the oracle that a was handed l, and judges it (R27).
func (a *Authority) Led(l *authority.Leader) *Leadership {
	o, h := a.p.w.oracle, &Leadership{Leader: l, a: a}
	a.p.w.trace.add(a.p.name, "authority %s: leads with token %d", a.Name(), l.Token())
	a.mu.Lock()
	a.past = append(a.past, l.Proof())
	a.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	as := a.state()
	o.stats["leaderships handed out"]++
	r := as.tokens[l.Token()]
	if r == nil || r.Owner != core.Proof(l.Proof()).Owner() || r.p != a.p || l.Proof().Incarnation != a.s.Proof().Incarnation {
		o.fail("R27", "%s: %s was handed token %d, which the head never gave to it", as.name, a.p.name, l.Token())
		return h
	}
	if l.Token() <= as.highest && !a.p.crashed.Load() {
		o.fail("R27", "%s: %s was handed token %d after %d", as.name, a.p.name, l.Token(), as.highest)
	}
	as.highest, as.handed[l.Token()] = max(as.highest, l.Token()), true
	as.leaders = append(as.leaders, h)
	o.oneLeader(as)
	return h
}

// oneLeader judges R27 at this instant. Under mu.
func (o *oracle) oneLeader(as *authorityState) {
	as.leaders = slices.DeleteFunc(as.leaders, func(l *Leadership) bool { return !l.Live() && l.Err() != nil })
	var first *Leadership
	for _, l := range as.leaders {
		o.endsLeading(as, l)
		over := !l.a.s.Live() // before the leadership: a session does not come back
		r := as.tokens[l.Token()]
		if !l.Live() || r == nil || l.a.p.crashed.Load() && r.how != "" {
			continue
		}
		if over {
			o.fail("R27", "%s: token %d at %s is live although its session is not", as.name, l.Token(), l.a.p.name)
		}
		if r.how != "" && r.how != lease.HowForced {
			o.fail("R27", "%s: token %d is live at %s although it ended: %s", as.name, l.Token(), l.a.p.name, r.how)
		}
		if first != nil {
			o.fail("R27", "%s: tokens %d at %s and %d at %s are both live", as.name, first.Token(), first.a.p.name, l.Token(), l.a.p.name)
		}
		first = l
	}
}

// endsLeading judges that the context of a leadership ends with its deadline (R17).
// Under mu.
func (o *oracle) endsLeading(as *authorityState, l *Leadership) {
	if l.Live() || l.a.p.crashed.Load() {
		return
	}
	if stops := l.a.p.gate.count(); l.over.IsZero() || l.stops != stops || l.a.p.gate.unsettled() {
		l.over, l.stops = time.Now(), stops
	}
	if late := time.Since(l.over); late > endsWithin {
		o.fail("R17", "%s: the context of token %d at %s goes on %v after it ended", as.name, l.Token(), l.a.p.name, late)
	}
}

// StepDown gives the leadership up and judges the answer (R12).
func (l *Leadership) StepDown(ctx context.Context) error {
	err := l.Leader.StepDown(ctx)
	p := l.a.p
	p.w.trace.add(p.name, "authority %s: steps down from token %d: %s", l.a.Name(), l.Token(), kind(err))
	o := p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	as := l.a.state()
	if l.Live() {
		o.fail("R12", "%s: token %d at %s is live after it stepped down", as.name, l.Token(), p.name)
	}
	if p.crashed.Load() || p.misled() {
		return err
	}
	r := as.tokens[l.Token()]
	switch {
	case err == nil && r.how == "":
		o.fail("R12", "%s: %s stepped down from token %d without an error, and the head names it yet", as.name, p.name, l.Token())
	case errors.Is(err, tenure.ErrUnconfirmed):
		o.stats["step-downs unconfirmed"]++
	case err == nil:
		o.stats["step-downs"]++
	}
	return err
}

// leadershipEvent judges what a client says of its leaderships (R11, R13).
func (o *oracle) leadershipEvent(p *Proc, e tenure.Event) {
	if e.Kind != tenure.EventRenewed && e.Kind != tenure.EventDecided {
		o.w.trace.add(p.name, "authority %s: %s, token %d: %s", e.Authority, e.Kind, e.Token, kind(e.Err))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["leadership "+string(e.Kind)]++
	if e.Kind != tenure.EventLost || p.crashed.Load() {
		return
	}
	if o.w.Plan.Calm {
		o.fail("R13", "%s: token %d of %s was lost: %v", e.Authority, e.Token, p.name, e.Err)
	}
	if errors.Is(e.Err, tenure.ErrExpired) {
		o.stats["leadership expired"]++
		return
	}
	as := o.authorities[e.Authority]
	r := as.tokens[e.Token]
	if r == nil || p.misled() || !as.handed[e.Token] {
		return
	}
	if _, start := o.startOf(lease.Owner(r.Owner)); start.s == nil || !start.s.Live() {
		return // it is lost with its session
	}
	if h := as.head; h.Leads(r.Owner.Proof(e.Token)) && !h.Raised() {
		o.fail("R11", "%s: %s calls token %d lost, and the head names it yet: %v", as.name, p.name, e.Token, e.Err)
	}
}

// decided names one decision of one leadership.
func decided(chain, what string, p core.Proof) string {
	return fmt.Sprintf("%s %s %d %s", chain, p.Incarnation, p.Token, what)
}

// decision is one call that decides, with its answer.
type decision struct {
	chain, what string
	proof       tenure.Proof
	began       time.Time
}

// deciding notes a call that is about to decide.
func (a *Authority) deciding(chain, what string, p tenure.Proof) decision {
	o := a.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	as, id := a.state(), decided(chain, what, core.Proof(p))
	as.calls[id]++
	delete(as.failed, id) // this call may succeed where an earlier one failed
	return decision{chain: chain, what: what, proof: p, began: time.Now()}
}

// refused says why a decision will not be admitted, as somebody was told; empty if
// nobody was.
func (as *authorityState) refused(id string) string {
	if why := as.never[id]; why != "" {
		return why
	}
	return as.failed[id]
}

// answered judges the answer to a decision (R33): what it says stands does, by this
// decision, and what it says does not never will.
func (a *Authority) answered(d decision, res authority.Result, err error) {
	o, p := a.p.w.oracle, a.p
	p.w.trace.add(p.name, "authority %s: %s under token %d: %s", a.Name(), d.chain, d.proof.Token, answerOf(res, err))
	o.mu.Lock()
	defer o.mu.Unlock()
	if twist := o.w.mutation.answer; twist != nil && err == nil {
		res = twist(res)
	}
	as := a.state()
	m, id := as.chains[d.chain], decided(d.chain, d.what, core.Proof(d.proof))
	as.calls[id]--
	if p.crashed.Load() || p.frozen.Load() || p.misled() && o.w.mutation.answer == nil {
		return
	}
	stands := m.said(d.what, core.Proof(d.proof))
	bad := func(format string, args ...any) {
		o.fail("R33", "%s: chain %s, token %d: %s was told %s, "+format, append([]any{as.name, d.chain, d.proof.Token, p.name, answerOf(res, err)}, args...)...)
	}
	switch {
	case err != nil && errors.Is(err, tenure.ErrUnknown):
		as.doubted[id] = true
	case err != nil:
		if stands == nil && !as.doubted[id] && as.calls[id] == 0 {
			as.failed[id] = kind(err)
		}
	case res.Stands():
		won := m.found(core.Link(res.Winner))
		switch {
		case won == nil || won.what != d.what || won.entry.Proof != core.Proof(d.proof) && d.chain != core.Catalog:
			bad("and it does not stand there")
		case res.Answer == authority.Created && (won.by != p || won.entry.Proof != core.Proof(d.proof)):
			bad("and %s made it", who(won.by))
		}
	case res.Answer == authority.BelowFloor:
		if len(m.all) == 0 || m.floor == 0 {
			bad("and the chain has no floor")
		}
	default:
		as.never[id] = res.Answer.String()
		if stands != nil {
			bad("and it stands at sequence %d", stands.link.Sequence)
		}
		if res.Answer == authority.Conflict && m.found(core.Link(res.Winner)) == nil {
			bad("and the winner never stood")
		}
		if res.Answer == authority.Fenced && a.Leads(d.proof) && as.ledSince(core.Proof(d.proof), d.began) {
			bad("and it leads")
		}
	}
	if err == nil {
		o.stats["answer "+res.Answer.String()]++
	}
}

func answerOf(res authority.Result, err error) string {
	if err != nil {
		return kind(err)
	}
	return res.Answer.String()
}

// ledSince reports whether a leadership stood all the time since then.
func (as *authorityState) ledSince(p core.Proof, then time.Time) bool {
	led := true
	as.since(then, func(h *core.Head) bool { led = led && h.Leads(p) && !h.Raised(); return !led })
	return led
}

// since calls f with every head that stood at some instant since then, newest first,
// until f is true, and reports whether it was.
func (as *authorityState) since(then time.Time, f func(h *core.Head) bool) bool {
	for _, s := range slices.Backward(as.heads) {
		if f(s.head) {
			return true
		}
		if !s.since.After(then) {
			break
		}
	}
	return false
}

// saw judges that a state which p was shown was one that the head had since began
// (R35).
func (o *oracle) saw(p *Proc, h *core.Head, began time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	as := o.authorities[h.Authority]
	o.stats["snapshots"]++
	if p.misled() || p.crashed.Load() {
		return
	}
	if !as.since(began, func(x *core.Head) bool { return reflect.DeepEqual(x, h) }) {
		o.fail("R35", "%s: %s was shown a head of sequence %d, which was none while it read", as.name, p.name, h.Sequence)
	}
}

// validated judges the answer to a validation of a snapshot (R35).
func (o *oracle) validated(p *Proc, h *core.Head, parts []authority.Part, began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	as := o.authorities[h.Authority]
	o.stats["validated: "+kind(err)]++
	if p.misled() || p.crashed.Load() || err != nil && !errors.Is(err, authority.ErrChanged) {
		return
	}
	if !as.since(began, func(x *core.Head) bool { return samePart(h, x, parts) == (err == nil) }) {
		o.fail("R35", "%s: %s validated sequence %d: %v, and that was at no instant so", as.name, p.name, h.Sequence, err)
	}
}

// samePart reports whether two heads agree on some parts of a snapshot.
func samePart(a, b *core.Head, parts []authority.Part) bool {
	for _, part := range parts {
		same := false
		switch part {
		case authority.PartLeader:
			same = a.Led() == b.Led() && a.Last() == b.Last() && a.Raised() == b.Raised()
		case authority.PartFaults:
			same = a.Revision == b.Revision && reflect.DeepEqual(a.Slots, b.Slots)
		case authority.PartRound:
			same = reflect.DeepEqual(a.Round, b.Round)
		default:
			same = reflect.DeepEqual(a.Chain(string(part)), b.Chain(string(part)))
		}
		if !same {
			return false
		}
	}
	return true
}
