package schedule_test

import (
	"archive/zip"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/schedule"
)

var zoneSeed = flag.Uint64("zone-seed", 1, "draws the changes and expressions of TestEveryZoneMinuteByMinute")

// zones are all zones of the Go distribution that runs the test.
func zones(t *testing.T) (all []*time.Location) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		z, err := time.LoadLocationFromTZData(f.Name, data)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		all = append(all, z)
	}
	return all
}

// changes are the instants at which the clocks of a zone change in some years. They are
// found by looking at the clock once a day, and halving.
func changes(z *time.Location, year, years int) (all []time.Time) {
	offset := func(s int64) int { _, o := time.Unix(s, 0).In(z).Zone(); return o }
	const step = 24 * 3600
	until := time.Date(year+years, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for s := max(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), 4*step); s < until; s += step {
		if offset(s) == offset(s+step) {
			continue
		}
		low, high := s, s+step
		for high-low > 1 {
			if mid := (low + high) / 2; offset(mid) == offset(low) {
				low = mid
			} else {
				high = mid
			}
		}
		all = append(all, time.Unix(high, 0))
	}
	return all
}

// walk is what a clock on the wall shows, minute by minute, over some days around a
// change.
type walk struct {
	from, to time.Time // within which it is exact
	steps    []step
}

// step is one instant at which the clock shows a whole minute. The first instant after a
// gap, which need be none, has what the clock left out.
type step struct {
	at      time.Time
	wall    time.Time // as a time in UTC
	minute  bool      // it is a whole one
	again   bool      // the clock showed it before
	skipped []time.Time
}

// around walks around a change. Where a zone counts seconds, it takes every second.
func around(z *time.Location, change time.Time) walk {
	reach, each := 40*time.Hour, time.Minute
	if _, before := change.Add(-time.Second).In(z).Zone(); before%60 != 0 || change.Unix()%60 != 0 {
		reach, each = 5*time.Hour, time.Second
	} else if _, after := change.In(z).Zone(); after%60 != 0 {
		reach, each = 5*time.Hour, time.Second
	}
	inner := reach * 3 / 5
	w := walk{from: change.Add(-inner), to: change.Add(inner)}
	shown := make(map[int64]bool, int(2*reach/each))
	var last time.Time
	for at := change.Add(-reach).Truncate(time.Minute); at.Before(change.Add(reach)); at = at.Add(each) {
		l := at.In(z)
		wall := time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
		s := step{at: at, wall: wall, minute: wall.Second() == 0, again: shown[wall.Unix()]}
		if !last.IsZero() {
			for m := last.Add(time.Second).Add(time.Minute - 1).Truncate(time.Minute); m.Before(wall); m = m.Add(time.Minute) {
				s.skipped = append(s.skipped, m)
			}
		}
		if shown[wall.Unix()] = true; s.minute || len(s.skipped) > 0 {
			w.steps = append(w.steps, s)
		}
		last = wall
	}
	for i, s := range w.steps { // what another pass shows was not left out
		w.steps[i].skipped = slices.DeleteFunc(s.skipped, func(m time.Time) bool { return shown[m.Unix()] })
	}
	return w
}

// occurrences are what the documented rule says (docs/design/0008-ledger.md).
func (w walk) occurrences(match func(time.Time) bool, everyHour bool) (all []time.Time) {
	for _, s := range w.steps {
		is := s.minute && match(s.wall) && (everyHour || !s.again)
		if is || !everyHour && slices.ContainsFunc(s.skipped, match) {
			all = append(all, s.at)
		}
	}
	return all
}

// near is an expression that has to do with what the clock shows around a change.
func near(r *rand.Rand, z *time.Location, change time.Time) fields {
	at := asUTC(change.Add(time.Duration(r.IntN(9)-4) * 30 * time.Minute).In(z))
	if r.IntN(2) == 0 { // what a gap would leave out, if there is one
		at = asUTC(change.Add(-time.Second).In(z)).Add(time.Duration(r.IntN(60)) * time.Minute)
	}
	var f fields
	f.sets[0] = []int{at.Minute()}
	if r.IntN(2) == 0 {
		f.sets[0] = []int{0, 15, 30, 45, 59}[r.IntN(5):]
	}
	if r.IntN(8) == 0 {
		f.sets[0] = nil
	}
	if r.IntN(4) > 0 {
		f.sets[1] = []int{at.Hour(), (at.Hour() + 1 + r.IntN(3)) % 24}[:1+r.IntN(2)]
		slices.Sort(f.sets[1])
	}
	switch r.IntN(5) {
	case 0:
		f.sets[2], f.sets[3] = []int{at.Day()}, []int{int(at.Month())}
	case 1:
		f.sets[4] = []int{int(at.Weekday())}
	}
	return f
}

// In every zone of the tables, around changes of its clocks drawn from 1970 to 2037, and
// at the end of a leap year, the occurrences are those that a walk from minute to minute
// finds by the documented rule, whatever instant is asked from.
//
// SPEC EX5
// CASE B87
func TestEveryZoneMinuteByMinute(t *testing.T) {
	t.Parallel()
	var walks, seen, doubled, skipped, moved int
	for n, z := range zones(t) {
		if n%everyZone != 0 {
			continue
		}
		r := rand.New(rand.NewPCG(*zoneSeed, uint64(n)))
		var picked []time.Time
		for range 1 + r.IntN(2) {
			if all := changes(z, 1970+r.IntN(64), 4); len(all) > 0 {
				picked = append(picked, all[r.IntN(len(all))])
			}
		}
		if r.IntN(3) == 0 { // the last day of a leap year, which a rule tells
			picked = append(picked, time.Date(2028, 12, 31, 12, 0, 0, 0, time.UTC))
		}
		for _, change := range picked {
			w := around(z, change)
			walks++
			for _, s := range w.steps {
				doubled, skipped = doubled+count(s.again), skipped+count(len(s.skipped) > 0)
			}
			for range 2 {
				f := near(r, z, change)
				c := parse(t, f.String(), z)
				want := w.occurrences(f.match, f.sets[1] == nil)
				for _, at := range want {
					moved += count(!f.match(asUTC(at.In(z))))
				}
				seen += compare(t, c, w, want, r)
				if t.Failed() {
					return
				}
			}
		}
	}
	t.Logf("seed %d: %d walks, %d occurrences, %d minutes doubled, %d gaps, %d occurrences moved out of one", *zoneSeed, walks, seen, doubled, skipped, moved)
	if walks*everyZone < 300 || seen*everyZone < 5000 || doubled*everyZone < 5000 || skipped*everyZone < 100 || moved == 0 {
		t.Error("that is too little")
	}
}

// A host that has the tables in their short form, as Go's own are, goes past the last day
// of a leap year, which package time does not bound.
//
// SPEC EX5
func TestLastDayOfALeapYear(t *testing.T) {
	t.Parallel()
	names := []string{"America/Detroit", "Europe/Berlin", "Australia/Sydney"}
	var found int
	for _, z := range zones(t) {
		if !slices.Contains(names, z.String()) {
			continue
		}
		found++
		hourly, yearly := parse(t, "0 * * * *", z), parse(t, "30 3 1 1 *", z)
		at := time.Date(2028, 12, 30, 20, 0, 0, 0, time.UTC)
		for range 48 {
			next, ok := hourly.Next(at)
			if !ok || next.Sub(at) != time.Hour {
				t.Fatalf("%v: after %v comes %v", hourly, at, next)
			}
			at = next
		}
		next, ok := yearly.Next(time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC))
		if want := time.Date(2029, 1, 1, 3, 30, 0, 0, z); !ok || !next.Equal(want) {
			t.Errorf("%v: %v, want %v", yearly, next, want)
		}
	}
	if found != len(names) {
		t.Errorf("%d of %v", found, names)
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func asUTC(l time.Time) time.Time {
	return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
}

// compare asks from occurrence to occurrence, and from instants between them.
func compare(t *testing.T, c *schedule.Cron, w walk, want []time.Time, r *rand.Rand) (n int) {
	t.Helper()
	next := func(after time.Time) time.Time {
		i, _ := slices.BinarySearchFunc(want, after.Add(1), time.Time.Compare)
		if i == len(want) || want[i].After(w.to) {
			return time.Time{}
		}
		return want[i]
	}
	asks := []time.Time{w.from}
	for range 4 {
		asks = append(asks, w.from.Add(time.Duration(r.Int64N(int64(w.to.Sub(w.from))))))
	}
	for _, from := range asks {
		for at := from; ; {
			got, ok := c.Next(at)
			should := next(at)
			if beyond := !ok || got.After(w.to); beyond != should.IsZero() || !beyond && !got.Equal(should) {
				t.Errorf("%v: after %v comes %v, want %v", c, at.UTC(), got.UTC(), should.UTC())
				return n
			}
			if n++; should.IsZero() || from != w.from || n > 300 {
				break
			}
			at = got
		}
	}
	return n
}

// Whatever is written, it is refused or it has occurrences, which rise, and are found in
// the time that a schedule has.
func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"* * * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 29 2 *", "0 0 29 2 0", "*/7 1-5/2 * JAN,mar fri-mon", "@yearly", "@hourly", "59 23 31 12 7",
		"0-59/61 * * * *", "? ? ? ? ?", "* * * * 8", "1,,2 * * * *", "00000000000000000001 * * * *", "9999999999999999999999 * * * *", "* * L * *", "* * * * 5#3",
		"H H * * *", "* * 15W * *", "@every 1ns", "@ daily", "*/0 * * * *", "5-1 * * * *", "~ * * * *", "\x00", strings.Repeat("1,", 2000) + "1 * * * *",
	} {
		f.Add(expr, uint8(0), int64(1_800_000_000))
		f.Add(expr, uint8(3), int64(1_774_747_800))
	}
	var places []*time.Location
	for _, name := range []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Europe/London", "Pacific/Apia", "America/Sao_Paulo"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			f.Fatal(err)
		}
		places = append(places, z)
	}
	f.Fuzz(func(t *testing.T, expr string, place uint8, from int64) {
		c, err := schedule.Parse(expr, places[int(place)%len(places)])
		if err != nil {
			return
		}
		at := time.Unix(from%(1<<33), 0)
		for range 3 {
			next, ok := c.Next(at)
			if !ok {
				t.Fatalf("%q has no occurrence after %v, and was taken", expr, at)
			}
			if !next.After(at) || next.Sub(at) > 9*366*24*time.Hour || next.Nanosecond() != 0 {
				t.Fatalf("%q: %v comes after %v", expr, next, at)
			}
			at = next
		}
		written := cmp.Or(strings.Join(strings.Fields(expr), " "), expr)
		again, err := schedule.Parse(written, places[int(place)%len(places)])
		if err != nil {
			t.Fatalf("%q is taken and %q is not: %v", expr, written, err)
		}
		a, _ := c.Next(at)
		if b, _ := again.Next(at); !a.Equal(b) {
			t.Fatalf("%s: %v and %v", fmt.Sprintf("%q", expr), a, b)
		}
	})
}
