package identity

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// An incarnation is over by its certificate, its release, or a higher term of
// the head where the caller names its own; what nobody tells of is missing, never
// over; evidence by force waits.
//
// SPEC PL5 LS8 LS11
func TestJudge(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	f := forms()
	a, b := first(), f["observed"]
	c := next(b, idC)
	old := b.Certificate // idA -> idB
	raisedByForce := f["after-force"]
	vouched := next(f["vouched"], idB)
	for what, x := range map[string]struct {
		o      Owner
		head   *Record
		sealed *Certificate
		want   Verdict
		err    error
	}{
		"the owner":                       {Owner{idA, 1}, a, nil, Verdict{State: Current}, nil},
		"the owner, term unknown":         {Owner{idA, 0}, a, nil, Verdict{State: Current}, nil},
		"the owner, other term":           {Owner{idA, 2}, a, nil, Verdict{}, store.ErrCorrupt},
		"no record":                       {Owner{idA, 1}, nil, nil, Verdict{}, nil},
		"released":                        {Owner{idA, 1}, f["released"], nil, Verdict{State: Over, How: "released"}, nil},
		"forced":                          {Owner{idB, 2}, f["forced"], nil, Verdict{State: Over, How: "forced", Wait: ttl}, nil},
		"vouched":                         {Owner{idA, 1}, f["vouched"], nil, Verdict{State: Over, How: "vouched", Wait: ttl}, nil},
		"a revoker":                       {Owner{idR, 2}, f["revoker"], nil, Verdict{State: Over, How: "released"}, nil},
		"embedded":                        {Owner{idA, 1}, b, nil, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"embedded and sealed":             {Owner{idA, 0}, b, old, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"sealed":                          {Owner{idA, 0}, c, old, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"sealed differently":              {Owner{idA, 1}, b, f["after-release"].Certificate, Verdict{}, store.ErrCorrupt},
		"folded":                          {Owner{idA, 1}, c, nil, Verdict{State: Over, Folded: true}, nil},
		"folded, term unknown":            {Owner{idA, 0}, c, nil, Verdict{State: Missing}, nil},
		"by a vouch":                      {Owner{idA, 1}, vouched, nil, Verdict{State: Over, How: "vouched", Wait: ttl, Certificate: vouched.Certificate}, nil},
		"folded below force":              {Owner{idA, 1}, raisedByForce, nil, Verdict{State: Over, Folded: true, Wait: ttl}, nil},
		"folded at the forced term":       {Owner{idR, 3}, raisedByForce, nil, Verdict{State: Over, Folded: true}, nil},
		"by force":                        {Owner{idB, 2}, raisedByForce, nil, Verdict{State: Over, How: "forced", Wait: ttl, Certificate: raisedByForce.Certificate}, nil},
		"below force, but sealed as seen": {Owner{idA, 1}, raisedByForce, old, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"never seen":                      {Owner{idC, 0}, b, nil, Verdict{State: Missing}, nil},
		"of a term to come":               {Owner{idC, 3}, b, nil, Verdict{State: Missing}, nil},
		"of a reserved term":              {Owner{idC, 3}, f["raised"], nil, Verdict{State: Missing}, nil},
		"of the owner's term":             {Owner{idC, 2}, b, nil, Verdict{}, store.ErrCorrupt},
		"of the released one's term":      {Owner{idC, 1}, f["released"], nil, Verdict{}, store.ErrCorrupt},
		"another's certificate":           {Owner{idA, 1}, c, c.Certificate, Verdict{}, store.ErrInvalid},
		"certificate of another term":     {Owner{idA, 7}, b, nil, Verdict{}, store.ErrCorrupt},
		"a head read before":              {Owner{idA, 1}, a, old, Verdict{State: Behind, Certificate: old}, nil},
		"a successor of the same term":    {Owner{idA, 1}, next(a, idC), old, Verdict{}, store.ErrCorrupt},
	} {
		got, err := Judge(x.o, x.head, x.sealed)
		if got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	back := *c
	back.Incarnation = idA // it came back from the dead
	if _, err := Judge(Owner{idA, 1}, &back, old); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("an incarnation that came back: %v", err)
	}
}

// A cited certificate counts if what is stored equals it, or if the head went
// beyond it; never against its own head.
//
// SPEC PL7 PL5
func TestVerifyCertificate(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	b := next(first(), idB)
	c := next(b, idC)
	old := b.Certificate
	byForce := next(forced(first(), false), idB).Certificate
	other := *old
	other.At++
	sealedHead := b.DropCertificate(try1, sealed(b))
	for what, x := range map[string]struct {
		c, stored *Certificate
		head      *Record
		want      Verdict
		err       error
	}{
		"embedded":            {old, nil, b, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"stored":              {old, old, sealedHead, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"stored, long ago":    {old, old, c, Verdict{State: Over, How: "observed", Certificate: old}, nil},
		"folded":              {old, nil, c, Verdict{State: Over, How: "observed", Certificate: old, Folded: true}, nil},
		"folded, by force":    {byForce, nil, next(next(forced(first(), false), idB), idC), Verdict{State: Over, How: "forced", Certificate: byForce, Folded: true, Wait: ttl}, nil},
		"forged how":          {old, nil, next(next(forced(first(), false), idB), idC), Verdict{State: Over, How: "observed", Certificate: old, Folded: true, Wait: ttl}, nil},
		"gone too early":      {old, nil, sealedHead, Verdict{}, nil},
		"another is stored":   {&other, old, c, Verdict{}, store.ErrCorrupt},
		"another is embedded": {&other, nil, b, Verdict{}, store.ErrCorrupt},
		"head of before":      {old, old, first(), Verdict{State: Behind, Certificate: old}, nil},
		"other successor":     {old, old, next(first(), idC), Verdict{}, store.ErrCorrupt},
		"no head":             {old, old, nil, Verdict{}, store.ErrCorrupt},
	} {
		got, err := VerifyCertificate(x.c, x.stored, x.head)
		if got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	bad := *old
	bad.Successor.Term++
	if _, err := VerifyCertificate(&bad, nil, c); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a certificate that contradicts itself: %v", err)
	}
	low := *sealedHead
	low.Sequence = 1
	if _, err := VerifyCertificate(old, old, &low); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a head that went back: %v", err)
	}
}

// Current is who the head names, with the evidence of its term, in a head that
// is read again after the evidence.
//
// SPEC PL7 PL4
func TestVerifyCurrent(t *testing.T) {
	t.Parallel()
	a := first()
	b := next(a, idB)
	c := next(b, idC)
	s := b.DropCertificate(try1, sealed(b))
	renewed := must(s.Renew(owner(s), Renewal{Attempt: try1}))
	other := *b.Certificate
	other.At++
	for what, x := range map[string]struct {
		o        Owner
		head     *Record
		evidence *Certificate
		again    *Record
		want     bool
		err      error
	}{
		"first term":           {Owner{idA, 1}, a, nil, a, true, nil},
		"any term":             {Owner{idA, 0}, a, nil, a, true, nil},
		"embedded":             {Owner{idB, 2}, b, nil, b, true, nil},
		"sealed":               {Owner{idB, 2}, s, b.Certificate, renewed, true, nil},
		"not sealed":           {Owner{idB, 2}, s, nil, s, false, store.ErrCorrupt},
		"other's evidence":     {Owner{idB, 2}, s, c.Certificate, s, false, store.ErrCorrupt},
		"earlier evidence":     {Owner{idC, 3}, c.DropCertificate(try1, sealed(c)), b.Certificate, c, false, store.ErrCorrupt},
		"sealed differently":   {Owner{idB, 2}, b, &other, b, false, store.ErrCorrupt},
		"another term":         {Owner{idB, 1}, b, nil, b, false, nil},
		"another incarnation":  {Owner{idA, 1}, b, nil, b, false, nil},
		"no record":            {Owner{idA, 1}, nil, nil, nil, false, nil},
		"released":             {Owner{idA, 1}, released(a), nil, released(a), false, nil},
		"a revoker":            {Owner{idR, 2}, fenced(a), nil, fenced(a), false, nil},
		"taken over meanwhile": {Owner{idB, 2}, b, nil, c, false, nil},
		"released meanwhile":   {Owner{idB, 2}, b, nil, released(b), false, nil},
		"vanished meanwhile":   {Owner{idA, 1}, a, nil, nil, false, store.ErrCorrupt},
		"went back":            {Owner{idB, 2}, renewed, b.Certificate, s, false, store.ErrCorrupt},
	} {
		got, err := VerifyCurrent(x.o, x.head, x.evidence, x.again)
		if got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: got %v, %v", what, got, err)
		}
	}
}

// A fence answers with the successor's certificate, takes a free name at once,
// observes a name that may be alive, and tells a renewal from missing evidence.
//
// SPEC PL6
func TestPlanFence(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	f := forms()
	a, b := first(), f["observed"]
	c := next(b, idC)
	seen := Observation{}.Observe(a, "v1", 0)
	unsealedForced := f["forced"] // carries idA -> idB
	renewedB := must(b.Renew(owner(b), Renewal{Attempt: try1}))
	for what, x := range map[string]struct {
		target string
		head   *Record
		sealed *Certificate
		seen   Observation
		want   Plan
	}{
		"alive perhaps":          {idA, a, nil, Observation{}, Plan{Step: ObserveThenTake, Wait: ttl}},
		"alive, unsealed":        {idB, b, nil, Observation{}, Plan{Step: ObserveThenTake, Wait: ttl, Seal: b.Certificate}},
		"observed":               {idA, a, nil, seen, Plan{Step: ObserveThenTake, Wait: ttl}},
		"renewed meanwhile":      {idA, f["renewed"], nil, seen, Plan{Step: Changed}},
		"only jumped meanwhile":  {idA, must(a.Jump(try1, 9)), nil, seen, Plan{Step: ObserveThenTake, Wait: ttl}},
		"another was observed":   {idB, renewedB, nil, seen, Plan{Step: ObserveThenTake, Wait: ttl, Seal: b.Certificate}},
		"released meanwhile":     {idA, f["released"], nil, seen, Plan{Step: TakeReleased}},
		"released":               {idA, f["released"], nil, Observation{}, Plan{Step: TakeReleased}},
		"vouched":                {idA, f["vouched"], nil, Observation{}, Plan{Step: TakeReleased}},
		"forced":                 {idB, unsealedForced, nil, Observation{}, Plan{Step: ObserveThenTake, Wait: ttl, Seal: b.Certificate}},
		"a revoker":              {idR, f["revoker"], nil, Observation{}, Plan{Step: TakeReleased, Seal: f["revoker"].Certificate}},
		"won, not sealed":        {idA, b, nil, Observation{}, Plan{Step: AlreadyOver, Certificate: b.Certificate, Seal: b.Certificate}},
		"won":                    {idA, c, b.Certificate, Observation{}, Plan{Step: AlreadyOver, Certificate: b.Certificate, Seal: c.Certificate}},
		"won during observation": {idA, b, nil, seen, Plan{Step: AlreadyOver, Certificate: b.Certificate, Seal: b.Certificate}},
		"won by force": {idB, f["after-force"], nil, Observation{},
			Plan{Step: AlreadyOver, Wait: ttl, Certificate: f["after-force"].Certificate, Seal: f["after-force"].Certificate}},
		"never seen":      {idC, a, nil, Observation{}, Plan{Step: MissingEvidence}},
		"folded away":     {idA, c, nil, Observation{}, Plan{Step: MissingEvidence}},
		"no record":       {idA, nil, nil, Observation{}, Plan{Step: MissingEvidence}},
		"head too early":  {idA, a, b.Certificate, Observation{}, Plan{Step: ReadAgain}},
		"head of a fence": {idA, f["revoker"], nil, Observation{}, Plan{Step: AlreadyOver, Certificate: f["revoker"].Certificate, Seal: f["revoker"].Certificate}},
	} {
		got, err := PlanFence(x.target, x.head, x.sealed, x.seen)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got.Step != x.want.Step || got.Wait != x.want.Wait || !got.Certificate.Equal(x.want.Certificate) || !got.Seal.Equal(x.want.Seal) {
			t.Errorf("%s: got %+v, want %+v", what, got, x.want)
		}
	}
	if need := (Plan{Step: ObserveThenTake, Wait: ttl}).Need(0.01, time.Second); need != lease.Stretch(ttl, 0.01)+time.Second {
		t.Errorf("a fence needs %v", need)
	}
	if need := (Plan{Step: AlreadyOver, Wait: ttl}).Need(0.01, time.Second); need != time.Second {
		t.Errorf("an answer needs %v", need)
	}
	if _, err := Fence(b, idB, idR, ripe(unsealedForced), sealed(b), now0); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a fence on the ground of another state: %v", err)
	}
	if _, err := Fence(b, idA, idR, ripe(b), sealed(b), now0); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a fence of somebody else: %v", err)
	}
}

// What is folded is what the head is evidence for: never the present term, and
// no force that the head forgot.
//
// SPEC PL5
func TestFoldable(t *testing.T) {
	t.Parallel()
	b := next(first(), idB)
	c := next(b, idC)
	forgotten := next(c, idR)
	forced := next(forced(first(), false), idB)
	remembered := next(forced, idC)
	for what, x := range map[string]struct {
		c    *Certificate
		head *Record
		want bool
	}{
		"of an earlier term": {b.Certificate, c, true},
		"of this term":       {b.Certificate, b, false},
		"of this name":       {c.Certificate, released(c), false},
		"by force":           {forced.Certificate, remembered, true},
		"by forgotten force": {forced.Certificate, forgotten, false},
	} {
		if got := Foldable(x.c, x.head); got != x.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
