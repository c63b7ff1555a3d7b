package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// A member whose process is gone without a word delays the others for 5 seconds
// at most, though nobody removes its place.
//
// SPEC LS9
func TestDeadMemberIsPassedOver(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, u)
	admin(t, u, "INSERT INTO "+s.sql.queue+" (id, key, member, until) VALUES (1, '"+key+"', 'gone', clock_timestamp() + interval '4 seconds')")
	b := must(s.Enqueue(t.Context(), key))(t)
	defer b.Leave()
	start := time.Now()
	if err := b.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < time.Second || d > 8*time.Second {
		t.Errorf("it was passed over after %v", d)
	}
	if yes, err := s.Waiting(t.Context(), key); !yes || err != nil {
		t.Errorf("Waiting says %v, %v with one in line", yes, err)
	}
}

// The server's clock was set back: places confirmed before look far in the
// future. They hold nobody up, and those who live confirm theirs anew.
//
// SPEC LS9
func TestClockSetBackHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, u)
	admin(t, u, "INSERT INTO "+s.sql.queue+" (id, key, member, until) VALUES (1, '"+key+"', 'gone', clock_timestamp() + interval '1 hour')")
	if yes, err := s.Waiting(t.Context(), key); yes || err != nil {
		t.Errorf("Waiting says %v, %v", yes, err)
	}
	b := must(s.Enqueue(t.Context(), key))(t)
	defer b.Leave()
	admin(t, u, "UPDATE "+s.sql.queue+" SET until = clock_timestamp() + interval '1 hour'")
	if err := b.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new confirmation", func() bool {
		return admin(t, u, "SELECT count(*) FROM "+s.sql.queue+" WHERE member <> 'gone' AND "+alive)[0][0] == "1"
	})
}

// A place whose row is gone is taken again, at the end.
//
// SPEC LS9
func TestLostPlaceIsTakenAgain(t *testing.T) {
	t.Parallel()
	u := place(t)
	s, other := open(t, u), open(t, u)
	a := must(s.Enqueue(t.Context(), key))(t)
	if err := a.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var b store.Ticket
	for { // until it is this one that comes first, for the other joins again by itself
		admin(t, u, "DELETE FROM "+s.sql.queue)
		b = must(other.Enqueue(t.Context(), key))(t)
		if admin(t, u, "SELECT member FROM "+s.sql.queue+" ORDER BY id LIMIT 1")[0][0] == other.line.member {
			break
		}
		b.Leave()
	}
	defer b.Leave()
	if err := b.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "joining again", func() bool {
		return admin(t, u, "SELECT count(*) FROM "+s.sql.queue)[0][0] == "2"
	})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for {
		err := a.Wait(ctx, 0)
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err == nil && ctx.Err() == nil && admin(t, u, "SELECT count(*) FROM "+s.sql.queue)[0][0] == "2" {
			t.Error("the one who lost its place was let through before the one who has it")
			break
		}
	}
	a.Leave()
}

// A hand-over between processes is told by a notification, well before anybody
// looks by itself, and the rows do not outlive the tickets.
//
// SPEC LS9
func TestHandOverIsTold(t *testing.T) {
	t.Parallel()
	u := place(t)
	a, b := open(t, u), open(t, u)
	b.line.every = time.Hour // it does not look by itself
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var total time.Duration
	const rounds = 5
	for range rounds {
		first, second := must(a.Enqueue(t.Context(), key))(t), must(b.Enqueue(t.Context(), key))(t)
		if err := first.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		turn := make(chan error, 1)
		go func() { turn <- second.Wait(ctx, 0) }()
		eventually(t, "listening", func() bool {
			b.hub.mu.Lock()
			defer b.hub.mu.Unlock()
			return b.hub.up
		})
		start := time.Now()
		first.Leave()
		if err := <-turn; err != nil {
			t.Fatal(err)
		}
		total += time.Since(start)
		second.Leave()
	}
	t.Logf("a hand-over takes %v", total/rounds)
	eventually(t, "the end of the rows", func() bool {
		return admin(t, u, "SELECT count(*) FROM "+a.sql.queue)[0][0] == "0"
	})
}
