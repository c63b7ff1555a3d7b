package authority

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// manifest is a catalog that is a blob of its own.
func manifest() []byte {
	return must((&catalog.Manifest{V: 1, Definitions: []catalog.Definition{{Name: "t", Text: strings.Repeat("x", 70<<10)}}}).Encode())
}

// set puts bytes at a key past every rule.
func (w *world) set(key string, body []byte) {
	w.t.Helper()
	ctx := context.Background()
	if err := w.st.Delete(ctx, key); err != nil {
		w.t.Fatal(err)
	}
	if body == nil {
		return
	}
	if _, err := w.st.Create(ctx, key, body); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(key string) []byte {
	w.t.Helper()
	o, err := w.st.Get(context.Background(), key, core.MaxBlob)
	if err != nil {
		w.t.Fatal(err)
	}
	return o.Body
}

// A corrupted, missing, swapped or foreign object at every place of the layout is
// found by the audit, which names the link, and by whoever reads there; the store as
// it was is sound again.
//
// SPEC LA5 LA4 ST7
func TestAuditNamesWhatIsBroken(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc(func(s *setup) { s.name = "other" })
		l := p.lead()
		for epoch := uint64(1); epoch <= 5; epoch++ {
			p.append(l, abort(epoch), Created)
		}
		if res, err := p.Append(t.Context(), l.Proof(), catalog.Rules{}, manifest()); err != nil || res.Answer != Created {
			t.Fatalf("%v, %v", res.Answer, err)
		}
		m, err := q.Lead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		foreign := must(q.Append(t.Context(), m.Proof(), checkpoint.Rules{}, abort(1)))
		alien := w.get(q.key("entry", foreign.Winner.Name().Element()))
		var keys []string
		for _, kind := range []string{"entry", "blob"} {
			for _, element := range w.keys(kind) {
				keys = append(keys, p.key(kind, element))
			}
		}
		if len(keys) != 7 || w.audit(p.Reader()).Entries != 6 {
			t.Fatalf("keys %v", keys)
		}
		for i, key := range keys {
			was := w.get(key)
			flipped := slices.Clone(was)
			flipped[len(was)/2] ^= 1
			for what, body := range map[string][]byte{
				"missing": nil, "a flipped bit": flipped, "cut off": was[:len(was)-1], "too long": append(slices.Clone(was), ' '),
				"empty": {}, "foreign": alien, "another's": w.get(keys[(i+1)%len(keys)]), "huge": make([]byte, core.MaxBlob),
			} {
				w.set(key, body)
				report, err := p.Reader().Audit(t.Context())
				var broken *BrokenError
				if wantErr(t, err, store.ErrCorrupt); !errors.As(err, &broken) || len(report.Breaks) == 0 || report.Breaks[0] != broken {
					t.Errorf("%s, %s: %v", key, what, err)
				}
				if !strings.HasSuffix(key, "/"+broken.Where()) {
					t.Errorf("%s, %s: %s is to be put back", key, what, broken.Where())
				}
				// Blobs are named by the link of the entry that they are of.
				if strings.Contains(key, "/entry/") && !strings.HasSuffix(key, broken.Link.Name().Element()) || body == nil && broken.Flaw != Missing {
					t.Errorf("%s, %s: named %s, %s", key, what, broken.Link.Name().Element(), broken.Flaw)
				}
				bad := 0
				for _, chain := range []string{Checkpoint, Catalog} {
					for _, err := range p.Reader().Entries(t.Context(), chain) {
						if errors.Is(err, store.ErrCorrupt) {
							bad++
						}
						if errors.As(err, &broken) && !strings.HasSuffix(key, "/"+broken.Where()) {
							t.Errorf("%s, %s: a reader says that %s is to be put back", key, what, broken.Where())
						}
					}
				}
				if bad != 1 {
					t.Errorf("%s, %s: %d readers were told", key, what, bad)
				}
			}
			w.set(key, was)
		}
		w.audit(p.Reader())
		p.append(l, abort(6), Created)
	})
}

// A damaged head fails closed everywhere: the leader ends, nobody else leads, and
// readers are told. So does one that went back or vanished.
//
// SPEC LA5 LS12 ST7
func TestDamagedHead(t *testing.T) {
	for name, damage := range map[string]func(old, now []byte) []byte{
		"a flipped bit": func(_, now []byte) []byte { now[2] ^= 1; return now },
		"another's":     func(_, now []byte) []byte { return []byte(strings.Replace(string(now), theOne, "jobz", 1)) },
		"trailing":      func(_, now []byte) []byte { return append(now, ' ') },
		"vanished":      func(_, _ []byte) []byte { return nil },
		"went back":     func(old, _ []byte) []byte { return old },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p, q := w.proc(), w.proc()
				w.stepDown(p.lead())
				old := w.get(p.headKey)
				l := p.lead()
				if _, err := q.Reader().Snapshot(t.Context()); err != nil { // it has seen the counter
					t.Fatal(err)
				}
				p.append(l, abort(1), Created)
				w.set(p.headKey, damage(old, w.get(p.headKey)))
				<-l.Done()
				wantErr(t, l.Err(), tenure.ErrLost)
				for what, err := range map[string]error{
					"audit":    second(q.Reader().Audit(t.Context())),
					"snapshot": second(q.Reader().Snapshot(t.Context())),
					"lead":     second(q.TryLead(t.Context())),
				} {
					if !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, tenure.ErrRegressed) {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

func second[T any](_ T, err error) error { return err }

// Entries and an audit that run while the chain compacts itself see no break.
//
// SPEC LA5 LA8 CK
func TestReadingWhileItCompacts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc(func(s *setup) {
			s.link.Rules = []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpGet}, Match: ours, Fault: faultstore.Delay(20*time.Millisecond, 20*time.Millisecond)}}
		})
		l := p.lead()
		for epoch := uint64(1); epoch <= 63; epoch++ {
			p.append(l, abort(epoch), Created)
		}
		done := make(chan error, 2)
		go func() { done <- second(q.Reader().Audit(context.Background())) }()
		go func() {
			last := uint64(1000)
			for e, err := range q.Reader().Entries(context.Background(), Checkpoint) {
				if err != nil || e.Link.Key >= last {
					done <- errors.Join(err, errors.New("out of order"))
					return
				}
				last = e.Link.Key
			}
			done <- nil
		}()
		rested(t, 200*time.Millisecond)
		for epoch := uint64(64); epoch <= 70; epoch++ {
			p.append(l, abort(epoch), Created)
		}
		if done, err := p.Prune(t.Context()); err != nil || done.Removed == 0 {
			t.Errorf("%+v, %v", done, err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// The chain compacts itself with the appends, which read nothing for it,
// and the pruner removes what is given up. Nothing that is linked goes.
//
// SPEC LA8 CK
func TestCompactionAndPrune(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(func(s *setup) { s.opts = []Option{PruneEvery(time.Minute)} }), w.proc()
		l := p.lead()
		reads := 0
		for epoch := uint64(1); epoch <= 300; epoch++ {
			used := p.used(func() { p.append(l, abort(epoch), Created) })
			if n := strings.Count(used, "get entry"); n > 0 {
				reads++
			}
			if c := w.head().Checkpoint; c.Live > 65 {
				t.Fatalf("%d live entries at %d", c.Live, epoch)
			}
		}
		if c := w.head().Checkpoint; reads > 0 || c.Floor == 0 || c.Anchor == nil {
			t.Errorf("%d appends read, %+v", reads, c)
		}
		rested(t, 2*time.Minute)
		live := int(w.head().Checkpoint.Live) + 1 // and the anchor
		if n := len(w.keys("entry")); n != live || p.Health().PruneErr != nil || p.Health().PrunedAt == 0 {
			t.Errorf("%d entries, %d are linked, %+v", n, live, p.Health())
		}
		w.audit(p.Reader())
		p.append(l, abort(1), BelowFloor)
		p.append(l, abort(300), Unchanged)
		if !l.Live() {
			t.Error(l.Err())
		}
		// What an earlier leader left is anybody's to remove.
		w.set(p.key("entry", core.Name{Token: 1, Attempt: p.c.NewID()}.Element()), []byte("x"))
		w.set(p.key("blob", core.Name{Token: 1, Attempt: p.c.NewID()}.Element()), []byte("x"))
		if done, err := Prune(t.Context(), q.client, theOne); err != nil || done.Removed != 0 {
			t.Errorf("of the present token: %+v, %v", done, err)
		}
		w.stepDown(l)
		q.lead()
		if done, err := Prune(t.Context(), q.client, theOne); err != nil || done.Removed != 2 || done.Kept != live {
			t.Errorf("of an earlier token: %+v, %v", done, err)
		}
		w.audit(q.Reader())
	})
}

// What this process has on its way is not removed, and a bounded batch goes on where
// it stopped.
//
// SPEC LA8
func TestPruneBatches(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.append(l, abort(1), Created)
		var gone core.Name
		for range 700 {
			gone = core.Name{Kind: core.KindEntry, Token: 1, Attempt: p.c.NewID()}
			w.set(p.key("entry", gone.Element()), []byte("x"))
		}
		n := core.Name{Kind: checkpoint.KindCapsule, Token: 1, Attempt: p.c.NewID()}
		flying := core.Name{Kind: core.KindBlob, Token: 1, Attempt: p.c.NewID()}
		k := p.Kit()
		for _, x := range []core.Name{n, flying} {
			if err := k.Write(t.Context(), x, x.Element(), core.DigestOf("x", []byte("x")), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		total, calls := 0, 0
		for more := true; more; calls++ {
			done, err := p.Prune(t.Context())
			if err != nil || done.Removed > 256 || calls > 10 {
				t.Fatalf("%+v, %v", done, err)
			}
			total, more = total+done.Removed, done.More
		}
		if total != 700 || len(w.keys("entry")) != 1 || len(w.keys("blob")) != 1 || calls < 3 {
			t.Errorf("%d removed in %d calls, %v", total, calls, w.keys("blob"))
		}
		k.Landed(flying)
		if done, err := p.Prune(t.Context()); err != nil || done.Removed != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		for _, x := range []core.Name{flying, gone} {
			if err := k.Write(t.Context(), x, x.Element(), core.DigestOf("x", []byte("x")), []byte("x")); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("a name for which a delete was sent was written again: %v", err)
			}
		}
		// A pruner without rights degrades health and nothing else.
		p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Fail(store.ErrDenied)})
		w.set(p.key("entry", core.Name{Token: 1, Attempt: p.c.NewID()}.Element()), []byte("x"))
		_, err := p.Prune(t.Context())
		wantErr(t, err, store.ErrDenied)
		rested(t, ttl)
		if !l.Live() {
			t.Error(l.Err())
		}
	})
}

// The floor rises only over the very chain that was walked and checked, never falls,
// and leaves the newest entry.
//
// SPEC LA8
func TestAdvance(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, q := w.proc(), w.proc()
		l := p.lead()
		for epoch := uint64(1); epoch <= 9; epoch++ {
			p.append(l, abort(epoch), Created)
		}
		no := errors.New("no")
		_, err := p.Advance(t.Context(), l.Proof(), Checkpoint, 4, 0, func(context.Context, Snapshot) error { return no })
		wantErr(t, err, no)
		_, err = p.Advance(t.Context(), l.Proof(), Checkpoint, 4, 0, func(context.Context, Snapshot) error {
			p.append(l, abort(10), Created)
			return nil
		})
		wantErr(t, err, store.ErrConflict)
		_, err = p.Advance(t.Context(), l.Proof(), Checkpoint, 11, 0, nil)
		wantErr(t, err, store.ErrConflict)
		_, err = p.Advance(t.Context(), l.Proof(), "other", 1, 0, nil)
		wantErr(t, err, store.ErrInvalid)
		_, err = q.Advance(t.Context(), l.Proof(), Checkpoint, 4, 0, nil)
		wantErr(t, err, ErrFenced)
		for _, want := range []bool{true, false} {
			if changed, err := p.Advance(t.Context(), l.Proof(), Checkpoint, 4, 0, nil); err != nil || changed != want {
				t.Errorf("%v, %v", changed, err)
			}
		}
		if c, _ := must(p.Reader().Snapshot(t.Context())).Chain(Checkpoint); c.Floor != 4 || c.Live != 7 || c.Anchor.Key != 3 {
			t.Errorf("%+v", c)
		}
		p.append(l, abort(2), BelowFloor)
		w.audit(q.Reader())
		var names []string
		for name, err := range List(t.Context(), q.client) {
			if err != nil {
				t.Error(err)
			}
			names = append(names, name)
		}
		if !slices.Equal(names, []string{theOne}) {
			t.Errorf("authorities %v", names)
		}
	})
}

// What an append has written and not linked yet stays, whoever of this process
// prunes meanwhile.
//
// SPEC LA8 LA4
func TestPruneDuringAppend(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.proc()
		l := p.lead()
		p.link.Add(faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpReplace}, Every: 2, Times: 4, Fault: faultstore.Delay(500*time.Millisecond, 500*time.Millisecond)},
			// What the pruner reads of the head is old by the time it has it.
			faultstore.Rule{Match: heads, Ops: []faultstore.Op{faultstore.OpGet}, Fault: faultstore.DelayReply(time.Second, time.Second)})
		for epoch := uint64(1); epoch <= 6; epoch++ {
			done := make(chan error, 1)
			go func() {
				res, err := p.Append(t.Context(), l.Proof(), checkpoint.Rules{}, abort(epoch))
				if err == nil && res.Answer != Created {
					err = errors.New(res.Answer.String())
				}
				done <- err
			}()
			rested(t, 100*time.Millisecond)
			if pruned, err := p.Prune(t.Context()); err != nil || pruned.Removed != 0 {
				t.Errorf("%+v, %v", pruned, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		w.audit(p.Reader())
	})
}
