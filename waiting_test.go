package tenure

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Waiters get the lease in the order of their arrival, within one process and
// across processes, each with the next token.
//
// SPEC LS9 LS7
func TestFirstComeFirstServed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		peers := []*peer{w.join(), w.join(), w.join()}
		first := w.acquire(peers[0], "job")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				l, err := peers[i%3].Acquire(t.Context(), "job")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		w.release(first)
		wg.Wait()
		for p := range 3 { // within each process strictly in order
			var own []int
			for _, i := range order {
				if i%3 == p {
					own = append(own, i)
				}
			}
			if !slices.IsSorted(own) {
				t.Errorf("process %d served its own waiters as %v", p, own)
			}
		}
		for n := range 3 { // and across them in turn
			if got := order[3*n : 3*n+3]; !slices.Contains(got, order[3*n]) || got[0]%3 == got[1]%3 || got[1]%3 == got[2]%3 {
				t.Errorf("served as %v: one process pushed in", order)
				break
			}
		}
	})
}

// Ten thousand waiters in one process ask the store as one, and one that gives
// up leaves nothing behind.
//
// SPEC LS9
func TestManyWaitersPollAsOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "job")
		ctx, cancel := context.WithCancel(t.Context())
		one := requestsOfWaiters(t, b, ctx, 1)
		many := requestsOfWaiters(t, b, ctx, 10_000)
		if many > 2*one+10 {
			t.Fatalf("10,000 waiters cost %d requests, one costs %d", many, one)
		}
		cancel()
		synctest.Wait()
		b.mu.Lock()
		left := len(b.lines)
		b.mu.Unlock()
		if left != 0 {
			t.Fatalf("%d lines are left after every waiter gave up", left)
		}
		w.release(l)
		w.release(w.acquire(b, "job"))
	})
}

// requestsOfWaiters starts n waiters and counts the requests of five TTLs.
func requestsOfWaiters(t *testing.T, p *peer, ctx context.Context, n int) int {
	for range n {
		go func() { _, _ = p.Acquire(ctx, "job") }()
	}
	synctest.Wait()
	p.link.take()
	time.Sleep(5 * ttl)
	total := 0
	for _, c := range p.link.take() {
		total += c
	}
	return total
}

// A release wakes the next waiter at once where the store can watch.
//
// SPEC LS9
func TestReleaseWakesTheNext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		l := w.acquire(a, "job")
		got := make(chan time.Time, 1)
		go func() { w.acquire(b, "job"); got <- time.Now() }()
		time.Sleep(time.Second)
		released := time.Now()
		w.release(l)
		if d := (<-got).Sub(released); d > time.Millisecond {
			t.Fatalf("the next holder came %v after the release", d)
		}
	})
}

// A waiter that is stopped at the head of the line delays the others by at most
// one TTL.
//
// SPEC LS9
func TestStoppedWaiterIsPassedOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b, c := w.join(), w.join(), w.join()
		l := w.acquire(a, "job")
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { _, _ = b.Acquire(ctx, "job"); close(stopped) }()
		time.Sleep(time.Second)
		got := make(chan time.Time, 1)
		go func() { w.acquire(c, "job"); got <- time.Now() }()
		time.Sleep(time.Second)
		b.die() // stands first in line and does nothing any more
		released := time.Now()
		w.release(l)
		if d := (<-got).Sub(released); d > ttl+ttl/2 {
			t.Fatalf("the second in line waited %v behind a stopped one", d)
		}
		cancel()
		<-stopped
	})
}

// Watch tells every transition in order, the vacancies too, also those that
// came between two looks.
//
// SPEC LS9
func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a, b := w.join(), w.join()
		type seen struct {
			state State
			token uint64
			how   string
		}
		var got []seen
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ch, err := range b.Watch(t.Context(), "job") {
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, seen{ch.State, ch.Tenure.Token, ch.Tenure.How})
				if len(got) == 9 {
					return
				}
			}
		}()
		synctest.Wait()
		l := w.acquire(a, "job")
		time.Sleep(3 * ttl) // renewals are no transitions
		w.release(l)
		time.Sleep(time.Second)
		for range 2 { // faster than anybody looks
			w.release(w.acquire(a, "job"))
		}
		w.acquire(a, "job")
		synctest.Wait()
		if _, err := b.Steal(t.Context(), "job", StealOptions{Token: 4, Reason: "r", By: "op"}); err != nil {
			t.Fatal(err)
		}
		<-done
		want := []seen{
			{Absent, 0, ""},
			{Held, 1, ""}, {Released, 1, "released"},
			{Held, 2, ""}, {Released, 2, "released"},
			{Held, 3, ""}, {Released, 3, "released"},
			{Held, 4, ""}, {Released, 4, "forced"},
		}
		if !slices.Equal(got, want) {
			t.Fatalf("watch told\n%v, want\n%v", got, want)
		}
	})
}

// By the store's own clock, where an operator enabled it, a lease that is silent
// for longer than its TTL and margin is taken at once, without watching; another
// instance of the clock proves nothing.
//
// SPEC LS3 ST12
func TestStoreClock(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.join(WithStoreClock())
		w.acquire(a, "job")
		a.die()
		time.Sleep(ttl)
		_, err := w.join().TryAcquire(t.Context(), "job")
		wantErr(t, err, ErrHeld) // the TTL is over, the margin is not
		time.Sleep(ttl/10 + ttl/50)
		l, err := w.join().TryAcquire(t.Context(), "job")
		if err != nil || l.Token() != 2 {
			t.Fatalf("not taken over by the store's clock: %v", err)
		}
		h, _ := w.join().History(t.Context(), "job")
		if h.Tenures[0].How != "store-clock" {
			t.Fatalf("history says %q", h.Tenures[0].How)
		}
	})
	t.Run("not enabled", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			a := w.join()
			w.acquire(a, "job")
			a.die()
			time.Sleep(5 * ttl)
			_, err := w.join().TryAcquire(t.Context(), "job")
			wantErr(t, err, ErrHeld)
		})
	})
}

// Processes that take and free one lease as often as they can get it equally
// often, from the first round on: whoever loses a race stands in line, while a
// pause would leave the lease to the winner.
//
// SPEC LS9
func TestLoopsShareFairly(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const processes, window = 8, 2 * time.Second
		var grants [processes]int
		var wg sync.WaitGroup
		until := time.Now().Add(window)
		for i := range processes {
			p := w.join()
			p.link.tune(func(l *link) { l.delay = time.Millisecond + time.Duration(i)*50*time.Microsecond })
			wg.Go(func() {
				for time.Now().Before(until) {
					w.release(w.acquire(p, "job"))
					grants[i]++
				}
			})
		}
		wg.Wait()
		if least, most := slices.Min(grants[:]), slices.Max(grants[:]); least*10 < most*9 || most < 20 {
			t.Fatalf("in %v they got the lease %v times", window, grants)
		}
	})
}
