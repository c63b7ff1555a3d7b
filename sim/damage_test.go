package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// damage is something that befalls one object: what stands in its place then, nil
// for nothing. others are the objects of its kind.
type damage struct {
	name string
	do   func(body []byte, s *ruin, key string) []byte
}

// damages are all that is tried at every object.
func damages() []damage {
	return []damage{
		{"a flipped bit", func(body []byte, _ *ruin, _ string) []byte {
			flipped := slices.Clone(body)
			flipped[len(body)/2] ^= 1
			return flipped
		}},
		{"cut off", func(body []byte, _ *ruin, _ string) []byte { return body[:len(body)-1] }},
		{"half", func(body []byte, _ *ruin, _ string) []byte { return body[:len(body)/2] }},
		{"longer", func(body []byte, _ *ruin, _ string) []byte { return append(slices.Clone(body), '\n') }},
		{"empty", func([]byte, *ruin, string) []byte { return []byte{} }},
		{"missing", func([]byte, *ruin, string) []byte { return nil }},
		{"its neighbour's", func(_ []byte, s *ruin, key string) []byte { return s.like(key, placeOf(key), 1) }},
		{"another authority's", func(_ []byte, s *ruin, key string) []byte {
			return s.like(key, strings.Replace(placeOf(key), "/main", "/other", 1), 0)
		}},
		{"another namespace's", func(_ []byte, s *ruin, key string) []byte {
			return s.like(key, strings.Replace(placeOf(key), "default/", "elsewhere/", 1), 0)
		}},
	}
}

// ruin is a place before it is damaged, and what everybody is told there.
type ruin struct {
	objects map[string][]byte
	live    map[string]string // keys that a live link reaches, to their chain
	told    map[string]string // by look
}

// placeOf is a key without its last element: objects of one kind share it.
func placeOf(key string) string {
	if strings.HasPrefix(key, "default/authority/") {
		return key
	}
	return strings.Join(strings.SplitN(key, "/", 5)[:4], "/") + "/"
}

// like is the body of an object of some place that comes nth after key's own; nil if
// there is no other.
func (s *ruin) like(key, place string, nth int) []byte {
	var all []string
	for k := range s.objects {
		if strings.HasPrefix(k, place) {
			all = append(all, k)
		}
	}
	slices.Sort(all)
	if len(all) == 0 || len(all) == 1 && all[0] == key {
		return nil
	}
	at := slices.Index(all, key)
	if at < 0 { // of another place: its twin there
		for i, k := range all {
			if lastOf(k) == lastOf(key) {
				at = i
			}
		}
		at = max(at, 0)
	}
	return s.objects[all[(at+nth)%len(all)]]
}

func lastOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// kindOf is the kind of an object by its key.
func kindOf(key string) string {
	if parts := strings.Split(key, "/"); parts[1] == "authority-log" {
		return parts[3]
	}
	return "head"
}

// A corrupted, cut, missing, reordered or foreign object at every place of the
// layout: the audit finds and names it where a live link reaches it, whoever reads it
// is told that it is corrupt, and nobody ever acts on it: every call answers as
// without the damage, or with an error. Nothing hangs, and nothing that is sound is
// removed or changed.
//
// SPEC LA4 LA5 ST7 CK AS RF CT
func TestDamageAtEveryPlace(t *testing.T) {
	s := newRuin(t)
	places := 0
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, "default/authority-log/main/") && key != "default/authority/main" {
			continue
		}
		places++
		t.Run(strings.TrimPrefix(key, "default/"), func(t *testing.T) {
			t.Parallel()
			for i, d := range damages() {
				if raceDetector && i%3 != 0 {
					continue // hardly anything happens at once
				}
				body := d.do(s.objects[key], s, key)
				if body == nil && d.name != "missing" || slices.Equal(body, s.objects[key]) && body != nil {
					continue // there is no other of its kind
				}
				s.tried(t, key, d.name, body)
			}
		})
	}
	if places < 30 || len(s.live) < 14 {
		t.Errorf("%d places, %d of them live", places, len(s.live))
	}
}

// tried damages one object in a place of its own, and judges what everybody is told.
func (s *ruin) tried(t *testing.T, key, what string, body []byte) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		v := s.visit(t)
		defer v.end()
		v.damage(key, body)
		failed := map[string]error{}
		for _, l := range v.looks() {
			told, err := v.tell(l)
			if err != nil {
				failed[l.name] = err
			}
			s.judge(t, key, what, l, told, err)
		}
		s.judgeAudit(t, key, what, failed["audit"])
		for _, must := range mustFail(key, s) {
			if failed[must] == nil && !(body == nil && (unknowable(key) || kindOf(key) == "assignment")) { // its proposal tells the same
				t.Errorf("%s: %s: nobody was told", what, must)
			}
		}
		v.judgeRest(t, key, what)
	})
}

// unknowable reports whether the absence of an object is no damage that anybody can
// tell: a drain, a proposal or a report that is gone looks like one that never was,
// and decides nothing.
func unknowable(key string) bool {
	return slices.Contains([]string{"drain", "proposal", "report", "cursor", "quarantine"}, kindOf(key))
}

// mustFail are the looks that read an object, beside the audit, and must fail.
func mustFail(key string, s *ruin) []string {
	switch kind := kindOf(key); {
	case kind == "head":
		return []string{"audit", "snapshot", "newest", "current", "catalog", "lead"}
	case kind == "report":
		return []string{"pending"}
	case kind == "drain" && strings.HasSuffix(key, versionOf(4)):
		return []string{"draining"}
	case kind == "proposal" && strings.Contains(key, versionOf(4)):
		return []string{"proposals"}
	case kind == "capsule" && s.live[key] != "":
		return []string{"audit", "capsules"}
	case s.live[key] == core.Catalog:
		return []string{"audit", "catalog"}
	case kind == "assignment" && s.live[key] != "":
		return []string{"audit", "current"}
	case s.live[key] != "":
		return []string{"audit", "entries"}
	}
	return nil
}

func versionOf(v int) string { return fmt.Sprintf("%016d", v) }

// judge judges one answer: it is the one without the damage, or an error that says
// what is wrong.
func (s *ruin) judge(t *testing.T, key, what string, l look, told string, err error) {
	t.Helper()
	switch {
	case err == nil && told != s.told[l.name] && !(what == "missing" && unknowable(key)) && !s.mayDiffer(key, what, l.name):
		t.Errorf("%s: %s answers %s, want %s or an error", what, l.name, told, s.told[l.name])
	case err == nil || errors.Is(err, store.ErrCorrupt) || errors.Is(err, tenure.ErrRegressed):
	case errors.Is(err, store.ErrNotFound) && what == "missing":
	case errors.Is(err, errNoLeader): // nothing that needs a leader is done
	case s.told[l.name] == "error: "+err.Error():
	default:
		t.Errorf("%s: %s: %v, want it to be corrupt", what, l.name, err)
	}
}

// mayDiffer: a cursor that cannot be read costs a pass from the beginning; a capsule
// below the horizon that is none is set aside, or is not there to be removed.
func (s *ruin) mayDiffer(key, what, look string) bool {
	kind := kindOf(key)
	return look == "sweep" && (kind == "cursor" || kind == "capsule" && s.live[key] == "") || look == "prune" && kind == "entry" && what == "missing"
}

// judgeAudit judges that the audit names what is damaged where a live link reaches it,
// and is clean where none does.
func (s *ruin) judgeAudit(t *testing.T, key, what string, err error) {
	t.Helper()
	chain, kind := s.live[key], kindOf(key)
	if kind == "head" {
		return
	}
	var broken *authority.BrokenError
	switch {
	case chain == "" && err != nil:
		t.Errorf("%s: the audit, which no live link leads there: %v", what, err)
	case chain == "" || kind == "assignment" && what == "missing": // its proposal tells the same
	case !errors.As(err, &broken) || broken.Chain != chain:
		t.Errorf("%s: the audit of chain %s: %v", what, chain, err)
	case kind == "entry" && broken.Link.Name().Element() != lastOf(key):
		t.Errorf("%s: the audit names %s", what, broken.Link.Name().Element())
	}
}

// visitor is a fresh process at a place of its own.
type visitor struct {
	st     *memstore.Store
	t      *testing.T
	client *tenure.Client
	s      *tenure.Session
	x      *authority.Authority
	leader *authority.Leader
	ruin   *ruin
}

const ruinTTL = 2 * time.Second

// process starts a client on a store.
func process(t *testing.T, st store.Store, seed uint64, more ...tenure.Option) *tenure.Client {
	t.Helper()
	opts := append([]tenure.Option{tenure.WithTTL(ruinTTL), tenure.WithClock(clock.NewVirtual(1)), tenure.WithoutProbe(), tenure.WithRandom(rand.NewPCG(seed, 1))}, more...)
	c, err := tenure.New(context.Background(), st, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// visit puts everything into a new place, and lets a process look at the head once.
func (s *ruin) visit(t *testing.T) *visitor {
	v := &visitor{st: memstore.New(), t: t, ruin: s}
	for key, body := range s.objects {
		if _, err := v.st.Create(context.Background(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	v.client = process(t, v.st.Peer(), 77)
	var err error
	if v.s, err = v.client.Join(context.Background(), "visitor"); err != nil {
		t.Fatal(err)
	}
	if v.x, err = authority.Open(context.Background(), v.s, "main", authority.PruneEvery(-1)); err != nil {
		t.Fatal(err)
	}
	if _, err := v.x.Reader().Snapshot(context.Background()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *visitor) end() {
	_ = v.client.Close() // a damaged head may leave a leadership to lapse
	_ = v.st.Close()
}

func (v *visitor) damage(key string, body []byte) {
	if err := v.st.Delete(context.Background(), key); err != nil {
		v.t.Fatal(err)
	}
	if body == nil {
		return
	}
	if _, err := v.st.Create(context.Background(), key, body); err != nil {
		v.t.Fatal(err)
	}
}

// tell makes one call, which ends in time.
func (v *visitor) tell(l look) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*ruinTTL)
	defer cancel()
	began := time.Now()
	told, err := l.call(ctx, v)
	if took := time.Since(began); took > 7*ruinTTL || ctx.Err() != nil {
		v.t.Errorf("%s took %v: %v", l.name, took, err)
	}
	return told, err
}

// judgeRest judges that nothing sound was removed or changed.
func (v *visitor) judgeRest(t *testing.T, damaged, what string) {
	t.Helper()
	for key := range v.ruin.live {
		if key == damaged || kindOf(key) == "head" {
			continue
		}
		o, err := v.st.Get(context.Background(), key, core.MaxBlob)
		if err != nil || !slices.Equal(o.Body, v.ruin.objects[key]) {
			t.Errorf("%s: %s was removed or changed: %v", what, key, err)
		}
	}
}
