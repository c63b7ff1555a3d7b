package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

const (
	idA        = "aaaaaaaa-1111-4111-8111-111111111111"
	idB        = "bbbbbbbb-2222-4222-8222-222222222222"
	deployment = "dddddddd-4444-4444-8444-444444444444"
	now0       = 1_767_225_600_000
)

func try(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func fence() *assignment.Fence {
	a, b := assignment.Participant{Node: "db-1", Incarnation: idA}, assignment.Participant{Node: `db-"2"`, Incarnation: idB}
	return must(assignment.NewMap(7, []assignment.Participant{a, b, a, b})).Fence()
}

func capsuleOf(epoch uint64) *Capsule {
	return &Capsule{V: 1, Attempt: Attempt{Epoch: epoch, Checkpoint: 10 * epoch}, Deployment: deployment, Fence: fence(), Data: []byte{1, 2, 250}}
}

// world is a head and its objects.
type world struct {
	head    *authority.Head
	objects map[string][]byte
	tries   int
}

func begin() *world {
	c := authority.Claim{Authority: "jobs", Owner: authority.Owner{Node: "db-1", Incarnation: idA, Term: 1}, TTL: time.Second, Attempt: try(1)}
	return &world{head: must(authority.First(c)), objects: map[string][]byte{}, tries: 1}
}

func (w *world) try() string {
	w.tries++
	return try(w.tries)
}

func (w *world) trail() *authority.Trail {
	t := authority.Follow(w.head, authority.Checkpoint, nil)
	for l, ok := t.Next(); ok; l, ok = t.Next() {
		if err := t.Take(w.objects[l.Name().Element()]); err != nil {
			panic(err)
		}
	}
	return t
}

func (w *world) history() *History { return must(Read(w.head, w.trail())) }

// commit commits epoch, and aborts where commits is false.
func (w *world) settle(epoch uint64, commits bool) {
	c := capsuleOf(epoch)
	o := NewAbort(c.Attempt, deployment, c.Fence)
	if commits {
		body := must(c.Encode())
		n := CapsuleName{Epoch: epoch, Token: w.head.Token, Attempt: w.try()}
		w.objects[n.Element()] = body
		o = NewCommit(c, n.Attempt, body)
	}
	p := must(authority.Append(w.head, Rules{}, w.trail(), authority.Decision{Proof: w.head.Last(), Body: must(o.Encode()), Attempt: w.try(), NowMS: now0}))
	if p.Answer != authority.Admit {
		panic(p.Answer)
	}
	w.objects[p.Entry.Name().Element()] = p.Body
	w.head = p.Head
}

func (w *world) accept(horizon uint64) Accepted {
	cut := must(w.history().Cut(horizon))
	n, _ := cut.CapsuleName()
	return must(cut.Accept("k", w.objects[n.Element()], func(*Stands, *Capsule) error { return nil }))
}

// The bytes of every form are pinned, and nothing else is read.
//
// SPEC CK ST7 ST15
func TestForms(t *testing.T) {
	t.Parallel()
	c := capsuleOf(3)
	body := must(c.Encode())
	commit := must(NewCommit(c, try(9), body).Encode())
	recordtest.Golden(t, "capsule", body)
	recordtest.Golden(t, "commit", commit)
	recordtest.Golden(t, "abort", must(NewAbort(Attempt{4, 40}, deployment, fence()).Encode()))
	recordtest.Golden(t, "cursor", must((&Cursor{V: 1, Authority: "jobs", Attempt: try(3), After: CapsuleName{3, 1, try(9)}.Element()}).Encode()))
	edit := func(old, new string) []byte {
		if !bytes.Contains(commit, []byte(old)) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return bytes.Replace(commit, []byte(old), []byte(new), 1)
	}
	for what, x := range map[string]struct {
		body []byte
		want error
	}{
		"as it was":       {commit, nil},
		"empty":           {nil, store.ErrCorrupt},
		"trailing bytes":  {append(bytes.Clone(commit), ' '), store.ErrCorrupt},
		"unknown field":   {edit(`"v":1`, `"v":1,"x":1`), store.ErrCorrupt},
		"inner field":     {edit(`"slots":4`, `"slots":4,"x":1`), store.ErrCorrupt},
		"newer":           {edit(`"v":1`, `"v":2`), store.ErrNewer},
		"no verdict":      {edit(`"verdict":"commit"`, `"verdict":"maybe"`), store.ErrCorrupt},
		"abort + capsule": {edit(`"verdict":"commit"`, `"verdict":"abort"`), store.ErrCorrupt},
		"epoch 0":         {edit(`"epoch":3`, `"epoch":0`), store.ErrCorrupt},
		"checkpoint 0":    {edit(`"checkpoint":30`, `"checkpoint":0`), store.ErrCorrupt},
		"deployment":      {edit(deployment, "x"), store.ErrCorrupt},
		"out of order":    {edit(`db-1`, `aa-1`), store.ErrCorrupt},
		"capsule of 0":    {edit(`"length":`, `"length":0,"x":`), store.ErrCorrupt},
	} {
		if _, err := Decode("k", x.body); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", what, err, x.want)
		}
	}
	if NewAbort(Attempt{1, 1}, deployment, nil).Valid() == nil {
		t.Error("an outcome without a fence")
	}
}

// The largest outcome fits into its entry.
//
// SPEC CK LA4
func TestLargestOutcome(t *testing.T) {
	t.Parallel()
	var owners []assignment.Participant
	for i := range assignment.MaxParticipants {
		owners = append(owners, assignment.Participant{Node: fmt.Sprintf("%04d", i) + strings.Repeat(`"`, store.MaxName-4), Incarnation: idA})
	}
	c := capsuleOf(1)
	c.Fence = must(assignment.NewMap(record.MaxNumber, owners)).Fence()
	c.Epoch, c.Checkpoint = record.MaxNumber, record.MaxNumber
	body, err := NewCommit(c, idA, must(c.Encode())).Encode()
	if err != nil || len(body) < 32<<10 {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// The newest commit, outcomes of epochs, what settled an attempt, and the boundary,
// before and after aborts and commits were given up.
//
// SPEC CK
func TestQueries(t *testing.T) {
	t.Parallel()
	w := begin()
	if x := w.history(); x.HighestCommit() != nil || x.HighestTerminal() != nil || x.Settlement(Attempt{1, 1}) != nil || x.Inventory() != nil {
		t.Error("something stands in an empty history")
	}
	for epoch := uint64(1); epoch <= 9; epoch++ {
		w.settle(2*epoch, epoch%3 == 1) // commits 2, 8, 14; aborts 4 6 10 12 16 18
	}
	x := w.history()
	if c, top := x.HighestCommit(), x.HighestTerminal(); c.Outcome.Epoch != 14 || top.Outcome.Epoch != 18 || len(x.Inventory()) != 9 {
		t.Errorf("commit %d, top %d, %d", c.Outcome.Epoch, top.Outcome.Epoch, len(x.Inventory()))
	}
	w.head = must(Advance(w.head, w.head.Last(), w.try(), w.accept(5)))
	w.head = must(w.trail().Advance(w.head, w.head.Last(), w.try(), 16, 0))
	x = w.history()
	b := x.Boundary()
	if b.Horizon != 5 || b.Floor != 16 || b.CommitAnchor.Outcome.Epoch != 2 || b.Anchor.Outcome.Epoch != 14 {
		t.Errorf("boundary %+v", b)
	}
	var live []uint64
	for _, s := range x.Inventory() {
		live = append(live, s.Outcome.Epoch)
	}
	if fmt.Sprint(live) != "[8 14 16 18]" || x.HighestCommit().Outcome.Epoch != 14 {
		t.Errorf("inventory %v", live)
	}
	for epoch, want := range map[uint64]string{2: "commit", 3: "unknown", 4: "unknown", 8: "commit", 10: "unknown", 14: "commit", 16: "abort", 17: "none", 18: "abort", 19: "none"} {
		s, known := x.Outcome(epoch)
		got := "none"
		switch {
		case !known:
			got = "unknown"
		case s != nil:
			got = s.Outcome.Verdict
		}
		if got != want {
			t.Errorf("epoch %d: %s, want %s", epoch, got, want)
		}
	}
	for a, want := range map[Attempt]uint64{{8, 80}: 8, {10, 100}: 18, {17, 170}: 18, {19, 190}: 0, {19, 170}: 18, {18, 180}: 18} {
		s := x.Settlement(a)
		if (s == nil) != (want == 0) || s != nil && s.Outcome.Epoch != want {
			t.Errorf("%+v is settled by %+v, want %d", a, s, want)
		}
	}
	if _, err := Read(begin().head, w.trail()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a history of another head: %v", err)
	}
}

// The horizon moves only to where a commit stays, whose capsule and artifacts were
// accepted, over a chain that did not move in between.
//
// SPEC CK
func TestHorizon(t *testing.T) {
	t.Parallel()
	w := begin()
	w.settle(1, true)
	w.settle(2, true)
	w.settle(3, false)
	x := w.history()
	for _, horizon := range []uint64{0, 3, 9} {
		if _, err := x.Cut(horizon); !errors.Is(err, store.ErrConflict) {
			t.Errorf("to %d: %v", horizon, err)
		}
	}
	cut := must(x.Cut(2))
	n, _ := cut.CapsuleName()
	good := w.objects[n.Element()]
	accept := func(*Stands, *Capsule) error { return nil }
	for what, body := range map[string][]byte{"none": nil, "another": must(capsuleOf(1).Encode()), "half": good[:len(good)/2]} {
		if _, err := cut.Accept("k", body, accept); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("capsule, %s: %v", what, err)
		}
	}
	lost := errors.New("artifacts are lost")
	if _, err := cut.Accept("k", good, func(*Stands, *Capsule) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("artifacts: %v", err)
	}
	if _, err := Advance(w.head, w.head.Last(), w.try(), Accepted{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("nothing was accepted: %v", err)
	}
	ok := must(cut.Accept("k", good, func(s *Stands, c *Capsule) error {
		if s.Outcome.Epoch != 2 || c.Epoch != 2 || !bytes.Equal(c.Data, []byte{1, 2, 250}) {
			t.Errorf("the check was shown %+v, %+v", s.Outcome, c)
		}
		return nil
	}))
	before := *w
	next, _, err := w.head.Renew(w.head.Last(), w.try())
	w.head = must(next, err) // a renewal in between is harmless
	w.head = must(Advance(w.head, w.head.Last(), w.try(), ok))
	if c := w.head.Checkpoint; c.Horizon != 2 || c.Floor != 2 || c.Marks != 1 || c.Live != 2 || c.MarkAnchor.Key != 1 || c.Anchor.Key != 1 {
		t.Errorf("%+v", c)
	}
	if next, err := Advance(w.head, w.head.Last(), w.try(), w.accept(2)); next != nil || err != nil {
		t.Errorf("the same again: %+v, %v", next, err)
	}
	before.settle(4, false)
	if _, err := Advance(before.head, before.head.Last(), before.try(), ok); !errors.Is(err, store.ErrConflict) {
		t.Errorf("an outcome came in between: %v", err)
	}
	s, _ := x.Outcome(3)
	if _, err := s.Load("k", good); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("the capsule of an abort: %v", err)
	}
	bad := *capsuleOf(2)
	bad.Fence = fence().At(8)
	body := must(bad.Encode())
	forged := *cut.Stands
	o := *forged.Outcome
	b := authority.NewBlob(o.Capsule.Attempt, body)
	o.Capsule, forged.Outcome = &b, &o
	if _, err := forged.Load("k", body); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a capsule of another assignment: %v", err)
	}
}

// One outcome per epoch, of one deployment, with checkpoint ids that rise; the
// history of 64 compacts to 16, and all commits stay.
//
// SPEC CK LA8
func TestOneOutcomePerEpoch(t *testing.T) {
	t.Parallel()
	w := begin()
	for epoch := range uint64(64) {
		w.settle(epoch+1, epoch%10 == 0)
	}
	ask := func(o *Outcome) authority.Answer {
		return must(authority.Append(w.head, Rules{}, w.trail(), authority.Decision{Proof: w.head.Last(), Body: must(o.Encode()), Attempt: w.try(), NowMS: now0})).Answer
	}
	for what, x := range map[string]struct {
		o    *Outcome
		want authority.Answer
	}{
		"the same":           {NewAbort(Attempt{64, 640}, deployment, fence()), authority.Unchanged},
		"another verdict":    {NewCommit(capsuleOf(64), idA, []byte("x")), authority.Conflict},
		"another assignment": {NewAbort(Attempt{64, 640}, deployment, fence().At(8)), authority.Conflict},
		"an old checkpoint":  {NewAbort(Attempt{65, 640}, deployment, fence()), authority.Conflict},
		"another deployment": {NewAbort(Attempt{65, 650}, idA, fence()), authority.Conflict},
		"the next":           {NewAbort(Attempt{65, 650}, deployment, fence()), authority.Admit},
	} {
		if got := ask(x.o); got != x.want {
			t.Errorf("%s: %v, want %v", what, got, x.want)
		}
	}
	w.settle(65, false)
	if c := w.head.Checkpoint; c.Live != 17 || c.Floor != 49 || c.Marks != 7 || len(w.history().Inventory()) != 17+1+5 {
		t.Errorf("%+v, %d", c, len(w.history().Inventory())) // 16 and the new one, the anchor, the commits 1 11 21 31 41
	}
}

// A sweep touches nothing without a horizon, keeps what is live or above it or may be
// on its way, and sets aside what is no capsule.
//
// SPEC CK LA8
func TestSweep(t *testing.T) {
	t.Parallel()
	w := begin()
	for epoch := range uint64(4) {
		w.settle(epoch+1, true)
	}
	if _, ok := NewSweep(w.head, authority.Flight{}); ok {
		t.Error("there is no horizon yet")
	}
	names := map[uint64]CapsuleName{}
	for _, s := range w.history().Inventory() {
		names[s.Outcome.Epoch], _ = s.CapsuleName()
	}
	w.head = must(Advance(w.head, w.head.Last(), w.try(), w.accept(3)))
	mine := authority.NewCandidacy(w.head.Last().Owner())
	if err := mine.Granted(w.head); err != nil {
		t.Fatal(err)
	}
	lost := CapsuleName{Epoch: 2, Token: 1, Attempt: idB}
	if err := mine.Writing(lost.Name(), authority.DigestOf("x", nil)); err != nil {
		t.Fatal(err)
	}
	nobody, _ := NewSweep(w.head, authority.Flight{})
	own, _ := NewSweep(w.head, mine.Flight())
	for what, x := range map[string]struct {
		element     string
		nobody, own Act
	}{
		"below the horizon": {names[1].Element(), Keep, Examine},
		"at the horizon":    {names[3].Element(), Keep, Keep},
		"above, unknown":    {CapsuleName{9, 1, idA}.Element(), Keep, Keep},
		"on its way":        {lost.Element(), Keep, Keep},
		"no name":           {"x", Quarantine, Quarantine},
		"epoch 0":           {CapsuleName{0, 1, idB}.Element(), Quarantine, Quarantine},
		"no padding":        {strings.TrimLeft(names[1].Element(), "0"), Quarantine, Quarantine},
	} {
		if a, b := nobody.Judge(x.element), own.Judge(x.element); a != x.nobody || b != x.own {
			t.Errorf("%s: %v for anybody, %v for the leader", what, a, b)
		}
	}
	for what, x := range map[string]struct {
		element string
		body    []byte
		want    Act
	}{
		"a capsule":       {names[1].Element(), must(capsuleOf(1).Encode()), Delete},
		"another epoch's": {names[1].Element(), must(capsuleOf(2).Encode()), Quarantine},
		"rubbish":         {names[1].Element(), []byte("rubbish"), Quarantine},
		"no name":         {"x", must(capsuleOf(1).Encode()), Quarantine},
	} {
		if got := own.Examined(x.element, x.body); got != x.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if _, ok := NewSweep(begin().head, authority.Flight{}); ok {
		t.Error("a sweep of an empty history")
	}
}

// A sweep goes on where it stopped, and begins anew at the end.
//
// SPEC CK
func TestCursor(t *testing.T) {
	t.Parallel()
	c := Cursor{V: 1, Authority: "jobs", Attempt: try(1)}
	full := make([]string, SweepStep)
	for i := range full {
		full[i] = CapsuleName{uint64(i + 1), 1, idA}.Element()
	}
	next := c.Move(try(2), full)
	if next.After != full[63] || next.Attempt != try(2) || next.Valid() != nil || c.After != "" {
		t.Errorf("%+v", next)
	}
	if next = next.Move(try(3), full[:63]); next.After != "" || next.Valid() != nil {
		t.Errorf("%+v", next)
	}
	for what, bad := range map[string]Cursor{"authority": {V: 1, Attempt: idA}, "attempt": {V: 1, Authority: "x"}, "level": {Authority: "x", Attempt: idA},
		"after": {V: 1, Authority: "x", Attempt: idA, After: "a/b"}} {
		if bad.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
