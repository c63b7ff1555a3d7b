package ledger

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// On files, in real time, with names of every kind: five clients that ask for the same
// runs do each once; what they keep can be listed, replayed, compacted and swept.
//
// SPEC EX4 EX6 EX7 ST11
func TestOnFiles(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "store")
	agent := "Ω nightly/" + strings.Repeat("x", store.MaxName-len("Ω nightly/"))
	const runs = 4
	var mu sync.Mutex
	effects := map[RunID]int{}
	var wg sync.WaitGroup
	var ledgers []*Ledger
	for range 5 {
		c, err := tenure.Open(t.Context(), url, tenure.WithTTL(5*time.Second), tenure.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		l, err := Open(c, agent, Site("Ω"))
		if err != nil {
			t.Fatal(err)
		}
		ledgers = append(ledgers, l)
		wg.Go(func() {
			for n := range runs {
				run, err := Occurrence(agent, "Ω", time.UnixMilli(int64(n)))
				if err != nil {
					t.Error(err)
				}
				out, err := l.Once(t.Context(), run, func(_ context.Context, a *Attempt) (Result, error) {
					mu.Lock()
					defer mu.Unlock()
					effects[a.Run().ID]++
					return Result{Output: []byte("Ω")}, nil
				}, Wait(time.Minute), Replay())
				if err != nil || out.State != Ran && (out.State != Done || string(out.Saved.Output) != "Ω") {
					t.Errorf("%+v, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	for run, n := range effects {
		if n != 1 {
			t.Errorf("run %v: %d effects", run, n)
		}
	}
	l := ledgers[0]
	if done, err := l.Compact(t.Context()); err != nil || done.Facts != runs {
		t.Errorf("%+v, %v", done, err)
	}
	if swept, err := l.Sweep(t.Context(), time.Nanosecond); err != nil || swept.Results > runs {
		t.Errorf("%+v, %v", swept, err)
	}
	x, err := l.Load(t.Context())
	if err != nil || x.Counts != (Counts{Committed: runs}) || len(effects) != runs {
		t.Errorf("%+v, %v", x, err)
	}
	for name, err := range List(t.Context(), l.c) {
		if err != nil || name != agent {
			t.Errorf("%q, %v", name, err)
		}
	}
}
