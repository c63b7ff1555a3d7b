package world

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// Session is a session that was handed out.
type Session struct {
	*tenure.Session
	p *Proc
}

// Join joins a node for p, and judges what it is handed.
func (p *Proc) Join(ctx context.Context, node string, opts ...tenure.AcquireOption) (*Session, error) {
	s, err := p.Client.Join(ctx, node, opts...)
	return p.joined(node, s, err)
}

// TryJoin joins a node for p if its name is free.
func (p *Proc) TryJoin(ctx context.Context, node string, opts ...tenure.AcquireOption) (*Session, error) {
	s, err := p.Client.TryJoin(ctx, node, opts...)
	return p.joined(node, s, err)
}

func (p *Proc) joined(node string, s *tenure.Session, err error) (*Session, error) {
	if err != nil {
		p.w.trace.add(p.name, "%s: join: %s", node, kind(err))
		return nil, err
	}
	w := &Session{Session: s, p: p}
	p.w.trace.add(p.name, "%s: joined with term %d", node, s.Proof().Term)
	p.w.oracle.joined(w)
	return w, nil
}

// joined judges a session that is handed out: its term is in the record and above
// all before (R2), and its certificate stands under both names (R21, PL4).
func (o *oracle) joined(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stats["sessions"]++
	proof := s.Proof()
	ns := o.nodes[proof.Node]
	st := ns.starts[proof.Incarnation]
	if st == nil || st.Term != proof.Term || st.p != s.p || st.s != nil {
		o.fail("R2", "%s: %s was handed term %d, which the record never gave to it", ns.name, s.p.name, proof.Term)
		return
	}
	st.s = s
	for _, other := range ns.starts {
		if other.s != nil && other != st && other.Term >= st.Term {
			o.fail("R2", "%s: %s was handed term %d beside term %d", ns.name, s.p.name, st.Term, other.Term)
		}
	}
	if st.Term > ns.rec.FirstTerm {
		c, err := identity.ParseCertificate([]byte(ns.made[identity.SuccessorName(st.Owner)]))
		if err != nil {
			o.fail("R21", "%s: no takeover made the certificate of term %d, under which %s acts", ns.name, st.Term, s.p.name)
		} else {
			o.wantSealed(ns, c, "%s acts under it", s.p.name)
		}
	}
	ns.live = append(ns.live, s)
	o.oneSession(ns)
}

// startOf is the start that a session's lease names, nil if there never was one.
func (o *oracle) startOf(owner lease.Owner) (*nodeState, *nodeStart) {
	ns := o.nodes[owner.Node]
	if ns == nil {
		return nil, nil
	}
	if st := ns.starts[owner.Incarnation]; st != nil && st.Term == owner.Term {
		return ns, st
	}
	return ns, nil
}

// handedUnder notes the session of a lease that was handed out. Under mu.
func (o *oracle) handedUnder(ls *leaseState, h *Handle) {
	proof := h.Proof()
	if proof.Node == "" {
		return
	}
	_, st := o.startOf(lease.Owner{Node: proof.Node, Incarnation: proof.Incarnation, Term: proof.Term})
	if st == nil || st.s == nil || st.p != h.p {
		o.fail("R2", "%s: token %d was handed out under a session that never was", ls.name, h.Token())
		return
	}
	h.s = st.s
	o.stats["handed out under sessions"]++
}

// takenFrom reports whether the lease of a session was lost though its record still
// names it: with the session, or by a theft that is half done. Under mu.
func (o *oracle) takenFrom(h *Handle) bool {
	return h.s != nil && (!h.s.Live() || o.nodes[h.s.Node()].posted[identity.Revocation{Resource: h.Name(), Token: h.Token()}])
}

// underSession judges that no lease outlives its session (R24). Under mu.
func (o *oracle) underSession(h *Handle) {
	if h.s == nil {
		return
	}
	if over := !h.s.Live(); over && h.live() { // in this order: a session does not come back
		o.fail("R24", "%s: token %d at %s is live although its session is not", h.Name(), h.Token(), h.p.name)
	}
}

// acquiredAs is as whom a lease was taken, for a hand-over (LS10).
func acquiredAs(r *lease.Record, by *Proc) string {
	if r.Kind == lease.Session {
		return r.Owner.Node
	}
	return by.Slot()
}

// checkSessionStep judges a step of a lease's record by what the sessions in it
// are (R22, R23, R26).
func (o *oracle) checkSessionStep(ls *leaseState, prev, next *lease.Record, st step, by *Proc) {
	if (st == granted || st == tookOver) && next.Kind == lease.Session {
		_, s := o.startOf(*next.Owner)
		switch {
		case s == nil || s.p != by:
			o.fail("R22", "%s: token %d was granted by %s to a session that never was its own", ls.name, next.Token, who(by))
		case s.clean && (st == tookOver || !ls.pruned):
			// A copy of its create that lands once retention has removed the record is
			// below the floor, and of a session that is over: it gives nothing to anybody.
			o.fail("R23", "%s: token %d was granted to the session of term %d after that left in order", ls.name, next.Token, s.Term)
		}
	}
	if st != endedBy || prev.Kind != lease.Session {
		return
	}
	ns, s := o.startOf(*prev.Owner)
	switch how := next.Ended.How; {
	case s == nil:
	case how == lease.HowReleased && s.p != by:
		o.fail("R6", "%s: token %d was released by %s and is held by a session of %s", ls.name, prev.Token, who(by), who(s.p))
	case how != lease.HowReleased && s.how == "" && !ns.posted[identity.Revocation{Resource: ls.name, Token: prev.Token}]:
		o.fail("R26", "%s: token %d was taken from a session that was never told", ls.name, prev.Token)
	}
}

// checkInherited judges that a session's lease was taken only when that exact
// session was over, after the wait that force asks for, and on true evidence (R22).
func (o *oracle) checkInherited(ls *leaseState, prev, next *lease.Record, by *Proc) {
	o.checkOver(fell{ls.name, prev.Token, *prev.Owner, next.Recent[len(next.Recent)-1].How, next.Evidence}, by)
}

// fell is what was taken from a session: how that is said to have ended, and what is cited.
type fell struct {
	name          string
	token         uint64
	owner         lease.Owner
	how, evidence string
}

// checkOver judges that a session was over as something was taken from it (R22).
func (o *oracle) checkOver(f fell, by *Proc) {
	ns, s := o.startOf(f.owner)
	what := "the session of term %d"
	bad := func(format string, args ...any) {
		o.fail("R22", "%s: %s took token %d from "+what+", "+format, append([]any{f.name, who(by), f.token, f.owner.Term}, args...)...)
	}
	switch {
	case s == nil:
		bad("which never was")
		return
	case s.how == "":
		bad("which the record of its node still names")
		return
	case time.Since(s.ended)+2 < s.wait:
		bad("which was %s %v ago, want %v", s.how, time.Since(s.ended), s.wait)
	case s.s != nil && s.s.Live() && !(s.p.crashed.Load() && (s.how == lease.HowProven || s.how == lease.HowVouched)):
		bad("which is live")
	}
	o.stats["inherited from a session "+s.how]++
	how := f.how
	if c, err := identity.ParseCertificate([]byte(f.evidence)); err == nil {
		if !c.Equal(s.cert) || how != s.how {
			bad("as %s, citing a certificate that is not its own or says otherwise", how)
		}
		return
	}
	c, err := identity.ParseCitation([]byte(f.evidence))
	switch {
	case err != nil:
		bad("citing nothing: %v", err)
	case c.Node != ns.name || c.Incarnation != s.Incarnation || c.Term != s.Term || c.Head.Term > ns.rec.Term || c.Head.Sequence > ns.rec.Sequence:
		bad("citing a head that never was, of term %d", c.Head.Term)
	case c.How != "" && (c.How != s.how || how != s.how):
		bad("as %s, citing a head that says %s", how, c.How)
	case c.How == "":
		o.stats["folded evidence"]++
		if !slices.Contains([]string{lease.HowObserved, lease.HowForced}, how) {
			bad("as %s on folded evidence", how)
		}
	}
}

// Quit leaves in order and judges the answer (R12).
func (s *Session) Quit(leave func() error) error {
	err := leave()
	s.p.w.trace.add(s.p.name, "%s: left term %d: %s", s.Node(), s.Proof().Term, kind(err))
	o := s.p.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Live() {
		o.fail("R6", "%s: the session of term %d is live after it left", s.Node(), s.Proof().Term)
	}
	if s.p.crashed.Load() {
		return err
	}
	st := o.nodes[s.Node()].starts[s.Proof().Incarnation]
	switch {
	case err == nil && (st == nil || st.how != lease.HowReleased):
		o.fail("R12", "%s: term %d was left without an error, and its name was not given up", s.Node(), s.Proof().Term)
	case errors.Is(err, tenure.ErrUnconfirmed):
		o.stats["leaves unconfirmed"]++
	case err == nil && st.left != "" && !s.p.misled():
		o.fail("R23", "%s: term %d was left without an error, and it held %s as it gave its name up", s.Node(), st.Term, st.left)
	case err == nil:
		o.stats["leaves"]++
		st.clean = true
	}
	return err
}
