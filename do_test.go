package tenure

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Stop, then release: the work's context is cancelled, the lease is renewed
// while it stops, and only then freed. No two functions ever run together.
//
// SPEC LS6 LS7
// CASE B10
func TestDoStopsThenReleases(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		var running atomic.Int32
		work := func(stopping time.Duration) func(context.Context, *Lease) error {
			return func(ctx context.Context, l *Lease) error {
				if n := running.Add(1); n != 1 {
					t.Errorf("%d functions run together", n)
				}
				defer running.Add(-1)
				<-ctx.Done()
				time.Sleep(stopping) // needs time to stop
				if !l.Live() {
					t.Error("the lease was not renewed while the work stopped")
				}
				return nil
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- a.Do(ctx, "job", work(ttl-time.Second)) }()
		synctest.Wait()
		ctx2, cancel2 := context.WithCancel(t.Context())
		second := make(chan error, 2)
		for _, p := range []*peer{a, b} { // the same process, and another
			go func() { second <- p.Do(ctx2, "job", work(0)) }()
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-first; err != nil {
			t.Fatalf("a clean shutdown: %v", err)
		}
		time.Sleep(time.Second)
		cancel2()
		if err := errors.Join(<-second, <-second); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// Work that does not stop is reported, its lease lapses, and this process does
// not start a second one before the first returned.
//
// SPEC LS6 LS7
func TestDoOverlap(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		errs := make(chan error, 1)
		go func() {
			errs <- a.Do(ctx, "job", func(context.Context, *Lease) error { <-release; return nil }, StopLimit(2*time.Second))
		}()
		synctest.Wait()
		cancel()
		start := time.Now()
		err := <-errs
		wantErr(t, err, ErrOverlap, ErrShutdown)
		if d := time.Since(start); d > 2*time.Second+time.Millisecond {
			t.Fatalf("Do returned after %v, its stop limit is 2s", d)
		}
		soon, cancelSoon := context.WithTimeout(t.Context(), 5*ttl)
		defer cancelSoon()
		if _, err = a.Acquire(soon, "job"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("this process got the lease while its old work still ran: %v", err)
		}
		close(release)
		w.release(w.acquire(a, "job"))
	})
}

// The loss of the lease is part of the result, once.
//
// SPEC LS6
func TestDoReportsLoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		err := a.Do(t.Context(), "job", func(ctx context.Context, l *Lease) error {
			a.die()
			<-ctx.Done()
			a.link.heal()
			return context.Cause(ctx)
		})
		wantErr(t, err, ErrExpired)
		if n := strings.Count(err.Error(), ErrExpired.Error()); n != 1 {
			t.Fatalf("the loss is told %d times: %v", n, err)
		}
		boom := errors.New("boom")
		wantErr(t, a.Do(t.Context(), "job", func(context.Context, *Lease) error { return boom }), boom)
	})
}

// A panic and a Goexit in the work free the lease and go on in the caller.
//
// SPEC LS6
func TestDoPanics(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join()
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = a.Do(t.Context(), "job", func(context.Context, *Lease) error { panic("boom") })
		}()
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = a.Do(t.Context(), "job", func(context.Context, *Lease) error { runtime.Goexit(); return nil })
			t.Error("Do returned from a Goexit")
		}()
		<-exited
		w.release(w.acquire(a, "job"))
	})
}

// The work of a process that needs time to stop is told early enough.
//
// SPEC DL5 LS6
// CASE B07
func TestStopTimeIsTakenOff(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		const stop = 2 * time.Second
		l := w.acquire(a, "job", Stop(stop))
		a.die()
		<-l.Done()
		told := time.Now()
		if !l.Live() {
			t.Fatal("the context ended only when the lease did")
		}
		if left := l.Remaining(); left < stop-time.Millisecond {
			t.Fatalf("%v left to stop, want %v", left, stop)
		}
		_ = w.acquire(b, "job")
		if d := time.Since(told); d < stop {
			t.Fatalf("the rival began %v after the work was told to stop", d)
		}
	})
}

// Close ends what is held, waits for work, and leaves nothing.
//
// SPEC LS6 LS5
// CASE B72 B73
func TestClose(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "held")
		done := make(chan error, 1)
		go func() {
			done <- a.Do(t.Context(), "work", func(ctx context.Context, _ *Lease) error {
				<-ctx.Done()
				time.Sleep(time.Second)
				return context.Cause(ctx)
			})
		}()
		blocked := make(chan error, 1)
		other := w.acquire(b, "busy")
		go func() { _, err := a.Acquire(t.Context(), "busy"); blocked <- err }()
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-done, ErrShutdown)
		wantErr(t, <-blocked, ErrClosed)
		wantErr(t, l.Err(), ErrShutdown)
		_, err := a.Acquire(t.Context(), "x")
		wantErr(t, err, ErrClosed)
		for _, name := range []string{"held", "work"} {
			if _, err := b.TryAcquire(t.Context(), name); err != nil {
				t.Errorf("%s is not free after Close: %v", name, err)
			}
		}
		w.release(other)
		if err := a.Close(); err != nil {
			t.Fatalf("second Close: %v", err)
		}
	})
	t.Run("store gone", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join(WithReleaseLimit(time.Second))
			l := w.acquire(a, "held")
			a.die()
			start := time.Now()
			wantErr(t, a.Close(), ErrUnconfirmed)
			if d := time.Since(start); d > 5*time.Second || l.Live() {
				t.Fatalf("Close took %v", d)
			}
		})
	})
	t.Run("from the lost callback", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join()
			l := w.acquire(a, "held")
			closed := make(chan error, 1)
			context.AfterFunc(l.Context(), func() { closed <- a.Close() })
			a.die()
			<-closed
		})
	})
}
