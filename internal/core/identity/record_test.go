package identity

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

const (
	idA  = "aaaaaaaa-1111-4111-8111-111111111111"
	idB  = "bbbbbbbb-2222-4222-8222-222222222222"
	idC  = "cccccccc-3333-4333-8333-333333333333"
	idR  = "dddddddd-4444-4444-8444-444444444444"
	try1 = "00000000-0000-4000-8000-000000000001"
	try2 = "00000000-0000-4000-8000-000000000002"
	now0 = 1_767_225_600_000
)

func claim(incarnation string) Claim {
	return Claim{Node: "db-1", Incarnation: incarnation, TTL: 15 * time.Second, Note: `rack <4> & "b"`, NowMS: now0}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// first is A's record, term 1.
func first() *Record { return must(First(claim(idA), 0)) }

// ripe is the ground on which prev falls after it was observed for long enough.
func ripe(prev *Record) Ground {
	g, left, err := Observation{}.Observe(prev, "v", 0).Ground(prev, "v", 100*time.Hour, 0.01)
	if err != nil || left != 0 {
		panic("not ripe")
	}
	return g
}

// sealed is the proof for what r carries.
func sealed(r *Record) Sealed {
	if r.Certificate == nil {
		return Sealed{}
	}
	body := must(r.Certificate.Encode())
	return must(Seal(r.Certificate, [2][]byte{body, body}))
}

// next is the takeover of prev by incarnation, after the wait and the seal.
func next(prev *Record, incarnation string) *Record {
	return must(Takeover(prev, claim(incarnation), ripe(prev), sealed(prev)))
}

func owner(r *Record) Owner { return r.Last() }

func released(r *Record) *Record {
	return must(r.Release(owner(r), Renewal{Attempt: try2, NowMS: now0 + 9}))
}

func forced(r *Record, vouch bool) *Record {
	return must(r.Force(try2, owner(r), Operator{Why: "host <on> fire", By: "anna", NowMS: now0 + 9, Vouch: vouch}))
}

func fenced(r *Record) *Record {
	return must(Fence(r, owner(r).Incarnation, idR, ripe(r), sealed(r), now0+10))
}

// full is a record with every field that an owner's can have.
func full() *Record {
	c := claim(idC)
	c.Lock = &lease.Lock{Mark: store.Mark{Boot: try1, Dev: 2049, Inode: 77}, Tree: "cgroup", Cgroup: "/sys/fs/cgroup/tenure-1"}
	c.ClockInstance, c.SecretHash = "pg-1", "sha256:00"
	prev := forced(next(first(), idB), false)
	r := must(Takeover(prev, c, ripe(prev), sealed(prev)))
	r = must(r.Revoke(try1, owner(r), Revocation{Resource: "reports/nightly", Token: 42}))
	r = must(r.Revoke(try2, owner(r), Revocation{Resource: "reports/weekly", Token: 7}))
	r.MAC = "hmac:00"
	return r
}

// forms is one record of each kind.
func forms() map[string]*Record {
	a := first()
	b := next(a, idB)
	dropped := must(b.Renew(owner(b), Renewal{Attempt: try1, NowMS: now0 + 5, Sealed: sealed(b)}))
	return map[string]*Record{
		"first":           a,
		"renewed":         must(a.Renew(owner(a), Renewal{Attempt: try1, NowMS: now0 + 3000})),
		"observed":        b,
		"sealed":          dropped,
		"released":        released(a),
		"after-release":   next(released(a), idB),
		"forced":          forced(b, false),
		"after-force":     next(forced(b, false), idC),
		"vouched":         forced(a, true),
		"revoker":         fenced(a),
		"revoker-forced":  fenced(forced(a, false)),
		"after-revoker":   next(fenced(a), idC),
		"raised":          must(b.Jump(try2, 1000)),
		"full":            full(),
		"above-the-floor": must(First(claim(idA), 500)),
	}
}

// The bytes of every kind of record and certificate are pinned, and a record
// embeds exactly the bytes that its certificate is sealed with.
//
// SPEC ST15 ST7 PL4
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, r := range forms() {
		body, err := r.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		recordtest.Golden(t, name, body)
		back, err := Decode("k", r.Node, body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again := must(back.Encode()); !bytes.Equal(again, body) {
			t.Errorf("%s does not survive a round trip", name)
		}
		if r.Certificate == nil {
			continue
		}
		cert, err := r.Certificate.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		recordtest.Golden(t, "certificate-"+name, cert)
		if !bytes.Contains(body, append([]byte(`"certificate":`), cert...)) {
			t.Errorf("%s embeds other bytes than those that are sealed", name)
		}
	}
}

// Whatever is not the one encoding of a valid record or certificate is refused,
// and a newer level is told from damage.
//
// SPEC ST7 ST15
func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	good := must(full().Encode())
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
		"inner unknown field": {edit(`"how":"forced"`, `"how":"forced","x":1`), store.ErrCorrupt},
		"other order":         {edit(`"v":1,"node":"db-1"`, `"node":"db-1","v":1`), store.ErrCorrupt},
		"escaped differently": {edit(`rack <`, `rack \u003c`), store.ErrCorrupt},
		"null":                {edit(`"term":4`, `"term":null`), store.ErrCorrupt},
		"term over counter":   {edit(`"term":4`, `"term":5`), store.ErrCorrupt},
		"beyond 2^53":         {edit(`"counter":4`, `"counter":9007199254740992`), store.ErrCorrupt},
		"sequence 0":          {edit(`"sequence":3`, `"sequence":0`), store.ErrCorrupt},
		"first term 0":        {edit(`"first_term":1`, `"first_term":0`), store.ErrCorrupt},
		"TTL of zero":         {edit(`"ttl_ms":15000`, `"ttl_ms":0`), store.ErrCorrupt},
		"TTL that wraps":      {edit(`"ttl_ms":15000`, `"ttl_ms":9223372036854775807`), store.ErrCorrupt},
		"no incarnation":      {edit(`"incarnation":"`+idC+`",`, ``), store.ErrCorrupt},
		"another's evidence":  {edit(`"incarnation":"`+idC+`"`, `"incarnation":"`+idA+`"`), store.ErrCorrupt},
		"force without trace": {edit(`"forced":{"term":3,"ttl_ms":15000},`, ``), store.ErrCorrupt},
		"force that shrank":   {edit(`"forced":{"term":3,"ttl_ms":15000}`, `"forced":{"term":3,"ttl_ms":14999}`), store.ErrCorrupt},
		"both at once":        {edit(`"certificate":`, `"sealed_term":4,"certificate":`), store.ErrCorrupt},
		"a revocation twice":  {edit(`reports/weekly","token":7`, `reports/nightly","token":42`), store.ErrCorrupt},
		"other node":          {bytes.ReplaceAll(good, []byte(`db-1`), []byte(`db-2`)), store.ErrCorrupt},
		"level 2":             {edit(`"v":1`, `"v":2`), store.ErrNewer},
		"level 2, new fields": {edit(`"v":1`, `"v":2,"shiny":[]`), store.ErrNewer},
		"half a lock":         {edit(`"tree":"cgroup"`, `"tree":"pidns"`), store.ErrCorrupt},
	} {
		if _, err := Decode("k", "db-1", c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
	c := full().Certificate
	cert := must(c.Encode())
	names := c.Names()
	for what, x := range map[string]struct {
		node, name string
		body       []byte
		want       error
	}{
		"by predecessor": {"db-1", names[0], cert, nil},
		"by successor":   {"db-1", names[1], cert, nil},
		"other node":     {"db-2", names[0], cert, store.ErrCorrupt},
		"other name":     {"db-1", PredecessorName(idA), cert, store.ErrCorrupt},
		"other term":     {"db-1", SuccessorName(Owner{idC, 5}), cert, store.ErrCorrupt},
		"trailing bytes": {"db-1", names[0], append(bytes.Clone(cert), '\n'), store.ErrCorrupt},
		"newer":          {"db-1", names[0], bytes.Replace(cert, []byte(`"v":1`), []byte(`"v":2`), 1), store.ErrNewer},
	} {
		if _, err := DecodeCertificate("k", x.node, x.name, x.body); !errors.Is(err, x.want) {
			t.Errorf("certificate, %s: got %v, want %v", what, err, x.want)
		}
	}
}

// Each numbered invariant of a certificate is checked.
//
// SPEC PL3 LS11
func TestCertificateIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(c *Certificate){
		"1 level":             func(c *Certificate) { c.V = 0 },
		"1 node":              func(c *Certificate) { c.Node = " x" },
		"1 incarnation":       func(c *Certificate) { c.Successor.Incarnation = "C" },
		"1 time":              func(c *Certificate) { c.At = -1 },
		"2 same incarnation":  func(c *Certificate) { c.Successor.Incarnation = c.Predecessor.Incarnation },
		"3 sequence":          func(c *Certificate) { c.Successor.Sequence++ },
		"4 term":              func(c *Certificate) { c.Successor.Term++; c.Successor.Counter++ },
		"4 term of the owner": func(c *Certificate) { c.Successor.Term--; c.Successor.Counter-- },
		"4 counter":           func(c *Certificate) { c.Successor.Counter++ },
		"5 how":               func(c *Certificate) { c.How = lease.HowRevoked },
		"5 forced as seen":    func(c *Certificate) { c.How = lease.HowObserved },
		"5 no TTL":            func(c *Certificate) { c.SupersededTTLMS = 0 },
		"5 no reason":         func(c *Certificate) { c.Why = "" },
		"5 counter not raised": func(c *Certificate) {
			c.Predecessor.Counter, c.Successor.Term, c.Successor.Counter = c.Predecessor.Term, c.Predecessor.Term+1, c.Predecessor.Term+1
		},
	} {
		c := *full().Certificate
		change(&c)
		if c.Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if err := full().Certificate.Valid(); err != nil {
		t.Error(err)
	}
}

// Each numbered invariant of a record is checked, in every kind of record that
// it speaks of.
//
// SPEC PL1 PL4 PL6
func TestRecordIsExact(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(f map[string]*Record) *Record{
		"3 ended and owned":      func(f map[string]*Record) *Record { r := f["first"]; r.Ended = f["released"].Ended; return r },
		"3 no holder attempt":    func(f map[string]*Record) *Record { r := f["first"]; r.HolderAttempt = ""; return r },
		"4 no end":               func(f map[string]*Record) *Record { r := f["released"]; r.Ended = nil; return r },
		"4 a holder's attempt":   func(f map[string]*Record) *Record { r := f["released"]; r.HolderAttempt = try1; return r },
		"4 ended by observation": func(f map[string]*Record) *Record { r := f["released"]; r.Ended.How = "observed"; return r },
		"4 forced, not raised":   func(f map[string]*Record) *Record { r := f["vouched"]; r.Counter = r.Term; return r },
		"4 forced, no reason":    func(f map[string]*Record) *Record { r := f["vouched"]; r.Ended.Why = ""; return r },
		"5 sealed first term":    func(f map[string]*Record) *Record { r := f["first"]; r.SealedTerm = 1; return r },
		"5 nothing":              func(f map[string]*Record) *Record { r := f["observed"]; r.Certificate = nil; return r },
		"5 sealed another term":  func(f map[string]*Record) *Record { r := f["sealed"]; r.SealedTerm = 1; return r },
		"5 evidence of a first":  func(f map[string]*Record) *Record { r := f["observed"]; r.FirstTerm = 2; return r },
		"5 evidence before it": func(f map[string]*Record) *Record {
			r := next(must(first().Jump(try1, 10)), idB)
			r.FirstTerm = 5
			return r
		},
		"5 other sequence":      func(f map[string]*Record) *Record { r := f["observed"]; r.Sequence = 1; return r },
		"6 vouched, no TTL":     func(f map[string]*Record) *Record { r := f["vouched"]; r.Ended.SupersededTTLMS = 0; return r },
		"6 released with a TTL": func(f map[string]*Record) *Record { r := f["released"]; r.Ended.SupersededTTLMS = 15000; return r },
		"6 no trace of a vouch": func(f map[string]*Record) *Record { r := f["vouched"]; r.Forced = nil; return r },
		"6 no trace of a fence": func(f map[string]*Record) *Record { r := f["revoker-forced"]; r.Forced = nil; return r },
		"7 renewed revoker":     func(f map[string]*Record) *Record { r := f["revoker"]; r.Sequence++; return r },
		"7 revoker of nobody":   func(f map[string]*Record) *Record { r := f["first"]; r.Revoker = &Revoker{How: "observed"}; return r },
		"7 revoker, other how":  func(f map[string]*Record) *Record { r := f["revoker"]; r.Revoker.How = "released"; return r },
		"7 forced, no wait":     func(f map[string]*Record) *Record { r := f["revoker-forced"]; r.Revoker.SupersededTTLMS = 0; return r },
		"8 empty list":          func(f map[string]*Record) *Record { r := f["first"]; r.Revocations = []Revocation{}; return r },
	} {
		if change(forms()).Valid() == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

// Decoding arbitrary bytes never panics, and what it accepts encodes to the same
// bytes, record and embedded certificate.
//
// SPEC ST7
func FuzzDecode(f *testing.F) {
	for _, r := range forms() {
		f.Add(must(r.Encode()))
		if r.Certificate != nil {
			f.Add(must(r.Certificate.Encode()))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var r Record
		if record.Decode("k", body, &r) == nil {
			again, err := r.Encode()
			if len(body) <= MaxBody && (err != nil || !bytes.Equal(again, body)) {
				t.Fatalf("accepted %q, which encodes to %q (%v)", body, again, err)
			}
			_, _ = r.Wait()
			_ = r.Last()
		}
		if c, err := ParseCertificate(body); err == nil {
			if again, err := c.Encode(); err != nil || !bytes.Equal(again, body) {
				t.Fatalf("accepted %q, which encodes to %q (%v)", body, again, err)
			}
		}
	})
}

// The largest record and certificate that users can cause fit their bounds.
//
// SPEC ST11
func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	nasty := strings.Repeat(`"`, store.MaxName)
	text := strings.Repeat("\u2028", lease.MaxWhy/6)
	c := Claim{Node: nasty, Incarnation: idA, TTL: lease.MaxTTL, NowMS: record.MaxNumber, Note: strings.Repeat("\n", lease.MaxNote/2),
		ClockInstance: text, SecretHash: text,
		Lock: &lease.Lock{Mark: store.Mark{Boot: text, Dev: 1 << 63, Inode: 1 << 63}, Tree: "cgroup", Cgroup: strings.Repeat("\x01", MaxPath)}}
	r := must(First(c, record.MaxNumber-40))
	r.Sequence = record.MaxNumber - 40
	for i := range 3 {
		r = must(r.Force(try2, owner(r), Operator{Why: text, By: text, NowMS: record.MaxNumber}))
		c.Incarnation = []string{idB, idC, idR}[i]
		r = must(Takeover(r, c, ripe(r), sealed(r)))
		r.MAC, r.Certificate.MAC = text, text
		for token := range MaxRevocations {
			r = must(r.Revoke(try1, owner(r), Revocation{Resource: nasty, Token: record.MaxNumber - uint64(token)}))
		}
		body, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		cert, err := r.Certificate.Encode()
		if err != nil || len(body) < 8<<10 || len(cert) < 1<<10 {
			t.Fatalf("%d bytes, certificate %d, %v: this is not the largest", len(body), len(cert), err)
		}
	}
	if _, err := r.Revoke(try1, owner(r), Revocation{Resource: "one more", Token: 1}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a revocation without room: %v", err)
	}
}
