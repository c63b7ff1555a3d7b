package ledger

import (
	"time"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Schedule has occurrences, which are instants (EX5). Every host that asks the same
// schedule gets the same ones. Safe for concurrent use if its matcher is.
type Schedule interface {
	// Next is the first occurrence after t, exclusive; ok is false if there is none.
	Next(t time.Time) (at time.Time, ok bool)
}

// Bounds of schedules.
const (
	// MinEvery is below what a ledger on any store could follow.
	MinEvery = 100 * time.Millisecond
	// Horizon is how far back Latest looks: a 29 February comes at most eight years
	// after the one before it.
	Horizon = 9 * 366 * 24 * time.Hour
)

// At is the schedule of one instant.
type At time.Time

// Next is the instant, if it is after t.
func (a At) Next(t time.Time) (time.Time, bool) {
	at := time.Time(a)
	return at, at.After(t)
}

// Every has an occurrence at each whole multiple of its interval since
// 1970-01-01T00:00Z, plus an offset: when a host began does not matter.
type Every struct{ everyMS, offsetMS int64 }

// NewEvery is the schedule of an interval. Both are whole milliseconds, interval at
// least 100 ms, offset from 0 to below the interval; others are refused.
func NewEvery(interval, offset time.Duration) (Every, error) {
	if interval < MinEvery || interval%time.Millisecond != 0 || offset < 0 || offset >= interval || offset%time.Millisecond != 0 {
		return Every{}, store.Errorf(store.ErrInvalid, "", "schedule", "",
			"every %v with offset %v: both are whole milliseconds, the interval at least %v, the offset below it", interval, offset, MinEvery)
	}
	return Every{interval.Milliseconds(), offset.Milliseconds()}, nil
}

// Next is the first occurrence after t; there is none before 1970.
func (e Every) Next(t time.Time) (time.Time, bool) {
	if t.Before(time.UnixMilli(e.offsetMS)) {
		return time.UnixMilli(e.offsetMS).UTC(), true
	}
	ms := t.UnixMilli()
	next := ms - (ms-e.offsetMS)%e.everyMS + e.everyMS
	return time.UnixMilli(next).UTC(), next <= record.MaxNumber
}

func (e Every) latest(t time.Time) (time.Time, bool) {
	ms := t.UnixMilli()
	if e.everyMS == 0 || ms < e.offsetMS {
		return time.Time{}, false
	}
	return time.UnixMilli(ms - (ms-e.offsetMS)%e.everyMS).UTC(), true
}

// Matcher finds matching calendar times. It is given and gives times in UTC that
// stand for what a clock on a wall shows: no zone, no gap, no doubled hour. A cron
// parser's "next" over UTC is one. Next is the first match after t, exclusive; the
// zero time if there is none.
type Matcher interface{ Next(t time.Time) time.Time }

// Zoned has the occurrences of calendar times in a zone (EX5).
type Zoned struct {
	// Match finds the calendar times.
	Match Matcher
	// Zone has the clock on the wall.
	Zone *time.Location
	// EveryHour is for schedules that name no hour. Then the time that passes counts:
	// each instant whose local time matches is an occurrence, in both passes of a
	// doubled hour, and a gap has none. Otherwise a local time that comes twice is one
	// occurrence, at the first; and one that does not exist is at the first instant
	// after the gap, together with any other there.
	EveryHour bool
}

// Next is the first occurrence after t.
func (z Zoned) Next(t time.Time) (time.Time, bool) {
	if z.EveryHour {
		return z.nextPassing(t)
	}
	// The first instant of a calendar time rises with it, so walking in calendar
	// order is walking in time. In the second pass of a doubled hour the first steps
	// are in the past.
	for wall := onWall(t.In(z.Zone)); ; {
		wall = z.Match.Next(wall)
		if wall.IsZero() {
			return time.Time{}, false
		}
		if at := firstInstant(wall, z.Zone); at.After(t) {
			return at, true
		}
	}
}

// nextPassing goes from one span of equal offset to the next.
func (z Zoned) nextPassing(t time.Time) (time.Time, bool) {
	t = t.In(z.Zone)
	for wall := onWall(t); ; {
		match := z.Match.Next(wall)
		if match.IsZero() {
			return time.Time{}, false
		}
		_, offset := t.Zone()
		_, end := spanOf(t)
		at := match.Add(-time.Duration(offset) * time.Second)
		if end.IsZero() || at.Before(end) {
			return at, true
		}
		t = end.In(z.Zone)
		wall = onWall(t).Add(-1) // what the clock shows at its very first instant counts
	}
}

// spanOf is t.ZoneBounds, with an end after t. Beyond the table of a zone, where a rule
// goes on, package time ends each year after 365 days: on the last day of a leap year
// that is not after t, and whoever went from end to end would go round for ever.
func spanOf(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return start, end
}

// onWall is what the clock shows at t, as a time in UTC.
func onWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// maxOffset is more than any zone is from UTC.
const maxOffset = 26 * time.Hour

// firstInstant is the first instant at which the clock in zone shows wall or, if it
// never does, the first after the gap.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	for t := wall.Add(-maxOffset).In(zone); ; {
		_, offset := t.Zone()
		start, end := spanOf(t)
		at := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case !start.IsZero() && at.Before(start):
			return start.UTC() // the span before it ended too early
		case end.IsZero() || at.Before(end):
			return at
		}
		t = end.In(zone)
	}
}

// Latest is the last occurrence at or before t and less than horizon before it: what
// a host that was called at t is to do. ok is false if there is none. A host whose
// clock is early asks for a little later than it shows.
func Latest(s Schedule, t time.Time, horizon time.Duration) (time.Time, bool) {
	if e, ok := s.(Every); ok {
		at, ok := e.latest(t)
		return at, ok && t.Sub(at) < horizon
	}
	// Looking back four times as far each time keeps the walk short.
	for back := min(time.Second, horizon); ; back = min(4*back, horizon) {
		if at, ok := s.Next(t.Add(-back)); ok && !at.After(t) {
			return last(s, at, t), true
		}
		if back >= horizon {
			return time.Time{}, false
		}
	}
}

func last(s Schedule, at, t time.Time) time.Time {
	for {
		next, ok := s.Next(at)
		if !ok || next.After(t) {
			return at
		}
		at = next
	}
}
