package slots

import (
	"slices"
	"testing"
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// announcedBy are the owners that are announced.
func (w *tableWorld) announcedBy() (all []string) {
	w.t.Helper()
	for _, a := range w.view().Hosts {
		all = append(all, a.Host.Owner)
	}
	return all
}

// What a host announced goes once its session is over for a while, a few at a time, and what
// living hosts announced stays: whether the store finds all in one request or not, and
// whether it can remove at one version only or not. A host of the same name that comes back
// is announced again.
//
// SPEC SL8
func TestAnnouncementsOfHostsThatAreGone(t *testing.T) {
	t.Parallel()
	atAnyVersion := func(s *hostSetup) {
		plain(s)
		before := s.link.Info
		s.link.Info = func(i store.Info) store.Info {
			i = before(i)
			i.Can &^= store.CanDeleteIf
			return i
		}
	}
	for name, edit := range map[string]func(*hostSetup){"with everything": func(*hostSetup) {}, "plain": plain, "plain, removed at any version": atAnyVersion} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
				w.shardsOf(4)
				w.balanced("a", edit).run()
				w.balanced("b", edit).run()
				w.shared(4, 5*time.Minute, "a", "b")
				pods := []string{"p0", "p1", "p2", "p3", "p4", "p5"}
				for _, p := range pods {
					w.balanced(p, edit).run()
				}
				bubbleSleep(20 * time.Second)
				for _, p := range w.hosts[2:] {
					p.die()
				}
				bubbleSleep(8 * time.Minute)
				if got := w.announcedBy(); len(got) != 8 {
					t.Fatalf("so soon only %v are announced", got)
				}
				bubbleSleep(6 * time.Minute)
				if got := w.announcedBy(); !slices.Equal(got, []string{"a", "b"}) {
					t.Fatalf("%v are announced", got)
				}
				w.shared(4, time.Minute, "a", "b")
				again := w.balanced("p0", edit, as("node-p0-anew"))
				again.run()
				bubbleSleep(time.Minute)
				if got := w.announcedBy(); !slices.Equal(got, []string{"a", "b", "p0"}) {
					t.Errorf("%v are announced", got)
				}
			})
		})
	}
}

// A host whose announcement was removed under it, by a leader's late call, is announced
// again soon.
//
// SPEC SL8
func TestAnnouncementThatWasRemoved(t *testing.T) {
	inTables(t, func(t *testing.T, w *tableWorld) {
		w.shardsOf(4)
		a, b := w.balanced("a"), w.balanced("b")
		a.run()
		b.run()
		w.shared(4, 5*time.Minute, "a", "b")
		if err := w.st.Delete(t.Context(), b.hostKey("b")); err != nil {
			t.Fatal(err)
		}
		until(t, 2*hostTTL+time.Second, func() bool { return slices.Equal(w.announcedBy(), []string{"a", "b"}) })
		w.shared(4, 5*time.Minute, "a", "b")
	})
}

// The leader learns soon of a host that leaves, and of one that is there again, although it
// does not read every announcement each time.
//
// SPEC SL8
func TestLeaveOnAPlainStore(t *testing.T) {
	t.Parallel()
	inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
		w.shardsOf(12)
		for _, name := range []string{"a", "b", "c"} {
			w.balanced(name, plain).run()
		}
		w.shared(12, 10*time.Minute, "a", "b", "c")
		began := time.Now()
		go func() { _ = w.hosts[1].Leave(t.Context()) }()
		w.shared(12, time.Minute, "a", "c")
		t.Logf("b was empty after %v", time.Since(began))
		began = time.Now()
		w.hosts[2].die()
		w.shared(12, 2*hostTTL+30*time.Second, "a")
		t.Logf("a had what c left after %v", time.Since(began))
	})
}

// Of announcements that are known only a few are read again in one planning, those first
// that a plan waits for and the oldest.
//
// SPEC SL8
func TestReadingAgainIsBounded(t *testing.T) {
	t.Parallel()
	inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) {
		w.shardsOf(2)
		a := w.balanced("a", plain)
		r := newRoster(t.Context(), a.Host)
		bubbleSleep(time.Hour)
		known := map[string]announcement{}
		for i := range 30 {
			owner := string(rune('A' + i))
			known[owner] = announcement{&core.Announce{Host: core.Host{Owner: owner}}, time.Duration(30-i) * time.Second}
		}
		known["new"], known["newer"] = announcement{}, announcement{}
		got := r.toRead(known, map[string]bool{"B": true})
		if len(got) != 2+mostReread || got[0] != "new" || got[2] != "B" || got[3] != string(rune('A'+29)) {
			t.Errorf("it reads %v", got)
		}
	})
}
