package slots

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

// full is a table with a row of every kind.
func full(form Form) *Table {
	a, b, c := self("a", 1).on(7), sessionHost("b", 2), self("c <\">", 3)
	d := &desk{at: must(New("orders", form, 40, id(1), 1_767_225_600_000))}
	claim := func(h *Host, r Range, sights ...Sight) Row {
		next, answers, err := d.at.Claim(Claim{Ranges: []Range{r}, Host: h, Sights: sights, Attempt: d.attempt(), NowMS: 1_767_225_601_000})
		if err != nil || answers[0].Err != nil {
			panic(answers[0].Err)
		}
		d.at = next
		return answers[0].Row
	}
	claim(b, r(0, 4095))
	claim(c, r(4096, 4999))
	claim(a, r(0, 4999), Sight{State: d.at.RowOf(0).State(), How: lease.HowForced, Evidence: `{"v":1,"node":"node-b"}`, Why: "fire", By: "anna"}, d.sight(4096))
	claim(b, r(5000, 5000))
	claim(a, r(6000, 6999))
	row := claim(a, r(7000, 7999))
	d.at = must2(d.at.Release(Release{Host: a, Holds: []Hold{{Range: row.Range, Epoch: row.Epoch}}, Successor: "b", HoldMS: 4000, Attempt: d.attempt(), NowMS: 1_767_225_602_000}))
	d.at = must2(d.at.Steal(Theft{Range: r(6000, 6999), Epoch: d.at.RowOf(6000).Epoch, Why: "too slow", By: "anna", NowMS: 1_767_225_603_000, Attempt: d.attempt()}))
	d.at = must2(d.at.Renew(Renewal{Host: a, Holds: []Hold{{Range: r(0, 4999), Epoch: 43}}, Attempt: d.attempt()}))
	claim(c, r(16000, Last))
	return d.at
}

func must2[A, B any](a A, _ B, err error) A { return must(a, err) }

func fullPlan() *Plan {
	t := full(RowsForm)
	p := must((*Plan)(nil).Publish(t, Publication{Token: 3, Shards: []Shard{
		{Range: r(0, 4999), Load: 12, Target: "b"}, {Range: r(5000, 5000), Target: "a"}, {Range: r(6000, 6999), Load: 1}}, State: `{"moves":[1,2]}`, Attempt: id(50)}))
	return must(p.Pin(r(0, 4999), "a", id(51)))
}

func fullAnnounce() *Announce {
	return &Announce{V: 1, Table: "orders", Birth: id(1), Host: *sessionHost("b", 2).on(8), Weight: 100, Capacity: 12, Leaving: true, Beat: 4, Since: 1_767_225_600_000, Attempt: id(60)}
}

// forms are all records, each with how it is read back and encoded again.
func forms() map[string]struct {
	body []byte
	read func(body []byte) ([]byte, error)
} {
	rows := full(RowsForm)
	table := func(body []byte) ([]byte, error) {
		t, err := DecodeTable("k", "orders", body)
		if err != nil {
			return nil, err
		}
		return t.Encode()
	}
	row := func(first uint16) func([]byte) ([]byte, error) {
		return func(body []byte) ([]byte, error) {
			r, err := rows.DecodeRow("k", first, body)
			if err != nil {
				return nil, err
			}
			return rows.EncodeRow(&r)
		}
	}
	return map[string]struct {
		body []byte
		read func(body []byte) ([]byte, error)
	}{
		"counter":  {must(rows.Encode()), table},
		"register": {must(full(RegisterForm).Encode()), table},
		"empty":    {must(must(New("orders", RegisterForm, 0, id(1), 1)).Encode()), table},
		"row":      {must(rows.EncodeRow(rows.RowOf(0))), row(0)},
		"session":  {must(rows.EncodeRow(rows.RowOf(5000))), row(5000)},
		"forced":   {must(rows.EncodeRow(rows.RowOf(6000))), row(6000)},
		"handed":   {must(rows.EncodeRow(rows.RowOf(7000))), row(7000)},
		"announce": {must(fullAnnounce().Encode()), func(body []byte) ([]byte, error) {
			a, err := DecodeAnnounce("host/b", "orders", body, func(owner string) string { return "host/" + owner })
			if err != nil {
				return nil, err
			}
			return a.Encode()
		}},
		"plan": {must(fullPlan().Encode()), func(body []byte) ([]byte, error) {
			p, err := DecodePlan("k", "orders", body)
			if err != nil {
				return nil, err
			}
			return p.Encode()
		}},
	}
}

// The bytes of every form of record are pinned.
//
// SPEC ST7 ST15
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, f := range forms() {
		recordtest.Golden(t, name, f.body)
		if again, err := f.read(f.body); err != nil || !bytes.Equal(again, f.body) {
			t.Errorf("%s does not survive a round trip: %v", name, err)
		}
	}
}

// A register and rows of their own tell the same.
//
// SPEC SL2
func TestBothFormsTellTheSame(t *testing.T) {
	t.Parallel()
	reg := must(DecodeTable("k", "orders", must(full(RegisterForm).Encode())))
	rows := full(RowsForm)
	head := must(DecodeTable("k", "orders", must(rows.Encode())))
	var read []Row
	for i := range rows.Rows {
		row := &rows.Rows[len(rows.Rows)-1-i] // in any order
		read = append(read, must(head.DecodeRow("k", row.Range.A, must(rows.EncodeRow(row)))))
	}
	whole := must(Assemble(head, All, read))
	if !reflect.DeepEqual(whole.Rows, reg.Rows) || whole.Counter != reg.Counter || whole.Birth != reg.Birth || reg.Part != All {
		t.Errorf("%+v\n%+v", whole, reg)
	}
	if names := RowName(0) + RowName(77) + RowName(Last); names != "000000007716383" {
		t.Error(names)
	}
	for r, want := range map[Range]int{r(0, 0): 1, r(4999, 5000): 2, r(5001, 5999): 0, All: 5, r(7999, 15999): 1} {
		if got := len(reg.Overlapping(r)); got != want {
			t.Errorf("%d rows overlap %v, not %d", got, r, want)
		}
	}
	if _, err := must(Assemble(head, r(0, 9), read)).Encode(); err != nil {
		t.Error(err) // of a table of rows it is the counter alone
	}
	part := *reg
	part.Part = r(0, 9)
	if _, err := part.Encode(); !errors.Is(err, store.ErrInvalid) {
		t.Error("a part of a register is encoded:", err)
	}
}

// Whatever is not the one encoding of a valid value is refused, and a newer level is told
// from damage.
//
// SPEC ST7 ST15
func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	all := forms()
	for name, f := range all {
		for what, body := range map[string][]byte{
			"cut off":        f.body[:len(f.body)-1],
			"trailing bytes": append(bytes.Clone(f.body), ' '),
			"white space":    bytes.Replace(f.body, []byte(`"v":1`), []byte(`"v": 1`), 1),
			"unknown field":  bytes.Replace(f.body, []byte(`"v":1`), []byte(`"v":1,"x":1`), 1),
			"doubled field":  bytes.Replace(f.body, []byte(`"v":1`), []byte(`"v":1,"v":1`), 1),
			"other table":    bytes.Replace(f.body, []byte(`"table":"orders"`), []byte(`"table":"other"`), 1),
			"other birth":    bytes.Replace(f.body, []byte(id(1)), []byte("x"), 1),
			"empty":          nil,
			"null":           []byte("null"),
		} {
			if _, err := f.read(body); store.KindOf(err) != store.ErrCorrupt || !strings.Contains(err.Error(), " ") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		if _, err := f.read(bytes.Replace(f.body, []byte(`"v":1`), []byte(`"v":2`), 1)); store.KindOf(err) != store.ErrNewer {
			t.Errorf("%s of level 2: %v", name, err)
		}
	}
	for _, c := range []struct{ form, what, old, new string }{
		{"counter", "a negative counter", `"counter":48`, `"counter":-48`},
		{"counter", "a counter beyond 2^53", `"counter":48`, `"counter":9007199254740992`},
		{"counter", "an unknown form", `"form":"rows"`, `"form":"heap"`},
		{"counter", "rows in it", `}`, `,"rows":[[0,1,1,0,0,0,0,0]]}`},
		{"register", "a negative counter", `"counter":48`, `"counter":-1`},
		{"register", "a counter below an epoch", `"counter":48`, `"counter":46`},
		{"register", "an epoch twice", `[5000,5000,44,`, `[5000,5000,43,`},
		{"register", "an overlap", `[5000,5000,`, `[4999,5000,`},
		{"register", "upside down", `[0,4999,`, `[4999,0,`},
		{"register", "out of order", `[0,4999,43,`, `[8000,8999,43,`},
		{"register", "beyond the last slot", `,16383,`, `,16384,`},
		{"register", "a negative slot", `[0,4999,`, `[-1,4999,`},
		{"register", "a negative epoch", `[5000,5000,44,`, `[5000,5000,-44,`},
		{"register", "a short row", `[5000,5000,44,0,`, `[5000,5000,44,`},
		{"register", "a long row", `[5000,5000,44,`, `[0,5000,5000,44,`},
		{"register", "an unused text", `"texts":[`, `"texts":["x",`},
		{"register", "a text twice", `"` + id(1004) + `"`, `"` + id(1005) + `"`},
		{"register", "an empty text", `"` + id(1004) + `"`, `""`},
		{"register", "an unknown host", `"hosts":[`, `"hosts":[{"owner":"z","kind":"self","incarnation":"` + id(3) + `","ttl_ms":5000},`},
		{"row", "an empty list", `,"from":[`, `,"from":[],"x":[`},
		{"row", "neither held nor free", `"host":`, `"x":`},
		{"row", "another first slot", `"range":"0-4999"`, `"range":"1-4999"`},
		{"row", "an open range", `"range":"0-4999"`, `"range":"0-16384"`},
		{"row", "another spelling", `"range":"0-4999"`, `"range":"00-4999"`},
		{"row", "epoch 0", `"epoch":43`, `"epoch":0`},
		{"row", "a former epoch above", `"epoch":42,"rows"`, `"epoch":43,"rows"`},
		{"row", "an unknown end", `"how":"observed"`, `"how":"guessed"`},
		{"row", "another birth", `"birth":"` + id(1), `"birth":"` + id(2)},
		{"forced", "no successor", `"superseded_ttl_ms"`, `"hold_ms":1,"superseded_ttl_ms"`},
		{"forced", "a long wait", `"superseded_ttl_ms":30000`, `"superseded_ttl_ms":86400001`},
		{"handed", "held for nobody", `"successor":"b",`, ``},
		{"handed", "forced for somebody", `"how":"released"`, `"how":"vouched"`},
		{"announce", "another owner", `"owner":"b"`, `"owner":"a"`},
		{"announce", "a weight below 0", `"weight":100`, `"weight":-1`},
		{"announce", "a weight too high", `"weight":100`, `"weight":65537`},
		{"announce", "a capacity too high", `"capacity":12`, `"capacity":16385`},
		{"plan", "an overlap", `[5000,5000,`, `[4999,5000,`},
		{"plan", "an unused owner", `"owners":[`, `"owners":["x",`},
		{"plan", "an owner twice", `"owners":["b","a"]`, `"owners":["a","a"]`},
		{"plan", "an unknown owner", `[6000,6999,1,-1,-1]`, `[6000,6999,1,2,-1]`},
		{"plan", "a negative load", `[6000,6999,1,`, `[6000,6999,-1,`},
		{"plan", "sequence 0", `"seq":2`, `"seq":0`},
	} {
		f := all[c.form]
		if !bytes.Contains(f.body, []byte(c.old)) {
			t.Errorf("%s has no %s:\n%s", c.form, c.old, f.body)
			continue
		}
		if _, err := f.read(bytes.Replace(f.body, []byte(c.old), []byte(c.new), 1)); store.KindOf(err) != store.ErrCorrupt {
			t.Errorf("%s with %s: %v", c.form, c.what, err)
		}
	}
}

// Rows that together make no table fail closed: a counter below a row's epoch, an epoch
// twice, an overlap. Nothing is repaired in silence.
//
// SPEC SL4
// CASE B46
func TestACounterThatWentBackFailsClosed(t *testing.T) {
	t.Parallel()
	rows := full(RowsForm)
	head := func(counter uint64) *Table {
		h := must(DecodeTable("k", "orders", must(rows.Encode())))
		h.Counter = counter
		return h
	}
	if _, err := Assemble(head(rows.Counter), All, rows.Rows); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		head *Table
		part Range
		rows []Row
	}{
		"a counter below an epoch":     {head(42), All, rows.Rows},
		"also if one row is read":      {head(42), r(0, 0), rows.Rows[:1]},
		"a row twice":                  {head(48), All, append(rows.Rows[:1:1], rows.Rows...)},
		"a row of part of another":     {head(48), All, append([]Row{{Range: r(100, 200), Epoch: 1, Attempt: id(2), Host: self("z", 9)}}, rows.Rows...)},
		"an epoch of another row":      {head(48), All, append([]Row{{Range: r(9000, 9000), Epoch: 43, Attempt: id(2), Host: self("z", 9)}}, rows.Rows...)},
		"a part that is upside down":   {head(48), r(9, 0), nil},
		"a row that cannot be written": {head(48), All, []Row{{Range: r(0, 0)}}},
	} {
		if _, err := Assemble(x.head, x.part, x.rows); store.KindOf(err) != store.ErrCorrupt {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The counter's record alone decides nothing but a jump.
	h := head(48)
	if _, _, err := h.Claim(Claim{Ranges: []Range{r(0, 0)}, Host: self("a", 1), Attempt: id(5)}); !errors.Is(err, store.ErrInvalid) {
		t.Error("a claim without the rows:", err)
	}
	if next, err := h.Jump(id(5), 99); err != nil || next.Counter != 99 || next.Writer != id(5) {
		t.Error(err)
	}
}
