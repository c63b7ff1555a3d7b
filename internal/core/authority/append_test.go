package authority

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// log is a head and its objects, led by A and then by B.
func log(t *testing.T) (shelf, *Head) {
	t.Helper()
	s := shelf{}
	h := first()
	r := toys{chain: Checkpoint}
	for i, k := range []uint64{2, 4, 6, 8} {
		h = s.append(h, r, toy{Key: k, ID: 10 * k, Marked: k == 4, Binding: idC}, 10+2*i)
	}
	return s, taken(h, ownB, try(40))
}

// Every answer, for a proof that leads, for one that led, and for one that a later
// process of the same node has.
//
// SPEC LA4
func TestAnswers(t *testing.T) {
	t.Parallel()
	s, h := log(t)
	r := toys{chain: Checkpoint}
	trail := must(s.walk(h, Checkpoint))
	h = must(trail.Advance(h, h.Last(), try(41), 6, 4))
	trail = must(s.walk(h, Checkpoint))
	now, old := h.Last(), ownA.Proof(1)
	mine := func(id string) bool { return id == try(16) }
	for what, x := range map[string]struct {
		p      Proof
		b      toy
		mine   func(string) bool
		want   Answer
		winner uint64
	}{
		"new":                     {now, toy{Key: 9, ID: 90, Binding: idC}, nil, Admit, 0},
		"new, stale":              {old, toy{Key: 9, ID: 90, Binding: idC}, nil, Fenced, 0},
		"the same, stale":         {old, toy{Key: 8, ID: 80, Binding: idC}, nil, Unchanged, 8},
		"its own, stale":          {old, toy{Key: 8, ID: 80, Binding: idC}, mine, Created, 8},
		"the same, another proof": {now, toy{Key: 8, ID: 80, Binding: idC}, nil, Conflict, 8},
		"another":                 {now, toy{Key: 8, ID: 81, Binding: idC}, nil, Conflict, 8},
		"another, stale":          {old, toy{Key: 8, ID: 81, Binding: idC}, mine, Conflict, 8},
		"passed over":             {now, toy{Key: 7, ID: 70, Binding: idC}, nil, Conflict, 8},
		"passed over, stale":      {old, toy{Key: 7, ID: 70, Binding: idC}, nil, Conflict, 8},
		"an ID that is passed":    {now, toy{Key: 9, ID: 80, Binding: idC}, nil, Conflict, 8},
		"another deployment":      {now, toy{Key: 9, ID: 90, Binding: idA}, nil, Conflict, 8},
		"another state":           {now, toy{Key: 9, ID: 90, Binding: idC, Base: idA}, nil, Conflict, 8},
		"a mark below the floor":  {old, toy{Key: 4, ID: 40, Marked: true, Binding: idC}, nil, Unchanged, 4},
		"below the floor":         {now, toy{Key: 5, ID: 50, Binding: idC}, nil, BelowFloor, 0},
		"below the floor, stale":  {old, toy{Key: 5, ID: 50, Binding: idC}, nil, BelowFloor, 0},
		"below the horizon":       {old, toy{Key: 2, ID: 20, Binding: idC}, nil, BelowFloor, 0},
	} {
		p, err := Append(h, r, trail, Decision{Proof: x.p, Body: x.b.bytes(), Attempt: try(50), NowMS: now0, Mine: x.mine})
		if err != nil || p.Answer != x.want || p.Winner.Key != x.winner {
			t.Errorf("%s: %v (winner %d), %v; want %v (%d)", what, p.Answer, p.Winner.Key, err, x.want, x.winner)
		}
		if (p.Head != nil) != (x.want == Admit) {
			t.Errorf("%s: a head to write", what)
		}
	}
	p := must(Append(h, r, nil, Decision{Proof: now, Body: toy{Key: 8}.bytes(), Attempt: try(50)}))
	stale := must(Append(h, r, Follow(first(), Checkpoint, nil), Decision{Proof: now, Body: toy{Key: 8}.bytes(), Attempt: try(50)}))
	if p.Answer != Look || stale.Answer != Look {
		t.Errorf("without a walk of this head: %v, %v", p.Answer, stale.Answer)
	}
}

// What may not be written is refused with a reason, and a head that is older than
// the proof is no ground for any answer.
//
// SPEC LA4 LA8 LS12
func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	_, h := log(t)
	r := toys{chain: Checkpoint}
	full := h.copy()
	c := *h.Checkpoint
	c.Live = MaxLive
	full.Checkpoint = &c
	marks := h.copy()
	m := *h.Checkpoint
	m.Marks = MaxLive
	marks.Checkpoint = &m
	good := Decision{Proof: h.Last(), Body: toy{Key: 9, ID: 90, Binding: idC}.bytes(), Attempt: try(50), NowMS: now0}
	for what, x := range map[string]struct {
		h      *Head
		change func(d *Decision)
		want   error
	}{
		"no head":          {nil, func(*Decision) {}, store.ErrCorrupt},
		"a head before it": {first(), func(d *Decision) { d.Proof.Token = 2 }, store.ErrCorrupt},
		"a bad proof":      {h, func(d *Decision) { d.Proof.Token = 0 }, store.ErrInvalid},
		"a bad body":       {h, func(d *Decision) { d.Body = []byte(`{"v":1, "key":9}`) }, store.ErrInvalid},
		"no key":           {first(), func(d *Decision) { d.Body, d.Proof = toy{}.bytes(), ownA.Proof(1) }, store.ErrInvalid},
		"no attempt":       {h, func(d *Decision) { d.Attempt = "" }, store.ErrInvalid},
		"a used attempt":   {h, func(d *Decision) { d.Attempt = h.WriterAttempt }, store.ErrInvalid},
		"a blob without id": {h, func(d *Decision) {
			d.Body = toy{Key: 9, ID: 90, Binding: idC, Text: strings.Repeat("x", MaxInline)}.bytes()
		}, store.ErrInvalid},
		"a full chain":       {full, func(*Decision) {}, store.ErrUnavailable},
		"one mark too many":  {marks, func(d *Decision) { d.Body = toy{Key: 9, ID: 90, Marked: true, Binding: idC}.bytes() }, store.ErrUnavailable},
		"an ID, and none":    {h, func(d *Decision) { d.Body = toy{Key: 9, ID: 90, Binding: "x"}.bytes() }, nil},
		"binding of no form": {first(), func(d *Decision) { d.Body, d.Proof = toy{Key: 1, Binding: "x"}.bytes(), ownA.Proof(1) }, store.ErrInvalid},
	} {
		d := good
		x.change(&d)
		if p, err := Append(x.h, r, nil, d); !errors.Is(err, x.want) || err == nil && p.Answer == Admit {
			t.Errorf("%s: %v, %v; want %v", what, p.Answer, err, x.want)
		}
	}
	d := good
	if p := must(Append(marks, r, nil, d)); p.Answer != Admit {
		t.Errorf("an unmarked entry beside full marks: %v", p.Answer)
	}
}

// A decision is written before the head that admits it: the entry names the
// sequence, the proof and what stands before it, and the head pins its bytes.
//
// SPEC LA2 LA4 LA5
func TestAdmit(t *testing.T) {
	t.Parallel()
	s, h := log(t)
	body := toy{Key: 9, ID: 90, Marked: true, Binding: idC, Text: strings.Repeat("y", MaxInline)}.bytes()
	p := must(Append(h, toys{chain: Checkpoint}, nil, Decision{Proof: h.Last(), Body: body, Attempt: try(50), Blob: try(51), NowMS: now0}))
	e, c := p.Entry, p.Head.Checkpoint
	if e.Sequence != h.Sequence+1 || e.Proof != h.Last() || *e.Previous != h.Checkpoint.Head || *e.Mark != *h.Checkpoint.Mark || e.Body != nil || *e.Blob != NewBlob(try(51), body) {
		t.Errorf("entry: %+v", e)
	}
	if c.Head != p.Link || *c.Mark != p.Link || c.Live != 5 || c.Marks != 2 || p.Head.WriterAttempt != try(50) || p.Head.HolderAttempt != try(50) {
		t.Errorf("head: %+v", c)
	}
	if p.Head.Renewal != h.Renewal+1 || p.Head.Sequence != h.Sequence+1 || p.Link.Digest != DigestOf(EntryDomain, p.Body) || h.Checkpoint.Live != 4 {
		t.Errorf("a decision is a sign of life: %+v", p.Head)
	}
	s.put(p, body)
	if a := s.audit(p.Head); a.First() != nil || a.Entries() != 5 {
		t.Errorf("audit: %d, %v", a.Entries(), a.First())
	}
	if _, err := Verify(toys{chain: Checkpoint}, "k", e, body[1:]); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("another blob: %v", err)
	}
	e.Key++
	if _, err := Verify(toys{chain: Checkpoint}, "k", e, body); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("another key than the body's: %v", err)
	}
}

// A manifest that whoever may seal is the same for every proof.
//
// SPEC CT LA4
func TestAnyProof(t *testing.T) {
	t.Parallel()
	s := shelf{}
	r := toys{chain: Catalog, policy: Policy{AnyProof: true}}
	h := taken(s.append(first(), r, toy{Key: 1, Text: "a"}, 10), ownB, try(20))
	trail := must(s.walk(h, Catalog))
	for text, want := range map[string]Answer{"a": Unchanged, "b": Conflict} {
		p := must(Append(h, r, trail, Decision{Proof: h.Last(), Body: toy{Key: 1, Text: text}.bytes(), Attempt: try(21)}))
		if p.Answer != want || p.Winner != h.Catalog.Head {
			t.Errorf("%s: %v", text, p.Answer)
		}
	}
}

// From 64 live entries the next append leaves 16 and itself, and every marked one
// stays until the horizon passes it; a chain that nobody walked grows on.
//
// SPEC CK LA8
func TestCompaction(t *testing.T) {
	t.Parallel()
	s := shelf{}
	r := toys{chain: Checkpoint, policy: Policy{CompactAt: 64, Keep: 16}}
	h := first()
	for k := range uint64(64) {
		h = s.append(h, r, toy{Key: k + 1, Marked: k%8 == 0}, 100+2*int(k))
	}
	if h.Checkpoint.Live != 64 || h.Checkpoint.Floor != 0 || !Due(h, r) {
		t.Fatalf("too early: %+v", h.Checkpoint)
	}
	d := Decision{Proof: h.Last(), Body: toy{Key: 65}.bytes(), Attempt: try(999)}
	if p := must(Append(h, r, nil, d)); p.Answer != Admit || p.Compacted || p.Head.Checkpoint.Live != 65 {
		t.Errorf("without a walk: %+v", p.Head.Checkpoint)
	}
	atMost := h.copy()
	c := *h.Checkpoint
	c.Live = MaxLive
	atMost.Checkpoint = &c
	if _, err := Append(atMost, r, nil, d); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a full chain that nobody walked: %v", err)
	}
	h = s.append(h, r, toy{Key: 65}, 998)
	c = *h.Checkpoint
	if c.Live != 17 || c.Floor != 49 || c.Anchor.Key != 48 || c.Marks != 8 || c.Horizon != 0 || c.Mark.Key != 57 {
		t.Errorf("compacted: %+v", c)
	}
	if a := s.audit(h); a.First() != nil {
		t.Error(a.First())
	}
	trail := must(s.walk(h, Checkpoint))
	if _, p := trail.Find(17); p != Present {
		t.Error("a mark below the floor is gone")
	}
	if _, p := trail.Find(18); p != Unknown {
		t.Error("what was compacted is known")
	}
	h = must(trail.Advance(h, h.Last(), try(1001), 0, 30))
	if c := h.Checkpoint; c.Horizon != 30 || c.Floor != 49 || c.Marks != 4 || c.MarkAnchor.Key != 25 {
		t.Errorf("the horizon: %+v", c)
	}
	if a := s.audit(h); a.First() != nil || a.Entries() != 17+1+2+1 { // live, anchor, the marks 41 and 33, and their anchor 25
		t.Errorf("%d, %v", a.Entries(), a.First())
	}
}

// Floors only rise, leave the newest entry and a mark, and move only over a chain
// that is as it was walked.
//
// SPEC CK LA8
func TestAdvance(t *testing.T) {
	t.Parallel()
	s, h := log(t)
	p := h.Last()
	trail := must(s.walk(h, Checkpoint))
	up := must(trail.Advance(h, p, try(50), 6, 0))
	if c := up.Checkpoint; c.Floor != 6 || c.Live != 2 || c.Anchor.Key != 4 || c.Marks != 1 || c.MarkAnchor != nil {
		t.Errorf("%+v", c)
	}
	higher := must(s.walk(up, Checkpoint))
	for what, lower := range map[string][2]uint64{"the same": {6, 0}, "a lower one": {3, 0}, "none": {0, 0}} {
		if next, err := higher.Advance(up, p, try(51), lower[0], lower[1]); next != nil || err != nil {
			t.Errorf("%s: %+v, %v", what, next, err)
		}
	}
	half := Follow(h, Checkpoint, nil)
	if err := half.Take(s[must2(half.Next()).Name()]); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		t              *Trail
		h              *Head
		floor, horizon uint64
	}{
		"nothing stays":  {trail, h, 9, 0},
		"no mark stays":  {trail, h, 6, 5},
		"another head":   {trail, up, 6, 0},
		"half a walk":    {half, h, 6, 0},
		"an empty chain": {Follow(h, Recovery, nil), h, 1, 0},
	} {
		if next, err := x.t.Advance(x.h, p, try(52), x.floor, x.horizon); !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: %+v, %v", what, next, err)
		}
	}
	quiet := renew(h, try(60)) // renewals are harmless
	if next, err := trail.Advance(quiet, p, try(50), 6, 4); err != nil || next.Checkpoint.Horizon != 4 {
		t.Errorf("after a renewal: %v", err)
	}
}

func must2(l Link, ok bool) Link {
	if !ok {
		panic("nothing is wanted")
	}
	return l
}

// What is not linked may be removed only under a higher token, or by the process
// that knows it is not on its way; a name that was given up is never used again.
//
// SPEC LA8
func TestRemovable(t *testing.T) {
	t.Parallel()
	s, h := log(t) // B leads with token 2
	h = s.append(h, toys{chain: Catalog}, toy{Key: 1, Text: strings.Repeat("x", MaxInline)}, 44)
	var trails []*Trail
	for _, name := range ChainNames() {
		trails = append(trails, must(s.walk(h, name)))
	}
	linked := must(Reached(h, trails...))
	c := NewCandidacy(ownB)
	if err := c.Granted(h); err != nil {
		t.Fatal(err)
	}
	flying, done := Name{KindEntry, 2, try(70)}, Name{KindEntry, 2, try(71)}
	if err := errors.Join(c.Writing(flying, "d"), c.Writing(flying, "d"), c.Writing(done, "d")); err != nil {
		t.Fatal(err)
	}
	if c.Writing(done, "e") == nil {
		t.Error("two bodies under one name")
	}
	c.Landed(done)
	own := c.Flight()
	for what, x := range map[string]struct {
		n    Name
		f    Flight
		want bool
	}{
		"linked":                       {h.Checkpoint.Head.Name(), own, false},
		"a linked blob":                {Name{KindBlob, 2, try(45)}, own, false},
		"an old one":                   {Name{KindEntry, 1, try(72)}, Flight{}, true},
		"a blob of that name":          {Name{KindBlob, 1, h.Checkpoint.Head.Attempt}, Flight{}, true},
		"of now, by anybody":           {done, Flight{}, false},
		"of now, by its leader":        {done, own, true},
		"of now, on its way":           {flying, own, false},
		"of a token to come":           {Name{KindEntry, 3, try(73)}, own, false},
		"of now, by an earlier leader": {done, Flight{token: 1, led: true}, false},
	} {
		if got := linked.Removable(x.n, x.f); got != x.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if (Linked{}).Removable(done, own) {
		t.Error("nothing known, and something is removable")
	}
	c.Deleting(done)
	if c.Writing(done, "d") == nil {
		t.Error("a deleted name is written again")
	}
	c.Landed(flying)
	if c.Writing(flying, "d") == nil {
		t.Error("a settled name is written again")
	}
	if err := c.Writing(Name{KindEntry, 2, try(74)}, "d"); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2 * maxDone) { // a leader of months
		c.Deleting(Name{KindEntry, i, try(75)})
	}
	if len(c.names) != maxDone+1 || len(c.done) != maxDone {
		t.Errorf("%d names are remembered", len(c.names))
	}
	if c.Flight().flying[Name{KindEntry, 2, try(74)}] != true {
		t.Error("what is on its way is forgotten")
	}
	for what, ts := range map[string][]*Trail{"a chain is missing": trails[:3], "of another head": {must(s.walk(first(), Checkpoint)), trails[1], trails[2], trails[3]}} {
		if _, err := Reached(h, ts...); err == nil {
			t.Errorf("%s, and all is reached", what)
		}
	}
}

// A walk reads only what an earlier one did not.
//
// SPEC LA5
func TestTrailGoesOn(t *testing.T) {
	t.Parallel()
	s, h := log(t)
	before := must(s.walk(h, Checkpoint))
	h = s.append(h, toys{chain: Checkpoint}, toy{Key: 9, ID: 90, Binding: idC}, 44)
	next := Follow(h, Checkpoint, before)
	var read []uint64
	for l, ok := next.Next(); ok; l, ok = next.Next() {
		read = append(read, l.Key)
		if err := next.Take(s[l.Name()]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(read, []uint64{9}) || !next.Done() || len(next.Steps()) != 5 || !next.Of(h) || before.Of(h) {
		t.Errorf("read %v, %d steps", read, len(next.Steps()))
	}
	if err := next.Take(nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("nothing was wanted: %v", err)
	}
	if _, p := Follow(h, Checkpoint, nil).Find(4); p != Further {
		t.Errorf("before the walk: %v", p)
	}
	if _, p := Follow(h, Recovery, nil).Find(4); p != Absent {
		t.Errorf("in an empty chain: %v", p)
	}
}
