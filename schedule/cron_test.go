package schedule_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test are the same on every machine

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/schedule"
	"github.com/tenure-project/tenure/store"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func parse(t *testing.T, expr string, z *time.Location) *schedule.Cron {
	t.Helper()
	c, err := schedule.Parse(expr, z)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fields is a cron expression as five sets, made by the test itself.
type fields struct {
	sets [5][]int // nil: any
}

func (f fields) String() string {
	var out []string
	for _, s := range f.sets {
		if s == nil {
			out = append(out, "*")
			continue
		}
		out = append(out, strings.Trim(strings.ReplaceAll(fmt.Sprint(s), " ", ","), "[]"))
	}
	return strings.Join(out, " ")
}

func (f fields) match(t time.Time) bool {
	in := func(i, v int) bool { return f.sets[i] == nil || slices.Contains(f.sets[i], v) }
	day := in(2, t.Day()) && in(4, int(t.Weekday()))
	if f.sets[2] != nil && f.sets[4] != nil {
		day = in(2, t.Day()) || in(4, int(t.Weekday()))
	}
	return in(0, t.Minute()) && in(1, t.Hour()) && day && in(3, int(t.Month()))
}

// The parser's next calendar time is what a look at every minute finds. An upgrade that
// changes it would change what runs.
//
// SPEC EX5
func TestParserAgainstEveryMinute(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		var f fields
		for i, bounds := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
			if percent := []int{80, 60, 40, 15, 40}[i]; r.IntN(100) < percent {
				for range 1 + r.IntN(3) {
					f.sets[i] = append(f.sets[i], bounds[0]+r.IntN(bounds[1]-bounds[0]+1))
				}
				slices.Sort(f.sets[i])
				f.sets[i] = slices.Compact(f.sets[i])
			}
		}
		c, err := schedule.Parse(f.String(), time.UTC)
		if err != nil {
			continue // 31 June
		}
		from := time.Date(2024, time.Month(1+r.IntN(36)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
		var want time.Time
		for n := from.Truncate(time.Minute).Add(time.Minute); n.Before(from.AddDate(1, 0, 0)); n = n.Add(time.Minute) {
			if f.match(n) {
				want = n
				break
			}
		}
		got, ok := c.Next(from)
		if want.IsZero() != (!ok || got.After(from.AddDate(1, 0, 0))) || !want.IsZero() && !got.Equal(want) {
			t.Fatalf("seed %d: %q after %v is %v, want %v", seed, f, from, got, want)
		}
	}
}

// What happens when the clocks change, for whole expressions.
//
// SPEC EX5
// CASE B87
func TestClockChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr, zone, from string
		want             []string
	}{
		{"30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"}},
		{"30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}},
		{"30 1 * * 0", "Europe/London", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-04-05T00:30:00Z"}},
		{"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		{"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		{"0 0 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00:00Z", []string{"2018-11-04T03:00:00Z", "2019-11-04T03:00:00Z"}},
		{"0 1 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00:00Z", []string{"2018-11-04T03:00:00Z", "2019-11-04T04:00:00Z"}},
		{"30 1 * * *", "Antarctica/Troll", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T23:30:00Z"}},
		{"0 12 * * *", "Pacific/Apia", "2011-12-29T23:00:00Z", []string{"2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"}},
		{"30 * * * *", "America/New_York", "2026-11-01T04:45:00Z", []string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-01T07:30:00Z"}},
		{"@hourly", "America/New_York", "2026-03-08T06:00:00Z", []string{"2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"}},
		{"@daily", "Asia/Kolkata", "2026-01-01T00:00:00Z", []string{"2026-01-01T18:30:00Z"}},
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		{"0 0 * * fri-mon", "UTC", "2026-11-30T00:00:00Z", []string{"2026-12-04T00:00:00Z", "2026-12-05T00:00:00Z", "2026-12-06T00:00:00Z", "2026-12-07T00:00:00Z", "2026-12-11T00:00:00Z"}},
		{"0 0 1 * MON", "UTC", "2026-11-01T00:00:00Z", []string{"2026-11-02T00:00:00Z", "2026-11-09T00:00:00Z"}},
		{"0 9-17/4 * JAN,DEC mon-fri", "UTC", "2026-11-30T00:00:00Z", []string{"2026-12-01T09:00:00Z", "2026-12-01T13:00:00Z", "2026-12-01T17:00:00Z"}},
	} {
		cron := parse(t, c.expr, zone(t, c.zone))
		at, err := time.Parse(time.RFC3339, c.from)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			at, _ = cron.Next(at)
			if got := at.UTC().Format(time.RFC3339); got != want {
				t.Fatalf("%v: %s, want %s", cron, got, want)
			}
		}
	}
}

// Which expressions follow the time that passes does not depend on how they are
// written.
//
// SPEC EX5
func TestEveryHour(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{"* * * * *": true, "*/5 * * * *": true, "0 0-23 * * 1": true, "0 */1 * * *": true, "@hourly": true,
		"0 */2 * * *": false, "0 0-22 * * *": false, "@daily": false, "30 2 * * *": false} {
		if got := parse(t, expr, time.UTC).EveryHour(); got != want {
			t.Errorf("%q follows the time that passes: %v", expr, got)
		}
	}
}

// A bad expression is refused, and says why.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"", " ", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "x * * * *", "*/0 * * * *",
		"0 0 31 6 *", "0 0 30 2 *", "@every 5m", "@reboot", "@fortnightly", "TZ=UTC * * * * *", "CRON_TZ=UTC * * * * *", "H * * * *", "0 0 L * *", "0 0 * * 5#2", "-1 * * * *", "1,,2 * * * *"} {
		if c, err := schedule.Parse(expr, time.UTC); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q is accepted as %v, %v", expr, c, err)
		}
	}
	if _, err := schedule.Parse("* * * * *", nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no zone: %v", err)
	}
}

// The last occurrence of an expression, as a host asks for it.
//
// SPEC EX5
func TestLatest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expr, now, want string }{
		{"0 2 * * *", "2026-11-30T02:00:00Z", "2026-11-30T02:00:00Z"},
		{"0 2 * * *", "2026-11-30T01:59:59Z", "2026-11-29T02:00:00Z"},
		{"0 0 29 2 *", "2026-11-30T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"* * * * *", "2026-11-30T02:00:59Z", "2026-11-30T02:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := ledger.Latest(parse(t, c.expr, time.UTC), now, ledger.Horizon)
		if got := at.UTC().Format(time.RFC3339); !ok || got != c.want {
			t.Errorf("%s at %s: %s %v, want %s", c.expr, c.now, got, ok, c.want)
		}
	}
}
