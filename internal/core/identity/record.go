// Package identity decides who owns the name of a node. It is pure: state and
// input in, state out; no I/O, no clock, no goroutine, no randomness. Ids, wall
// times and boot-clock readings are arguments.
//
// The register of a node is one record that is replaced by compare-and-set and
// never deleted. Each change of owner leaves a [Certificate], which the new
// owner's record carries until it is sealed under both of its names.
package identity

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1 (ST11, ST15). TTLs, notes and reasons have the
// bounds of package lease.
const (
	MaxBody        = 16 << 10 // bytes of an encoded record
	MaxCertificate = 2 << 10  // bytes of an encoded certificate
	MaxRevocations = 16       // revocations that wait for their session
	MaxPath        = 512      // bytes of a control group's path
)

// Owner names one process start exactly: a node's incarnation and its term.
type Owner struct {
	// Incarnation is fresh for every write that may make it the owner.
	Incarnation string `json:"incarnation"`
	// Term counts the owners of the node.
	Term uint64 `json:"term"`
}

// Ended says whose ownership ended last, and how, in a record that nobody owns.
type Ended struct {
	Incarnation string `json:"incarnation"`
	// How is released, forced or vouched.
	How string `json:"how"`
	Why string `json:"why,omitempty"`
	By  string `json:"by,omitempty"`
	At  int64  `json:"at_ms"`
	// SupersededTTLMS is set exactly for a forced or vouched end: what its
	// evidence must wait (LS11).
	SupersededTTLMS int64 `json:"superseded_ttl_ms,omitempty"`
}

// Revoker marks a record that was written only to end another's ownership
// (PL6). Its owner never renews and never acts.
type Revoker struct {
	// How the fenced incarnation fell.
	How string `json:"how"`
	// SupersededTTLMS is set exactly if it fell by force: what the next process
	// must wait yet.
	SupersededTTLMS int64 `json:"superseded_ttl_ms,omitempty"`
}

// Forced remembers force when its certificates are folded away (PL5). Both
// numbers only rise.
type Forced struct {
	// Term is the highest term that was reached by force: evidence about a lower
	// one may rest on force.
	Term uint64 `json:"term"`
	// TTLMS is the longest TTL that was ever superseded by force.
	TTLMS int64 `json:"ttl_ms"`
}

// Revocation tells the owner's session that one of its leases was taken from it
// (LS11).
type Revocation struct {
	Resource string `json:"resource"`
	Token    uint64 `json:"token"`
}

// Record is the register identity/<node> (PL1). Invariants, checked by Valid:
//
//  1. v, node, writer attempt and ttl are set and within bounds;
//  2. 1 <= first term <= term <= counter <= 2^53-1, 1 <= sequence <= 2^53-1;
//  3. an owned record has an incarnation, a holder attempt, and nothing that
//     says it ended;
//  4. a record that nobody owns says whose ownership ended and how, and carries
//     nothing of an owner's: no holder attempt, lock, note, expiry, revocation or
//     mark of a revoker;
//  5. the first term has no certificate; a later one has its own finished
//     certificate embedded, or says that it is sealed under both names, never both
//     (PL4);
//  6. force leaves its trace: the record's forced term is above the term of a
//     forced or vouched end or certificate and at most the counter (so force raised
//     the counter), the forced TTL covers theirs and a revoker's, and exactly such
//     an end, certificate or forced revoker names a superseded TTL;
//  7. a revoker has a predecessor and never renewed;
//  8. revocations are few, complete and named once.
type Record struct {
	V    int    `json:"v"`
	Node string `json:"node"`
	// Incarnation is the owner; empty in a record that nobody owns.
	Incarnation string `json:"incarnation,omitempty"`
	// Term is the present or last owner's.
	Term uint64 `json:"term"`
	// Counter is the highest term ever given or reserved.
	Counter uint64 `json:"counter"`
	// FirstTerm is the node's first term on this store: 1, or above the
	// namespace's floor.
	FirstTerm uint64 `json:"first_term"`
	// Sequence rises by 1 with every renewal and takeover, and by nothing else.
	Sequence      uint64 `json:"sequence"`
	TTLMS         int64  `json:"ttl_ms"`
	WriterAttempt string `json:"writer_attempt"`
	HolderAttempt string `json:"holder_attempt,omitempty"`
	Note          string `json:"note,omitempty"`
	Since         int64  `json:"since_ms"`
	// Expires informs people; no clock but an observer's own decides (PL1).
	Expires       int64       `json:"expires_ms,omitempty"`
	Lock          *lease.Lock `json:"lock,omitempty"`
	ClockInstance string      `json:"clock_instance,omitempty"`
	Revoker       *Revoker    `json:"revoker,omitempty"`
	Ended         *Ended      `json:"ended,omitempty"`
	Forced        *Forced     `json:"forced,omitempty"`
	// SealedTerm is the term, once its certificate is sealed under both names.
	SealedTerm  uint64       `json:"sealed_term,omitempty"`
	Certificate *Certificate `json:"certificate,omitempty"`
	Revocations []Revocation `json:"revocations,omitempty"`
	SecretHash  string       `json:"secret_hash,omitempty"`
	MAC         string       `json:"mac,omitempty"`
}

// TTL is the record's time to live.
func (r *Record) TTL() time.Duration { return millis(r.TTLMS) }

// Held reports whether the record names an owner, which may be a revoker. It
// says nothing of whether that owner lives.
func (r *Record) Held() bool { return r.Incarnation != "" }

// Last is the present owner or, in a record that nobody owns, the last one.
func (r *Record) Last() Owner {
	if r.Held() {
		return Owner{Incarnation: r.Incarnation, Term: r.Term}
	}
	return Owner{Incarnation: r.Ended.Incarnation, Term: r.Term}
}

// OwnedBy reports whether r is owned by exactly o.
func (r *Record) OwnedBy(o Owner) bool {
	return r.Held() && r.Incarnation == o.Incarnation && r.Term == o.Term
}

// Raised reports whether the counter was raised above the owner's term: such an
// identity ends its session at the next renewal (LS12).
func (r *Record) Raised() bool { return r.Held() && r.Counter > r.Term }

// Decode reads a record strictly and checks that it is node's (ST7).
func Decode(key, node string, body []byte) (*Record, error) {
	var r Record
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	if r.Node != node {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the record says it belongs to node %q, not to %q", r.Node, node)
	}
	return &r, nil
}

// Encode returns the record's canonical bytes.
func (r *Record) Encode() ([]byte, error) { return record.Encode(r, MaxBody) }

// Valid checks the invariants.
func (r *Record) Valid() error {
	for _, check := range []func() error{r.validHead, r.validNumbers, r.validOwned, r.validFree, r.validEvidence,
		r.validForced, r.validRevoker, r.validRevocations, r.validTexts} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Record) validHead() error {
	switch {
	case r.V < 1 || r.V > record.Level:
		return fmt.Errorf("format level %d", r.V)
	case !record.IsID(r.WriterAttempt):
		return fmt.Errorf("writer attempt %q is not an id", r.WriterAttempt)
	}
	if err := store.CheckName("node name", r.Node); err != nil {
		return err
	}
	return checkTTL(r.TTLMS)
}

func (r *Record) validNumbers() error {
	switch {
	case r.FirstTerm < 1 || r.FirstTerm > r.Term:
		return fmt.Errorf("the first term %d is not between 1 and the term %d", r.FirstTerm, r.Term)
	case r.Term > r.Counter || r.Counter > record.MaxNumber:
		return fmt.Errorf("the counter %d is below the term %d or out of bounds", r.Counter, r.Term)
	case r.Sequence < 1 || r.Sequence > record.MaxNumber:
		return fmt.Errorf("sequence %d is out of bounds", r.Sequence)
	case !isTime(r.Since) || !isTime(r.Expires):
		return errors.New("a time is out of bounds")
	}
	return nil
}

func (r *Record) validOwned() error {
	if !r.Held() {
		return nil
	}
	switch {
	case !record.IsID(r.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", r.Incarnation)
	case !record.IsID(r.HolderAttempt):
		return fmt.Errorf("holder attempt %q is not an id", r.HolderAttempt)
	case r.Ended != nil:
		return errors.New("an owned record says that it ended")
	}
	if l := r.Lock; l != nil && (l.Boot == "" || l.Tree != "none" && l.Tree != "pidns" && l.Tree != "cgroup" ||
		(l.Tree == "cgroup") != (l.Cgroup != "")) {
		return errors.New("the lock is not complete")
	}
	return nil
}

func (r *Record) validFree() error {
	if r.Held() {
		return nil
	}
	e := r.Ended
	switch {
	case e == nil:
		return errors.New("nobody owns the record and it does not say why")
	case r.HolderAttempt != "" || r.Lock != nil || r.Note != "" || r.Expires != 0 || r.Revocations != nil ||
		r.Revoker != nil || r.SecretHash != "" || r.ClockInstance != "":
		return errors.New("a record that nobody owns carries an owner's fields")
	case !record.IsID(e.Incarnation):
		return fmt.Errorf("the last incarnation %q is not an id", e.Incarnation)
	case e.How != lease.HowReleased && !byForce(e.How):
		return fmt.Errorf("an identity does not end by %q", e.How)
	case byForce(e.How) && e.Why == "":
		return errors.New("a forced end lacks its reason")
	case !isTime(e.At):
		return errors.New("the time of the end is out of bounds")
	}
	return nil
}

// validEvidence checks that no later term is without its certificate.
func (r *Record) validEvidence() error {
	c := r.Certificate
	if r.Term == r.FirstTerm {
		if c != nil || r.SealedTerm != 0 {
			return errors.New("a first term has no certificate")
		}
		return nil
	}
	if (c == nil) != (r.SealedTerm == r.Term) || c != nil && r.SealedTerm != 0 {
		return fmt.Errorf("term %d must carry its certificate or be sealed, and not both", r.Term)
	}
	if c == nil {
		return nil
	}
	if err := c.Valid(); err != nil {
		return fmt.Errorf("the embedded certificate: %w", err)
	}
	last := r.Last()
	if c.V > r.V || c.Node != r.Node || c.Successor.owner() != last || c.Successor.Sequence > r.Sequence ||
		c.Successor.TTLMS != r.TTLMS || c.Predecessor.Term < r.FirstTerm {
		return errors.New("the embedded certificate is another's")
	}
	return nil
}

func (r *Record) validForced() error {
	if f := r.Forced; f != nil {
		if f.Term <= r.FirstTerm || f.Term > r.Counter {
			return fmt.Errorf("the forced term %d is out of bounds", f.Term)
		}
		if err := checkTTL(f.TTLMS); err != nil {
			return err
		}
	}
	if e := r.Ended; e != nil {
		if err := r.Forced.covers("end", e.How, r.Term, e.SupersededTTLMS); err != nil {
			return err
		}
	}
	if c := r.Certificate; c != nil {
		return r.Forced.covers("certificate", c.How, c.Predecessor.Term, c.SupersededTTLMS)
	}
	return nil
}

// covers checks that an end of term, by how, names a superseded TTL exactly if
// it was by force, and that f then remembers it.
func (f *Forced) covers(what, how string, term uint64, supersededMS int64) error {
	switch {
	case byForce(how) != (supersededMS != 0):
		return fmt.Errorf("exactly a forced %s names a superseded TTL", what)
	case supersededMS == 0:
		return nil
	case f == nil || f.Term <= term || f.TTLMS < supersededMS:
		return fmt.Errorf("the forced %s left no trace", what)
	}
	return checkTTL(supersededMS)
}

func (r *Record) validRevoker() error {
	v := r.Revoker
	if v == nil {
		return nil
	}
	switch {
	case r.Term == r.FirstTerm:
		return errors.New("a revoker has a predecessor")
	case !knownHow(v.How):
		return fmt.Errorf("a revoker took over by %q", v.How)
	case (v.How == lease.HowForced) != (v.SupersededTTLMS != 0):
		return errors.New("exactly a revoker by force names a superseded TTL")
	case r.Lock != nil || r.Expires != 0 || r.Revocations != nil:
		return errors.New("a revoker carries a process's fields")
	case r.Certificate != nil && (r.Certificate.Successor.Sequence != r.Sequence || r.Certificate.How != v.How):
		return errors.New("a revoker differs from its certificate")
	case v.SupersededTTLMS != 0 && (r.Forced == nil || r.Forced.TTLMS < v.SupersededTTLMS):
		return errors.New("the revoker's force left no trace")
	case v.SupersededTTLMS != 0:
		return checkTTL(v.SupersededTTLMS)
	}
	return nil
}

func (r *Record) validRevocations() error {
	if len(r.Revocations) > MaxRevocations || r.Revocations != nil && len(r.Revocations) == 0 {
		return fmt.Errorf("it carries %d revocations", len(r.Revocations))
	}
	seen := map[Revocation]bool{}
	for _, v := range r.Revocations {
		if v.Token < 1 || v.Token > record.MaxNumber || seen[v] {
			return fmt.Errorf("the revocation of %q, token %d, is out of bounds or there twice", v.Resource, v.Token)
		}
		if err := store.CheckName("resource", v.Resource); err != nil {
			return err
		}
		seen[v] = true
	}
	return nil
}

func (r *Record) validTexts() error {
	if err := lease.CheckNote(r.Note); err != nil {
		return err
	}
	texts := []string{r.ClockInstance, r.SecretHash, r.MAC}
	if r.Ended != nil {
		texts = append(texts, r.Ended.Why, r.Ended.By)
	}
	if l := r.Lock; l != nil {
		texts = append(texts, l.Boot)
		if len(l.Cgroup) > MaxPath {
			return errors.New("the control group's path is too long")
		}
	}
	return checkTexts(texts...)
}

func checkTexts(texts ...string) error {
	for _, s := range texts {
		if err := lease.CheckWhy("text", s); err != nil {
			return err
		}
	}
	return nil
}

func knownHow(how string) bool {
	switch how {
	case lease.HowReleased, lease.HowObserved, lease.HowProven, lease.HowStoreClock, lease.HowForced, lease.HowVouched:
		return true
	}
	return false
}

// byForce reports whether evidence of this kind must wait before it proves a
// death (LS11).
func byForce(how string) bool { return how == lease.HowForced || how == lease.HowVouched }

func isTime(ms int64) bool { return ms >= 0 && ms <= record.MaxNumber }

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// checkTTL is lease.CheckTTL for a number on the wire, which must not wrap.
func checkTTL(ms int64) error {
	if ms < 0 || ms > lease.MaxTTL.Milliseconds() {
		return fmt.Errorf("a TTL of %d ms is out of bounds", ms)
	}
	return lease.CheckTTL(millis(ms))
}
