package slots

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// plain takes from a host's store all that an object store has not: it does not watch,
// commit, queue, or tell the time.
func plain(s *hostSetup) {
	s.link.Info = func(i store.Info) store.Info {
		i.Can &^= store.CanWatch | store.CanCommit | store.CanQueue | store.CanClock | store.CanModTime
		return i
	}
}

// meter counts the calls of one host by operation and kind of record.
type meter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (m *meter) on(s *hostSetup) {
	m.calls = map[string]int{}
	s.link.Trace = func(e faultstore.Event) {
		if e.Done || e.Late {
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls[string(e.Op)+" "+strings.Split(e.Key, "/")[1]]++
	}
}

// take is what was counted since the last call.
func (m *meter) take() (calls map[string]int, all int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls, m.calls = m.calls, map[string]int{}
	for _, n := range calls {
		all += n
	}
	return calls, all
}

// sum is the calls that have one of the words in their names.
func sum(calls map[string]int, words ...string) (n int) {
	for name, c := range calls {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) }) {
			n += c
		}
	}
	return n
}

// Where the store wakes nobody, an idle host makes little more requests than the renewals of
// its session and a look at the plan every few seconds, however many hosts there are; the
// leader in addition looks at each other host's session twice in a TTL, and at its
// announcement once. Nobody waits on for a session that was in the way once.
//
// SPEC SL8 SL5
func TestRequestsOfAnIdleFleet(t *testing.T) {
	t.Parallel()
	for _, hosts := range []int{3, 12} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			t.Parallel()
			inTable(t, RegisterForm, func(t *testing.T, w *tableWorld) { idleFleet(t, w, hosts) })
		})
	}
}

func idleFleet(t *testing.T, w *tableWorld, hosts int) {
	w.shardsOf(4 * hosts)
	meters := map[string]*meter{}
	for i := range hosts {
		name, m := fmt.Sprintf("h%03d", i), &meter{}
		w.balanced(name, plain, m.on).run()
		meters[name] = m
	}
	w.shared(4*hosts, 20*time.Minute, slices.Sorted(maps.Keys(meters))...)
	bubbleSleep(2 * time.Minute)
	for _, m := range meters {
		m.take()
	}
	const span = 10 * time.Minute
	bubbleSleep(span)
	perHour := int(time.Hour / span)
	leaders := 0
	for name, m := range meters {
		calls, all := m.take()
		renewals := sum(calls, "replace identity")
		most := renewals + int(span/(hostTTL/6))*5/2
		if sum(calls, "list slots-host") > 0 {
			leaders++
			most += 5*int(span/(hostTTL/4)) + hosts*4*int(span/hostTTL)
			t.Logf("%d hosts, the leader: %d requests an hour, of sessions %d, of announcements %d and %d lists, of the plan %d, of the table %d, renewals %d", hosts, all*perHour,
				sum(calls, "get identity")*perHour, sum(calls, "get slots-host")*perHour, sum(calls, "list slots-host")*perHour, sum(calls, "slots-plan")*perHour, calls["get slots"]*perHour, renewals*perHour)
		} else if name == "h001" || name == "h002" {
			t.Logf("%d hosts, %s: %d requests an hour, renewals %d, of the plan %d, of the lease %d", hosts, name, all*perHour, renewals*perHour, sum(calls, "slots-plan")*perHour, sum(calls, "lease")*perHour)
		}
		if all > most {
			t.Errorf("%s made %d requests in %v, want at most %d: %v", name, all, span, most, calls)
		}
	}
	if leaders != 1 {
		t.Errorf("%d hosts lead", leaders)
	}
}
