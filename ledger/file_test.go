package ledger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

func site(t *testing.T, path string) *FileLedger {
	t.Helper()
	f, err := OpenFile(path, job, "lyon")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func nothing(context.Context, *Attempt) (Result, error) { return Result{}, nil }

// once runs on a log file without fail.
func (f *FileLedger) once(t *testing.T, run Run, fn Func, opts ...OnceOption) Outcome {
	t.Helper()
	out, err := f.Once(t.Context(), run, fn, opts...)
	if err != nil {
		t.Fatalf("%v, %v", out.State, err)
	}
	return out
}

// Many processes of one host with one log file: each run once, and who does not get the
// lock is told.
//
// SPEC EX3 EX7
// CASE B34
func TestFileSite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	const runs = 5
	var mu sync.Mutex
	effects := map[RunID]int{}
	epochs := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			f := site(t, path)
			for n := range runs {
				out := f.once(t, at(n), func(_ context.Context, a *Attempt) (Result, error) {
					mu.Lock()
					defer mu.Unlock()
					effects[a.Run().ID]++
					if epochs[a.Epoch()] {
						t.Errorf("epoch %d twice", a.Epoch())
					}
					epochs[a.Epoch()] = true
					return Result{}, nil
				}, Wait(time.Minute))
				if out.State != Ran && out.State != Done {
					t.Errorf("%+v", out)
				}
			}
		})
	}
	wg.Wait()
	for n := range runs {
		if effects[at(n).ID] != 1 {
			t.Errorf("run %d: %d effects", n, effects[at(n).ID])
		}
	}
	f := site(t, path)
	f.once(t, at(runs), func(ctx context.Context, a *Attempt) (Result, error) {
		want(t, site(t, path).once(t, at(runs+1), nothing), Busy, 0)
		wantErr(t, f.Settle(ctx, a.Key(), AsFailed, SettleOptions{Reason: "x"}), ErrRunning)
		return Result{}, nil
	})
}

// A process that vanished leaves its run unknown on a log file, too; the policies are the
// same.
//
// SPEC EX4
// CASE B13
func TestFileSiteUnknown(t *testing.T) {
	t.Parallel()
	f := site(t, filepath.Join(t.TempDir(), "log"))
	vanish := func(n int) Key {
		out, err := f.Once(t.Context(), at(n), func(context.Context, *Attempt) (Result, error) { return Result{}, ErrUnsettled })
		want(t, out, Unsettled, 1)
		wantErr(t, err, ErrUnsettled)
		return out.Attempt
	}
	says := func(x Finding) OnceOption {
		return WithProbe(func(context.Context, Pending) (Finding, error) { return x, nil })
	}
	vanish(1)
	want(t, f.once(t, at(1), nothing), Held, 1)
	want(t, f.once(t, at(1), nothing, says(CannotSay)), Held, 1)
	want(t, f.once(t, at(1), nothing, OnUnknown(Retry)), Ran, 2)
	vanish(2)
	want(t, f.once(t, at(2), nothing, says(Happened)), Done, 1)
	vanish(3)
	want(t, f.once(t, at(3), nothing, says(DidNotHappen), MaxFailed(1)), Ran, 2)
	k := vanish(4)
	for _, err := range []error{nil, store.ErrNotFound} {
		if got := f.Settle(t.Context(), k, AsCommitted, SettleOptions{Reason: "seen"}); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
	}
	want(t, f.once(t, at(4), nothing), Done, 1)
	boom := errors.New("boom")
	out, err := f.Once(t.Context(), at(5), func(context.Context, *Attempt) (Result, error) { return Result{}, boom })
	want(t, out, Failed, 1)
	wantErr(t, err, boom)
	want(t, f.once(t, at(5), nothing, MaxFailed(1)), GaveUp, 1)
	want(t, f.once(t, at(5), nothing), Ran, 2)

	out, err = f.Once(t.Context(), at(6), func(ctx context.Context, _ *Attempt) (Result, error) {
		<-ctx.Done()
		return Result{}, tenure.ErrOverlap
	}, TimeLimit(time.Millisecond))
	want(t, out, Unsettled, 1)
	wantErr(t, err, tenure.ErrOverlap)
	want(t, f.once(t, at(7), nothing), Busy, 0) // something may still be at it
	for _, lock := range f.left {
		_ = lock.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, err = f.Once(ctx, at(7), nothing)
	want(t, out, NotRun, 1)
	wantErr(t, err, context.Canceled)
	want(t, f.once(t, at(7), nothing), Ran, 2)
}

// A crash at any byte of the log: what was acknowledged stays, the torn line is cut off,
// and the run is done at most once more, and then shown.
//
// SPEC EX3 EX7
func TestFileSiteIsTornAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := site(t, filepath.Join(dir, "log"))
	f.once(t, at(1), nothing)
	first, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	f.once(t, at(2), nothing)
	all, err := os.ReadFile(f.path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(all[len(first):], []byte("\n")) // raised, pending, committed
	begun := len(first) + len(lines[0]) + len(lines[1])
	for _, n := range everySeventh(len(first), len(all)) {
		g := site(t, filepath.Join(dir, "torn"))
		if err := os.WriteFile(g.path, all[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, g.once(t, at(1), nothing), Done, 1)
		state, attempt := Ran, uint64(1)
		if n >= begun {
			state = Held
		}
		if n == len(all) {
			state = Done
		}
		want(t, g.once(t, at(2), nothing), state, attempt)
		if log, err := g.Read(); err != nil || log.Torn != 0 && state == Ran {
			t.Errorf("%+v, %v", log, err)
		}
	}
	long := append(bytes.Clone(first), strings.Repeat("x", 3000)...) // longer than what comes in its place
	if err := os.WriteFile(f.path, long, 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, f.once(t, at(2), nothing), Ran, 1)
	want(t, f.once(t, at(2), nothing), Done, 1)
	damaged := bytes.Replace(all, []byte(`"pending"`), []byte(`"pendinG"`), 1)
	if err := os.WriteFile(f.path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = f.Once(t.Context(), at(3), nothing)
	wantErr(t, err, store.ErrCorrupt)
	if got, _ := os.ReadFile(f.path); !bytes.Equal(got, damaged) {
		t.Error("a damaged log was written to")
	}
}

// A site that had no store for a while brings its log: what it did is not done again.
//
// SPEC EX7
func TestFileSiteComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	inWorld(t, func(t *testing.T, w *world) {
		h, f := w.host(), site(t, path)
		h.do(at(1))
		f.once(t, at(2), nothing)
		g, err := f.Read()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Import(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		want(t, h.do(at(2)), Done, 1)
		w.leave(at(3), false)
		var out bytes.Buffer
		if err := h.Export(t.Context(), &out); err != nil || !strings.Contains(out.String(), `"lyon"`) || !strings.Contains(out.String(), `"main"`) {
			t.Errorf("%v\n%s", err, out.String())
		}
		// The other way round: the log file takes the store's ledger over.
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, f.once(t, at(1), nothing), Done, 1)
		want(t, f.once(t, at(3), nothing, OnUnknown(Retry)), Held, 1) // the store's host may be at it
		want(t, f.once(t, at(4), nothing), Ran, 1)
	})
}

func everySeventh(from, to int) (all []int) {
	for n := from; n < to; n += 7 {
		all = append(all, n)
	}
	return append(all, to)
}
