package slots

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// twin asks for one more host of a's session and owner.
func (p *hostProc) twin(owner string) (*Host, error) {
	return p.table.Host(HostConfig{Owner: owner, Session: p.cfg.Session, Ranges: []Range{rng(0, 9)}})
}

// A second host of one session and owner would be told that the rows of the first are its
// own, serve them beside it, and go on when the first has freed them for others: it is
// refused until the first has released everything, also while it does so in the
// background. One of another owner is a rival like any other.
//
// SPEC SL3 SL6 LS8
func TestOneHostOfASessionAndOwner(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)}, as("n1"))
		a.refresh().is(t, "claimed 0-9@1")
		_, err := a.twin("a")
		wantKinds(t, err, store.ErrUnavailable)
		other, err := a.twin("b")
		if err != nil {
			t.Fatal(err)
		}
		other.Refresh(t.Context()).is(t, "waiting 0-9")
		other.Close()

		a.link.Add(faultstore.Rule{Match: w.onRow(0), Fault: faultstore.Fail(store.ErrUnavailable)})
		a.Close()
		bubbleSleep(time.Second)
		_, err = a.twin("a")
		wantKinds(t, err, store.ErrUnavailable) // what the first had is still in the table
		a.link.Clear()
		bubbleSleep(time.Minute)
		next, err := a.twin("a")
		if err != nil {
			t.Fatal(err)
		}
		next.Refresh(t.Context()).is(t, "claimed 0-9@2")
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if next, err = a.twin("a"); err != nil {
			t.Fatal(err)
		}
		defer next.Close()
		c := w.host("c", []Range{rng(0, 9)}, as("n2"))
		c.refresh().is(t, "claimed 0-9@3")
		next.Refresh(t.Context()).is(t, "waiting 0-9")
	})
}

// What a host had is forgotten with its session: nothing is kept for ever in its name.
//
// SPEC LS8
func TestTenancyEndsWithTheSession(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)}, as("n1"))
		a.refresh().is(t, "claimed 0-9@1")
		a.link.SetLink(faultstore.Refused)
		a.Close()
		w.pass(2 * hostTTL)
		synctest.Wait()
		if _, kept := tenants.Load(a.tenant.who); kept {
			t.Error("the session is over, and its host still counts")
		}
	})
}

// A session of another namespace is none that a rival could judge: a node of its name in
// the table's is another one.
//
// SPEC LS8 SL3
func TestSessionOfAnotherNamespace(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.client("a", nil)
		other, err := tenure.New(t.Context(), a.link, tenure.WithNamespace("other"), tenure.WithTTL(hostTTL), tenure.WithClock(a.clk),
			tenure.WithoutProbe(), tenure.WithLogger(noLog))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		s, err := other.Join(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Leave(context.Background()) }()
		table, err := Open(t.Context(), a.c, orders)
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Host(HostConfig{Owner: "a", Session: s, Ranges: []Range{rng(0, 9)}})
		wantKinds(t, err, store.ErrInvalid)
	})
}

// calls counts those of OnClaim and OnLoss that run, and notes what they were about.
type calls struct {
	t     *testing.T
	mu    sync.Mutex
	runs  int
	began []uint64
}

func (c *calls) in(g *Grant, takes time.Duration) {
	c.mu.Lock()
	if c.runs++; c.runs > 1 {
		c.t.Errorf("a call about epoch %d while another one runs", g.Epoch())
	}
	c.began = append(c.began, g.Epoch())
	c.mu.Unlock()
	bubbleSleep(takes)
	c.mu.Lock()
	c.runs--
	c.mu.Unlock()
}

// Whoever is told of a grant has been told of the end of the one before, also if that was
// fenced and the next one came at once; without OnClaim the ends come one after the other.
//
// SPEC SL4 SL6
func TestCallbacksAreInOrder(t *testing.T) {
	for name, claims := range map[string]bool{"both": true, "losses alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTable(t, RowsForm, func(t *testing.T, w *tableWorld) {
				a := w.client("a", nil)
				table, err := Open(t.Context(), a.c, orders)
				if err != nil {
					t.Fatal(err)
				}
				c := &calls{t: t}
				cfg := HostConfig{Owner: "a", Ranges: []Range{rng(0, 9)}, OnLoss: func(g *Grant, _ error) { c.in(g, 5*time.Second) }}
				if claims {
					cfg.OnClaim = func(g *Grant) { c.in(g, time.Second) }
				}
				h, err := table.Host(cfg)
				if err != nil {
					t.Fatal(err)
				}
				for newer := uint64(10); newer < 40; newer += 10 {
					h.Refresh(t.Context())
					bubbleSleep(time.Millisecond)
					h.Lose(0, newer)
				}
				h.Close()
				bubbleSleep(time.Minute)
				want := []uint64{1, 11, 21}
				if claims {
					want = []uint64{1, 1, 11, 11, 21, 21}
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if len(c.began) != len(want) {
					t.Fatalf("calls about %v, want %v", c.began, want)
				}
				for i := range want {
					if c.began[i] != want[i] {
						t.Fatalf("calls about %v, want %v", c.began, want)
					}
				}
			})
		})
	}
}

// A number that no table gives, seen where epochs are checked, ends at most the range that
// it was seen for: not the host's others, and not the table's counter.
//
// SPEC SL6 ST11
func TestFenceWithANumberThatIsNoEpoch(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9), rng(20, 29)})
		if r := a.refresh(); len(r.Claimed) != 2 {
			t.Fatalf("%+v", r)
		}
		kept, _ := a.EpochFor(20)
		if a.Lose(0, 1<<60) {
			t.Error("what is no token is taken for one")
		}
		a.refresh().is(t, "renewed 0-9, renewed 20-29")
		if !a.Lose(0, 1<<53-2) {
			t.Error("a token is not taken for one")
		}
		a.refresh().is(t, "renewed 20-29, failed 0-9")
		w.pass(hostTTL) // what it holds lapses, and must be had again beside the range that cannot
		r := a.refresh()
		if len(r.Failed) != 1 || !errors.Is(r.Failed[0].Err, store.ErrInvalid) {
			t.Errorf("%+v", r.Failed)
		}
		a.epoch(20, kept)
		a.Lose(20, 7) // a sensible one
		if r := a.refresh(); len(r.Claimed) != 1 || r.Claimed[0].Epoch != 8 {
			t.Errorf("%+v", r)
		}
		if v := w.view(); v.Counter != 8 {
			t.Errorf("the counter is %d", v.Counter)
		}
	})
}

// A refresh right after another one finds no call of that one running.
//
// SPEC SL5
func TestRefreshAfterRefresh(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		a := w.host("a", []Range{rng(0, 9)})
		a.refresh()
		for i := range 2000 {
			if r := a.Refresh(t.Context()); len(r.Renewed) != 1 {
				t.Fatalf("refresh %d: %+v", i, r)
			}
		}
	})
}
