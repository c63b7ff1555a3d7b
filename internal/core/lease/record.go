// Package lease decides what may happen to a lease record. It is pure: state
// and input in, state out; no I/O, no clock, no goroutine, no randomness.
package lease

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1 (ST11, ST15, DL5, LS13).
const (
	MaxBody     = 32 << 10 // bytes of an encoded record
	MaxNote     = 1 << 10  // bytes of a note, encoded as JSON
	MaxWhy      = 256      // bytes of a reason or a label
	MaxEvidence = 4 << 10  // bytes of embedded evidence
	MinTTL      = 100 * time.Millisecond
	MaxTTL      = 24 * time.Hour
	RecentKept  = 8  // past tenures that a record normally carries
	RecentMost  = 32 // past tenures that it carries while archiving fails
)

// Kind says what keeps a lease alive (LS1).
type Kind string

// The kinds of lease record.
const (
	// Self renews its own record.
	Self Kind = "self"
	// Session lives as long as the session of a process.
	Session Kind = "session"
)

// How a tenure ended (LS11).
const (
	HowReleased   = "released"
	HowObserved   = "observed"
	HowProven     = "proven"
	HowStoreClock = "store-clock"
	HowForced     = "forced"
	HowVouched    = "vouched"
	HowRevoked    = "revoked"
)

// Owner names exactly one holder.
type Owner struct {
	// Node is for a session the node's name; for a self lease it is a label for
	// people (host and process), which decides nothing.
	Node string `json:"node,omitempty"`
	// Incarnation is fresh for every handle of a self lease, and for every
	// start of a session's process.
	Incarnation string `json:"incarnation"`
	// Term is the session's process term; 0 for a self lease.
	Term uint64 `json:"term,omitempty"`
}

// Lock is an operating-system lock whose freedom proves the holder's death
// (LS14).
type Lock struct {
	store.Mark
	// Tree says why nothing of the holder outlives the lock's keeper: "none"
	// (it has no children), "pidns" (it is the init of a PID namespace) or
	// "cgroup" (the waiter must see Cgroup empty too).
	Tree string `json:"tree"`
	// Cgroup is the control group's path, with Tree "cgroup".
	Cgroup string `json:"cgroup,omitempty"`
}

// Ended says how the last tenure ended, in a record that nobody owns.
type Ended struct {
	How             string `json:"how"`
	Why             string `json:"why,omitempty"`
	By              string `json:"by,omitempty"`
	At              int64  `json:"at_ms"`
	SupersededTTLMS int64  `json:"superseded_ttl_ms,omitempty"`
}

// Tenure is one past ownership. Times are unix milliseconds by the wall clocks
// of those who wrote them: for people, never for decisions.
type Tenure struct {
	Token uint64 `json:"token"`
	Owner Owner  `json:"owner"`
	Since int64  `json:"since_ms"`
	Until int64  `json:"until_ms"`
	How   string `json:"how"`
	Why   string `json:"why,omitempty"`
	By    string `json:"by,omitempty"`
}

// Record is the register of one named lease (DESIGN: one record per owned
// thing, compare-and-set, never deleted). Invariants, checked by Valid:
//
//  1. v, kind, resource, writer attempt and ttl are set and within bounds;
//  2. token <= counter <= 2^53-1; a counter of 0 does not exist;
//  3. an owned record has an owner with an incarnation, a holder attempt, a
//     token of at least 1, and nothing that says it ended;
//  4. a record that nobody owns says how its last tenure ended, and has no
//     renewal in progress (no lock, no holder attempt);
//  5. a forced or revoked end names the TTL that everyone must wait, a
//     successor comes with a hold, and both are within the TTL's bounds;
//  6. a self owner has no term, a session owner has node and term;
//  7. tokens of past tenures rise, and the last is at most token.
type Record struct {
	V             int      `json:"v"`
	Kind          Kind     `json:"kind"`
	Resource      string   `json:"resource"`
	Owner         *Owner   `json:"owner,omitempty"`
	Token         uint64   `json:"token"`
	Counter       uint64   `json:"counter"`
	Renewal       uint64   `json:"renewal"`
	TTLMS         int64    `json:"ttl_ms"`
	WriterAttempt string   `json:"writer_attempt"`
	HolderAttempt string   `json:"holder_attempt,omitempty"`
	Note          string   `json:"note,omitempty"`
	Since         int64    `json:"since_ms"`
	Lock          *Lock    `json:"lock,omitempty"`
	Ended         *Ended   `json:"ended,omitempty"`
	Successor     string   `json:"successor,omitempty"`
	HoldMS        int64    `json:"hold_ms,omitempty"`
	ClockInstance string   `json:"clock_instance,omitempty"`
	Evidence      string   `json:"evidence,omitempty"`
	SecretHash    string   `json:"secret_hash,omitempty"`
	MAC           string   `json:"mac,omitempty"`
	Recent        []Tenure `json:"recent,omitempty"`
	Dropped       uint64   `json:"dropped,omitempty"`
}

// TTL is the record's time to live.
func (r *Record) TTL() time.Duration { return time.Duration(r.TTLMS) * time.Millisecond }

// Held reports whether the record names an owner. It says nothing of whether
// that owner lives.
func (r *Record) Held() bool { return r.Owner != nil }

// SameOwner reports whether r is owned by exactly o at token.
func (r *Record) SameOwner(o Owner, token uint64) bool {
	return r.Owner != nil && r.Owner.Incarnation == o.Incarnation && r.Owner.Term == o.Term &&
		(r.Kind == Self || r.Owner.Node == o.Node) && r.Token == token
}

// Decode reads a record strictly and checks that it is name's.
func Decode(key, name string, body []byte) (*Record, error) {
	r, err := decode(key, body)
	if err == nil && r.Resource != name {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the record says it belongs to %q, not to %q", r.Resource, name)
	}
	return r, err
}

// DecodeAny reads a record strictly and checks that key is its name's.
func DecodeAny(key string, body []byte, keyOf func(name string) string) (*Record, error) {
	r, err := decode(key, body)
	if err != nil {
		return nil, err
	}
	if want := keyOf(r.Resource); want != key {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the record says it belongs to %q, whose key is %q", r.Resource, want)
	}
	return r, nil
}

func decode(key string, body []byte) (*Record, error) {
	var r Record
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Encode returns the record's canonical bytes.
func (r *Record) Encode() ([]byte, error) { return record.Encode(r, MaxBody) }

// Valid checks the invariants.
func (r *Record) Valid() error {
	for _, check := range []func() error{r.validHead, r.validNumbers, r.validOwned, r.validFree, r.validRecent, r.validTexts} {
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
	case r.Kind != Self && r.Kind != Session:
		return fmt.Errorf("unknown kind %q", r.Kind)
	case !record.IsID(r.WriterAttempt):
		return fmt.Errorf("writer attempt %q is not an id", r.WriterAttempt)
	}
	if err := store.CheckName("resource", r.Resource); err != nil {
		return err
	}
	return CheckTTL(r.TTL())
}

func (r *Record) validNumbers() error {
	switch {
	case r.Counter < 1 || r.Counter > record.MaxNumber:
		return fmt.Errorf("counter %d is out of bounds", r.Counter)
	case r.Token > r.Counter:
		return fmt.Errorf("token %d is above the counter %d", r.Token, r.Counter)
	case r.Renewal > record.MaxNumber || r.Dropped > record.MaxNumber:
		return errors.New("a count is out of bounds")
	case r.Since < 0 || r.Since > record.MaxNumber:
		return fmt.Errorf("since %d is out of bounds", r.Since)
	case r.HoldMS < 0 || r.HoldMS > int64(MaxTTL/time.Millisecond):
		return fmt.Errorf("hold %d ms is out of bounds", r.HoldMS)
	}
	return nil
}

func (r *Record) validOwned() error {
	if r.Owner == nil {
		return nil
	}
	switch {
	case r.Token < 1:
		return errors.New("an owned record has token 0")
	case !record.IsID(r.HolderAttempt):
		return fmt.Errorf("holder attempt %q is not an id", r.HolderAttempt)
	case r.Ended != nil:
		return errors.New("an owned record says that it ended")
	case r.Successor != "" || r.HoldMS != 0:
		return errors.New("an owned record names a successor")
	}
	if l := r.Lock; l != nil && (l.Boot == "" || l.Tree != "none" && l.Tree != "pidns" && l.Tree != "cgroup" || (l.Tree == "cgroup") != (l.Cgroup != "")) {
		return errors.New("the lock is not complete")
	}
	return r.Owner.valid(r.Kind)
}

func (o Owner) valid(k Kind) error {
	switch {
	case !record.IsID(o.Incarnation):
		return fmt.Errorf("incarnation %q is not an id", o.Incarnation)
	case o.Term > record.MaxNumber:
		return fmt.Errorf("term %d is out of bounds", o.Term)
	case k == Self && o.Term != 0:
		return errors.New("a self owner has a term")
	case k == Session && (o.Term == 0 || o.Node == ""):
		return errors.New("a session owner lacks its node or term")
	case len(o.Node) > store.MaxName || !utf8.ValidString(o.Node):
		return errors.New("the owner's node is too long or not UTF-8")
	}
	return nil
}

func (r *Record) validFree() error {
	if r.Owner != nil {
		return nil
	}
	e := r.Ended
	switch {
	case e == nil:
		return errors.New("nobody owns the record and it does not say why")
	case r.HolderAttempt != "" || r.Lock != nil || r.Evidence != "":
		return errors.New("a record that nobody owns carries a holder's fields")
	case !knownHow(e.How):
		return fmt.Errorf("unknown end %q", e.How)
	case e.At < 0 || e.At > record.MaxNumber:
		return errors.New("the time of the end is out of bounds")
	case (e.How == HowForced || e.How == HowRevoked) != (e.SupersededTTLMS != 0):
		return errors.New("exactly a forced end names a superseded TTL")
	case (r.Successor != "") != (r.HoldMS != 0):
		return errors.New("a successor needs a hold, and a hold a successor")
	case e.SupersededTTLMS != 0:
		return CheckTTL(time.Duration(e.SupersededTTLMS) * time.Millisecond)
	}
	return nil
}

func knownHow(how string) bool {
	switch how {
	case HowReleased, HowObserved, HowProven, HowStoreClock, HowForced, HowVouched, HowRevoked:
		return true
	}
	return false
}

func (r *Record) validRecent() error {
	if len(r.Recent) > RecentMost {
		return fmt.Errorf("it carries %d past tenures", len(r.Recent))
	}
	last := uint64(0)
	for _, t := range r.Recent {
		if err := t.Valid(); err != nil {
			return err
		}
		if t.Token <= last || t.Token > r.Token {
			return fmt.Errorf("the past token %d is out of order", t.Token)
		}
		last = t.Token
	}
	return nil
}

// Valid checks one past tenure.
func (t Tenure) Valid() error {
	switch {
	case t.Token < 1 || t.Token > record.MaxNumber:
		return fmt.Errorf("a past token %d is out of bounds", t.Token)
	case !record.IsID(t.Owner.Incarnation) || t.Owner.Term > record.MaxNumber || len(t.Owner.Node) > store.MaxName:
		return errors.New("a past owner is not complete")
	case !knownHow(t.How):
		return fmt.Errorf("a past tenure ended by %q", t.How)
	case t.Since < 0 || t.Since > record.MaxNumber || t.Until < 0 || t.Until > record.MaxNumber:
		return errors.New("a time of a past tenure is out of bounds")
	case encodedLen(t.Why) > MaxWhy || encodedLen(t.By) > MaxWhy:
		return errors.New("a text of a past tenure is too long")
	}
	return nil
}

func (r *Record) validTexts() error {
	switch {
	case encodedLen(r.Note) > MaxNote:
		return fmt.Errorf("the note has more than %d bytes", MaxNote)
	case len(r.Evidence) > MaxEvidence:
		return fmt.Errorf("the evidence has more than %d bytes", MaxEvidence)
	case len(r.Successor) > store.MaxName, len(r.ClockInstance) > MaxWhy, len(r.SecretHash) > MaxWhy, len(r.MAC) > MaxWhy:
		return errors.New("a text is too long")
	case r.Ended != nil && (encodedLen(r.Ended.Why) > MaxWhy || encodedLen(r.Ended.By) > MaxWhy):
		return errors.New("the reason of the end is too long")
	case !utf8.ValidString(r.Note) || !utf8.ValidString(r.Successor) || !utf8.ValidString(r.Evidence):
		return errors.New("a text is not UTF-8")
	}
	return nil
}

// CheckTTL returns an error unless ttl is whole milliseconds from 100 ms to
// 24 h: others are refused, never rounded (DL5).
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL || ttl%time.Millisecond != 0 {
		return store.Errorf(store.ErrInvalid, "", "check TTL", "", "a TTL is whole milliseconds from %v to %v, not %v", MinTTL, MaxTTL, ttl)
	}
	return nil
}

// CheckNote returns an error unless note is UTF-8 of at most 1 KiB encoded.
func CheckNote(note string) error {
	if !utf8.ValidString(note) {
		return store.Errorf(store.ErrInvalid, "", "check note", "", "the note is not valid UTF-8")
	}
	if n := encodedLen(note); n > MaxNote {
		return store.Errorf(store.ErrInvalid, "", "check note", "", "the note has %d bytes encoded, at most %d are allowed", n, MaxNote)
	}
	return nil
}

// CheckWhy returns an error unless text (a reason, named by what) is UTF-8 of
// at most 256 bytes.
func CheckWhy(what, text string) error {
	if n := encodedLen(text); !utf8.ValidString(text) || n > MaxWhy {
		return store.Errorf(store.ErrInvalid, "", "check "+what, "", "the %s has %d bytes encoded; at most %d bytes of UTF-8 are allowed", what, n, MaxWhy)
	}
	return nil
}
