package slotmap

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// shared is a table of rows of equal size, dealt out to the owners by deal.
func shared(owners, rows int, deal func(row int) int) *Map {
	m := &Map{Table: "orders", Namespace: "default", At: noon, Counter: uint64(rows)}
	for i := range rows {
		o := deal(i)
		m.Rows = append(m.Rows, Row{
			First: i * Slots / rows, Last: (i+1)*Slots/rows - 1, State: Held, Epoch: uint64(i + 1),
			Owner: fmt.Sprintf("cache-eu-%d", o), Addr: fmt.Sprintf("10.0.%d.%d:8080", o/256, o%256),
		})
	}
	return m
}

// examples are the tables whose pictures people were shown.
func examples() map[string]*Map {
	some := shared(3, 12, func(i int) int { return i % 3 })
	some.Rows[4].State, some.Rows[4].Owner = Kept, "cache-eu-2"
	some.Rows[7].State = Watched
	some.Rows = append(some.Rows[:9], some.Rows[10:]...)
	return map[string]*Map{
		"three": shared(3, 12, func(i int) int { return i / 2 % 3 }),
		"forty": shared(40, 256, func(i int) int { return i * 7919 % 40 }),
		"empty": {Table: "orders", Namespace: "default", At: noon},
		"alone": shared(Slots, Slots, func(i int) int { return i }),
		"some":  some,
	}
}

// wellFormed reads the whole picture as XML, and returns its text.
func wellFormed(t *testing.T, picture []byte) string {
	t.Helper()
	var text strings.Builder
	in := xml.NewDecoder(bytes.NewReader(picture))
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			text.Write(c)
		}
	}
}

func svg(t *testing.T, m *Map) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.SVG(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// SLOTMAP_OUT=DIR keeps the pictures, for people to look at.
func TestPictures(t *testing.T) {
	t.Parallel()
	for name, m := range examples() {
		picture := svg(t, m)
		wellFormed(t, picture)
		if len(picture) > 1<<20 {
			t.Errorf("%s: the picture has %d bytes", name, len(picture))
		}
		if !bytes.Equal(picture, svg(t, m)) {
			t.Errorf("%s: the same map gave two pictures", name)
		}
		if dir := os.Getenv("SLOTMAP_OUT"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, name+".svg"), picture, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A small picture, byte for byte. TENURE_UPDATE_SCRIPTS=1 rewrites it.
//
// SPEC SL1
func TestGolden(t *testing.T) {
	t.Parallel()
	m := &Map{Table: "orders", Namespace: "default", At: noon, Counter: 7, Rows: []Row{
		{First: 0, Last: 700, State: Held, Owner: "host-1", Addr: "10.0.0.1:80", Epoch: 3},
		{First: 701, Last: 701, State: Held, Owner: "host-2", Epoch: 7},
		{First: 8192, Last: 8291, State: Kept, Owner: "host-2", Epoch: 5},
		{First: 16000, Last: 16383, State: Watched, Owner: "host-3", Epoch: 6},
	}}
	picture, path := svg(t, m), filepath.Join("testdata", "small.svg")
	if os.Getenv("TENURE_UPDATE_SCRIPTS") != "" {
		if err := os.WriteFile(path, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(picture, want) {
		t.Errorf("the picture is not testdata/small.svg: look at it, and run with TENURE_UPDATE_SCRIPTS=1\n%s", picture)
	}
}

// Every slot is drawn exactly where a person looks for it, whatever the rows are: the areas
// of the owners' bars are their slots, none overlaps another, and none leaves the page.
//
// SPEC SL1
func TestBarsCoverTheSlots(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]int{{0, 0}, {511, 512}, {0, Slots - 1}, {100, 5000}, {Slots - 1, Slots - 1}} {
		area := 0
		for i, s := range segments(r[0], r[1]) {
			slot := (s.y-top)/linePitch*perLine + (s.x-left)/slotWide
			if want := r[0] + area; slot != want {
				t.Errorf("segment %d of %v begins at slot %d, not %d", i, r, slot, want)
			}
			if s.w < slotWide || s.x+s.w > left+perLine*slotWide || s.y+lineHigh > bottom {
				t.Errorf("segment %d of %v is %+v, which leaves the page", i, r, s)
			}
			area += s.w / slotWide
		}
		if want := r[1] - r[0] + 1; area != want {
			t.Errorf("%v has %d slots on the page, not %d", r, area, want)
		}
	}
}

// Owners that meet in the picture have different colours, and as long as there are as many
// hues as owners, all have.
func TestColours(t *testing.T) {
	t.Parallel()
	for owners := 1; owners <= len(palette); owners++ {
		m := shared(owners, 256, func(i int) int { return i * 7919 % owners })
		of, used := m.colours(m.Shares()), map[int]bool{}
		for _, c := range of {
			used[c] = true
		}
		if len(used) != owners {
			t.Errorf("%d owners have %d colours", owners, len(used))
		}
	}
	m := shared(500, 1000, func(i int) int { return i * 7919 % 500 })
	of := m.colours(m.Shares())
	for name, near := range m.neighbours() {
		for _, o := range near {
			if of[o] == of[name] {
				t.Errorf("%s and %s meet, and have one colour", name, o)
			}
		}
	}
	for _, c := range palette {
		l, ink := c.luminance(), 0.0
		if c.dark() {
			ink = 1
		}
		if contrast := (max(l, ink) + 0.05) / (min(l, ink) + 0.05); contrast < 4.5 {
			t.Errorf("text on %v has a contrast of %.1f", c, contrast)
		}
	}
}

// The text fits 80 columns and 24 lines as long as the legend is short, and says where each
// owner is.
//
// SPEC UI1
func TestText(t *testing.T) {
	t.Parallel()
	for name, m := range examples() {
		var plain, coloured bytes.Buffer
		if err := errors.Join(m.Text(&plain, false), m.Text(&coloured, true)); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(plain.String()) {
			if n := width(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: a line of %d columns: %s", name, n, line)
			}
		}
		if strings.Contains(plain.String(), "\x1b") {
			t.Errorf("%s: colours without a terminal", name)
		}
		bare := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured.String(), "")
		if bare != plain.String() {
			t.Errorf("%s: the colours change the text:\n%s\n%s", name, bare, plain.String())
		}
	}
	var some bytes.Buffer
	if err := examples()["some"].Text(&some, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n    0  BBBBBBBBBB", "\n 5120  BBBBBBBBBBBBBBBBBBBBB*......", ". nobody, * several", "\nA  cache-eu-2  10.0.0.2:8080   5,464  33.3%       4  3-12\n",
	} {
		if !strings.Contains(some.String(), want) {
			t.Errorf("the text has no %q:\n%s", want, some.String())
		}
	}
}

// Whatever is in a table, picture and text are made, and the picture is XML.
//
// SPEC ST11
func FuzzDraw(f *testing.F) {
	f.Add("orders", "host", "10.0.0.1", []byte{0, 200, 3, 1, 255, 255})
	f.Add("</title>", "]]>&\x00", "\xff\"'", []byte{9, 9, 9})
	f.Fuzz(func(t *testing.T, table, owner, addr string, rows []byte) {
		m := &Map{Table: table, Namespace: table, At: noon}
		at := 0
		for i := 0; i+1 < len(rows) && at < Slots; i += 2 {
			first := at + int(rows[i]&0x7f)
			last := min(Slots-1, first+int(rows[i+1])*int(rows[i+1])/4)
			if first >= Slots {
				break
			}
			state := []State{Held, Free, Kept, Watched}[int(rows[i]>>7)+int(rows[i+1]&1)*2]
			m.Rows = append(m.Rows, Row{First: first, Last: last, State: state, Owner: owner + string(rune('a'+rows[i]%40)), Addr: addr, Epoch: uint64(i + 1)})
			at = last + 1
		}
		held := 0
		for _, s := range m.Shares() {
			held += s.Slots
		}
		if sum := m.Count(Held) + m.Count(Free) + m.Count(Kept) + m.Count(Watched); held != m.Count(Held) || sum != Slots {
			t.Errorf("%d of %d slots are held, %d in all", held, m.Count(Held), sum)
		}
		wellFormed(t, svg(t, m))
		if err := m.Text(io.Discard, true); err != nil {
			t.Fatal(err)
		}
	})
}

// Names are in the order in which people count, which is a total one.
func TestNaturally(t *testing.T) {
	t.Parallel()
	names := []string{"", "a", "a1", "a01", "a01x", "a1x", "a2", "a10", "a10b", "b", "b9c10", "b9c9", "0", "00", "10", "9"}
	for _, a := range names {
		for _, b := range names {
			if naturally(a, b) != -naturally(b, a) || (naturally(a, b) == 0) != (a == b) {
				t.Errorf("%q and %q: %d and %d", a, b, naturally(a, b), naturally(b, a))
			}
			for _, c := range names {
				if naturally(a, b) < 0 && naturally(b, c) < 0 && naturally(a, c) >= 0 {
					t.Errorf("%q < %q < %q, but not %q < %q", a, b, c, a, c)
				}
			}
		}
	}
	if naturally("host-2", "host-10") >= 0 {
		t.Error("host-2 is not before host-10")
	}
}
