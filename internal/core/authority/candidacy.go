package authority

import (
	"maps"
	"slices"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Candidacy is what one process start knows of its own standing in one authority:
// its leadership, its writes of the head whose outcome is unknown, and its objects
// whose admission is (LA3, LA8). There is one per authority and session, for as
// long as the session lives: it is what proves that an earlier leadership of the
// same start ended, and what must not be removed. Not safe for concurrent use.
type Candidacy struct {
	owner Owner
	proof Proof // of the last leadership; zero before the first
	live  bool
	doubt map[string]bool // attempts on the head that may land yet
	last  map[string]bool // settled attempts that the head may still name
	names map[Name]object
	done  []Name // settled or dead ones, oldest first
}

// maxDone is how many names that are done a candidacy remembers: of a leader that
// decides for months it must not grow. That no name is used twice rests on fresh
// attempt ids; what is remembered catches a caller that takes an old one.
const maxDone = 4096

// phase is what became of an object of this process.
type phase int

const (
	unused phase = iota
	flying       // a head that links it may be on its way, or be sent yet
	settled
	dead // a delete was sent: never written or linked again
)

// object is what is known of an object of this process.
type object struct {
	phase  phase
	digest string
}

// NewCandidacy begins the candidacy of one session.
func NewCandidacy(o Owner) *Candidacy {
	return &Candidacy{owner: o, doubt: map[string]bool{}, last: map[string]bool{}, names: map[Name]object{}}
}

// Owner is the candidate.
func (c *Candidacy) Owner() Owner { return c.owner }

// Sending notes a write of the head by attempt, before its first send.
func (c *Candidacy) Sending(attempt string) { c.doubt[attempt] = true }

// Settled notes that the write by attempt was applied, or can never be any more.
func (c *Candidacy) Settled(attempt string, applied bool) {
	delete(c.doubt, attempt)
	if applied {
		clear(c.last)
		c.last[attempt] = true
	}
}

// Mine reports whether a head that names attempt as its holder's was written by
// this candidate: in doubt, or the last that was applied (ST9).
func (c *Candidacy) Mine(attempt string) bool { return c.doubt[attempt] || c.last[attempt] }

// InDoubt lists the attempts that are to be settled yet.
func (c *Candidacy) InDoubt() []string { return slices.Sorted(maps.Keys(c.doubt)) }

// Granted notes that h, known to be applied, gave this candidate its leadership.
// Whether it is still in time to act is the deadline's matter (DL4). A leadership
// that another one of this candidate stands beside, or a head of another leader,
// is ErrInvalid.
func (c *Candidacy) Granted(h *Head) error {
	if !h.Led() || *h.Leader != c.owner || c.live || h.Token <= c.proof.Token {
		return store.Errorf(store.ErrInvalid, "", "begin", h.Authority,
			"the head of token %d is no new leadership of incarnation %s", h.Token, c.owner.Incarnation)
	}
	c.proof, c.live = h.Last(), true
	return nil
}

// Ended notes that the leadership ended in this process: its deadline ended or was
// withdrawn, and whatever acted under it has stopped.
func (c *Candidacy) Ended() { c.live = false }

// Proof is the leadership that stands in this process; false if none does. The
// head decides whether it stands there too.
func (c *Candidacy) Proof() (Proof, bool) { return c.proof, c.live }

// Quiet proves that nothing in its process acts, or waits to be settled, under the
// leadership that it names. Only [Candidacy.Quiet] makes one.
type Quiet struct {
	proof Proof
}

// Quiet returns the proof that the last leadership ended in this process, or
// ErrInvalid while it stands or any of its writes is in doubt (LA3).
func (c *Candidacy) Quiet() (Quiet, error) {
	switch {
	case c.live:
		return Quiet{}, store.Errorf(store.ErrInvalid, "", "begin", "", "the leadership of token %d has not ended in this process", c.proof.Token)
	case len(c.doubt) > 0:
		return Quiet{}, store.Errorf(store.ErrInvalid, "", "begin", "", "%d writes are in doubt: settle them first", len(c.doubt))
	case c.proof.Token == 0:
		return Quiet{}, store.Errorf(store.ErrInvalid, "", "begin", "", "this candidacy never led")
	}
	return Quiet{proof: c.proof}, nil
}

// Ground lets the same process start lead again, with a new token and without a
// wait, where the head still names its ended leadership (LA3). A head of any other
// leadership is ErrConflict.
func (q Quiet) Ground(h *Head, v store.Version) (Ground, error) {
	if h == nil {
		return Ground{}, store.Errorf(store.ErrCorrupt, "", "begin", "", "the head of token %d vanished", q.proof.Token)
	}
	if q.proof.Token == 0 || !h.Leads(q.proof) {
		return Ground{}, store.Errorf(store.ErrConflict, "", "begin", h.Authority,
			"the head is of token %d, not of the leadership of token %d that ended here", h.Token, q.proof.Token)
	}
	return h.ground(q.proof.Owner(), v, lease.HowReleased), nil
}

// Writing notes that object n is about to be sent, or a head that links it. digest is
// of its bytes. A name of other bytes, one that was settled before, or one for which
// a delete was sent, is ErrInvalid: take a fresh attempt id (LA8).
func (c *Candidacy) Writing(n Name, digest string) error {
	had := c.names[n]
	if had.phase == settled || had.phase == dead || had.phase == flying && had.digest != digest {
		return store.Errorf(store.ErrInvalid, "", "write", n.Element(), "the name was used before: take a fresh attempt id")
	}
	c.names[n] = object{phase: flying, digest: digest}
	return nil
}

// Landed notes that no head that links n is in doubt any more, and that none will be
// sent. A late send of the object itself may still land: unlinked, it is removed
// like any other.
func (c *Candidacy) Landed(n Name) {
	if had := c.names[n]; had.phase == flying {
		c.end(n, settled)
	}
}

// Deleting notes that a delete of n is about to be sent (LA8).
func (c *Candidacy) Deleting(n Name) { c.end(n, dead) }

func (c *Candidacy) end(n Name, p phase) {
	had := c.names[n]
	c.names[n] = object{phase: p}
	if had.phase == settled || had.phase == dead {
		return // noted
	}
	if c.done = append(c.done, n); len(c.done) > maxDone {
		delete(c.names, c.done[0])
		c.done = c.done[1:]
	}
}

// Flight is a look at which of this process's objects are on their way.
func (c *Candidacy) Flight() Flight {
	f := Flight{token: c.proof.Token, led: c.proof.Token != 0, flying: map[Name]bool{}}
	for n, o := range c.names {
		if o.phase == flying {
			f.flying[n] = true
		}
	}
	return f
}
