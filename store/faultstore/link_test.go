package faultstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// limited is a context of ten seconds.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// SPEC ST13
func TestLinkStates(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name        string
		link        faultstore.Link
		get, put    error // kinds
		took        time.Duration
		afterwards  string
		afterwardsV string
	}{
		{"cut", faultstore.Cut, store.ErrUnavailable, store.ErrUnknown, 10 * time.Second, "old", ""},
		{"refused", faultstore.Refused, store.ErrUnavailable, store.ErrUnavailable, 0, "old", ""},
		{"mute", faultstore.Mute, store.ErrUnavailable, store.ErrUnknown, 10 * time.Second, "new", ""},
		{"frozen", faultstore.Frozen, nil, store.ErrUnavailable, 0, "old", ""},
		{"dead", faultstore.Dead, store.ErrUnavailable, store.ErrUnavailable, 0, "old", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, faultstore.Options{})
				v := w.create("old")
				w.s.SetLink(c.link)
				start := time.Now()
				_, err := w.s.Replace(limited(t), k, []byte("new"), v)
				is(t, err, c.put)
				if took := time.Since(start); took != c.took {
					t.Errorf("Replace took %v, want %v", took, c.took)
				}
				w.holds(c.afterwards)
				_, err = w.s.Get(limited(t), k, 100)
				if c.get == nil && err != nil {
					t.Errorf("Get: %v", err)
				} else if c.get != nil {
					is(t, err, c.get)
				}
			})
		})
	}
}

func TestHealedLinkLetsWaitingCallsThrough(t *testing.T) {
	t.Parallel()
	for _, link := range []faultstore.Link{faultstore.Cut, faultstore.Mute} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, faultstore.Options{})
			v := w.create("old")
			w.s.SetLink(link)
			done := make(chan error)
			go func() {
				_, err := w.s.Replace(limited(t), k, []byte("new"), v)
				done <- err
			}()
			time.Sleep(5 * time.Second)
			w.s.SetLink(faultstore.Up)
			if err := <-done; err != nil {
				t.Errorf("a call that waited for the link: %v", err)
			}
			w.holds("new")
		})
	}
}

// A link that breaks while a call is under way takes the answer with it.
func TestLinkBreaksUnderACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.Delay(time.Second, time.Second)}}})
		v := w.create("old")
		done := make(chan error)
		go func() {
			_, err := w.s.Replace(limited(t), k, []byte("new"), v)
			done <- err
		}()
		synctest.Wait()
		w.s.SetLink(faultstore.Refused)
		is(t, <-done, store.ErrUnknown)
		w.holds("new")
	})
}

// A listing that loses its link ends with an error, and never looks complete.
//
// SPEC ST6
func TestLinkBreaksUnderAListing(t *testing.T) {
	t.Parallel()
	for _, link := range []faultstore.Link{faultstore.Refused, faultstore.Cut, faultstore.Frozen, faultstore.Dead} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, faultstore.Options{})
			for _, key := range []string{"n/lease/a", "n/lease/b", "n/lease/c"} {
				if _, err := w.s.Create(w.ctx, key, nil); err != nil {
					t.Fatal(err)
				}
			}
			got := 0
			var failed error
			for _, err := range w.s.List(limited(t), "", "") {
				if failed = err; err != nil {
					continue
				}
				got++
				w.s.SetLink(link)
			}
			if got != 1 {
				t.Errorf("link %v: the listing gave %d keys, want 1", link, got)
			}
			is(t, failed, store.ErrUnavailable)
		})
	}
}

// CASE B80
func TestFrozenNodeShowsTheLastValueForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{})
		v := w.create("leader is A")
		w.s.SetLink(faultstore.Frozen)
		if _, err := w.sound.Replace(w.ctx, k, []byte("leader is B"), v); err != nil {
			t.Fatal(err)
		}
		if _, err := w.sound.Create(w.ctx, "n/lease/new", nil); err != nil {
			t.Fatal(err)
		}
		list := func() (keys []string) {
			for key, err := range w.s.List(w.ctx, "", "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, key)
			}
			return keys
		}
		before := len(list())
		for range 3 {
			time.Sleep(time.Hour)
			o, err := w.s.Get(w.ctx, k, 100)
			if err != nil || string(o.Body) != "leader is A" || o.Version != v {
				t.Errorf("the frozen node shows %q at %q (%v)", o.Body, o.Version, err)
			}
			_, err = w.s.Get(w.ctx, "n/lease/later", 100)
			is(t, err, store.ErrNotFound)
			_, err = w.sound.Create(w.ctx, "n/lease/later", nil)
			if err != nil && !errors.Is(err, store.ErrExists) {
				t.Fatal(err)
			}
			if n := len(list()); n != before {
				t.Errorf("the frozen listing went from %d to %d keys", before, n)
			}
			is(t, w.s.Watch(limited(t), k, v), store.ErrUnavailable)
			_, err = w.s.Now(w.ctx)
			is(t, err, store.ErrUnavailable)
		}
		w.s.SetLink(faultstore.Up)
		if o, err := w.s.Get(w.ctx, k, 100); err != nil || string(o.Body) != "leader is B" {
			t.Errorf("the thawed node shows %q (%v)", o.Body, err)
		}
	})
}

// A dead process hears nothing any more, leaves its lines, and what it had sent
// still arrives.
func TestDeadProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{Rules: []faultstore.Rule{
			{Ops: []faultstore.Op{faultstore.OpReplace}, Fault: faultstore.LandLate(time.Minute, time.Minute)},
			{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Hang()},
		}})
		v := w.create("old")
		_, err := w.s.Replace(w.ctx, k, []byte("sent before death"), v)
		is(t, err, store.ErrUnknown)
		ticket, err := w.s.Enqueue(w.ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 2)
		go func() { ended <- w.s.Watch(w.ctx, k, v) }()
		go func() { ended <- w.s.Delete(w.ctx, k) }()
		synctest.Wait()
		w.s.SetLink(faultstore.Dead)
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a call of a dead process succeeded")
			}
		}
		if waiting, err := w.sound.Waiting(w.ctx, k); waiting || err != nil {
			t.Errorf("a dead process stands in line: %v, %v", waiting, err)
		}
		ticket.Leave()
		if _, err = w.s.Enqueue(w.ctx, k); err == nil {
			t.Error("a dead process joined a line")
		}
		w.s.SetLink(faultstore.Up) // no way back
		_, err = w.s.Get(w.ctx, k, 100)
		is(t, err, store.ErrUnavailable)
		w.holds("old")
		time.Sleep(2 * time.Minute)
		w.holds("sent before death")
	})
}

func TestPowersMeetFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, faultstore.Options{})
		ticket, err := w.s.Enqueue(w.ctx, k)
		if err != nil {
			t.Fatal(err)
		}
		w.s.Add(faultstore.Rule{Fault: faultstore.LoseReply()})
		is(t, ticket.Wait(w.ctx, 0), store.ErrUnavailable)
		_, err = w.s.Enqueue(w.ctx, "n/lease/other")
		is(t, err, store.ErrUnavailable)
		if waiting, err := w.sound.Waiting(w.ctx, "n/lease/other"); waiting || err != nil {
			t.Errorf("a place whose reply was lost was kept: %v, %v", waiting, err)
		}
		_, err = w.s.Waiting(w.ctx, k)
		is(t, err, store.ErrUnavailable)
		_, err = w.s.Now(w.ctx)
		is(t, err, store.ErrUnavailable)
		w.s.Clear()
		if err := ticket.Wait(w.ctx, 0); err != nil {
			t.Errorf("Wait at the head of the line: %v", err)
		}
		ticket.Leave()
	})
}
