package world

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
)

// tend acts as a person would who looks after the nodes: it forces, vouches,
// fences, retires, raises counters and looks.
func (a *actor) tend(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, a.ttl()/2)) {
		names := a.w.Plan.NodeNames()
		node := names[a.r.IntN(len(names))]
		var err error
		switch n := a.r.IntN(20); {
		case n < 4:
			err = a.force(ctx, node)
		case n < 12:
			err = a.fence(ctx, node)
		case n < 14:
			err = a.retire(ctx, node)
		case n < 15:
			err = a.jumpNode(ctx, node)
		case n < 17:
			_, err = a.p.Client.NodeHistory(ctx, node)
		default:
			for _, lookErr := range a.p.Client.Nodes(ctx, "") {
				err = errors.Join(err, lookErr)
			}
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// ownerOf is the start that holds a node now, as a person sees it who knows which
// processes died. The look is judged: it tells a state that the record had between
// question and answer (R12).
func (a *actor) ownerOf(ctx context.Context, node string) (tenure.Proof, *nodeStart, error) {
	began := time.Now()
	n, err := a.p.Client.Node(ctx, node)
	if err != nil || n.State == tenure.Absent {
		return tenure.Proof{}, nil, err
	}
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	look := nodeLook{n.Incarnation, n.State == tenure.Held, n.Term, n.Counter, n.Sequence}
	if !o.nodes[node].was(look, began) && !a.p.misled() {
		o.fail("R12", "%s: %s was told of term %d, counter %d, sequence %d, which was no state of the record while it asked", node, a.p.name, n.Term, n.Counter, n.Sequence)
	}
	o.stats["looks"]++
	if !look.held {
		return tenure.Proof{}, nil, nil
	}
	return tenure.Proof{Node: node, Incarnation: n.Incarnation, Term: n.Term}, o.nodes[node].starts[n.Incarnation], nil
}

func (st *nodeStart) dead() bool { return st != nil && st.p != nil && st.p.crashed.Load() }

func (a *actor) force(ctx context.Context, node string) error {
	proof, st, err := a.ownerOf(ctx, node)
	if st == nil || err != nil {
		return err
	}
	m := a.w.mutation
	if !st.dead() && !m.liar && chance(a.r, 0.6) {
		return nil // it seems to be well
	}
	o := tenure.StealOptions{Reason: "the simulation wants it", By: a.p.name, Vouch: (st.dead() || m.liar) && chance(a.r, 0.6)}
	err = a.p.Client.ForceNode(ctx, proof, o)
	a.w.trace.add(a.p.name, "%s: force term %d, vouched %v: %s", node, proof.Term, o.Vouch, kind(err))
	a.startEnded(node, proof, err)
	return err
}

// startEnded judges that a start that somebody ended has ended (R12).
func (a *actor) startEnded(node string, proof tenure.Proof, err error) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	if st := o.nodes[node].starts[proof.Incarnation]; err == nil && !a.p.misled() && st.how == "" {
		o.fail("R12", "%s: term %d was ended by %s, and the record names it yet", node, proof.Term, a.p.name)
	}
}

// fence ends some start that the record ever named, and judges the certificate.
func (a *actor) fence(ctx context.Context, node string) error {
	proof, st, err := a.ownerOf(ctx, node)
	if st == nil || err != nil {
		return err
	}
	began := time.Now()
	within := time.Duration(float64(a.ttl()) * (2 + 3*a.r.Float64()))
	c, err := a.p.Client.FenceIncarnation(ctx, node, proof.Incarnation, within)
	a.w.trace.add(a.p.name, "%s: fence term %d: %s", node, proof.Term, kind(err))
	a.startEnded(node, proof, err)
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count2("fence", err)
	switch {
	case a.p.misled() || a.p.crashed.Load():
	case err == nil && (st.cert == nil || c.How != st.how || c.Predecessor != proof):
		o.fail("R12", "%s: the fence of term %d gave a certificate that is not its own", node, proof.Term)
	case err == nil && (st.wait > 0) != (c.Wait > 0):
		o.fail("R12", "%s: term %d was %s, and its certificate asks for a wait of %v", node, proof.Term, st.how, c.Wait)
	case errors.Is(err, tenure.ErrMissingEvidence):
		o.fail("R12", "%s: term %d was the owner %v ago, and nothing is said to tell of it", node, proof.Term, time.Since(began))
	}
	return err
}

// count2 counts an answer. Under mu.
func (o *oracle) count2(what string, err error) { o.stats[what+": "+kind(err)]++ }

func (a *actor) retire(ctx context.Context, node string) error {
	err := a.p.Client.RetireNode(ctx, node, time.Duration(float64(a.ttl())*(2+3*a.r.Float64())))
	a.w.trace.add(a.p.name, "%s: retire: %s", node, kind(err))
	a.w.oracle.mu.Lock()
	defer a.w.oracle.mu.Unlock()
	a.w.oracle.count2("retire", err)
	if errors.Is(err, tenure.ErrNotFound) {
		return nil
	}
	return err
}

func (a *actor) jumpNode(ctx context.Context, node string) error {
	n, err := a.p.Client.Node(ctx, node)
	if err != nil || n.State == tenure.Absent {
		return err
	}
	above := n.Counter + uint64(a.r.IntN(4))
	_, err = a.p.Client.JumpNode(ctx, node, above)
	a.w.trace.add(a.p.name, "%s: jump above %d: %s", node, above, kind(err))
	a.raisedNode(node, above, err)
	return err
}

// raisedNode judges that the counter of a node is at least above (R12).
func (a *actor) raisedNode(node string, above uint64, err error) {
	o := a.w.oracle
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.nodes[node].rec; err == nil && r != nil && r.Counter < above && !a.p.misled() {
		o.fail("R12", "%s: raised to %d, and its counter is %d", node, above, r.Counter)
	}
}

// holderDied reports whether the process that holds a lease by s is gone, as a
// person knows it.
func (w *World) holderDied(s tenure.Status) bool {
	if s.Kind != string(lease.Session) {
		p := w.procNamed(s.Label)
		return p != nil && p.Crashed()
	}
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	_, st := w.oracle.startOf(lease.Owner{Node: s.Label, Incarnation: s.Owner, Term: s.Term})
	return st.dead()
}
