package lease

import (
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Claim is what an acquirer wants to be written.
type Claim struct {
	Kind     Kind
	Resource string
	Owner    Owner
	TTL      time.Duration
	Note     string
	Lock     *Lock
	Attempt  string // fresh id of this write
	NowMS    int64  // wall clock, for people
	// ClockInstance names the store's clock, where it may decide (LS3).
	ClockInstance string
	// Evidence is cited where the lease is taken from a session that is over
	// (LS8); Why and By are what whoever ended that session said.
	Evidence, Why, By string
}

// Grant returns the record that makes c's owner the holder, at token
// max(counter, floor) + 1 (LS1, LS15). prev is nil for a name never held. how
// says on what evidence a held prev falls; it is empty for a free one.
func Grant(prev *Record, floor uint64, c Claim, how string) (*Record, error) {
	base := floor
	next := &Record{
		V: record.Level, Kind: c.Kind, Resource: c.Resource, Owner: &c.Owner,
		TTLMS: c.TTL.Milliseconds(), WriterAttempt: c.Attempt, HolderAttempt: c.Attempt,
		Note: c.Note, Since: c.NowMS, Lock: c.Lock, ClockInstance: c.ClockInstance, Evidence: c.Evidence,
	}
	if prev != nil {
		next.V = max(prev.V, record.Level) // no write lowers a record's level (ST15)
		base = max(base, prev.Counter)
		next.Recent, next.Dropped = prev.Recent, prev.Dropped
		if prev.Held() {
			next.Recent = append(clip(prev.Recent), prev.tenure(Ended{How: how, At: c.NowMS, Why: c.Why, By: c.endedBy(how)}))
		}
	}
	if base >= record.MaxNumber {
		return nil, store.Errorf(store.ErrInvalid, "", "acquire", c.Resource, "the counter is at its end, %d", uint64(record.MaxNumber))
	}
	next.Token, next.Counter = base+1, base+1
	return next.fit(), nil
}

// endedBy is who ended the tenure before c's: whoever said so, else the one who saw
// it. A session that left was ended by nobody else.
func (c Claim) endedBy(how string) string {
	switch {
	case c.By != "":
		return c.By
	case c.Evidence != "" && (how == HowReleased || how == HowForced || how == HowVouched):
		return ""
	}
	return c.Owner.Node
}

// Renew returns the holder's next sign of life.
func (r *Record) Renew(attempt string) *Record {
	next := r.copy()
	next.Renewal++
	next.WriterAttempt, next.HolderAttempt = attempt, attempt
	return next
}

// End returns r owned by nobody, its tenure put into the history. The counter
// stays: nothing that carries one is lost by a release (ST5).
func (r *Record) End(attempt string, e Ended) *Record {
	next := r.copy()
	next.Recent = append(next.Recent, r.tenure(e))
	next.Owner, next.Lock, next.HolderAttempt, next.Evidence, next.SecretHash, next.Note = nil, nil, "", "", "", ""
	next.WriterAttempt = attempt
	next.Ended = &e
	next.Successor, next.HoldMS = "", 0
	return next.fit()
}

// Theft is the end of a tenure by an operator.
type Theft struct {
	Token   uint64 // of the tenure that is meant
	Why, By string
	NowMS   int64
	// Vouch says that the operator knows the holder to be gone.
	Vouch bool
	// Told says, of a session's lease, that the revocation is durable in its
	// holder's identity, or that its session is over: a session renews no lease
	// that could be refused.
	Told bool
}

// Steal ends a tenure whether or not its holder lives (LS11). If it is vouched
// for, the next acquire is at once; else everyone first observes the record for
// the superseded TTL.
func (r *Record) Steal(attempt string, t Theft) (*Record, error) {
	switch {
	case !r.Held():
		return nil, store.Errorf(store.ErrConflict, "", "steal", r.Resource, "nobody holds it (last token %d)", r.Token)
	case r.Token != t.Token:
		return nil, store.Errorf(store.ErrConflict, "", "steal", r.Resource, "it is held with token %d, not %d", r.Token, t.Token)
	case r.Kind == Session && !t.Told:
		return nil, store.Errorf(store.ErrInvalid, "", "steal", r.Resource, "a session's lease is revoked in its holder's identity first")
	case r.Counter >= record.MaxNumber:
		return nil, store.Errorf(store.ErrInvalid, "", "steal", r.Resource, "the counter is at its end")
	}
	e := Ended{How: HowVouched, Why: t.Why, By: t.By, At: t.NowMS}
	switch {
	case t.Vouch:
	case r.Kind == Session:
		e.How, e.SupersededTTLMS = HowRevoked, r.TTLMS
	default:
		e.How, e.SupersededTTLMS = HowForced, r.TTLMS
	}
	next := r.End(attempt, e)
	next.Counter++
	return next, nil
}

// Jump raises the counter to at least above (LS12). It gives nothing to
// anybody: a holder keeps its token and its lease. nil means nothing to do.
func (r *Record) Jump(attempt string, above uint64) *Record {
	if r.Counter >= above {
		return nil
	}
	next := r.copy()
	next.Counter = above
	next.WriterAttempt = attempt // the holder's attempt stays: a foreign write (ST9)
	return next
}

// Forget drops past tenures up to token, which are kept elsewhere now.
func (r *Record) Forget(token uint64) *Record {
	next := r.copy()
	for len(next.Recent) > 0 && next.Recent[0].Token <= token {
		next.Recent = next.Recent[1:]
	}
	return next
}

// Adoptable reports whether the holder of held, which meets now in the store
// instead, may go on from it: the same owner and token, the holder's last
// attempt one of its own, and no count fell (ST9). It is so after a jump.
func Adoptable(held, now *Record, mine func(attempt string) bool) bool {
	return now.Held() && now.SameOwner(*held.Owner, held.Token) && mine(now.HolderAttempt) &&
		now.Counter >= held.Counter && now.Renewal+1 >= held.Renewal && now.TTLMS == held.TTLMS
}

// Released reports whether r's history says that the tenure of o at token was
// released, as it was meant to be.
func (r *Record) Released(o Owner, token uint64) bool {
	return r.EndedAs(token, func(t Tenure) bool { return t.Owner == o && t.How == HowReleased })
}

// EndedAs reports whether r's history tells of the tenure of token, and is says
// that this is how it ended. A nil record tells nothing.
func (r *Record) EndedAs(token uint64, is func(Tenure) bool) bool {
	if r == nil {
		return false
	}
	for _, t := range r.Recent {
		if t.Token == token {
			return is(t)
		}
	}
	return false
}

// tenure is r's present tenure, ended by e.
func (r *Record) tenure(e Ended) Tenure {
	return Tenure{Token: r.Token, Owner: *r.Owner, Since: r.Since, Until: e.At, How: e.How, Why: e.Why, By: e.By}
}

func (r *Record) copy() *Record {
	next := *r
	next.Recent = clip(r.Recent)
	return &next
}

func clip(t []Tenure) []Tenure { return append([]Tenure(nil), t...) }

// fit keeps the history within bounds: beyond 32 past tenures, or beyond the
// size of a record, the oldest go and are counted. History never blocks an
// acquire (LS13).
func (r *Record) fit() *Record {
	for len(r.Recent) > RecentMost || len(r.Recent) > 0 && r.mayBeTooLong() && record.Size(r) > MaxBody {
		r.Recent = r.Recent[1:]
		r.Dropped++
	}
	return r
}

// Watched reports whether some candidate must see this free record for a time
// before it may take the lease.
func (r *Record) Watched() bool {
	return !r.Held() && (r.Ended.SupersededTTLMS > 0 || r.Successor != "")
}

// Wait says how long a candidate must see this very record before it may take
// the lease: the TTL of a held self lease (LS2), the superseded TTL after a
// forced end (LS11), the hold of a hand-over to somebody else (LS10), 0 for a
// free one. possible is false where no observation helps (LS8).
func (r *Record) Wait(me string) (d time.Duration, possible bool) {
	switch {
	case r.Held() && r.Kind == Session:
		return 0, false
	case r.Held():
		return r.TTL(), true
	case r.Ended.SupersededTTLMS > 0:
		return time.Duration(r.Ended.SupersededTTLMS) * time.Millisecond, true
	case r.Successor != "" && r.Successor != me:
		return time.Duration(r.HoldMS) * time.Millisecond, true
	}
	return 0, true
}

// Observation is a candidate's own proof, on its own clock, that a record did
// not change. It is a value; a changed record starts a new one.
type Observation struct {
	Version store.Version
	Owner   string
	Token   uint64
	Renewal uint64
	From    time.Duration // boot clock, after the response that first showed it
}

// Observe continues o if r at v is what o saw, and begins anew at now (the
// boot clock after the response) otherwise.
func (o Observation) Observe(r *Record, v store.Version, now time.Duration) Observation {
	seen := Observation{Version: v, Token: r.Token, Renewal: r.Renewal, From: now}
	if r.Owner != nil {
		seen.Owner = r.Owner.Incarnation
	}
	if o.Version == v && o.Owner == seen.Owner && o.Token == seen.Token && o.Renewal == seen.Renewal && o.From <= now {
		return o
	}
	return seen
}

// RipeAt is the boot-clock instant from which the observed record may fall:
// need, stretched by the rate bound rho, after the observation began (DL5).
func (o Observation) RipeAt(need time.Duration, rho float64) time.Duration {
	return o.From + Stretch(need, rho)
}

// Stretch is d·(1+rho), rounded up.
func Stretch(d time.Duration, rho float64) time.Duration {
	return d + time.Duration(float64(d)*rho) + 1
}

// Timing are the durations of one lease (DL5).
type Timing struct {
	TTL     time.Duration
	Renew   time.Duration // interval between renewals
	Attempt time.Duration // limit of one store call
	Margin  time.Duration // taken off the TTL for clock rate and scheduling
	Stop    time.Duration // taken off again for work that must have ended by T
	Rho     float64       // bound on the difference of clock rates
}

// Defaults fills what is zero from the TTL: renew TTL/5, attempt 2·TTL/15,
// margin max(TTL/10, 10 ms).
func (t Timing) Defaults() Timing {
	if t.TTL == 0 {
		t.TTL = 15 * time.Second
	}
	if t.Renew == 0 {
		t.Renew = t.TTL / 5
	}
	if t.Attempt == 0 {
		t.Attempt = 2 * t.TTL / 15
	}
	if t.Margin == 0 {
		t.Margin = max(t.TTL/10, 10*time.Millisecond)
	}
	if t.Rho == 0 {
		t.Rho = 0.01
	}
	return t
}

// Check returns ErrInvalid, naming the number to change, unless two attempts
// fit between a renewal and the deadline (DL5).
func (t Timing) Check() error {
	if err := CheckTTL(t.TTL); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, "", "check timing", "", format, args...)
	}
	switch {
	case t.Renew <= 0 || t.Attempt <= 0 || t.Stop < 0:
		return bad("renew interval %v and attempt limit %v must be above 0, stop %v not below", t.Renew, t.Attempt, t.Stop)
	case t.Rho < 0 || t.Rho > 0.1:
		return bad("the clock rate bound is %v; give 0 to 0.1", t.Rho)
	case float64(t.Margin) < float64(t.TTL)*t.Rho || t.Margin < 10*time.Millisecond:
		return bad("the margin %v does not cover the clock rate bound %v of the TTL %v, or is below 10ms: raise the margin", t.Margin, t.Rho, t.TTL)
	}
	if have, need := t.TTL-t.Margin-t.Stop, t.Renew+2*t.Attempt; need >= have {
		what := "shorten the renew interval or the attempt limit, or raise the TTL"
		if t.Stop > 0 {
			what = fmt.Sprintf("shorten the stop time (the grace) to below %v, or raise the TTL", max(0, t.TTL-t.Margin-need))
		}
		return bad("renew %v + 2 x attempt %v = %v does not fit into TTL %v - margin %v - stop %v = %v: %s",
			t.Renew, t.Attempt, need, t.TTL, t.Margin, t.Stop, have, what)
	}
	return nil
}

// Life is how long after its first send a grant lasts (DL4).
func (t Timing) Life() time.Duration { return t.TTL - t.Margin }
