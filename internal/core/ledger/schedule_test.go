package ledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test are the same on every machine

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
)

// minutes matches calendar minutes, by looking at each.
type minutes func(t time.Time) bool

func (m minutes) Next(t time.Time) time.Time {
	for n, end := t.Truncate(time.Minute).Add(time.Minute), t.Add(200*24*time.Hour); n.Before(end); n = n.Add(time.Minute) {
		if m(n) {
			return n
		}
	}
	return time.Time{}
}

func daily(h, m int) minutes {
	return func(t time.Time) bool { return t.Hour() == h && t.Minute() == m }
}

func eachHourAt(ms ...int) minutes {
	return func(t time.Time) bool { return slices.Contains(ms, t.Minute()) }
}

// wall is what a clock in zone shows at t.
func wall(t time.Time, zone *time.Location) time.Time {
	l := t.In(zone)
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
}

// bruteForce looks at every minute from begin to end and says when a schedule is due.
func bruteForce(m minutes, zone *time.Location, everyHour bool, begin, end time.Time) []time.Time {
	var due []time.Time
	shown := map[time.Time]bool{} // calendar minutes that came, from two days before
	last := wall(begin.Add(-48*time.Hour), zone)
	for t := begin.Add(-48 * time.Hour); !t.After(end); t = t.Add(time.Minute) {
		now, hit := wall(t, zone), false
		if everyHour {
			hit = m(now)
		} else {
			// Everything up to what is shown now that was not shown before is due.
			for c := last.Add(time.Minute); !c.After(now); c = c.Add(time.Minute) {
				hit = hit || m(c) && !shown[c]
				shown[c] = true
			}
			last = now
		}
		if hit && t.After(begin) {
			due = append(due, t)
		}
	}
	return due
}

// A change of the clocks neither doubles nor skips an occurrence, by the rule that
// docs/design/0008-ledger.md tells, in zones with changes of 30 minutes, one hour, two
// hours and a day, also at midnight.
//
// SPEC EX5
// CASE B87
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone string
		day  string // begins three days around it
	}{
		{"Europe/London", "2026-03-29"}, {"Europe/London", "2026-10-25"},
		{"America/New_York", "2026-03-08"}, {"America/New_York", "2026-11-01"},
		{"Australia/Lord_Howe", "2026-10-04"}, {"Australia/Lord_Howe", "2026-04-05"},
		{"Antarctica/Troll", "2026-03-29"}, {"Antarctica/Troll", "2026-10-25"},
		{"America/Sao_Paulo", "2018-11-04"}, {"America/Sao_Paulo", "2018-02-18"},
		{"Pacific/Apia", "2011-12-30"}, {"Asia/Kolkata", "2026-03-29"}, {"UTC", "2026-03-29"},
	} {
		zone := must(time.LoadLocation(c.zone))
		begin := must(time.Parse(time.DateOnly, c.day)).Add(-36 * time.Hour)
		end := begin.Add(96 * time.Hour)
		for name, m := range map[string]minutes{
			"0 0": daily(0, 0), "30 0": daily(0, 30), "30 1": daily(1, 30), "59 1": daily(1, 59), "0 2": daily(2, 0), "15 2": daily(2, 15), "30 2": daily(2, 30), "0 3": daily(3, 0),
			"*/5 *": eachHourAt(0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55), "0 *": eachHourAt(0), "0,30 0-3": func(t time.Time) bool { return t.Hour() < 4 && t.Minute()%30 == 0 },
		} {
			for _, everyHour := range []bool{false, true} {
				s := ledger.Zoned{Match: m, Zone: zone, EveryHour: everyHour}
				var got []time.Time
				for at, ok := s.Next(begin); ok && !at.After(end); at, ok = s.Next(at) {
					got = append(got, at.UTC())
				}
				want := bruteForce(m, zone, everyHour, begin, end)
				if !slices.EqualFunc(got, want, time.Time.Equal) {
					t.Fatalf("%s in %s around %s, every hour %v:\ngot  %v\nwant %v", name, c.zone, c.day, everyHour, got, want)
				}
				latest(t, s, got, begin, end)
			}
		}
	}
}

// latest asks for the last occurrence at random instants.
func latest(t *testing.T, s ledger.Schedule, all []time.Time, begin, end time.Time) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		now := begin.Add(time.Duration(r.Int64N(int64(end.Sub(begin)))))
		got, ok := ledger.Latest(s, now, now.Sub(begin))
		i := slices.IndexFunc(all, func(at time.Time) bool { return at.After(now) })
		if i < 0 {
			i = len(all)
		}
		if ok != (i > 0) || ok && !got.Equal(all[i-1]) {
			t.Fatalf("the latest at %v is %v %v, of %v", now, got, ok, all)
		}
	}
}

// The cases that people know by heart.
//
// SPEC EX5
// CASE B87
func TestClockChangesByName(t *testing.T) {
	t.Parallel()
	ny := must(time.LoadLocation("America/New_York"))
	for _, c := range []struct {
		name      string
		m         minutes
		everyHour bool
		from      string
		want      []string
	}{
		{"skipped: 02:30 runs at 03:00 EDT", daily(2, 30), false, "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"several in one gap are one", eachHourAt(0, 20, 40), false, "2026-03-08T06:39:00Z", []string{"2026-03-08T06:40:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:20:00Z"}},
		{"doubled: 01:30 runs at the first", daily(1, 30), false, "2026-11-01T00:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"asked in the second pass", daily(1, 30), false, "2026-11-01T06:10:00Z", []string{"2026-11-02T06:30:00Z"}},
		{"every hour goes on", eachHourAt(30), true, "2026-11-01T04:00:00Z", []string{"2026-11-01T04:30:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"}},
		{"every hour has nothing in a gap", eachHourAt(30), true, "2026-03-08T06:00:00Z", []string{"2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z"}},
	} {
		at := must(time.Parse(time.RFC3339, c.from))
		ids := map[ledger.RunID]bool{}
		for _, want := range c.want {
			at, _ = ledger.Zoned{Match: c.m, Zone: ny, EveryHour: c.everyHour}.Next(at)
			if got := at.UTC().Format(time.RFC3339); got != want {
				t.Fatalf("%s: %s, want %s", c.name, got, want)
			}
			ids[must(ledger.Occurrence(job, "schedule", at))] = true
		}
		if len(ids) != len(c.want) {
			t.Errorf("%s: %d occurrences have %d run ids", c.name, len(c.want), len(ids))
		}
	}
	never := ledger.Zoned{Match: minutes(func(time.Time) bool { return false }), Zone: ny}
	if _, ok := never.Next(time.Unix(0, 0)); ok {
		t.Error("a schedule that never comes has a next occurrence")
	}
	never.EveryHour = true
	if _, ok := ledger.Latest(never, time.Unix(1e9, 0), time.Minute); ok {
		t.Error("a schedule that never comes has a latest occurrence")
	}
}

// An interval has the same instants on every host, whenever it began.
//
// SPEC EX5
func TestEvery(t *testing.T) {
	t.Parallel()
	r := seeded(t, 9)
	for range 300 {
		interval := ledger.MinEvery + time.Duration(r.IntN(100_000_000))*time.Millisecond
		offset := time.Duration(r.Int64N(interval.Milliseconds())) * time.Millisecond
		e := must(ledger.NewEvery(interval, offset))
		now := time.UnixMilli(r.Int64N(4e12)).Add(time.Duration(r.IntN(1e6)))
		next, ok := e.Next(now)
		last, had := ledger.Latest(e, now, ledger.Horizon)
		if !ok || !next.After(now) || had && (last.After(now) || !last.Add(interval).Equal(next)) || (next.UnixMilli()-offset.Milliseconds())%interval.Milliseconds() != 0 {
			t.Fatalf("every %v + %v at %v: %v and %v", interval, offset, now, last, next)
		}
		if again, _ := e.Next(next.Add(-1)); !again.Equal(next) {
			t.Fatalf("just before %v the next is %v", next, again)
		}
	}
	e := must(ledger.NewEvery(time.Hour, time.Minute))
	if at, ok := e.Next(time.UnixMilli(-5)); !ok || at.UnixMilli() != 60_000 {
		t.Errorf("the first occurrence ever is %v", at)
	}
	if _, ok := ledger.Latest(e, time.UnixMilli(59_999), ledger.Horizon); ok {
		t.Error("there is one before the first")
	}
	if _, ok := ledger.Latest(e, time.UnixMilli(3_660_000-1), 59*time.Minute); ok {
		t.Error("an occurrence beyond the horizon is told")
	}
	for _, d := range [][2]time.Duration{{0, 0}, {99 * time.Millisecond, 0}, {time.Second + 1, 0}, {time.Second, -1}, {time.Second, time.Second}, {time.Second, time.Microsecond}} {
		if _, err := ledger.NewEvery(d[0], d[1]); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("every %v + %v: %v", d[0], d[1], err)
		}
	}
	once := ledger.At(time.UnixMilli(5000))
	if at, ok := once.Next(time.UnixMilli(4999)); !ok || at.UnixMilli() != 5000 {
		t.Errorf("at: %v %v", at, ok)
	}
	if _, ok := once.Next(time.UnixMilli(5000)); ok {
		t.Error("at: there is one after it")
	}
	if at, ok := ledger.Latest(once, time.UnixMilli(5000+60_000), time.Hour); !ok || at.UnixMilli() != 5000 {
		t.Errorf("the latest of one: %v %v", at, ok)
	}
}

// A job of a moment on hosts whose clocks and ticks are apart runs once per occurrence:
// the ledger removes the duplicate, not the lease, which is free again each time.
//
// SPEC EX6 EX5
// CASE B34
func TestShortJobOnSkewedHosts(t *testing.T) {
	t.Parallel()
	const early = 500 * time.Millisecond // hosts whose clocks are late by less than this still find the occurrence
	e := must(ledger.NewEvery(time.Minute, 0))
	h := start(t)
	ran := map[ledger.RunID]int{}
	for minute := range 20 {
		for i, skew := range []time.Duration{-200 * time.Millisecond, 0, 100 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond} {
			tick := time.Date(2026, 11, 30, 4, minute, 0, 0, time.UTC).Add(skew)
			at, ok := ledger.Latest(e, tick.Add(early), time.Minute)
			if !ok {
				t.Fatal("no occurrence")
			}
			run := must(ledger.Occurrence(job, "schedule", at))
			c := ledger.Claim{Holder: fmt.Sprint("host-", i), Epoch: h.Epoch + 1} // the lease is free again
			h = raised(t, h, c)
			n, d, err := must(ledger.Look(h, nil, run)).Admit(c, ledger.Detail{Write: id2})
			if err != nil {
				t.Fatal(err)
			}
			if d.Answer == ledger.AlreadyCommitted {
				continue
			}
			ran[run]++
			h = settled(t, n, d.Attempt, ledger.Committed)
		}
	}
	for run, n := range ran {
		if n != 1 {
			t.Errorf("run %v ran %d times", run, n)
		}
	}
	if len(ran) != 20 {
		t.Errorf("%d occurrences ran", len(ran))
	}
}
