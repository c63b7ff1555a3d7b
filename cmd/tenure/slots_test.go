package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenure-project/tenure/cmd/tenure/internal/slotmap"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/slots"
)

// scriptOwned waits until that many ranges of a table are held: owned N TABLE. It polls,
// for 20 s at most.
func scriptOwned(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: owned N TABLE")
	}
	got := 0
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // poll
		ts.Check(ts.Exec("tenure", "slots", "ls", args[1], "--json"))
		if got = strings.Count(ts.ReadFile("stdout"), `"state":"held"`); fmt.Sprint(got) == args[0] {
			return
		}
	}
	ts.Fatalf("%d ranges of %s are held, not %s", got, args[1], args[0])
}

// scriptPlanned waits until shards of a table are meant for that many owners: planned N
// TABLE. It polls, for 20 s at most.
func scriptPlanned(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: planned N TABLE")
	}
	target := regexp.MustCompile(`"target":"([^"]+)"`)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { // poll
		ts.Check(ts.Exec("tenure", "slots", "plan", args[1], "--json"))
		owners := map[string]bool{}
		for _, m := range target.FindAllStringSubmatch(ts.ReadFile("stdout"), -1) {
			owners[m[1]] = true
		}
		if fmt.Sprint(len(owners)) == args[0] {
			return
		}
	}
	ts.Fatalf("shards of %s are not meant for %s owners", args[1], args[0])
}

// scriptEpochOf sets EPOCH to that of a range in what slots ls --json printed: epochof
// RANGE FILE.
func scriptEpochOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: epochof RANGE FILE")
	}
	m := regexp.MustCompile(`"range":"` + args[0] + `".*?"epoch":(\d+)`).FindStringSubmatch(ts.ReadFile(args[1]))
	if m == nil {
		ts.Fatalf("%s has no range %s", args[1], args[0])
	}
	ts.Setenv("EPOCH", m[1])
}

// The default grace fits every TTL of ranges, and whatever fits leaves time for a renewal
// that failed, another one, and the end of the tree before a rival can own a range.
//
// SPEC SL5 DL5
func TestSlotsGraceFits(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{slots.MinTTL, 3001 * time.Millisecond, 15 * time.Second, slots.DefaultTTL, slots.MaxTTL} {
		x := &claiming{running: running{ttl: ttl}}
		if err := x.fitSlotsGrace(false); err != nil {
			t.Fatalf("TTL %v: %v", ttl, err)
		}
		for fits, above := time.Duration(0), ttl; above-fits > time.Millisecond; {
			x.grace = (fits + above) / 2
			if x.fitSlotsGrace(true) != nil {
				above = x.grace
				continue
			}
			fits = x.grace
			last := ttl/4 + 2*(ttl/6) // of the second try, from the first send on
			rival := ttl - lease.Timing{TTL: ttl}.Defaults().Margin
			if last+proc.StopTime(x.grace, x.reserve) > rival {
				t.Fatalf("TTL %v: grace %v fits, but a tree could live %v longer", ttl, x.grace, last+proc.StopTime(x.grace, x.reserve)-rival)
			}
		}
	}
}

// Every reason and every wait of a plan is told in words, none in the balancer's own.
//
// SPEC SL8
func TestPlanWords(t *testing.T) {
	t.Parallel()
	for r := balance.Ownerless; r <= balance.Unplaced; r++ {
		text := reasonText(r, "a", "b")
		if text == "" || text == "the plan says so" || text == r.String() {
			t.Errorf("reason %v: %q", r, text)
		}
	}
	for w := balance.InFlight; w <= balance.Room; w++ {
		if text := waitText(w, "b"); !strings.HasPrefix(text, "until ") {
			t.Errorf("wait %v: %q", w, text)
		}
	}
	m := move{owner: "a", wanted: "b", why: "it is pinned to b", shards: []slots.Range{{A: 0, B: 3}, {A: 4, B: 7}, {A: 8, B: 11}, {A: 12, B: 15}}}
	if got, want := m.String(), "4 shards (0-3, 4-7, 8-11 and 1 more): a is to hand over to b: it is pinned to b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What others wrote into a table does not break the picture, nor the terminal.
//
// SPEC ST11 UI1
func TestMapOfHostileNames(t *testing.T) {
	t.Parallel()
	a := newApp(strings.NewReader(""), discard{}, discard{}, nil)
	v := &slots.View{Table: "t<&\"'>", Rows: []slots.Row{
		{Range: slots.Range{A: 0, B: 9000}, Epoch: 1, Host: &slots.Owner{Owner: "</svg>\u202e<script>", Addr: "\x1b[31m\x00]]>\xff", Kind: slots.Self}},
		{Range: slots.Range{A: 9001, B: 9001}, Epoch: 2, Freed: &slots.Freed{Owner: "x", Successor: "&amp;", HoldMS: 1}},
	}}
	m := a.mapOf("n\u200bs", v, showName, printable)
	var svg, text bytes.Buffer
	if err := errors.Join(m.SVG(&svg), m.Text(&text, false)); err != nil {
		t.Fatal(err)
	}
	in, inner := xml.NewDecoder(&svg), strings.Builder{}
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.CharData:
			inner.Write(x)
		case xml.StartElement:
			if x.Name.Local == "script" {
				t.Error("a name became an element")
			}
		}
	}
	for _, s := range []string{inner.String(), text.String()} {
		if !strings.Contains(s, `svg>\u202e<script>`) || strings.ContainsAny(s, "\x1b\x00\u202e\u200b") {
			t.Errorf("the names are not shown as they are for people:\n%s", s)
		}
	}
	for line := range strings.Lines(text.String()) {
		if len([]rune(line)) > 81 {
			t.Errorf("a line of %d columns: %s", len([]rune(line))-1, line)
		}
	}
	if m.Count(slotmap.Kept) != 1 || m.Rows[1].Owner != "&amp;" {
		t.Errorf("a range that is kept for a successor is shown as %+v", m.Rows[1])
	}
}
