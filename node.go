package tenure

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// What can be said of process starts. Test with errors.Is.
var (
	// ErrAlive: the process renewed while it was observed, so it cannot be fenced.
	ErrAlive = membership.ErrAlive
	// ErrMissingEvidence: nothing in the store tells of the process start. It must
	// be taken for alive.
	ErrMissingEvidence = membership.ErrMissingEvidence
	// ErrTooShort: the time given does not cover the observation of a TTL and the
	// store's calls; nothing was done.
	ErrTooShort = membership.ErrTooShort
)

// Certificate is durable evidence that one exact process start was superseded, and
// how (PL3). Times are by the wall clock of whoever wrote it, for people only.
type Certificate struct {
	// Node is the node's name.
	Node string
	// Predecessor is who is over, Successor who took the name.
	Predecessor, Successor Proof
	// Revoker says that the successor took the name only to end the predecessor.
	Revoker bool
	// How the predecessor fell: released, observed, proven, store-clock, forced or
	// vouched. Why and By are what an operator said.
	How, Why, By string
	// At is when.
	At time.Time
	// Wait is how long whoever uses it as proof of a death must wait from its own
	// first read of it, because the end was forced; 0 otherwise (LS11).
	Wait time.Duration
	// Body are the certificate's exact bytes, for a citation: see VerifyCertificate.
	Body []byte
}

func publicCertificate(c *identity.Certificate) (Certificate, error) {
	body, err := c.Encode()
	side := func(s identity.Side) Proof {
		return Proof{Node: c.Node, Incarnation: s.Incarnation, Term: s.Term}
	}
	return Certificate{
		Node: c.Node, Predecessor: side(c.Predecessor), Successor: side(c.Successor), Revoker: c.Successor.Revoker,
		How: c.How, Why: c.Why, By: c.By, At: time.UnixMilli(c.At), Wait: time.Duration(c.SupersededTTLMS) * time.Millisecond, Body: body,
	}, err
}

// FenceIncarnation makes durable that one exact process start is over, and returns
// the certificate of that (PL6). If it has a successor already, or left, that is at
// once; else it is observed for its TTL, and superseded by a one-off revoker if it
// stayed silent. The node's next process then takes the name at once.
//
// within is how long it may take. One that is too short is ErrTooShort before
// anything happens; a process that renews is ErrAlive; one that the store knows
// nothing of is ErrMissingEvidence. The caller waits Certificate.Wait on its own
// clock before it relies on the death.
func (c *Client) FenceIncarnation(ctx context.Context, node, incarnation string, within time.Duration) (Certificate, error) {
	if err := store.CheckName("node name", node); err != nil {
		return Certificate{}, err
	}
	cert, _, err := c.ids.Fence(ctx, node, incarnation, within)
	if err != nil {
		return Certificate{}, err
	}
	return publicCertificate(cert)
}

// VerifyCurrent asks the store whether p's process is the owner of its node's name
// right now, with the evidence for its term (PL7): nil if it is, ErrNotCurrent
// otherwise. Term 0 is any; the token is not looked at.
func (c *Client) VerifyCurrent(ctx context.Context, p Proof) error {
	if err := store.CheckName("node name", p.Node); err != nil {
		return err
	}
	ok, err := c.ids.VerifyCurrent(ctx, p.Node, identity.Owner{Incarnation: p.Incarnation, Term: p.Term})
	if err == nil && !ok {
		err = fmt.Errorf("node %q: %w: incarnation %s, term %d", p.Node, ErrNotCurrent, p.Incarnation, p.Term)
	}
	return err
}

// VerifyCertificate checks a certificate that somebody cites by its bytes: it is
// the one that is stored, or older than a linearizable read of the node's record
// (PL7). nil means that its predecessor is over, once the Wait returned has passed
// on this clock.
func (c *Client) VerifyCertificate(ctx context.Context, body []byte) (Certificate, error) {
	cert, err := identity.ParseCertificate(body)
	if err != nil {
		return Certificate{}, err
	}
	v, err := c.ids.VerifyCertificate(ctx, cert)
	if err != nil {
		return Certificate{}, err
	}
	if v.State != identity.Over {
		return Certificate{}, fmt.Errorf("node %q: %w: the store does not have the certificate cited, nor a later owner", cert.Node, ErrMissingEvidence)
	}
	p, err := publicCertificate(cert)
	p.Wait = v.Wait
	return p, err
}

// NodeStatus is one look at a node's record. That it names an owner does not say
// that the owner lives.
type NodeStatus struct {
	// Node is the node's name.
	Node string
	// State is what the record says.
	State State
	// Incarnation and Term name the present or last owner, Counter is the highest
	// term ever given or reserved.
	Incarnation   string
	Term, Counter uint64
	// Sequence counts signs of life of all owners.
	Sequence uint64
	// TTL is the owner's time to live.
	TTL time.Duration
	// Since is when the owner joined, or when it ended; Expires is when it lapses
	// unless it renews. Both are by the wall clock of whoever wrote them.
	Since, Expires time.Time
	// Note is the owner's.
	Note string
	// Revoker says that the owner took the name only to end another, so that the
	// next process takes it at once.
	Revoker bool
	// Unsealed says that the certificate of the term is still in the record only.
	Unsealed bool
	// Revocations are leases that were taken from the owner and that it has not
	// acknowledged yet.
	Revocations []Revocation
	// Proof says how others can know at once that the owner is gone ("none",
	// "pidns" or "cgroup"), empty if they have to wait (LS14).
	Proof string
	// EndedHow, EndedWhy and EndedBy say how the last ownership ended.
	EndedHow, EndedWhy, EndedBy string
	// FreeAfter is how long the next process must watch the record, 0 if it is free
	// at once. Of an owner that may live it is its TTL.
	FreeAfter time.Duration
}

// Revocation is one lease that an operator took from a session.
type Revocation struct {
	// Lease and Token name the tenure.
	Lease string
	Token uint64
}

func nodeStatusOf(h membership.Head) NodeStatus {
	s := NodeStatus{Node: h.Node, State: Absent}
	r := h.Record
	if r == nil {
		return s
	}
	last := r.Last()
	s.State, s.Incarnation, s.Term, s.Counter, s.Sequence = Released, last.Incarnation, last.Term, r.Counter, r.Sequence
	s.TTL, s.Note, s.Revoker, s.Unsealed = r.TTL(), r.Note, r.Revoker != nil, r.Certificate != nil
	s.FreeAfter, _ = r.Wait()
	for _, v := range r.Revocations {
		s.Revocations = append(s.Revocations, Revocation{v.Resource, v.Token})
	}
	if r.Lock != nil {
		s.Proof = r.Lock.Tree
	}
	if r.Held() {
		s.State, s.Since = Held, time.UnixMilli(r.Since)
		if r.Expires != 0 {
			s.Expires = time.UnixMilli(r.Expires)
		}
		return s
	}
	s.Since = time.UnixMilli(r.Ended.At)
	s.EndedHow, s.EndedWhy, s.EndedBy = r.Ended.How, r.Ended.Why, r.Ended.By
	return s
}

// Node reads a node's record once, linearizably.
func (c *Client) Node(ctx context.Context, node string) (NodeStatus, error) {
	if err := store.CheckName("node name", node); err != nil {
		return NodeStatus{}, err
	}
	h, err := c.ids.Read(ctx, node)
	if err != nil {
		return NodeStatus{}, err
	}
	return nodeStatusOf(h), nil
}

// Nodes yields every node whose name starts with prefix, in the order of their
// keys. A record that cannot be read is yielded as an error, and the listing goes
// on.
func (c *Client) Nodes(ctx context.Context, prefix string) iter.Seq2[NodeStatus, error] {
	return func(yield func(NodeStatus, error) bool) {
		for h, err := range c.ids.List(ctx) {
			if err != nil && !yield(NodeStatus{}, err) {
				return
			}
			if err == nil && strings.HasPrefix(h.Node, prefix) && !yield(nodeStatusOf(h), nil) {
				return
			}
		}
	}
}

// NodeHistory reads every certificate of a node that is still kept, by term.
func (c *Client) NodeHistory(ctx context.Context, node string) ([]Certificate, error) {
	if err := store.CheckName("node name", node); err != nil {
		return nil, err
	}
	certs, err := c.ids.History(ctx, node)
	if err != nil {
		return nil, err
	}
	out := make([]Certificate, len(certs))
	for i, cert := range certs {
		if out[i], err = publicCertificate(cert); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ForceNode ends the ownership of p's process whether or not it lives (LS11): its
// next renewal fails, and all its leases end with it. Unless vouched for, the next
// process watches the record for the superseded TTL first, and so does whoever
// takes one of its leases. Only node, incarnation and term of p are used; another
// owner is ErrConflict and not touched.
func (c *Client) ForceNode(ctx context.Context, p Proof, o StealOptions) error {
	if o.Reason == "" {
		return store.Errorf(ErrInvalid, "", "force", p.Node, "a reason is required: the certificate keeps it")
	}
	if err := errors.Join(store.CheckName("node name", p.Node), lease.CheckWhy("reason", o.Reason), lease.CheckWhy("operator", o.By)); err != nil {
		return err
	}
	return c.ids.Force(ctx, p.Node, identity.Owner{Incarnation: p.Incarnation, Term: p.Term},
		identity.Operator{Why: o.Reason, By: o.By, NowMS: c.nowMS(), Vouch: o.Vouch})
}

// RetireNode ends the use of a node's name for good, or until somebody joins under
// it again: whoever owns it and is silent for its TTL is fenced, and a released
// record stays that nothing removes (PL5). An owner that renews is ErrAlive.
func (c *Client) RetireNode(ctx context.Context, node string, within time.Duration) error {
	if err := store.CheckName("node name", node); err != nil {
		return err
	}
	return c.ids.Retire(ctx, node, within)
}

// JumpNode raises a node's counter to at least above (LS12). The session of its
// owner ends at its next renewal. It reports whether there was anything to raise.
func (c *Client) JumpNode(ctx context.Context, node string, above uint64) (bool, error) {
	if err := errors.Join(store.CheckName("node name", node), checkJump(above)); err != nil {
		return false, err
	}
	return c.ids.Jump(ctx, node, above)
}

// tellSession makes durable, in the identity of the session that holds r, that the
// tenure of token is taken from it (LS11). It reports whether the session needs to
// be told nothing more: a session that is over never acts again. So it is taken to be
// where the store knows nothing of it and the operator vouches for its end.
func (c *Client) tellSession(ctx context.Context, name string, r *lease.Record, by StealOptions) (bool, error) {
	if !r.Held() || r.Kind != lease.Session || r.Token != by.Token {
		return false, nil
	}
	o := identity.Owner{Incarnation: r.Owner.Incarnation, Term: r.Owner.Term}
	err := c.ids.Revoke(ctx, r.Owner.Node, o, identity.Revocation{Resource: name, Token: by.Token})
	if err == nil || !settle.LostRace(err) {
		return err == nil, err
	}
	v, _, judgeErr := c.ids.Judge(ctx, r.Owner.Node, o)
	switch {
	case judgeErr != nil:
		return false, errors.Join(err, judgeErr)
	case v.State == identity.Over || v.State == identity.Missing && by.Vouch:
		return true, nil
	case v.State == identity.Missing:
		return false, fmt.Errorf("lease %q: the store knows nothing of its holder's session, so it cannot be told: %w; vouch for its end if you know that it is gone, or let node %q join until its term is above %d",
			name, ErrMissingEvidence, r.Owner.Node, o.Term)
	}
	return false, err
}

// identities are the process identities of the client's namespace.
func (c *Client) identities() *membership.Identities {
	cfg := membership.Config{
		Store: c.st, Namespace: c.namespace, Clock: c.clk, Rand: c.rand, NewID: c.newID, Log: c.log,
		Timing: c.timing.Defaults(), Poll: c.pollInterval(c.timing.Defaults()), Floor: c.floor,
		Seen: func(node string) func(uint64) error { return c.seenOf("node", node) }, Recall: c.memory.recallFrom, Remember: c.memory.rememberFrom,
		Background: c.background, TreeEmpty: c.treeEmpty,
	}
	if c.space != nil && c.space.RetentionMS != 0 {
		cfg.Retention = c.space.Retention()
	}
	if clk, can := store.AsClocker(c.st); can && c.space != nil && c.space.StoreClock {
		cfg.StoreClock = func(ctx context.Context) (string, time.Time, error) {
			now, err := clk.Now(ctx)
			return now.Instance, now.Time, err
		}
	}
	return membership.New(cfg)
}

// SessionOver asks the store whether the process start that p names is over, and how
// it ended (LS8): how is empty where only a later term of its node tells of it (PL5).
// false says that the node's record names it yet, which does not say that it lives.
// It acts on nothing and waits for nothing: whoever relies on an end by force waits
// first (LS11). A start that nothing tells of is ErrMissingEvidence.
func (c *Client) SessionOver(ctx context.Context, p Proof) (over bool, how string, err error) {
	if err := store.CheckName("node name", p.Node); err != nil {
		return false, "", err
	}
	v, _, err := c.ids.Judge(ctx, p.Node, identity.Owner{Incarnation: p.Incarnation, Term: p.Term})
	switch {
	case err != nil:
		return false, "", err
	case v.State == identity.Over:
		return true, v.How, nil
	case v.State == identity.Current:
		return false, "", nil
	}
	return false, "", fmt.Errorf("node %q, incarnation %s, term %d: %w: it must be taken for alive", p.Node, p.Incarnation, p.Term, ErrMissingEvidence)
}

// certificatesKept is how long certificates are kept at least.
const certificatesKept = 30 * 24 * time.Hour

// PruneCertificates folds the certificates of every node that are older than 30 days,
// or than the namespace's retention if that is longer, into the node's record (PL5).
// Nothing depends on it but space: what they prove is proven by the record's higher
// term. It goes past what cannot be read; a store that cannot be written, or may not
// be, ends it. more says that some are left that may go: call again.
func (c *Client) PruneCertificates(ctx context.Context) (removed int, more bool, err error) {
	set, err := c.Settings(ctx)
	if err != nil {
		return 0, false, err
	}
	age := max(certificatesKept, set.Retention)
	var errs []error
	for h, err := range c.ids.List(ctx) {
		n, left := 0, false
		if err == nil {
			n, left, err = c.pruneNode(ctx, h.Node, age)
		}
		removed, more = removed+n, more || left
		if err == nil {
			continue
		}
		errs = append(errs, err)
		if !passable(err) {
			return removed, true, errors.Join(errs...)
		}
	}
	return removed, more, errors.Join(errs...)
}

// pruneNode works one node off, batch by batch.
func (c *Client) pruneNode(ctx context.Context, node string, age time.Duration) (removed int, more bool, err error) {
	var errs []error
	for {
		p, err := c.ids.Prune(ctx, node, age)
		removed += p.Removed
		if err != nil {
			errs = append(errs, err)
		}
		if !p.More || err != nil && !passable(err) {
			return removed, p.More, errors.Join(errs...)
		}
	}
}

// passable reports whether err is of one record only.
func passable(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrNewer)
}
