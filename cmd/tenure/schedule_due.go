package main

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/tenure-project/tenure/ledger"
)

const (
	// setBackBy is how far the clock may go back unnoticed: corrections that small are
	// usual.
	setBackBy = time.Second
	// jitterMax is how long an occurrence is held back at most; that is not more than one
	// jitterPart-th of the interval, and of the time in which it is due.
	jitterMax  = time.Second
	jitterPart = 10
	// crowdedFor is how long occurrences may wait for a place until a person is told.
	crowdedFor = time.Minute
)

// candidate is an occurrence that is due.
type candidate struct {
	t  *task
	at time.Time
}

// begin gives places to what is due at now, the oldest first, and says how long nothing
// else is. What finds no place is looked at again when one becomes free.
func (s *scheduler) begin(now time.Time) time.Duration {
	s.setBack(now)
	ready, pause := s.due(now)
	free := min(max(s.parallel-len(s.live), 0), len(ready))
	for _, c := range ready[:free] {
		s.admit(c)
	}
	s.crowded(ready[free:])
	return pause
}

// setBack forgets what was begun by a clock that was ahead: else nothing would be due
// until that time has come. The ledger knows what was really done.
func (s *scheduler) setBack(now time.Time) {
	told := false
	for _, t := range s.jobs {
		if !t.last.After(now.Add(setBackBy)) {
			continue
		}
		if !told {
			s.a.warn("the clock was set back: it is %s, and the occurrence %s of job %s was begun; from now on what is due counts anew", instantText(now), instantText(t.last), showName(t.Name))
			told = true
		}
		t.last = time.Time{}
	}
}

// due are the occurrences that are due at now and have no place, the oldest first, and
// how long there are no others.
func (s *scheduler) due(now time.Time) (ready []candidate, pause time.Duration) {
	pause = looksAgain
	for _, t := range s.jobs {
		if s.live[t] {
			continue // its end wakes the loop
		}
		if wait := t.again - s.a.clk.Boot(); t.again != 0 && wait > 0 {
			pause = min(pause, wait)
			continue
		}
		if at, ok := ledger.Latest(t.Schedule, now, t.late); ok && at.After(t.last) {
			if wait := at.Add(jitter(t.scheduled, at)).Sub(now); wait > 0 {
				pause = min(pause, wait)
				continue
			}
			ready = append(ready, candidate{t, at})
			continue
		}
		if next, ok := t.Schedule.Next(now); ok {
			pause = min(pause, next.Sub(now))
		}
	}
	slices.SortFunc(ready, func(a, b candidate) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.t.Name, b.t.Name))
	})
	return ready, max(pause, 0)
}

// hostSeed makes the jitter of this process another one than that of other hosts.
var hostSeed = maphash.MakeSeed()

// jitter is how long this host holds an occurrence back, so that not all hosts ask for it
// in the same instant: most of them find it begun then, or done.
func jitter(j scheduled, at time.Time) time.Duration {
	limit := min(jitterMax, j.late/jitterPart)
	if next, ok := j.Schedule.Next(at); ok {
		limit = min(limit, next.Sub(at)/jitterPart)
	}
	if limit <= 0 {
		return 0
	}
	text := binary.BigEndian.AppendUint64([]byte(j.Name), uint64(at.UnixMilli()))
	return time.Duration(maphash.Bytes(hostSeed, text) % uint64(limit))
}

// admit gives an occurrence a place, and looks whether there is anything to do.
func (s *scheduler) admit(c candidate) {
	t := c.t
	if next, ok := t.Schedule.Next(t.last); ok && !t.last.IsZero() && next.Before(c.at) {
		s.a.warn("job %s: from %s on, occurrences were passed over: an earlier one was running, all places were taken, the store was in trouble, or this process was stopped", showName(t.Name), instantText(next))
	}
	t.last, t.at, t.again = c.at, c.at, 0
	s.live[t] = true
	name := t.Name
	go func() { s.looked <- looked{t, s.looks.done(name, c.at)} }()
}

// found goes on with an occurrence that was looked for.
func (s *scheduler) found(l looked) {
	if !l.done {
		s.start(l.t)
		return
	}
	delete(s.live, l.t)
	l.t.tries = 0
	s.say("job %s, occurrence %s: done already", showName(l.t.Name), instantText(l.t.at))
}

// crowd is what is known of occurrences that find no place.
type crowd struct {
	since time.Duration // of the boot clock; 0 if there are none
	told  bool
}

// crowded tells of waiting occurrences, once they wait for long.
func (s *scheduler) crowded(waiting []candidate) {
	now := s.a.clk.Boot()
	switch c := &s.crowd; {
	case len(waiting) == 0:
		*c = crowd{}
	case c.since == 0:
		c.since = now
	case !c.told && now-c.since >= crowdedFor:
		c.told = true
		s.a.warn("%d occurrences wait for one of %d places, the oldest is %s of job %s: see --parallel", len(waiting), s.parallel, instantText(waiting[0].at), showName(waiting[0].t.Name))
	}
}
