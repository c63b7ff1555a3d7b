package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// The first owner has term 1 and sequence 1, or a term above a raised floor; a
// renewal raises the sequence alone, and only the exact owner renews.
//
// SPEC PL1 LS12
func TestFirstAndRenew(t *testing.T) {
	t.Parallel()
	a := first()
	if a.Term != 1 || a.Sequence != 1 || a.Counter != 1 || a.Expires != now0+15000 {
		t.Errorf("first: %+v", a)
	}
	if r := forms()["above-the-floor"]; r.Term != 501 || r.Sequence != 1 || r.FirstTerm != 501 || r.Valid() != nil {
		t.Errorf("above a floor of 500: %+v", r)
	}
	if _, err := First(claim(idA), record.MaxNumber); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("above the last term: %v", err)
	}
	r := must(a.Renew(owner(a), Renewal{Attempt: try1, NowMS: now0 + 3000}))
	if r.Term != 1 || r.Sequence != 2 || r.Counter != 1 || r.TTLMS != a.TTLMS || r.WriterAttempt != try1 || r.HolderAttempt != try1 || r.Since != a.Since {
		t.Errorf("renewed: %+v", r)
	}
	f := forms()
	for what, x := range map[string]struct {
		r    *Record
		o    Owner
		want error
	}{
		"another incarnation": {a, Owner{idB, 1}, store.ErrConflict},
		"another term":        {a, Owner{idA, 2}, store.ErrConflict},
		"after a release":     {f["released"], Owner{idA, 1}, store.ErrConflict},
		"after a force":       {f["vouched"], Owner{idA, 1}, store.ErrConflict},
		"after a takeover":    {f["observed"], Owner{idA, 1}, store.ErrConflict},
		"after a jump":        {f["raised"], Owner{idB, 2}, store.ErrConflict},
		"a revoker":           {f["revoker"], Owner{idR, 2}, store.ErrInvalid},
	} {
		if _, err := x.r.Renew(x.o, Renewal{Attempt: try1}); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
	last := first()
	last.Sequence = record.MaxNumber
	if _, err := last.Renew(owner(last), Renewal{Attempt: try1}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("beyond the last sequence: %v", err)
	}
}

// Claims are refused before anything happens.
//
// SPEC ST11 DL5
func TestClaimIsChecked(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(c *Claim){
		"node":        func(c *Claim) { c.Node = "" },
		"incarnation": func(c *Claim) { c.Incarnation = "A" },
		"TTL":         func(c *Claim) { c.TTL = time.Millisecond },
		"note":        func(c *Claim) { c.Note = "\xff" },
	} {
		c := claim(idB)
		change(&c)
		if _, err := First(c, 0); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("first with a bad %s: %v", what, err)
		}
		if _, err := Takeover(released(first()), c, ripe(released(first())), Sealed{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("takeover with a bad %s: %v", what, err)
		}
	}
}

// A takeover needs a ground for this very state and the proof that what it finds
// is sealed; it embeds the finished certificate and never comes twice from one
// incarnation.
//
// SPEC PL2 PL3 PL4
func TestTakeover(t *testing.T) {
	t.Parallel()
	a := first()
	b := next(must(a.Jump(try1, 10)), idB)
	if b.Term != 11 || b.Counter != 11 || b.Sequence != 2 || b.Certificate.Predecessor.Counter != 10 || b.Certificate.How != lease.HowObserved {
		t.Errorf("taken over: %+v", b)
	}
	seal := b.Certificate
	refused := func(what string, want error, r *Record, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", what, r, err, want)
		}
	}
	r, err := Takeover(b, claim(idC), ripe(b), Sealed{})
	refused("without a seal", store.ErrInvalid, r, err)
	r, err = Takeover(b, claim(idC), ripe(b), sealed(next(released(a), idB)))
	refused("with another's seal", store.ErrInvalid, r, err)
	r, err = Takeover(b, claim(idC), Ground{}, sealed(b))
	refused("without a ground", store.ErrConflict, r, err)
	renewed := must(must(a.Jump(try1, 10)).Jump(try2, 11))
	r, err = Takeover(renewed, claim(idC), ripe(a), Sealed{})
	refused("on the ground of another state", store.ErrConflict, r, err)
	r, err = Takeover(b, claim(idB), ripe(b), sealed(b))
	refused("by the owner itself", store.ErrInvalid, r, err)
	r, err = Takeover(released(b), claim(idB), ripe(released(b)), sealed(b))
	refused("by the last owner", store.ErrInvalid, r, err)
	r, err = Takeover(b, claim(idA), ripe(b), sealed(b))
	refused("by the one before", store.ErrInvalid, r, err)
	other := claim(idC)
	other.Node = "db-2"
	r, err = Takeover(a, other, ripe(a), Sealed{})
	refused("for another node", store.ErrInvalid, r, err)
	last := first()
	g := ripe(last)
	last.Counter = record.MaxNumber
	r, err = Takeover(last, claim(idB), g, Sealed{})
	refused("beyond the last term", store.ErrInvalid, r, err)
	if c := next(b, idC); c.Certificate.Predecessor.owner() != owner(b) || seal != b.Certificate || c.FirstTerm != 1 {
		t.Errorf("the next one: %+v", c)
	}
}

// A seal needs the exact bytes under both names: a missing one is written, the
// same again is fine, another is corruption.
//
// SPEC PL3 PL4
func TestSeal(t *testing.T) {
	t.Parallel()
	b := next(first(), idB)
	c := b.Certificate
	body := must(c.Encode())
	other := must(next(released(first()), idB).Certificate.Encode())
	for what, x := range map[string]struct {
		bodies [2][]byte
		want   error
	}{
		"both":            {[2][]byte{body, body}, nil},
		"only the first":  {[2][]byte{body, nil}, store.ErrNotFound},
		"only the second": {[2][]byte{nil, body}, store.ErrNotFound},
		"another first":   {[2][]byte{other, body}, store.ErrCorrupt},
		"another second":  {[2][]byte{body, other}, store.ErrCorrupt},
	} {
		s, err := Seal(c, x.bodies)
		if !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
		if dropped := b.DropCertificate(try1, s) != nil; dropped != (x.want == nil) {
			t.Errorf("%s: dropped %v", what, dropped)
		}
	}
	want := [2]string{"predecessor-" + idA, "successor-" + idB + "-0000000000000002"}
	if c.Names() != want {
		t.Errorf("names %v", c.Names())
	}
	d := b.DropCertificate(try1, sealed(b))
	if d.SealedTerm != 2 || d.HolderAttempt != idB || d.WriterAttempt != try1 || d.Sequence != b.Sequence || d.Valid() != nil {
		t.Errorf("dropped: %+v, %v", d, d.Valid())
	}
	for what, r := range map[string]*Record{
		"renewal":    must(b.Renew(owner(b), Renewal{Attempt: try1})),
		"jump":       must(b.Jump(try1, 99)),
		"revocation": must(b.Revoke(try1, owner(b), Revocation{"x", 1})),
		"release":    released(b),
		"force":      forced(b, true),
	} {
		if r.Certificate != c || r.Valid() != nil {
			t.Errorf("a %s does not carry the certificate on (%v)", what, r.Valid())
		}
	}
}

// How long each kind of record must be observed, and how its owner then fell.
//
// SPEC PL2 PL6 LS11 DL5
// CASE B48
func TestWaitAndGround(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	long := first()
	long.TTLMS = 3600_000
	full := must(Fence(forced(long, false), idA, idR, ripe(forced(long, false)), Sealed{}, now0))
	short, cert := *full, *full.Certificate // a revoker with a shorter TTL of its own
	short.TTLMS, cert.Successor.TTLMS, short.Certificate = 1000, 1000, &cert
	for what, x := range map[string]struct {
		r    *Record
		wait time.Duration
		how  string
	}{
		"held":                          {first(), ttl, lease.HowObserved},
		"raised":                        {forms()["raised"], ttl, lease.HowObserved},
		"released":                      {forms()["released"], 0, lease.HowReleased},
		"forced":                        {forms()["forced"], ttl, lease.HowForced},
		"vouched":                       {forms()["vouched"], 0, lease.HowVouched},
		"revoker":                       {forms()["revoker"], 0, lease.HowReleased},
		"revoker of a released name":    {fenced(forms()["released"]), 0, lease.HowReleased},
		"revoker after a vouch":         {fenced(forms()["vouched"]), 0, lease.HowReleased},
		"revoker by force":              {&short, time.Hour, lease.HowReleased},
		"revoker by force, then forced": {must(short.Force(try2, owner(&short), Operator{Why: "x"})), time.Hour, lease.HowForced},
	} {
		if err := x.r.Valid(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if d, possible := x.r.Wait(); d != x.wait || !possible {
			t.Errorf("%s: wait %v, want %v", what, d, x.wait)
		}
		o := Observation{}.Observe(x.r, "v", 7*time.Second)
		ripeAt := 7*time.Second + x.wait + x.wait/100
		if x.wait > 0 {
			_, left, err := o.Ground(x.r, "v", ripeAt, 0.01)
			if err != nil || left <= 0 || left > time.Microsecond {
				t.Errorf("%s: an observation that is one instant short has %v left, %v", what, left, err)
			}
			ripeAt++
		}
		g, left, err := o.Ground(x.r, "v", ripeAt, 0.01)
		if err != nil || left != 0 || g.How() != x.how || g.Version() != "v" {
			t.Errorf("%s: %q %v %v, want %q", what, g.How(), left, err, x.how)
		}
	}
	end := first()
	end.Counter = record.MaxNumber
	if _, possible := end.Wait(); possible {
		t.Error("a name without a term left can be taken")
	}
	if _, _, err := (Observation{}).Ground(end, "v", 0, 0.01); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a name without a term left: %v", err)
	}
	if _, _, err := (Observation{}).Ground(nil, "", 0, 0.01); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a record that vanished: %v", err)
	}
}

// An observation is of one exact state; whatever changes starts it anew.
//
// SPEC PL2
func TestObservation(t *testing.T) {
	t.Parallel()
	a := first()
	o := Observation{}.Observe(a, "v1", 5*time.Second)
	if o.Observe(a, "v1", 9*time.Second) != o {
		t.Error("the same state restarted the observation")
	}
	renewed := must(a.Renew(owner(a), Renewal{Attempt: try1}))
	for what, next := range map[string]Observation{
		"a renewal":         o.Observe(renewed, "v1", 9*time.Second),
		"another version":   o.Observe(a, "v2", 9*time.Second),
		"another owner":     o.Observe(forms()["observed"], "v1", 9*time.Second),
		"a release":         o.Observe(forms()["released"], "v1", 9*time.Second),
		"a clock that fell": o.Observe(a, "v1", 4*time.Second),
	} {
		if next.From == o.From {
			t.Errorf("%s did not restart the observation", what)
		}
	}
	if _, left, _ := o.Ground(renewed, "v2", time.Hour, 0.01); left < a.TTL() {
		t.Errorf("after a renewal only %v are left", left)
	}
}

// A proof of death needs the lock in the record, the store's clock its own
// instance and the whole silence; neither ends a revoker or a free name.
//
// SPEC LS14 LS3
func TestProvenAndStoreClock(t *testing.T) {
	t.Parallel()
	f := full()
	if g, err := Proven(f, "v"); err != nil || g.How() != lease.HowProven {
		t.Errorf("%v %v", g, err)
	}
	if r := must(Takeover(f, claim(idA), must(Proven(f, "v")), sealed(f))); r.Certificate.How != lease.HowProven || r.Valid() != nil {
		t.Errorf("%+v", r)
	}
	const need = 15*time.Second + 150*time.Millisecond + 1 + 1500*time.Millisecond
	clock := func(r *Record, instance string, silent time.Duration) error {
		g, err := StoreClock(r, "v", instance, silent, 1500*time.Millisecond, 0.01)
		if err == nil && g.How() != lease.HowStoreClock {
			t.Errorf("how %q", g.How())
		}
		return err
	}
	if err := clock(f, "pg-1", need); err != nil {
		t.Error(err)
	}
	_, noLock := Proven(first(), "v")
	_, revoker := Proven(forms()["revoker"], "v")
	_, free := Proven(forms()["released"], "v")
	for what, err := range map[string]error{
		"no lock": noLock, "a revoker": revoker, "a free name": free,
		"too short": clock(f, "pg-1", need-1), "other clock": clock(f, "pg-2", time.Hour), "no clock": clock(first(), "", time.Hour),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A force ends exactly what it names, raises the counter, leaves its trace for
// ever, and never shortens a wait that is pending.
//
// SPEC LS11 PL5
func TestForce(t *testing.T) {
	t.Parallel()
	b := next(first(), idB)
	f := forced(b, false)
	if f.Held() || f.Counter != 3 || f.Term != 2 || f.Sequence != b.Sequence || *f.Forced != (Forced{3, 15000}) || f.Ended.Why != "host <on> fire" {
		t.Errorf("forced: %+v", f)
	}
	c := next(f, idC)
	if c.Term != 4 || c.Certificate.How != lease.HowForced || c.Certificate.SupersededTTLMS != 15000 || *c.Forced != *f.Forced {
		t.Errorf("after the force: %+v", c)
	}
	c.TTLMS, c.Certificate.Successor.TTLMS = 1000, 1000
	if again := forced(c, true); *again.Forced != (Forced{5, 15000}) || again.Valid() != nil {
		t.Errorf("a second force forgot the first one's TTL: %+v", again.Forced)
	}
	end := first()
	end.Counter = record.MaxNumber - 1
	for what, x := range map[string]struct {
		r    *Record
		o    Owner
		by   Operator
		want error
	}{
		"another incarnation": {b, Owner{idA, 2}, Operator{Why: "x"}, store.ErrConflict},
		"another term":        {b, Owner{idB, 1}, Operator{Why: "x"}, store.ErrConflict},
		"a free name":         {f, Owner{idB, 2}, Operator{Why: "x"}, store.ErrConflict},
		"no reason":           {b, Owner{idB, 2}, Operator{}, store.ErrInvalid},
		"a bad reason":        {b, Owner{idB, 2}, Operator{Why: "\xff"}, store.ErrInvalid},
		"no term left":        {end, Owner{idA, 1}, Operator{Why: "x"}, store.ErrInvalid},
	} {
		if _, err := x.r.Force(try1, x.o, x.by); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
}

// A release frees the name at once, keeps counter and sequence, and only the
// exact owner releases; the next owner's certificate says so.
//
// SPEC PL8 PL1
func TestRelease(t *testing.T) {
	t.Parallel()
	b := must(next(first(), idB).Jump(try1, 7)) // also a raised identity may be released
	r := must(b.Release(owner(b), Renewal{Attempt: try2, NowMS: now0 + 1, Sealed: sealed(b)}))
	if r.Held() || r.Counter != 7 || r.Term != 2 || r.Sequence != 2 || r.SealedTerm != 2 || r.Valid() != nil {
		t.Errorf("released: %+v, %v", r, r.Valid())
	}
	if c := next(r, idC); c.Term != 8 || c.Certificate.How != lease.HowReleased || c.Certificate.Predecessor.Incarnation != idB {
		t.Errorf("the next one: %+v", c)
	}
	if _, err := b.Release(Owner{idA, 2}, Renewal{Attempt: try2}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("by another: %v", err)
	}
	f := forms()["revoker-forced"]
	if _, err := f.Release(owner(f), Renewal{Attempt: try2}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("the wait after a force was given up: %v", err)
	}
	if v := forms()["revoker"]; released(v).Valid() != nil {
		t.Error("a name cannot be retired")
	}
}

// A jump and a revocation are foreign writes: the owner's attempt, sequence and
// term stay. The owner goes on after a revocation and ends after a jump.
//
// SPEC LS11 LS12 ST9
func TestForeignWrites(t *testing.T) {
	t.Parallel()
	b := next(first(), idB)
	mine := func(id string) bool { return id == idB || id == try1 }
	v := Revocation{"reports", 4}
	told := must(b.Revoke(try2, owner(b), v))
	if told.Sequence != b.Sequence || told.HolderAttempt != idB || told.WriterAttempt != try2 || Adoptable(b, told, mine) != Adopted {
		t.Errorf("a revocation: %+v", told)
	}
	if again := must(told.Revoke(try2, owner(b), v)); again != nil {
		t.Error("the same revocation twice")
	}
	if b.Revocations != nil {
		t.Error("a decision changed its input")
	}
	acked := must(told.Renew(owner(b), Renewal{Attempt: try1, Acknowledged: []Revocation{{"other", 4}, v}}))
	kept := must(told.Renew(owner(b), Renewal{Attempt: try1, Acknowledged: []Revocation{{"reports", 5}}}))
	if acked.Revocations != nil || len(kept.Revocations) != 1 || acked.Valid() != nil {
		t.Errorf("acknowledged: %v, kept: %v", acked.Revocations, kept.Revocations)
	}
	if len(told.Revocations) != 1 || told.Revocations[0] != v {
		t.Error("a renewal changed its input")
	}
	signed := *b
	signed.MAC = "hmac:00"
	if r := must(signed.Renew(owner(b), Renewal{Attempt: try1})); r.MAC != "" {
		t.Error("a record carries the MAC of other bytes")
	}
	for what, r := range map[string]*Record{"a free name": forms()["released"], "a revoker": forms()["revoker"]} {
		if _, err := r.Revoke(try2, r.Last(), v); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a revocation in %s: %v", what, err)
		}
	}
	if _, err := b.Revoke(try2, owner(b), Revocation{"reports", 0}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a revocation of token 0: %v", err)
	}
	jumped := must(told.Jump(try2, 50))
	if jumped.Counter != 50 || jumped.Term != 2 || jumped.Sequence != b.Sequence || Adoptable(b, jumped, mine) != Raised {
		t.Errorf("a jump: %+v", jumped)
	}
	if r := must(b.Jump(try2, 2)); r != nil {
		t.Error("a jump that raises nothing")
	}
	if _, err := b.Jump(try2, record.MaxNumber); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a jump to the end: %v", err)
	}
}

// What an owner adopts: its own ownership, by its own attempt, with no count
// that fell.
//
// SPEC ST9
func TestAdoptable(t *testing.T) {
	t.Parallel()
	held := must(next(first(), idB).Renew(Owner{idB, 2}, Renewal{Attempt: try1}))
	mine := func(id string) bool { return id == try1 || id == try2 }
	ahead := must(held.Renew(owner(held), Renewal{Attempt: try2, Sealed: sealed(held)}))
	if Adoptable(held, held, mine) != Adopted || Adoptable(held, ahead, mine) != Adopted {
		t.Error("its own renewal, whose answer was lost, is not adopted")
	}
	for what, now := range map[string]*Record{
		"a foreign attempt": must(held.Renew(owner(held), Renewal{Attempt: idR})),
		"a fallen sequence": forms()["observed"],
		"another owner":     next(held, idC),
		"a release":         released(held),
		"a fence":           fenced(held),
	} {
		if Adoptable(held, now, func(id string) bool { return mine(id) || id == idB && what == "a fallen sequence" }) != Lost {
			t.Errorf("%s was adopted", what)
		}
	}
	for what, change := range map[string]func(r *Record){
		"counter":     func(r *Record) { r.Counter, r.Term = 1, 2 },
		"TTL":         func(r *Record) { r.TTLMS++ },
		"node":        func(r *Record) { r.Node = "db-2" },
		"first term":  func(r *Record) { r.FirstTerm++ },
		"term":        func(r *Record) { r.Term++ },
		"certificate": func(r *Record) { c := *r.Certificate; c.At++; r.Certificate = &c },
		"revoker":     func(r *Record) { r.Revoker = &Revoker{} },
	} {
		now := *held
		change(&now)
		if Adoptable(held, &now, mine) != Lost {
			t.Errorf("another %s was adopted", what)
		}
	}
	back := must(ahead.Renew(owner(ahead), Renewal{Attempt: try1}))
	back.SealedTerm, back.Certificate = 0, held.Certificate
	if Adoptable(ahead, back, mine) != Lost {
		t.Error("a certificate that came back was adopted")
	}
}
