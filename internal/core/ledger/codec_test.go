package ledger_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

var detail = ledger.Detail{Write: id2, Trigger: "schedule", At: 1_767_225_600_000, Since: 1_767_225_600_100, Until: 1_767_229_200_100}

// fullHead has every field in use.
func fullHead() *ledger.Head {
	k := func(n int, site string, attempt uint64) ledger.Key {
		return ledger.Key{Run: runOf(n), Site: site, Attempt: attempt}
	}
	facts := []ledger.Fact{
		{Key: k(0, "paris", 1), Abandoned: &ledger.Abandonment{By: "host-b/1", Epoch: 8}},
		{Key: k(0, "paris", 2), Committed: true},
		{Key: k(1, "lyon", 1), Committed: true},
		{Key: k(2, "paris", 1), Failed: true},
		{Key: k(3, "paris", 1), NotBegun: true},
	}
	open := []ledger.Open{
		{Key: k(4, "paris", 2), Holder: `host-a/"7"`, Epoch: 9, Detail: detail},
		{Key: k(5, "lyon", 1), Holder: "host-z/1", Epoch: 20},
	}
	slices.SortFunc(facts, func(a, b ledger.Fact) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	slices.SortFunc(open, func(a, b ledger.Open) int { return bytes.Compare(a.Run[:], b.Run[:]) })
	return &ledger.Head{V: 1, Agent: job, Site: "paris", Birth: id2, WriterAttempt: id1, Sequence: 41, Epoch: 9, Holder: `host-a/"7"`, Imports: 1,
		Epochs: []ledger.SiteEpoch{{Site: "lyon", Epoch: 20, Birth: id1}}, Open: open, Facts: facts, Leaves: "3:gA"}
}

func fullResult() *ledger.Result {
	r := &ledger.Result{V: 1, Agent: job, Key: ledger.Key{Run: runOf(0), Site: "paris", Attempt: 2}, Holder: "host-a/7", Epoch: 9, Status: ledger.Committed,
		Exit: 3, Why: "exit status 3", Trigger: "schedule", At: detail.At, Started: detail.Since, Ended: detail.Since + 5}
	r.KeepOutput([]byte("done <1>\n"), 9)
	return r
}

// block is the one block of a ledger with the facts of fullHead.
func block(t *testing.T, h *ledger.Head) []byte {
	t.Helper()
	h.Leaves = ""
	c := ledger.Compact(h)
	body, err := c.Take("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// The bytes of every record are pinned. A block is pinned in hex.
//
// SPEC ST15 ST7 EX3 EX7
func TestGolden(t *testing.T) {
	t.Parallel()
	head := fullHead()
	body := must(head.Encode())
	recordtest.Golden(t, "head", body)
	back := must(ledger.DecodeHead("k", job, body))
	if again := must(back.Encode()); !bytes.Equal(again, body) {
		t.Error("a head does not survive a round trip")
	}
	recordtest.Golden(t, "first", must(must(ledger.NewHead(job, "paris", id1)).Encode()))
	recordtest.Golden(t, "result", must(fullResult().Encode()))
	packed := block(t, fullHead())
	recordtest.Golden(t, "block", []byte(hex.EncodeToString(packed)))
	if b := must(ledger.DecodeBlock("k", job, "", packed)); b.Len() != 5 {
		t.Errorf("the block has %d entries", b.Len())
	}
	s := ledger.NewState()
	head.Load(s.Agent(job))
	a := ledger.NewAgent(job, 0)
	head.Load(a)
	checkpoint := must(a.Checkpoint())
	recordtest.Golden(t, "checkpoint", []byte(hex.EncodeToString(checkpoint)))
	var log []byte
	for _, i := range a.Intents() {
		log = must(ledger.AppendLine(log, &i))
	}
	recordtest.Golden(t, "log", log)
}

// Run ids are pinned for ever: another derivation would repeat everything.
//
// SPEC EX5
func TestRunIDs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	id := must(ledger.Occurrence(job, "schedule", at))
	if got := id.String(); got != goldenRun {
		t.Errorf("the run id is %s, was %s", got, goldenRun)
	}
	if got := must(ledger.ParseRunID(goldenRun)); got != id {
		t.Errorf("the text of a run id reads as %v", got)
	}
	paris := at.In(time.FixedZone("x", 7200))
	if must(ledger.Occurrence(job, "schedule", paris)) != id {
		t.Error("the zone of an instant is in its run id")
	}
	ids := map[ledger.RunID]string{id: "first"}
	for name, r := range map[string]ledger.RunID{
		"an hour later":   must(ledger.Occurrence(job, "schedule", at.Add(time.Hour))),
		"a ms later":      must(ledger.Occurrence(job, "schedule", at.Add(time.Millisecond))),
		"another trigger": must(ledger.Occurrence(job, "schedul", at)),
		"another job":     must(ledger.Occurrence("nightl", "yschedule", at)),
		"named":           must(ledger.Named(job, "schedule")),
		"named like it":   must(ledger.Named(job, id1)),
		"manual":          must(ledger.Manual(job, id1)),
		"another manual":  must(ledger.Manual(job, id2)),
	} {
		if other, ok := ids[r]; ok {
			t.Errorf("%s has the id of %s", name, other)
		}
		ids[r] = name
	}
	for name, err := range map[string]error{
		"below a ms":     second(ledger.Occurrence(job, "schedule", at.Add(time.Microsecond))),
		"before 1970":    second(ledger.Occurrence(job, "schedule", time.UnixMilli(-1))),
		"no job":         second(ledger.Occurrence("", "schedule", at)),
		"no trigger":     second(ledger.Occurrence(job, "", at)),
		"bad name":       second(ledger.Named(job, "a\x00b")),
		"manual by name": second(ledger.Manual(job, "monday")),
		"short":          second(ledger.ParseRunID("00ff")),
		"upper case":     second(ledger.ParseRunID(strings.ToUpper(goldenRun))),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Whatever is not the one encoding of a valid record is refused.
//
// SPEC ST7 ST15
func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	head := must(fullHead().Encode())
	headOf := func(edit func(*ledger.Head)) []byte {
		h := fullHead()
		edit(h)
		return must(json.Marshal(h))
	}
	for name, body := range map[string][]byte{
		"cut off":                 head[:len(head)-1],
		"another job":             bytes.Replace(head, []byte(`"agent":"nightly"`), []byte(`"agent":"other"`), 1),
		"unknown field":           bytes.Replace(head, []byte(`"v":1`), []byte(`"v":1,"x":0`), 1),
		"no sequence":             headOf(func(h *ledger.Head) { h.Sequence = 0 }),
		"epoch without holder":    headOf(func(h *ledger.Head) { h.Holder = "" }),
		"open above the epoch":    headOf(func(h *ledger.Head) { h.Epoch = 8 }),
		"own site is merged":      headOf(func(h *ledger.Head) { h.Epochs[0].Site = "paris" }),
		"epoch of a site is 0":    headOf(func(h *ledger.Head) { h.Epochs[0] = ledger.SiteEpoch{Site: "lyon"} }),
		"facts out of order":      headOf(func(h *ledger.Head) { h.Facts[0], h.Facts[1] = h.Facts[1], h.Facts[0] }),
		"a fact twice":            headOf(func(h *ledger.Head) { h.Facts[1] = h.Facts[0] }),
		"a fact says nothing":     headOf(func(h *ledger.Head) { h.Facts[0] = ledger.Fact{Key: h.Facts[0].Key} }),
		"open and settled":        headOf(func(h *ledger.Head) { h.Open[0].Key = h.Facts[0].Key }),
		"open attempts unordered": headOf(func(h *ledger.Head) { h.Open[0], h.Open[1] = h.Open[1], h.Open[0] }),
		"leaves incomplete":       headOf(func(h *ledger.Head) { h.Leaves = "2:gA" }),
		"leaves with a tail":      headOf(func(h *ledger.Head) { h.Leaves = "3:gQ" }),
		"no birth":                headOf(func(h *ledger.Head) { h.Birth = "" }),
		"a site has two births": headOf(func(h *ledger.Head) {
			h.Epochs = append(h.Epochs, ledger.SiteEpoch{Site: "lyon", Epoch: 20, Birth: id2})
		}),
		"bad birth of a site":   headOf(func(h *ledger.Head) { h.Epochs[0].Birth = "x" }),
		"bad attempt id":        headOf(func(h *ledger.Head) { h.WriterAttempt = "1" }),
		"attempt out of bounds": headOf(func(h *ledger.Head) { h.Open[1].Attempt = 1 << 32 }),
	} {
		if _, err := ledger.DecodeHead("k", job, body); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("head, %s: %v", name, err)
		}
	}
	if _, err := ledger.DecodeHead("k", job, bytes.Replace(head, []byte(`"v":1`), []byte(`"v":2`), 1)); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a newer head: %v", err)
	}
	result := must(fullResult().Encode())
	for name, body := range map[string][]byte{
		"other output": bytes.Replace(result, []byte("ZG9uZ"), []byte("ZG9vZ"), 1),
		"pending":      bytes.Replace(result, []byte("committed"), []byte("pending"), 1),
		"exit 256":     bytes.Replace(result, []byte(`"exit":3`), []byte(`"exit":256`), 1),
	} {
		if _, err := ledger.DecodeResult("k", job, fullResult().Key, body); !errors.Is(err, store.ErrCorrupt) || bytes.Equal(body, result) {
			t.Errorf("result, %s: %v", name, err)
		}
	}
	if _, err := ledger.DecodeResult("k", job, ledger.Key{Run: runOf(0), Site: "paris", Attempt: 1}, result); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("another attempt's result: %v", err)
	}
}

// Every byte of a block is checked: each flipped bit, cut and added byte is found.
//
// SPEC ST7 EX7
func TestDamagedBlockIsFound(t *testing.T) {
	t.Parallel()
	body := block(t, fullHead())
	damaged := func(what string, b []byte) {
		t.Helper()
		if _, err := ledger.DecodeBlock("k", job, "", b); !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNewer) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range body {
		for bit := range 8 {
			b := bytes.Clone(body)
			b[i] ^= 1 << bit
			damaged(fmt.Sprintf("byte %d, bit %d", i, bit), b)
		}
		damaged(fmt.Sprintf("cut to %d", i), body[:i])
	}
	damaged("a byte more", append(bytes.Clone(body), 0))
	for name, err := range map[string]error{
		"another job":              second(ledger.DecodeBlock("k", "other", "", body)),
		"another leaf":             second(ledger.DecodeBlock("k", job, "0", body)),
		"a block is no checkpoint": ledger.NewState().Load("k", body),
	} {
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A result keeps 64 KiB of output and says what it cut.
//
// SPEC EX6
func TestResult(t *testing.T) {
	t.Parallel()
	r := fullResult()
	r.KeepOutput(bytes.Repeat([]byte{0xff}, ledger.MaxOutput), 1<<20)
	body := must(r.Encode())
	back := must(ledger.DecodeResult("k", job, r.Key, body))
	if len(back.Output) != ledger.MaxOutput || !back.Cut() || back.OutputBytes != 1<<20 {
		t.Errorf("%d bytes of %d, cut %v", len(back.Output), back.OutputBytes, back.Cut())
	}
	r.KeepOutput(make([]byte, ledger.MaxOutput+1), ledger.MaxOutput+1)
	if len(r.Output) != ledger.MaxOutput || !r.Cut() {
		t.Errorf("%d bytes kept, cut %v", len(r.Output), r.Cut())
	}
	r.KeepOutput(nil, 0)
	if back := must(ledger.DecodeResult("k", job, r.Key, must(r.Encode()))); back.Cut() || back.Output != nil {
		t.Error("no output is not the same as cut output")
	}
	if a, b := ledger.ResultName(r.Key), ledger.ResultName(ledger.Key{Run: r.Run, Site: "p", Attempt: 12}); a == b || !strings.HasPrefix(a, r.Run.String()+"/") {
		t.Errorf("results are named %s and %s", a, b)
	}
}

// What somebody else wrote is read without failing and without promoting anything.
//
// SPEC EX3
func TestLenient(t *testing.T) {
	t.Parallel()
	good := intent(0, "a", 2, ledger.Committed, 3)
	line := string(must(good.Encode()))
	for name, c := range map[string]struct {
		body  string
		clean bool
		check func(ledger.Intent) bool
	}{
		"good":              {line, true, func(i ledger.Intent) bool { return i == good }},
		"unknown field":     {strings.Replace(line, `"v":1`, `"v":1,"x":2`, 1), false, func(i ledger.Intent) bool { return i == good }},
		"epoch is text":     {strings.Replace(line, `"epoch":3`, `"epoch":"3"`, 1), false, func(i ledger.Intent) bool { return i.Epoch == 0 && i.Status == ledger.Committed }},
		"epoch is negative": {strings.Replace(line, `"epoch":3`, `"epoch":-3`, 1), false, func(i ledger.Intent) bool { return i.Epoch == 0 }},
		"epoch is huge":     {strings.Replace(line, `"epoch":3`, `"epoch":9007199254740992`, 1), false, func(i ledger.Intent) bool { return i.Epoch == 0 }},
		"agent is a number": {strings.Replace(line, `"nightly"`, `7`, 1), false, func(i ledger.Intent) bool { return i.Agent == "" }},
		"agent is missing":  {strings.Replace(line, `"agent":"nightly",`, ``, 1), false, func(i ledger.Intent) bool { return i.Agent == "" }},
		"agent is no UTF-8": {strings.Replace(line, `nightly`, "nightly\xff", 1), false, func(i ledger.Intent) bool { return i.Agent == "" }},
		"status unknown":    {strings.Replace(line, `committed`, `Committed`, 1), false, func(i ledger.Intent) bool { return i.Status == ledger.Pending }},
		"status missing":    {strings.Replace(line, `,"status":"committed"`, ``, 1), false, func(i ledger.Intent) bool { return i.Status == ledger.Pending }},
		"other case":        {strings.Replace(line, `"status"`, `"Status"`, 1), false, func(i ledger.Intent) bool { return i.Status == ledger.Pending }},
		"run is short":      {strings.Replace(line, runOf(0).String(), "00", 1), false, func(i ledger.Intent) bool { return i.Run == ledger.RunID{} }},
		"not an object":     {`[1]`, false, func(i ledger.Intent) bool { return i.Agent == "" && i.Status == ledger.Pending && i.Epoch == 0 }},
		"null":              {`null`, false, func(i ledger.Intent) bool { return i.Agent == "" && i.Status == ledger.Pending }},
		"nothing":           {``, false, func(i ledger.Intent) bool { return i.Agent == "" && i.Status == ledger.Pending }},
	} {
		i, clean, err := ledger.Lenient([]byte(c.body))
		if err != nil || clean != c.clean || !c.check(i) {
			t.Errorf("%s: %+v, clean %v, %v", name, i, clean, err)
		}
	}
	if _, _, err := ledger.Lenient([]byte(strings.Replace(line, `"v":1`, `"v":2`, 1))); !errors.Is(err, store.ErrNewer) {
		t.Errorf("a newer intent: %v", err)
	}
	for name, edit := range map[string]func(*ledger.Intent){
		"no agent":              func(i *ledger.Intent) { i.Agent = "" },
		"no site":               func(i *ledger.Intent) { i.Site = "" },
		"attempt 0":             func(i *ledger.Intent) { i.Attempt = 0 },
		"attempt out of bounds": func(i *ledger.Intent) { i.Attempt = 1 << 32 },
		"epoch out of bounds":   func(i *ledger.Intent) { i.Epoch = record.MaxNumber + 1 },
		"unknown status":        func(i *ledger.Intent) { i.Status = "done" },
		"details of a commit":   func(i *ledger.Intent) { i.Since = 1 },
		"a commit not started":  func(i *ledger.Intent) { i.NotStarted = true },
		"birth of an attempt":   func(i *ledger.Intent) { i.Birth = id1 },
		"raises with a run":     func(i *ledger.Intent) { i.Status = ledger.Raised },
	} {
		i := good
		edit(&i)
		if _, err := i.Encode(); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s is written: %v", name, err)
		}
	}
}

// A log that a crash tore loses its unacknowledged last line only; any other damage
// is an error that says where.
//
// SPEC EX3 EX7
func TestLog(t *testing.T) {
	t.Parallel()
	var log []byte
	var ends []int
	for n := range 3 {
		i := intent(n, "a", 1, ledger.Committed, 3)
		log = must(ledger.AppendLine(log, &i))
		ends = append(ends, len(log))
	}
	for cut := range len(log) + 1 {
		s := ledger.NewState()
		r, err := ledger.ReadLog("f", log[:cut], s.Fold)
		whole := 0
		for _, e := range ends {
			if e <= cut {
				whole++
			}
		}
		if err != nil || r.Lines != whole || s.Agent(job).Len() != whole || r.Torn != (cut != 0 && !slices.Contains(ends, cut)) || r.Good > cut {
			t.Fatalf("cut at %d: %+v %v, %d runs", cut, r, err, s.Agent(job).Len())
		}
	}
	for at := range log {
		for bit := range 8 {
			bad := bytes.Clone(log)
			bad[at] ^= 1 << bit
			r, err := ledger.ReadLog("f", bad, func(ledger.Intent) {})
			// The last line feed is the one byte whose loss looks like a crash.
			if !errors.Is(err, store.ErrCorrupt) && !(at == len(log)-1 && r.Torn && r.Lines == 2) {
				t.Fatalf("byte %d, bit %d: %+v %v", at, bit, r, err)
			}
		}
	}
}

const goldenRun = "fa4978f7862278f77ff2bf2b2aea90899aae5613fc4505690e947edffb73795f"
