package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Member is this process's ownership of a node's name. It is renewed in the
// background until it is released, abandoned or lost; then it is over for good.
// All methods are safe for concurrent use.
type Member struct {
	i     *Identities
	claim Claim
	owner identity.Owner
	dl    *deadline.Deadline

	keeping context.Context // ends when keeper and pruner must return
	quit    context.CancelFunc
	kept    sync.WaitGroup // keeper and pruner

	mu      sync.Mutex // guards what follows, and is not held over calls of others
	rec     *identity.Record
	ver     store.Version         // "": read before the next write
	ids     []string              // attempts of this member that may be in the store
	sealed  identity.Sealed       // of the certificate that began the term
	told    []identity.Revocation // carried out, to be acknowledged
	doubt   int                   // writes whose outcome is not known
	trouble error                 // of renewing, nil once it succeeds
	renewed time.Duration         // boot clock of the last send that succeeded
	pruned  time.Duration
	pruning error
	end     ending
}

// ending is how far the member's own release has come.
type ending struct {
	lock chan struct{} // held (capacity 1) by whoever is releasing
	done bool          // the store confirmed, or there is nothing to release
	err  error
}

func newMember(i *Identities, c Claim, r *identity.Record) *Member {
	m := &Member{i: i, claim: c, owner: r.Last(), dl: deadline.New(i.cfg.Clock, c.Timing.Margin), rec: r, ids: []string{r.HolderAttempt},
		end: ending{lock: make(chan struct{}, 1)}}
	m.keeping, m.quit = context.WithCancel(context.Background())
	return m
}

// Node is the name.
func (m *Member) Node() string { return m.claim.Node }

// Owner names this exact process start.
func (m *Member) Owner() identity.Owner { return m.owner }

// Deadline is until when the name is this member's. It ends with one of the causes
// above, or deadline.ErrExpired.
func (m *Member) Deadline() *deadline.Deadline { return m.dl }

// Record is the last state that is known to be the member's. Do not change it.
func (m *Member) Record() *identity.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rec
}

// Health is how a member fares.
type Health struct {
	// RenewedAt is the boot clock when the last renewal was sent that succeeded, the
	// join included.
	RenewedAt time.Duration
	// Err is why renewing fails at present, nil if it does not.
	Err error
	// Unsealed says that the record carries the certificate of its term yet, which
	// the next renewal drops.
	Unsealed bool
	// InDoubt counts writes whose outcome is not known.
	InDoubt int
	// Pruned is when the pruner's last run ended, by the boot clock; 0 if none did.
	Pruned time.Duration
	// PruneErr is how that run failed, nil if it did not (PL5).
	PruneErr error
}

// Health reports how the member fares.
func (m *Member) Health() Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Health{RenewedAt: m.renewed, Err: m.trouble, Unsealed: m.rec.Certificate != nil, InDoubt: m.doubt, Pruned: m.pruned, PruneErr: m.pruning}
}

func (m *Member) pace() settle.Pace { return m.i.paceOf(m.claim.Timing) }

// start begins the renewals, and the pruner beside them.
func (m *Member) start() {
	m.dl.OnEnd(m.ended)
	m.kept.Go(m.keep)
	if m.i.cfg.PruneEvery > 0 {
		m.kept.Go(m.prune)
	}
	// Whoever closes waits for both, however the member ends.
	m.dl.OnEnd(func() { m.i.cfg.Background(func(context.Context) { m.kept.Wait() }) })
}

// errStoodStill is why a renewal was late of which no call failed.
var errStoodStill = errors.New("no call failed: this process, or its machine, stood still")

// ended follows the deadline's end.
func (m *Member) ended() {
	m.quit()
	if errors.Is(m.dl.Cause(), deadline.ErrExpired) {
		why := m.Health().Err
		if why == nil {
			why = errStoodStill
		}
		m.i.cfg.Log.Error("identity: not renewed in time, the session is over", "node", m.claim.Node, "term", m.owner.Term, "error", why)
	}
}

// extend publishes a grant or renewal that was first sent at sent (DL4).
func (m *Member) extend(sent deadline.Stamp) bool {
	if !m.dl.Extend(sent, m.claim.Timing.Life()) || !m.dl.Live() {
		return false
	}
	m.mu.Lock()
	m.renewed, m.trouble = sent.Boot(), nil
	m.mu.Unlock()
	if m.claim.Extended != nil {
		m.claim.Extended(sent)
	}
	return true
}

// adopt takes over the state that an applied write left: next, or what was read
// back, which others may have changed since.
func (m *Member) adopt(next *identity.Record, res settle.Result) error {
	now := next
	if res.Found != nil {
		var err error
		if now, err = identity.Decode(m.i.recordKey(next.Node), next.Node, res.Found.Body); err != nil {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return m.goOnFrom(next, now, res.Version)
}

// goOnFrom makes now, at v, the member's state if the owner of held may go on from
// it (ST9), and carries out what it says of revocations (LS11).
func (m *Member) goOnFrom(held, now *identity.Record, v store.Version) error {
	switch identity.Adoptable(held, now, m.mine) {
	case identity.Lost:
		return lostTo(now)
	case identity.Raised:
		m.set(now, v)
		return ErrRaised
	}
	m.set(now, v)
	m.mu.Lock()
	var fresh []identity.Revocation
	for _, r := range now.Revocations {
		if !slices.Contains(m.told, r) {
			fresh = append(fresh, r)
		}
	}
	m.mu.Unlock()
	for _, r := range fresh {
		m.i.cfg.Log.Warn("identity: a lease was revoked", "node", m.claim.Node, "lease", r.Resource, "token", r.Token)
		if m.claim.Revoked != nil {
			m.claim.Revoked(r)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = slices.Clone(now.Revocations) // what is gone from the record is acknowledged
	return nil
}

func (m *Member) set(r *identity.Record, v store.Version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rec, m.ver, m.doubt = r, v, 0
}

// forget makes the next write read first.
func (m *Member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ver = ""
}

func (m *Member) mine(attempt string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.ids, attempt)
}

// attempt is a fresh id of a write of this member.
func (m *Member) attempt() string {
	id := m.i.cfg.NewID()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids = append(m.ids, id); len(m.ids) > 64 { // far more than can be in flight at once
		m.ids = m.ids[1:]
	}
	return id
}

// lose ends the member because it may not go on.
func (m *Member) lose(cause error) {
	if m.dl.End(fmt.Errorf("node %q, term %d: %w", m.claim.Node, m.owner.Term, cause)) {
		m.i.cfg.Log.Error("identity: lost", "node", m.claim.Node, "term", m.owner.Term, "cause", cause)
	}
	m.quit()
}

// lostTo is the error for a name that now belongs to r.
func lostTo(r *identity.Record) error {
	switch {
	case r == nil:
		return fmt.Errorf("%w: its record is gone from the store", ErrSuperseded)
	case r.Held():
		return fmt.Errorf("%w: incarnation %s owns the name with term %d", ErrSuperseded, r.Incarnation, r.Term)
	}
	return fmt.Errorf("%w: it was %s by %q: %s", ErrSuperseded, r.Ended.How, r.Ended.By, r.Ended.Why)
}
