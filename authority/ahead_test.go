package authority

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// moves appends n decisions to the chain of assignments, which never compacts, and
// writes the map down that is current then.
func (p *proc) moves(l *Leader, n int) {
	p.w.t.Helper()
	begun := core.Proof(l.Proof())
	m := must(assignment.NewMap(uint64(n)+1, fence.Participants))
	p.w.set(p.key("assignment", fmt.Sprintf("%016d", n+1)), must(m.Encode()))
	of := m.Fence()
	for v := uint64(1); v <= uint64(n); v++ {
		d := &assignment.Decision{V: record.Level, Kind: assignment.Drain, Verdict: assignment.Commit, Predecessor: of.At(v), Target: of.At(v + 1), Begun: &begun}
		body, err := d.Encode()
		if err != nil {
			p.w.t.Fatal(err)
		}
		if res, err := p.Append(p.w.t.Context(), l.Proof(), assignment.Rules{}, body); err != nil || res.Answer != Created {
			p.w.t.Fatalf("version %d: %v, %v", v, res.Answer, err)
		}
	}
}

// distant makes every read and list take 20 ms.
func distant(s *setup) {
	s.link.Rules = append(s.link.Rules, faultstore.Rule{
		Ops: []faultstore.Op{faultstore.OpGet, faultstore.OpList}, Match: ours, Fault: faultstore.Delay(20*time.Millisecond, 20*time.Millisecond),
	})
}

// A full chain is audited, read and walked in seconds where one read takes 20 ms, and
// an audit reads every object once.
//
// SPEC LA5 LA8
func TestFullChainInSeconds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const full = core.MaxLive / everyNth
		p := w.proc()
		l := p.lead()
		p.moves(l, full)
		q := w.proc(distant)
		gets := func(f func()) int { return strings.Count(q.used(f), "get entry") }
		reads := gets(func() {
			within(t, "the audit", took(func() {
				if report := w.audit(q.Reader()); report.Entries != full {
					t.Errorf("%d entries", report.Entries)
				}
			}), full*18*time.Millisecond/aheadWidth, 10*time.Second/everyNth)
		})
		if reads != full {
			t.Errorf("the audit read %d times", reads)
		}
		reads = gets(func() {
			within(t, "reading all entries", took(func() {
				n := 0
				for _, err := range q.Reader().Entries(t.Context(), Assignment) {
					if n++; err != nil {
						t.Fatal(err)
					}
				}
				if n != full {
					t.Errorf("%d entries", n)
				}
			}), full*18*time.Millisecond/aheadWidth, 10*time.Second/everyNth)
		})
		if reads != full+aheadFrom/4 { // the first ones before it was clear that it would be many
			t.Errorf("reading all read %d times", reads)
		}
		// Whoever wants the newest ones reads those, and lists nothing.
		used := q.used(func() {
			n := 0
			for range q.Reader().Entries(t.Context(), Assignment) {
				if n++; n == 10 {
					break
				}
			}
		})
		if strings.Contains(used, "list") || strings.Count(used, "get entry") != 10 {
			t.Errorf("ten entries took %s", used)
		}
		within(t, "a walk", took(func() {
			if _, err := q.Reader().Walk(t.Context(), must(q.Reader().Snapshot(t.Context())), Assignment, nil); err != nil {
				t.Error(err)
			}
		}), full*18*time.Millisecond/aheadWidth, 10*time.Second/everyNth)
		if !l.Live() {
			t.Error(l.Err())
		}
	})
}

// listing lists as its name says.
type listing struct {
	*memstore.Store
	how string
}

// listings are ways in which a listing may be of no use, and one that is.
var listings = []string{"sound", "denied", "fails in the middle", "hangs", "hangs in the middle", "empty", "lacks every third", "too much"}

// List is bad where it lists the log's entries.
func (s listing) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	if s.how == "sound" || !strings.HasSuffix(prefix, "/entry/") {
		return s.Store.List(ctx, prefix, after)
	}
	return func(yield func(string, error) bool) {
		n := 0
		fails := func(kind error) { yield("", store.Errorf(kind, "", "list", prefix, "it was to")) }
		for key, err := range s.Store.List(ctx, prefix, after) {
			n++
			middle := n > 40
			switch {
			case s.how == "denied":
				fails(store.ErrDenied)
				return
			case s.how == "empty":
				return
			case s.how == "fails in the middle" && middle:
				fails(store.ErrUnavailable)
				return
			case s.how == "hangs" || s.how == "hangs in the middle" && middle:
				<-ctx.Done()
				yield("", store.CtxErr(ctx, "", "list", prefix))
				return
			case s.how == "lacks every third" && n%3 == 0:
				continue
			case s.how == "too much":
				id := fmt.Sprintf("%08d-1111-4111-8111-111111111111", n)
				if !yield(prefix+core.Name{Token: 7, Attempt: id}.Element(), nil) || !yield(prefix+"what is this", nil) {
					return
				}
			}
			if !yield(key, err) {
				return
			}
		}
	}
}

// Whatever a listing gives, and whatever is damaged, an audit says what one that
// reads link by link says.
//
// SPEC LA5 ST6
func TestListingIsOnlyAHint(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.moves(l, 70)
		if res, err := p.Append(t.Context(), l.Proof(), rulesOf()[Catalog], manifest()); err != nil || res.Answer != Created {
			t.Fatalf("%v, %v", res.Answer, err)
		}
		var readers []*proc
		for _, how := range listings {
			readers = append(readers, w.proc(distant, func(s *setup) { s.inner = listing{w.st.Peer(), how} }))
		}
		w.stepDown(l) // what follows takes longer than it would live
		keys := []string{}
		for _, kind := range []string{"entry", "blob"} {
			for _, element := range w.keys(kind) {
				keys = append(keys, p.key(kind, element))
			}
		}
		same := func(what string) {
			t.Helper()
			type result struct {
				entries int
				breaks  []BrokenError
				first   error
			}
			audit := func(q *proc) (r result) {
				report, err := q.Reader().Audit(t.Context())
				if err != nil && !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("%s: %v", what, err)
				}
				for _, b := range report.Breaks {
					r.breaks = append(r.breaks, *b)
				}
				r.entries, r.first = report.Entries, err
				return r
			}
			want := audit(readers[slices.Index(listings, "denied")])
			for i, q := range readers {
				if got := audit(q); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, a listing that is %q: %+v, want %+v", what, listings[i], got, want)
				}
			}
		}
		same("sound")
		for _, i := range []int{0, len(keys) / 2, len(keys) - 1}[:max(1, 3/everyNth)] {
			was := w.get(keys[i])
			flipped := slices.Clone(was)
			flipped[len(was)/2] ^= 1
			for what, body := range map[string][]byte{
				"missing": nil, "a flipped bit": flipped, "empty": {}, "another's": w.get(keys[(i+1)%len(keys)]), "huge": make([]byte, core.MaxBlob),
				"bad links": []byte(strings.ReplaceAll(string(was), `"attempt":"`, `"attempt":"../`)),
			} {
				w.set(keys[i], body)
				same(what)
			}
			w.set(keys[i], was)
		}
		same("sound again")
	})
}

// A listing that hangs makes an audit no slower than one that is denied.
//
// SPEC LA5 ST13
func TestListingHangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		p.moves(p.lead(), 100)
		var times []time.Duration
		for _, how := range []string{"denied", "hangs"} {
			q := w.proc(distant, func(s *setup) { s.inner = listing{w.st.Peer(), how} })
			times = append(times, took(func() { w.audit(q.Reader()) }))
		}
		if times[1] > times[0]+100*time.Millisecond {
			t.Errorf("it took %v, and %v where the listing is denied", times[1], times[0])
		}
	})
}

// loose are rules of the chain of assignments that take any key.
type loose struct{ assignment.Rules }

// Item reads only the key.
func (loose) Item(_ string, _ core.Proof, body []byte) (core.Item, error) {
	var v struct{ Key uint64 }
	err := json.Unmarshal(body, &v)
	return core.Item{Key: v.Key}, err
}

// What waits for the walk stays within its room, and what found none is read along
// the links, blobs too.
//
// SPEC ST7 LA5
func TestReadingAheadIsBounded(t *testing.T) {
	const n = 120
	for name, size := range map[string]int{"entries": 16 << 10, "blobs": 70 << 10} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := w.proc()
				l := p.lead()
				for key := range n {
					body := fmt.Sprintf(`{"key":%d,"text":%q}`, key+1, strings.Repeat("x", size))
					if res, err := p.Append(t.Context(), l.Proof(), loose{}, []byte(body)); err != nil || res.Answer != Created {
						t.Fatalf("%v, %v", res.Answer, err)
					}
				}
				q := w.proc(distant)
				trail := core.Follow(w.head(), Assignment, nil)
				src := newAhead(q.files)
				src.room = 1 << 20
				src.start(t.Context(), n)
				defer src.stop()
				most := 0
				step := func(n core.Name, limit int) []byte {
					body, err := src.fetch(t.Context(), n, limit)
					if err != nil {
						t.Fatal(err)
					}
					src.mu.Lock()
					defer src.mu.Unlock()
					waits := 0
					for _, o := range src.objects {
						waits += len(o.body)
					}
					if waits > src.held {
						t.Fatalf("%d bytes wait, %d are counted", waits, src.held)
					}
					most = max(most, src.held)
					return body
				}
				within(t, "the walk", took(func() {
					for {
						l, more := trail.Next()
						if !more {
							break
						}
						if err := trail.Take(step(l.Name(), core.MaxEntry)); err != nil {
							t.Fatal(err)
						}
						e := trail.Steps()[len(trail.Steps())-1].Entry
						if b, ok := e.BlobName(); ok {
							if err := e.Blob.Verify("", step(b, core.MaxBlob)); err != nil {
								t.Fatal(err)
							}
						}
					}
				}), 0, n*20*time.Millisecond/2)
				if most > src.room+core.MaxEntry || most < src.room/2 || !trail.Done() {
					t.Errorf("%d bytes waited at most, of %d", most, src.room)
				}
				if src.held != 0 {
					t.Errorf("%d bytes wait in the end", src.held)
				}
			})
		})
	}
}
