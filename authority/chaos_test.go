package authority

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// oracle knows what everybody was told of every decision.
type oracle struct {
	count atomic.Uint64

	mu    sync.Mutex
	told  map[uint64]string // by epoch: the body that its caller was told to stand
	never map[string]bool   // bodies whose callers were told that they do not, and will not
	acted map[*Leader]bool
}

// chaotic is one process that campaigns, decides, reports and stops, through
// whatever its link does, until ctx ends.
func chaotic(ctx context.Context, t *testing.T, w *world, o *oracle, p *proc, rng *rand.Rand) {
	err := p.Run(ctx, func(ctx context.Context, l *Leader) error {
		o.mu.Lock()
		for x := range o.acted {
			if x.Live() {
				t.Errorf("token %d and token %d lead at once", x.Token(), l.Token())
			}
		}
		o.acted[l] = true
		o.mu.Unlock()
		for range 1 + rng.IntN(8) {
			o.decide(ctx, t, w, p, l, rng)
			if rng.IntN(4) == 0 {
				if r, err := p.BeginRound(ctx, l.Proof(), nil); err == nil {
					_, _ = p.Release(ctx, l.Proof(), r, nil)
				}
			}
			rested(t, time.Duration(rng.IntN(3000))*time.Millisecond)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil && p.s.Err() == nil {
		t.Errorf("%s: %v", p.s.Node(), err)
	}
}

// decide appends one decision, with or without patience, and notes what it is told.
func (o *oracle) decide(ctx context.Context, t *testing.T, w *world, p *proc, l *Leader, rng *rand.Rand) {
	epoch := w.next()
	if rng.IntN(4) == 0 {
		epoch = max(1, epoch-1) // a rival for the last one
	}
	unique := *fence
	unique.Version = o.count.Add(1) // nobody proposes the same twice
	body := must(checkpoint.NewAbort(checkpoint.Attempt{Epoch: epoch, Checkpoint: 10*epoch + uint64(rng.IntN(9))}, deployment, &unique).Encode())
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+rng.IntN(8000))*time.Millisecond)
	defer cancel()
	res, err := p.Append(ctx, l.Proof(), checkpoint.Rules{}, body)
	o.mu.Lock()
	defer o.mu.Unlock()
	what := fmt.Sprint(l.Token(), " ", string(body))
	switch {
	case err == nil && res.Stands():
		if o.never[what] {
			t.Errorf("epoch %d stands after it was refused", epoch)
		}
		o.told[epoch] = what
	case err == nil && (res.Answer == Conflict || res.Answer == Fenced), err != nil && !errors.Is(err, store.ErrUnknown):
		o.never[what] = true
	}
}

// Several processes fight through links that lose, delay, repeat and hold back
// whatever they carry. Nobody leads beside another, no answer is ever wrong, and the
// log is sound.
//
// SPEC LA2 LA3 LA4 LA5 LA6 ST9
func TestChaos(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed += everyNth {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				o := &oracle{told: map[uint64]string{}, never: map[string]bool{}, acted: map[*Leader]bool{}}
				var procs []*proc
				for i := range uint64(3) {
					p := w.proc(func(s *setup) { s.seed = seed*10 + i })
					for _, r := range faultstore.Chaos(seed*10+i, 0.1+0.05*float64(seed%4), ttl).Rules {
						r.Match = ours
						p.link.Add(r)
					}
					procs = append(procs, p)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 25*ttl)
				defer cancel()
				var wg sync.WaitGroup
				for i, p := range procs {
					wg.Go(func() { chaotic(ctx, t, w, o, p, rand.New(rand.NewPCG(seed, uint64(i)))) })
					wg.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							_, _ = p.Report(ctx, "chaos")
							rested(t, 5*time.Second)
						}
					})
				}
				wg.Wait()
				for _, p := range procs {
					p.link.Clear()
					if err := p.s.Leave(context.WithoutCancel(ctx)); err != nil {
						t.Errorf("leave: %v", err)
					}
				}
				rested(t, 4*ttl)
				r := must(Read(t.Context(), procs[0].client, theOne))
				w.audit(r)
				found := map[uint64]string{}
				for e, err := range r.Entries(t.Context(), Checkpoint) {
					if err != nil {
						t.Fatal(err)
					}
					found[e.Link.Key] = fmt.Sprint(e.Link.Token, " ", string(e.Body))
				}
				floor := w.head().Checkpoint.Floor
				for epoch, what := range o.told {
					if epoch >= floor && found[epoch] != what {
						t.Errorf("epoch %d was told to stand: %s, and there is %q", epoch, what, found[epoch])
					}
				}
				for epoch, what := range found {
					if o.never[what] {
						t.Errorf("epoch %d stands, and its caller was told that it never would", epoch)
					}
				}
				if len(o.acted) < 3 || len(o.told) < 10 {
					t.Errorf("%d leaderships, %d decisions: nothing happened", len(o.acted), len(o.told))
				}
			})
		})
	}
}
