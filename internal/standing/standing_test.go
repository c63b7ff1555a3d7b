package standing

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func never() error { return nil }

// Whatever a ticket is told while it looks at what it was told before, it learns
// in the end that it stands first.
//
// SPEC LS9
func TestNewsIsNotLost(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 20_000 {
		p := New()
		go func() {
			for before := 3; before >= 0; before-- {
				p.Move(At{Before: before})
			}
		}()
		if err := p.Wait(ctx, nil, 0, ctx.Err); err != nil {
			t.Fatal(err)
		}
	}
}

// Patience is for each one before, and is counted anew after each change; where
// nothing is known there is none.
//
// SPEC LS9
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New()
		start := time.Now()
		go func() {
			time.Sleep(10 * time.Second)
			p.Move(At{Before: 3})
			time.Sleep(2 * time.Second)
			p.Move(At{Before: 2})
		}()
		if err := p.Wait(t.Context(), nil, time.Second, never); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 14*time.Second {
			t.Errorf("it took %v, want 10 s unknown, 2 s of 3, then 2 s", took)
		}
	})
}

// An error of the place, an ended context and a closed store end the waiting.
//
// SPEC ST13
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	broken, gone := errors.New("broken"), errors.New("closed")
	p := New()
	p.Move(At{Before: -1, Err: broken})
	if err := p.Wait(t.Context(), nil, 0, never); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New().Wait(ctx, nil, 0, ctx.Err); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	closed := make(chan struct{})
	close(closed)
	asked := false
	err := New().Wait(t.Context(), closed, 0, func() error {
		if asked {
			return gone
		}
		asked = true
		return nil
	})
	if !errors.Is(err, gone) {
		t.Error(err)
	}
}
