package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/crontab"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/ledger"
)

// midnight is an instant at which every interval of these tests has an occurrence.
var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// tested is a scheduler whose looks find nothing done, and what it says.
func tested(t *testing.T, jobs ...scheduled) (*scheduler, *bytes.Buffer) {
	t.Helper()
	said := new(bytes.Buffer)
	a := newApp(nil, said, said, nil)
	a.clk = clock.NewVirtual(1)
	s := newScheduler(a)
	s.dir = t.TempDir()
	s.looks = newLooker(a, target{})
	s.looks.open = func(context.Context) (*tenure.Client, error) { return nil, errors.New("no store") }
	t.Cleanup(s.looks.close)
	s.take(jobs)
	return s, said
}

func every(t *testing.T, name string, d time.Duration) scheduled {
	t.Helper()
	e, err := ledger.NewEvery(d, 0)
	if err != nil {
		t.Fatal(err)
	}
	return scheduled{Job: crontab.Job{Name: name, Schedule: e, Interval: d, Zone: time.UTC, Command: "true"}, late: max(d, time.Hour)}
}

// step lets the scheduler give places at now. What got one ends at once.
func step(s *scheduler, now time.Time) (begun []string) {
	s.begin(now)
	for len(s.live) > 0 {
		l := <-s.looked
		begun = append(begun, l.t.Name+" "+instantText(l.t.at))
		delete(s.live, l.t)
	}
	slices.Sort(begun)
	return begun
}

// A clock that was wrong for one look, and was set right, costs no occurrence after it.
//
// SPEC EX5 UI1
func TestScheduleAfterAWrongClock(t *testing.T) {
	t.Parallel()
	s, said := tested(t, every(t, "j", time.Minute))
	const jittered = 2 * time.Second
	step(s, midnight.Add(jittered))
	if n := len(step(s, midnight.Add(4*365*24*time.Hour+jittered))); n != 1 {
		t.Fatalf("the wrong clock began %d occurrences", n)
	}
	for i := 1; i < 100; i++ {
		at := midnight.Add(time.Duration(i) * time.Minute)
		if got := step(s, at.Add(jittered)); !slices.Equal(got, []string{"j " + instantText(at)}) {
			t.Fatalf("at %s it began %v", instantText(at), got)
		}
	}
	if n := strings.Count(said.String(), "the clock was set back: it is 2026-03-01T00:01:02Z"); n != 1 {
		t.Errorf("it was told %d times: %s", n, said)
	}
	// What is usual goes unnoticed.
	if got := step(s, midnight.Add(99*time.Minute-setBackBy/2)); len(got) > 0 || strings.Count(said.String(), "set back") != 1 {
		t.Errorf("a small correction began %v; it said %s", got, said)
	}
}

// The pause before an occurrence is tried again does not depend on the clock on the wall.
//
// SPEC UI1
func TestSchedulePauseOutlivesAWrongClock(t *testing.T) {
	t.Parallel()
	s, _ := tested(t, every(t, "j", time.Hour))
	clk := clock.NewVirtual(1)
	s.a.clk = clk
	step(s, midnight.Add(2*time.Second))
	clk.StepWall(4 * 365 * 24 * time.Hour)
	s.postpone(s.jobs["j"], "test")
	clk.StepWall(-4 * 365 * 24 * time.Hour)
	if got := step(s, midnight.Add(3*time.Second)); len(got) > 0 {
		t.Errorf("it did not pause: %v", got)
	}
	clk.Suspend(triesAgain)
	if got := step(s, midnight.Add(9*time.Second)); len(got) != 1 {
		t.Errorf("after the pause it began %v", got)
	}
}

// Pauses grow, up to a limit, and leave every occurrence a try of its own. Only the first
// is told, until something succeeds.
//
// SPEC UI1
func TestSchedulePauses(t *testing.T) {
	t.Parallel()
	for interval, want := range map[time.Duration][]time.Duration{
		1000 * time.Hour: {5, 10, 20, 40, 60, 60},
		time.Second:      {5, 5, 5},
	} {
		s, said := tested(t, every(t, "j", interval))
		j := s.jobs["j"]
		j.at = midnight
		for i, seconds := range want {
			from := s.a.clk.Boot()
			s.postpone(j, "test")
			if d, want := j.again-from, seconds*time.Second; d < want || d > want+want/4 || !j.last.Before(j.at) {
				t.Errorf("@every %v: pause %d is %v, want %v", interval, i, d, want)
			}
		}
		if n := strings.Count(said.String(), "it is tried again while it is due"); n != 1 {
			t.Errorf("it was told %d times: %s", n, said)
		}
	}
}

// What the status file says decides whether an occurrence is tried again, not the code.
//
// SPEC EX6 UI1
func TestScheduleDecidesByTheStatusFile(t *testing.T) {
	t.Parallel()
	s, _ := tested(t, every(t, "j", time.Hour))
	for _, c := range []struct {
		status string // "" is that there is none
		again  bool
	}{
		{"", true},
		{"{", true},
		{`{"end":"not-started","outcome":"","code":76}`, true},
		{`{"end":"not-started","outcome":"not run","code":79}`, true},
		{`{"end":"not-started","outcome":"busy","code":75}`, true},
		{`{"end":"not-started","outcome":"failed","code":127}`, true},
		{`{"end":"not-started","outcome":"done","code":80}`, false},
		{`{"end":"not-started","outcome":"gave up","code":80}`, false},
		{`{"end":"not-started","outcome":"held","code":81}`, false},
		{`{"end":"supervisor-gone","outcome":"","code":69}`, true},
		{`{"end":"exited","outcome":"failed","code":3}`, false},
		{`{"end":"lost","outcome":"unsettled","code":76}`, false},
	} {
		j := s.jobs["j"]
		j.status = s.statusFile(j)
		_ = os.Remove(j.status)
		if c.status != "" {
			if err := os.WriteFile(j.status, []byte(c.status), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.undone(j); got != c.again {
			t.Errorf("%q: tried again is %v, want %v", c.status, got, c.again)
		}
	}
}

// Not more than --parallel occurrences have a place, and the oldest get it first.
//
// SPEC EX6 UI1
func TestSchedulePlaces(t *testing.T) {
	t.Parallel()
	var jobs []scheduled
	for i := range 9 {
		jobs = append(jobs, every(t, fmt.Sprint("j", i), time.Duration(9-i)*time.Hour)) // the last have the latest
	}
	s, said := tested(t, jobs...)
	s.parallel = 4
	now := midnight.Add(8*time.Hour + 30*time.Minute)
	all, _ := s.due(now)
	if len(all) != 9 || !slices.IsSortedFunc(all, func(a, b candidate) int { return a.at.Compare(b.at) }) {
		t.Fatalf("due are %v", all)
	}
	for n := range 3 {
		var want []string
		for _, c := range all[4*n : min(4*n+4, 9)] {
			want = append(want, c.t.Name+" "+instantText(c.at))
		}
		slices.Sort(want)
		if got := step(s, now); !slices.Equal(got, want) {
			t.Errorf("step %d: begun were %v, want %v", n, got, want)
		}
	}
	if got := step(s, now); len(got) > 0 {
		t.Errorf("twice: %v", got)
	}
	clk := clock.NewVirtual(1)
	s.a.clk = clk
	for range 3 {
		s.crowded(all[:2])
		clk.Suspend(crowdedFor)
	}
	if n := strings.Count(said.String(), "2 occurrences wait for one of 4 places"); n != 1 {
		t.Errorf("it was told %d times: %s", n, said)
	}
}

// Hosts do not ask in one instant, and none holds an occurrence back for long.
func TestScheduleJitter(t *testing.T) {
	t.Parallel()
	j := every(t, "j", time.Minute)
	seen := map[time.Duration]bool{}
	for i := range 200 {
		at := midnight.Add(time.Duration(i) * time.Minute)
		d := jitter(j, at)
		if d < 0 || d >= jitterMax || d != jitter(j, at) {
			t.Fatalf("it is %v, then %v", d, jitter(j, at))
		}
		seen[d/(jitterMax/4)] = true
	}
	if len(seen) != 4 {
		t.Errorf("it lies in %d of four parts only", len(seen))
	}
	if d := jitter(every(t, "j", 100*time.Millisecond), midnight); d >= 10*time.Millisecond {
		t.Errorf("of 100ms it takes %v", d)
	}
	j.late = 100 * time.Millisecond
	if d := jitter(j, midnight); d >= 10*time.Millisecond {
		t.Errorf("of what is due for 100ms it takes %v", d)
	}
}
