// Package schedule reads cron expressions. It is a module of its own because the
// parser is the one thing that the ledger needs from outside the standard library.
//
// The parser is only asked about calendar times in UTC, where there is no gap and no
// doubled hour. Which instants they are in a zone is decided by the rules of the
// ledger (docs/design/0008-ledger.md), so that no other parser changes them.
package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netresearch/go-cron"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
)

// maxYears is how far the parser looks ahead: a 29 February comes at most eight years
// after the one before it.
const maxYears = 9

// allHours are the bits of a parsed hour field that names no hour.
const allHours = 1<<24 - 1

// Cron is a cron expression in a time zone. Immutable and safe for concurrent use.
// The same expression gives the same occurrences on every host with the same zone
// table.
type Cron struct {
	expr  string
	zoned ledger.Zoned
}

// Parse reads five fields (minute, hour, day of month, month, day of week) or one of
// @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly. If both days are
// given, either matches, as in cron; a range may go over the end (fri-mon). zone is the clock on the wall, and must be given.
// Seconds, @every, and zones within the expression are refused: ErrInvalid.
//
// With an hour given, a local time that comes twice is one occurrence, at the first,
// and one that does not exist is at the first instant after the gap. An expression
// that matches every hour follows the time that passes (EX5).
func Parse(expr string, zone *time.Location) (*Cron, error) {
	bad := func(format string, args ...any) (*Cron, error) {
		return nil, store.Errorf(store.ErrInvalid, "", "parse cron", "", "%q: %s", expr, fmt.Sprintf(format, args...))
	}
	trimmed := strings.TrimSpace(expr)
	switch {
	case zone == nil:
		return bad("a zone is missing")
	case strings.Contains(trimmed, "TZ="):
		return bad("give the zone by itself, not in the expression")
	case strings.HasPrefix(trimmed, "@every"), strings.HasPrefix(trimmed, "@reboot"):
		return bad("%s is no calendar time; give an interval by itself", strings.Fields(trimmed)[0])
	}
	for _, f := range strings.Fields(trimmed) {
		if slices.Contains(strings.Split(f, ","), "") {
			return bad("the list %q has an empty place", f)
		}
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor | cron.DowOrDom)
	if err != nil {
		return bad("%v", err)
	}
	parsed, err := parser.WithMaxSearchYears(maxYears).Parse(trimmed)
	if err != nil {
		return bad("%v", err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return bad("it is no calendar time")
	}
	// In UTC the parser has nothing to say about zones.
	spec.Location = time.UTC
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return bad("no date ever matches")
	}
	return &Cron{trimmed, ledger.Zoned{Match: spec, Zone: zone, EveryHour: spec.Hour&allHours == allHours}}, nil
}

// Next is the first occurrence after t; ok is false if there is none.
func (c *Cron) Next(t time.Time) (at time.Time, ok bool) { return c.zoned.Next(t) }

// EveryHour reports whether the expression follows the time that passes.
func (c *Cron) EveryHour() bool { return c.zoned.EveryHour }

// String is the expression and its zone.
func (c *Cron) String() string { return fmt.Sprintf("%s %v", c.expr, c.zoned.Zone) }
