package main

import (
	"fmt"
	"math"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// clocks is what the doctor reads of this machine's clocks.
type clocks struct {
	boot time.Duration
	mono time.Duration // the clock that stands still while the machine sleeps; 0 if there is none
	// slewPPM is how much faster than its hardware the kernel runs its clocks, in
	// parts per million; slewErr says why that is not known.
	slewPPM float64
	slewErr error
	// shift is the boot clock's offset in this time namespace.
	shift time.Duration
}

// clockFindings checks what holders and waiters measure time with (DL3, DL5).
func (a *app) clockFindings() []finding {
	c := readClocks()
	c.boot = a.clk.Boot()
	return []finding{c.suspend(), c.rate(lease.Timing{}.Defaults().Rho)}
}

// suspend says whether time asleep counts.
func (c clocks) suspend() finding {
	const check = "clock"
	note := ""
	if c.shift != 0 {
		note = fmt.Sprintf("; this time namespace shifts it by %v, so observations are not shared with processes outside", c.shift)
	}
	switch slept := c.boot - c.mono - c.shift; {
	case c.boot <= 0:
		return warning(check, "let no holder run on a machine that sleeps, or guard the resource",
			"there is no clock here that counts time asleep: a holder that slept may act for a moment after its lease lapsed")
	case c.mono == 0:
		return good(check, "the clock counts time asleep%s", note)
	case slept > time.Second:
		return good(check, "the clock counts time asleep: %s since this machine started%s", age(slept), note)
	}
	return good(check, "the clock counts time asleep; this machine has not slept since it started%s", note)
}

// rate says whether the kernel runs the clock at a rate within rho of true time.
func (c clocks) rate(rho float64) finding {
	const check = "clock-rate"
	bound := rho * 1e6
	switch {
	case c.slewErr != nil:
		return warning(check, "see with the system's own tools that the clock is not being slewed by more than 1 %",
			"it cannot be told here how fast the kernel slews the clock: %v", c.slewErr)
	case math.Abs(c.slewPPM) > bound:
		return warning(check, "stop what slews the clock (ntpd, chrony, a hypervisor's tools) or let it step once, before leases are relied on",
			"the kernel runs the clock %+.0f ppm off, and leases allow for %.0f: two machines may both think that a lease is theirs", c.slewPPM, bound)
	}
	return good(check, "corrected by %+.1f ppm; leases allow for %.0f", c.slewPPM, bound)
}
