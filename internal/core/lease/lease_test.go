package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

const (
	id1 = "11111111-1111-4111-8111-111111111111"
	id2 = "22222222-2222-4222-8222-222222222222"
	id3 = "33333333-3333-4333-8333-333333333333"
)

// full is a record with every field that format level 1 has in use.
func full() *Record {
	return &Record{
		V: 1, Kind: Self, Resource: "reports/nightly", Owner: &Owner{Node: "host-a/4711", Incarnation: id1},
		Token: 42, Counter: 43, Renewal: 7, TTLMS: 15000, WriterAttempt: id2, HolderAttempt: id2,
		Note: `quarter <end> & "more"`, Since: 1_767_225_600_000,
		Lock:       &Lock{Mark: store.Mark{Boot: id3, Dev: 2049, Inode: 77}, Tree: "cgroup", Cgroup: "/sys/fs/cgroup/tenure-1"},
		SecretHash: "sha256:00", MAC: "hmac:00", ClockInstance: "pg-1",
		Recent: []Tenure{
			{Token: 40, Owner: Owner{Node: "host-b/1", Incarnation: id3}, Since: 1, Until: 2, How: HowReleased},
			{Token: 41, Owner: Owner{Node: "host-b/1", Incarnation: id3}, Since: 3, Until: 4, How: HowForced, Why: "fire", By: "anna"},
		},
		Dropped: 3,
	}
}

func forms() map[string]*Record {
	held := full()
	session := full()
	session.Kind, session.Owner, session.Lock, session.Evidence = Session, &Owner{Node: "n1", Incarnation: id1, Term: 5}, nil, "certificate"
	handed := full().End(id3, Ended{How: HowReleased, At: 1_767_225_700_000})
	handed.Successor, handed.HoldMS = "host-c", 5000
	forced, err := full().Steal(id3, Theft{Token: 42, Why: "host on fire", By: "anna", NowMS: 1_767_225_700_000})
	if err != nil {
		panic(err)
	}
	first, err := Grant(nil, 0, Claim{Kind: Self, Resource: "a", Owner: Owner{Incarnation: id1}, TTL: time.Second, Attempt: id2, NowMS: 1}, "")
	if err != nil {
		panic(err)
	}
	return map[string]*Record{"held": held, "session": session, "handed-over": handed, "forced": forced, "first": first}
}

// The bytes of every form of record are pinned: docs/FORMAT.md tells them.
//
// SPEC ST15 ST7
func TestGolden(t *testing.T) {
	for name, r := range forms() {
		body, err := r.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		recordtest.Golden(t, name, body)
		back, err := Decode("k", r.Resource, body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, _ := back.Encode()
		if !bytes.Equal(again, body) {
			t.Errorf("%s does not survive a round trip", name)
		}
	}
	ns := &Namespace{V: 1, Name: "default", Level: 1, RetentionMS: DefaultRetentionForTest, Floor: 9, WriterAttempt: id1, Created: 1_767_225_600_000}
	body, err := record.Encode(ns, MaxNamespaceBody)
	if err != nil {
		t.Fatal(err)
	}
	recordtest.Golden(t, "namespace", body)
	a := &Archive{V: 1, Resource: "reports/nightly", Attempt: id1, Tenures: full().Recent}
	if body, err = record.Encode(a, MaxBody); err != nil {
		t.Fatal(err)
	}
	recordtest.Golden(t, "archive", body)
}

// DefaultRetentionForTest is 30 days in milliseconds.
const DefaultRetentionForTest = 30 * 24 * 3600 * 1000

// Whatever is not the one encoding of a valid record is refused, and a newer
// level is told from damage.
//
// SPEC ST7 ST15
func TestDecodeIsStrict(t *testing.T) {
	good, _ := full().Encode()
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
		"empty":               {nil, store.ErrCorrupt},
		"not JSON":            {[]byte("lease"), store.ErrCorrupt},
		"cut off":             {good[:len(good)-1], store.ErrCorrupt},
		"trailing bytes":      {append(bytes.Clone(good), ' '), store.ErrCorrupt},
		"a second value":      {append(bytes.Clone(good), good...), store.ErrCorrupt},
		"white space":         {edit(`"v":1`, `"v": 1`), store.ErrCorrupt},
		"unknown field":       {edit(`"v":1`, `"v":1,"x":1`), store.ErrCorrupt},
		"doubled field":       {edit(`"v":1`, `"v":1,"v":1`), store.ErrCorrupt},
		"other case":          {edit(`"token"`, `"Token"`), store.ErrCorrupt},
		"other order":         {edit(`"v":1,"kind":"self"`, `"kind":"self","v":1`), store.ErrCorrupt},
		"escaped differently": {edit(`quarter <`, `quarter \u003c`), store.ErrCorrupt},
		"null":                {edit(`"token":42`, `"token":null`), store.ErrCorrupt},
		"negative":            {edit(`"token":42`, `"token":-42`), store.ErrCorrupt},
		"token over counter":  {edit(`"token":42`, `"token":44`), store.ErrCorrupt},
		"beyond 2^53":         {edit(`"counter":43`, `"counter":9007199254740992`), store.ErrCorrupt},
		"unknown kind":        {edit(`"kind":"self"`, `"kind":"shared"`), store.ErrCorrupt},
		"TTL of zero":         {edit(`"ttl_ms":15000`, `"ttl_ms":0`), store.ErrCorrupt},
		"TTL of a year":       {edit(`"ttl_ms":15000`, `"ttl_ms":31536000000`), store.ErrCorrupt},
		"other name":          {edit(`reports/nightly`, `reports/daily`), store.ErrCorrupt},
		"past out of order":   {edit(`"token":40`, `"token":41`), store.ErrCorrupt},
		"level 0":             {edit(`"v":1`, `"v":0`), store.ErrCorrupt},
		"level 2":             {edit(`"v":1`, `"v":2`), store.ErrNewer},
		"level 2, new fields": {edit(`"v":1`, `"v":2,"shiny":[]`), store.ErrNewer},
		"level as text":       {edit(`"v":1`, `"v":"1"`), store.ErrCorrupt},
	} {
		if _, err := Decode("k", "reports/nightly", c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
	// Owned and free at once, in every mixture.
	for _, r := range forms() {
		owned := *r
		owned.Ended = &Ended{How: HowReleased}
		if r.Held() && owned.Valid() == nil {
			t.Error("an owned record that ended is valid")
		}
		free := *r
		free.Owner = nil
		if r.Held() && free.Valid() == nil {
			t.Error("a record without owner that says no end is valid")
		}
	}
}

// Decoding arbitrary bytes never panics, and what it accepts encodes to the
// same bytes.
//
// SPEC ST7
func FuzzDecode(f *testing.F) {
	for _, r := range forms() {
		body, _ := r.Encode()
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Record
		if record.Decode("k", body, &r) != nil {
			return
		}
		again, err := r.Encode()
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("accepted %q, which encodes to %q (%v)", body, again, err)
		}
	})
}

// No name, note, reason or history makes a record larger than its bound, and
// history gives way before an acquire does.
//
// SPEC ST11 LS13
func TestRecordIsBounded(t *testing.T) {
	nasty := strings.Repeat("\u2028", 42) // six bytes each in JSON
	r := full()
	for token := uint64(1000); token < 1100; token++ {
		c := Claim{Kind: Self, Resource: strings.Repeat("\\", 128), Owner: Owner{Node: strings.Repeat(`"`, 128), Incarnation: id1},
			TTL: time.Second, Attempt: id2, Note: strings.Repeat("\n", MaxNote/2)}
		next, err := Grant(r, token, c, HowObserved)
		if err != nil {
			t.Fatal(err)
		}
		body, err := next.Encode()
		if err != nil || len(body) > MaxBody {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		r = next.End(id3, Ended{How: HowForced, SupersededTTLMS: 1000, Why: nasty, By: nasty})
		if _, err := r.Encode(); err != nil {
			t.Fatal(err)
		}
	}
	if r.Dropped < 60 || len(r.Recent) > RecentMost {
		t.Fatalf("%d dropped, %d kept", r.Dropped, len(r.Recent))
	}
	if err := CheckNote(strings.Repeat("\u2028", MaxNote/6+1)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a note that encodes to more than its bound: %v", err)
	}
	if err := CheckNote("\xff"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a note that is not UTF-8: %v", err)
	}
}

// A record that is not counted as too long never is: the frames cover whatever is no
// text, and no byte of a text takes more than six.
//
// SPEC LS13
func TestMayBeTooLong(t *testing.T) {
	t.Parallel()
	big := uint64(record.MaxNumber)
	r := full()
	r.Token, r.Counter, r.Renewal, r.Dropped, r.Since = big, big, big, big, int64(big)
	r.TTLMS, r.HoldMS = MaxTTL.Milliseconds(), MaxTTL.Milliseconds()
	r.Lock = &Lock{Mark: store.Mark{Boot: "b", Dev: 1<<64 - 1, Inode: 1<<64 - 1}, Tree: "cgroup", Cgroup: "c"}
	r.Ended = &Ended{How: HowStoreClock, At: int64(big), SupersededTTLMS: int64(big), Why: "w", By: "b"}
	r.Owner.Term, r.Recent = big, nil
	bare := *r
	bare.Resource, bare.Note, bare.Successor, bare.ClockInstance, bare.Evidence, bare.SecretHash, bare.MAC = "r", "n", "s", "c", "e", "h", "m"
	if n := record.Size(&bare); n > frameOfRecord {
		t.Errorf("a record without texts has %d bytes", n)
	}
	one := record.Size(&bare)
	bare.Recent = []Tenure{{Token: big, Owner: Owner{Node: "n", Incarnation: id1, Term: big}, Since: int64(big), Until: int64(big), How: HowStoreClock, Why: "w", By: "b"}}
	if n := record.Size(&bare) - one; n > frameOfTenure {
		t.Errorf("a past tenure without texts has %d bytes", n)
	}
	if full().mayBeTooLong() {
		t.Error("an ordinary record is counted as too long")
	}
	full := full()
	full.Evidence = strings.Repeat("\u2028", MaxBody/18)
	if !full.mayBeTooLong() {
		t.Error("texts are not counted")
	}
}

// encodedLen agrees with the encoder on every character.
//
// SPEC ST11
func TestEncodedLen(t *testing.T) {
	for r := rune(0); r < 0x3000; r++ {
		s := string(r)
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if want := b.Len() - 3; encodedLen(s) < want {
			t.Errorf("%U: counted as %d bytes, encoded as %d", r, encodedLen(s), want)
		}
	}
}

// TTLs are whole milliseconds within bounds; others are refused, never rounded,
// clamped or wrapped.
//
// SPEC DL5
// CASE B48 B49
func TestTTLBounds(t *testing.T) {
	for _, ttl := range []time.Duration{0, -1, -time.Second, 1, 99 * time.Millisecond, 100*time.Millisecond + 1,
		24*time.Hour + time.Millisecond, 9_999_999 * time.Millisecond * 3600, 1 << 62, -1 << 63} {
		if err := CheckTTL(ttl); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
	for _, ttl := range []time.Duration{100 * time.Millisecond, 15 * time.Second, 24 * time.Hour} {
		if err := CheckTTL(ttl); err != nil {
			t.Error(err)
		}
		if err := (Timing{TTL: ttl}).Defaults().Check(); err != nil {
			t.Errorf("the defaults of TTL %v do not fit: %v", ttl, err)
		}
	}
}

// A timing that cannot work is refused with the number to change.
//
// SPEC DL5
func TestTimingCheck(t *testing.T) {
	for say, timing := range map[string]Timing{
		"raise the TTL":           {TTL: 10 * time.Second, Renew: 8 * time.Second},
		"attempt limit":           {TTL: 10 * time.Second, Attempt: 4 * time.Second},
		"raise the margin":        {TTL: 10 * time.Second, Margin: 50 * time.Millisecond},
		"the grace) to below 4.3": {TTL: 10 * time.Second, Stop: 8 * time.Second},
		"0 to 0.1":                {TTL: 10 * time.Second, Rho: 0.5},
		"must be above 0":         {TTL: 10 * time.Second, Renew: -1},
	} {
		err := timing.Defaults().Check()
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), say) {
			t.Errorf("%+v: %v, want it to say %q", timing, err, say)
		}
	}
}

// A grant takes max(counter, floor) + 1, keeps the level, and a takeover puts the
// fallen tenure into the history.
//
// SPEC LS1 LS2 LS15 ST15
func TestGrant(t *testing.T) {
	c := Claim{Kind: Self, Resource: "reports/nightly", Owner: Owner{Incarnation: id3}, TTL: time.Second, Attempt: id3, NowMS: 9}
	for _, x := range []struct {
		prev  *Record
		floor uint64
		want  uint64
	}{{nil, 0, 1}, {nil, 7, 8}, {full(), 0, 44}, {full(), 42, 44}, {full(), 100, 101}} {
		r, err := Grant(x.prev, x.floor, c, HowObserved)
		if err != nil || r.Token != x.want || r.Counter != x.want || r.Valid() != nil {
			t.Errorf("floor %d: %+v, %v", x.floor, r, err)
		}
	}
	r, _ := Grant(full(), 0, c, HowProven)
	if last := r.Recent[len(r.Recent)-1]; last.Token != 42 || last.How != HowProven || last.Until != 9 {
		t.Errorf("history says %+v", last)
	}
	end := full()
	end.Counter = record.MaxNumber
	if _, err := Grant(end, 0, c, ""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("beyond the last token: %v", err)
	}
}

// A candidate's observation is of one exact state and starts anew with any other.
//
// SPEC LS2 LS10 LS11 LS8
func TestObservation(t *testing.T) {
	held := full()
	o := Observation{}.Observe(held, "v1", 5*time.Second)
	if got := o.Observe(held, "v1", 9*time.Second); got != o {
		t.Error("the same state restarted the observation")
	}
	renewed := held.Renew(id3)
	for what, next := range map[string]Observation{
		"a renewal":           o.Observe(renewed, "v2", 9*time.Second),
		"another version":     o.Observe(held, "v2", 9*time.Second),
		"a clock that fell":   o.Observe(held, "v1", 4*time.Second),
		"another owner":       o.Observe(forms()["session"], "v1", 9*time.Second),
		"an end of the lease": o.Observe(forms()["forced"], "v1", 9*time.Second),
	} {
		if next.From == o.From && what != "another owner" {
			t.Errorf("%s did not restart the observation", what)
		}
	}
	if at := o.RipeAt(held.TTL(), 0.01); at < 5*time.Second+15*time.Second*101/100 {
		t.Errorf("ripe at %v", at)
	}
	wait := func(r *Record, me string) time.Duration {
		d, possible := r.Wait(me)
		if !possible {
			return -1
		}
		return d
	}
	f := forms()
	for what, got := range map[string][2]time.Duration{
		"held":                  {wait(f["held"], ""), 15 * time.Second},
		"session":               {wait(f["session"], ""), -1},
		"forced":                {wait(f["forced"], ""), 15 * time.Second},
		"handed over, others":   {wait(f["handed-over"], "host-d"), 5 * time.Second},
		"handed over, named":    {wait(f["handed-over"], "host-c"), 0},
		"handed over, no name":  {wait(f["handed-over"], ""), 5 * time.Second},
		"released":              {wait(full().End(id3, Ended{How: HowReleased}), ""), 0},
		"forced, the successor": {wait(f["forced"], "host-c"), 15 * time.Second},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: wait %v, want %v", what, got[0], got[1])
		}
	}
}

// What a holder may adopt: its own owner, token and attempt, and no count that
// fell.
//
// SPEC ST9
func TestAdoptable(t *testing.T) {
	held := full()
	mine := func(id string) bool { return id == id2 }
	if !Adoptable(held, held.Jump(id3, 1000), mine) {
		t.Error("a jump is not adopted")
	}
	for what, change := range map[string]func(r *Record){
		"another owner":   func(r *Record) { r.Owner = &Owner{Incarnation: id3} },
		"another token":   func(r *Record) { r.Token, r.Counter = 43, 43 },
		"foreign attempt": func(r *Record) { r.HolderAttempt = id3 },
		"counter fell":    func(r *Record) { r.Counter = 42 },
		"renewals fell":   func(r *Record) { r.Renewal = 5 },
		"another TTL":     func(r *Record) { r.TTLMS = 30000 },
		"released":        func(r *Record) { *r = *r.End(id3, Ended{How: HowReleased}) },
	} {
		r := full()
		change(r)
		if Adoptable(held, r, mine) {
			t.Errorf("%s was adopted", what)
		}
	}
}
