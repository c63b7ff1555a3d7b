package authority

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

// The bytes of every kind of head and entry are pinned.
//
// SPEC ST15 ST7 LA2 LA5
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, h := range forms() {
		body, err := h.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		recordtest.Golden(t, "head-"+name, body)
		back, err := Decode("k", "jobs", body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again := must(back.Encode()); !bytes.Equal(again, body) {
			t.Errorf("%s does not survive a round trip", name)
		}
	}
	s := shelf{}
	h := full(s)
	for name, l := range map[string]Link{"entry-first-live": *h.Checkpoint.Anchor, "entry-marked": *h.Checkpoint.Mark, "entry-blob": h.Catalog.Head} {
		body := s[l.Name()]
		recordtest.Golden(t, name, body)
		var e Entry
		if err := record.Decode("k", body, &e); err != nil || e.link(body) != l || e.Name() != l.Name() {
			t.Errorf("%s: %v, %+v is not what its link says", name, err, e)
		}
	}
}

// Whatever is not the one encoding of a valid head is refused, and a newer level is
// told from damage.
//
// SPEC ST7 ST15
func TestHeadIsStrict(t *testing.T) {
	t.Parallel()
	good := must(full(shelf{}).Encode())
	edit := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("nothing to edit: %s", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	for what, c := range map[string]struct {
		body []byte
		want error
	}{
		"as it was":           {good, nil},
		"empty":               {nil, store.ErrCorrupt},
		"cut off":             {good[:len(good)-1], store.ErrCorrupt},
		"trailing bytes":      {append(bytes.Clone(good), ' '), store.ErrCorrupt},
		"white space":         {edit(`"v":1`, `"v": 1`), store.ErrCorrupt},
		"unknown field":       {edit(`"v":1`, `"v":1,"x":1`), store.ErrCorrupt},
		"inner unknown field": {edit(`"live":`, `"x":1,"live":`), store.ErrCorrupt},
		"other order":         {edit(`"v":1,"authority":"jobs"`, `"authority":"jobs","v":1`), store.ErrCorrupt},
		"escaped differently": {edit(`rack <`, `rack \u003c`), store.ErrCorrupt},
		"null":                {edit(`"token":2`, `"token":null`), store.ErrCorrupt},
		"token over counter":  {edit(`"token":2`, `"token":3`), store.ErrCorrupt},
		"beyond 2^53":         {edit(`"counter":2`, `"counter":9007199254740992`), store.ErrCorrupt},
		"sequence 0":          {edit(`"sequence":14`, `"sequence":0`), store.ErrCorrupt},
		"sequence went back":  {edit(`"sequence":14`, `"sequence":11`), store.ErrCorrupt},
		"renewal over it":     {edit(`"renewal":14`, `"renewal":15`), store.ErrCorrupt},
		"TTL of zero":         {edit(`"ttl_ms":15000`, `"ttl_ms":0`), store.ErrCorrupt},
		"TTL that wraps":      {edit(`"ttl_ms":15000`, `"ttl_ms":9223372036854775807`), store.ErrCorrupt},
		"half a leader":       {edit(`"term":1}`, `"term":0}`), store.ErrCorrupt},
		"no holder attempt":   {edit(`"holder_attempt":"`+try(39)+`",`, ``), store.ErrCorrupt},
		"empty list":          {edit(`"slots":[`, `"slots":[],"slotz":[`), store.ErrCorrupt},
		"other authority":     {edit(`"jobs"`, `"jobz"`), store.ErrCorrupt},
		"level 2":             {edit(`"v":1`, `"v":2`), store.ErrNewer},
		"level 2, new fields": {edit(`"v":1`, `"v":2,"shiny":[]`), store.ErrNewer},
	} {
		if _, err := Decode("k", "jobs", c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
	if _, err := Decode("k", "jobs", bytes.Repeat([]byte("x"), MaxHead+1)); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("too large: %v", err)
	}
}

// Each numbered invariant of a head is checked, in every kind that it speaks of.
//
// SPEC LA1 LA2 LA8 LA9
func TestHeadIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(h *Head){
		"1 level":                func(h *Head) { h.V = 0 },
		"1 authority":            func(h *Head) { h.Authority = " x" },
		"1 attempt":              func(h *Head) { h.WriterAttempt = "" },
		"2 began":                func(h *Head) { h.Began = h.Sequence + 1 },
		"3 leader":               func(h *Head) { h.Leader = &Owner{Node: "db-1", Incarnation: "x", Term: 1} },
		"4 no end":               func(h *Head) { h.Leader, h.HolderAttempt, h.Note, h.SecretHash, h.Recent = nil, "", "", "", nil },
		"4 another's end":        func(h *Head) { h.Leader, h.HolderAttempt, h.Note, h.SecretHash = nil, "", "", "" },
		"5 tokens fall":          func(h *Head) { h.Recent = append(h.Recent, h.Recent[0]) },
		"5 how":                  func(h *Head) { h.Recent[0].How = lease.HowRevoked },
		"5 TTL without force":    func(h *Head) { h.Recent[0].SupersededTTLMS = 15000 },
		"5 overlaps":             func(h *Head) { h.Recent[0].Last = h.Began },
		"5 nine":                 func(h *Head) { h.Recent = make([]Leadership, 9) },
		"6 newer than the head":  func(h *Head) { h.Recovery.Head.Sequence = h.Sequence + 1 },
		"6 of a later token":     func(h *Head) { h.Recovery.Head.Token = 3 },
		"6 two catalogs":         func(h *Head) { h.Catalog.Live = 2 },
		"6 digest":               func(h *Head) { h.Recovery.Head.Digest = strings.Repeat("A", 64) },
		"6.1 too many":           func(h *Head) { h.Checkpoint.Live = MaxLive + 1 },
		"6.1 floor above":        func(h *Head) { h.Checkpoint.Floor = h.Checkpoint.Head.Key + 1 },
		"6.2 anchor above":       func(h *Head) { h.Checkpoint.Floor = h.Checkpoint.Anchor.Key },
		"6.2 anchor, no floor":   func(h *Head) { h.Checkpoint.Floor, h.Checkpoint.Horizon, h.Checkpoint.MarkAnchor = 0, 0, nil },
		"6.3 marks without":      func(h *Head) { h.Recovery.Marks = 1 },
		"6.3 no marks":           func(h *Head) { h.Checkpoint.Marks = 0 },
		"6.4 nothing stays":      func(h *Head) { m := h.Checkpoint.Mark; h.Checkpoint.Floor, h.Checkpoint.Horizon = m.Key+1, m.Key+1 },
		"6.4 horizon over floor": func(h *Head) { h.Checkpoint.Horizon = h.Checkpoint.Floor + 1 },
		"6.5 mark anchor above":  func(h *Head) { h.Checkpoint.Horizon = h.Checkpoint.MarkAnchor.Key },
		"6.6 mark above":         func(h *Head) { l := h.Checkpoint.Head; l.Key++; h.Checkpoint.Mark = &l },
		"6 binding":              func(h *Head) { h.Checkpoint.Binding = "x" },
		"7 twice":                func(h *Head) { h.Slots[1] = h.Slots[0] },
		"7 newer":                func(h *Head) { h.Slots[0].Sequence = h.Revision + 1 },
		"7 revision":             func(h *Head) { h.Revision = h.Sequence + 1 },
		"7 none":                 func(h *Head) { h.Revision = 0 },
		"7 incomplete":           func(h *Head) { h.Slots[0].Request = 0 },
		"7 empty":                func(h *Head) { h.Slots = []Slot{} },
		"8 generation":           func(h *Head) { h.Round.Generation = 1 },
		"8 revision":             func(h *Head) { h.Round.Revision = h.Revision + 1 },
		"8 later leader":         func(h *Head) { h.Round.Proof.Token = 9 },
		"8 plan":                 func(h *Head) { h.Round.Plan = "" },
	} {
		h := full(shelf{})
		change(h)
		if h.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	for what, change := range map[string]func(h *Head){
		"4 a note":          func(h *Head) { h.Note = "x" },
		"4 holder attempt":  func(h *Head) { h.HolderAttempt = try(9) },
		"5 no reason":       func(h *Head) { h.Ended().Why = "" },
		"5 no TTL":          func(h *Head) { h.Ended().SupersededTTLMS = 0 },
		"5 not raised":      func(h *Head) { h.Counter = h.Token },
		"5 ended by seeing": func(h *Head) { h.Ended().How, h.Ended().SupersededTTLMS = lease.HowObserved, 0 },
	} {
		h := forms()["forced"]
		change(h)
		if h.Valid() == nil {
			t.Errorf("forced, %s: accepted", what)
		}
	}
}

// Each numbered invariant of an entry is checked.
//
// SPEC LA4 LA5
func TestEntryIsExact(t *testing.T) {
	t.Parallel()
	s := shelf{}
	h := full(s)
	entry := func() *Entry {
		var e Entry
		if err := record.Decode("k", s[h.Checkpoint.Head.Name()], &e); err != nil {
			t.Fatal(err)
		}
		return &e
	}
	for what, change := range map[string]func(e *Entry){
		"1 level":         func(e *Entry) { e.V = 0 },
		"1 chain":         func(e *Entry) { e.Chain = "x" },
		"1 authority":     func(e *Entry) { e.Authority = "" },
		"1 proof":         func(e *Entry) { e.Proof.Token = 0 },
		"1 attempt":       func(e *Entry) { e.Attempt = "x" },
		"1 time":          func(e *Entry) { e.At = -1 },
		"2 sequence":      func(e *Entry) { e.Sequence = 0 },
		"2 key":           func(e *Entry) { e.Key = e.Previous.Key },
		"2 id":            func(e *Entry) { e.ID = e.Previous.ID },
		"2 no id":         func(e *Entry) { e.ID = 0 },
		"2 previous":      func(e *Entry) { e.Previous.Sequence = e.Sequence },
		"2 later token":   func(e *Entry) { e.Previous.Token = e.Proof.Token + 1 },
		"3 mark alone":    func(e *Entry) { e.Previous = nil },
		"3 mark after":    func(e *Entry) { e.Mark.Sequence = e.Previous.Sequence + 1 },
		"4 nothing":       func(e *Entry) { e.Body = nil },
		"4 both":          func(e *Entry) { e.Blob = &Blob{Attempt: idA, Digest: DigestOf("x", nil), Length: 1} },
		"4 too long":      func(e *Entry) { e.Body = raw(toy{Text: strings.Repeat("x", MaxInline)}) },
		"4 an empty blob": func(e *Entry) { e.Body, e.Blob = nil, &Blob{Attempt: idA, Digest: DigestOf("x", nil)} },
		"4 a blob's name": func(e *Entry) { e.Body, e.Blob = nil, &Blob{Digest: DigestOf("x", nil), Length: 1} },
		"4 a large blob": func(e *Entry) {
			e.Body, e.Blob = nil, &Blob{Attempt: idA, Digest: DigestOf("x", nil), Length: MaxBlob + 1}
		},
		"4 blob of digest": func(e *Entry) { e.Body, e.Blob = nil, &Blob{Attempt: idA, Digest: "x", Length: 1} },
	} {
		e := entry()
		change(e)
		if e.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	good := s[h.Checkpoint.Head.Name()]
	for what, body := range map[string][]byte{
		"white space in the body": bytes.Replace(good, []byte(`"body":{"v":1`), []byte(`"body":{ "v":1`), 1),
		"an unknown field":        bytes.Replace(good, []byte(`"v":1`), []byte(`"v":1,"x":2`), 1),
		"trailing bytes":          append(bytes.Clone(good), '\n'),
	} {
		var e Entry
		if err := record.Decode("k", body, &e); !errors.Is(err, store.ErrCorrupt) || bytes.Equal(body, good) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Names are read back exactly, and nothing else is a name.
//
// SPEC LA8
func TestNames(t *testing.T) {
	t.Parallel()
	n := Name{Kind: KindBlob, Token: 42, Attempt: idA}
	if back, err := ParseName(KindBlob, n.Element()); err != nil || back != n {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range []string{"", "42-" + idA, "0000000000000042" + idA, "0000000000000000-" + idA, "000000000000004x-" + idA, n.Element() + "0",
		"+000000000000042-" + idA, "0000000000000042-" + strings.ToUpper(idA)} {
		if _, err := ParseName(KindBlob, bad); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Decoding arbitrary bytes never panics, and what it accepts encodes to the same
// bytes.
//
// SPEC ST7
func FuzzDecode(f *testing.F) {
	s := shelf{}
	f.Add(must(full(s).Encode()))
	for _, h := range forms() {
		f.Add(must(h.Encode()))
	}
	for _, body := range s {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var h Head
		if record.Decode("k", body, &h) == nil {
			if again, err := h.Encode(); len(body) <= MaxHead && (err != nil || !bytes.Equal(again, body)) {
				t.Fatalf("accepted %q, which encodes to %q (%v)", body, again, err)
			}
			_, _ = h.Wait()
			_, _ = h.Last(), h.Faults()
		}
		var e Entry
		if record.Decode("k", body, &e) == nil {
			if again, err := e.Encode(); len(body) <= MaxEntry && (err != nil || !bytes.Equal(again, body)) {
				t.Fatalf("accepted %q, which encodes to %q (%v)", body, again, err)
			}
		}
	})
}
