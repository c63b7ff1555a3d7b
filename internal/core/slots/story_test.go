package slots

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// both tells a story to both forms of a table.
func both(t *testing.T, story func(t *testing.T, d *desk)) {
	t.Parallel()
	for _, form := range []Form{RowsForm, RegisterForm} {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			story(t, newDesk(t, form))
		})
	}
}

func isHeld(t *testing.T, err error, by string, rows int) {
	t.Helper()
	var held *HeldError
	if !errors.As(err, &held) || !errors.Is(err, ErrHeld) || len(held.Rows) != rows || held.Rows[0].Owner() != by || !strings.Contains(err.Error(), by) {
		t.Errorf("not held by %s: %v", by, err)
	}
}

func isLost(t *testing.T, err error, r Range) {
	t.Helper()
	var lost *LostError
	if !errors.As(err, &lost) || !errors.Is(err, ErrLost) || lost.Range != r || lost.Error() == "" {
		t.Errorf("not lost: %v", err)
	}
}

// SPEC SL2 SL3
func TestTheFirstClaimHasEpochOne(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, err := d.claim(self("a", 1), r(0, 99), 0)
		if err != nil || a.Row.Epoch != 1 || !a.Fresh || a.Row.Host.TTL() != 30*time.Second {
			t.Fatal(a, err)
		}
		if !d.at.Admits(50, "a", 1) || d.at.Admits(100, "a", 1) || d.at.Admits(50, "b", 1) || d.at.Admits(50, "a", 2) {
			t.Error("what is admitted")
		}
	})
}

// SPEC SL3
func TestTheSecondOfTwoIsRefused(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		d.got(self("a", 1), r(0, 99), 0)
		_, err := d.claim(self("b", 2), r(0, 99), 0)
		isHeld(t, err, "a", 1)
		_, err = d.claim(self("b", 2), r(50, 200), 0) // a part is enough
		isHeld(t, err, "a", 1)
		if len(d.at.Rows) != 1 || d.at.Counter != 1 {
			t.Error("a refused claim left something")
		}
	})
}

// A rival that watched the row for its TTL gets the next epoch, and the old owner notices.
//
// SPEC SL3 SL4 LS2
func TestALapsedRowIsTakenUnderANewEpoch(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, b := self("a", 1), self("b", 2)
		old := d.got(a, r(0, 99), 0)
		now := d.got(b, r(0, 99), 0, d.sight(0))
		if now.Epoch <= old.Epoch || len(now.From) != 1 || now.From[0] != (Past{Owner: "a", Epoch: 1, Rows: 1, How: lease.HowObserved}) {
			t.Errorf("%+v", now)
		}
		isLost(t, d.renew(a, r(0, 99), old.Epoch), r(0, 99))
		isLost(t, d.release(a, r(0, 99), old.Epoch, "", 0), r(0, 99))
		if d.at.Admits(5, "a", old.Epoch) || !d.at.Admits(5, "b", now.Epoch) {
			t.Error("what is admitted")
		}
	})
}

// A restart on the same volume goes on, before and after a lapse that nobody used; one
// without the lock, or with a copy of the volume, is a rival.
//
// SPEC SL3
func TestARestartIsNoNewOwnerWhereItsVolumeProvesIt(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		first := d.got(self("a", 1).on(7), r(0, 99), 0)
		again, err := d.claim(self("a", 2).on(7), r(0, 99), 0)
		if err != nil || again.Fresh || again.Row.Epoch != first.Epoch || again.Row.Since != first.Since || again.Row.Host.Incarnation != id(2) || again.Row.Renewal != first.Renewal+1 {
			t.Fatal(again, err)
		}
		isLost(t, d.renew(self("a", 1), r(0, 99), first.Epoch), r(0, 99)) // the start before
		for what, h := range map[string]*Host{
			"no lock": self("a", 3), "another volume": self("a", 3).on(8), "another name": self("b", 3).on(7),
			"another boot": edit(self("a", 3).on(7), func(h *Host) { h.Volume.Boot = id(10) }),
			"a copy":       edit(self("a", 3).on(7), func(h *Host) { h.Volume.Inode++ }),
			"elsewhere":    edit(self("a", 3).on(7), func(h *Host) { h.Volume.Dev++ }),
			"formatted":    edit(self("a", 3).on(7), func(h *Host) { h.Volume.ID = id(11) }),
		} {
			if _, err := d.claim(h, r(0, 99), 0); !errors.Is(err, ErrHeld) {
				t.Errorf("%s: %v", what, err)
			}
		}
		next := d.got(self("a", 4).on(8), r(0, 99), 0, d.sight(0))
		if next.Epoch != 2 {
			t.Errorf("the other volume has epoch %d after the lapse", next.Epoch)
		}
	})
}

func edit(h *Host, f func(*Host)) *Host { f(h); return h }

// What rivals watch never becomes shorter while the slots stay the owner's.
//
// SPEC SL3 SL4
func TestAShorterTTLTakesNoLifeAway(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		d.got(self("a", 1).on(7), r(0, 99), 0)
		short := edit(self("a", 2).on(7), func(h *Host) { h.TTLMS = 5000 })
		kept := d.got(short, r(0, 99), 0)
		raised := d.got(short, r(0, 99), 5)
		if kept.Host.TTLMS != ttlMS || raised.Host.TTLMS != ttlMS || raised.Epoch != 6 || short.TTLMS != 5000 {
			t.Errorf("%+v, %+v", kept.Host, raised.Host)
		}
		long := edit(self("a", 3).on(7), func(h *Host) { h.TTLMS = 60_000 })
		if got := d.got(long, r(0, 99), 0); got.Host.TTLMS != 60_000 {
			t.Errorf("%+v", got.Host)
		}
	})
}

// SPEC SL4
func TestARenewalWorksAfterALapseThatNobodyUsed(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		row := d.got(a, r(0, 99), 0)
		lapsed := d.sight(0) // a rival watched it, and is late
		if err := d.renew(a, r(0, 99), row.Epoch); err != nil {
			t.Fatal(err)
		}
		if now := d.at.RowOf(0); now.Epoch != row.Epoch || now.Renewal != 1 {
			t.Errorf("%+v", now)
		}
		_, err := d.claim(self("b", 2), r(0, 99), 0, lapsed)
		isHeld(t, err, "a", 1)
		isLost(t, d.renew(a, r(0, 98), row.Epoch), r(0, 98)) // other bounds
		isLost(t, d.renew(a, r(0, 99), row.Epoch+1), r(0, 99))
		isLost(t, d.renew(a, r(100, 199), row.Epoch), r(100, 199))
		next, answers, err := d.at.Renew(Renewal{Host: a, Holds: []Hold{{r(0, 99), row.Epoch, 2}}, Attempt: id(5)})
		if err != nil || next != d.at || !errors.Is(answers[0].Err, ErrLost) {
			t.Errorf("a row that went back is renewed: %v, %v", answers, err)
		}
	})
}

// A renewal or claim that was sent before another, and lands after it, finds another
// version and is decided anew: it can only add life.
//
// SPEC SL4
func TestALateCallShortensNothing(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		row := d.got(a, r(0, 99), 0)
		for range 3 {
			if err := d.renew(a, r(0, 99), row.Epoch); err != nil {
				t.Fatal(err)
			}
		}
		again, err := d.claim(a, r(0, 99), 0)
		if err != nil || again.Fresh || again.Row.Renewal != 4 || again.Row.Epoch != row.Epoch {
			t.Fatal(again, err)
		}
	})
}

// SPEC SL4 LS5
// CASE B42
func TestAReleaseFreesAtOnceAndTwiceIsOnce(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, b := self("a", 1), self("b", 2)
		row := d.got(a, r(0, 99), 0)
		if err := d.release(a, r(0, 99), row.Epoch, "", 0); err != nil {
			t.Fatal(err)
		}
		freed := d.at
		if err := d.release(a, r(0, 99), row.Epoch, "", 0); err != nil || d.at != freed {
			t.Errorf("again: %v", err)
		}
		isLost(t, d.renew(a, r(0, 99), row.Epoch), r(0, 99)) // nothing lands after a release
		if next := d.got(b, r(0, 99), 0); next.Epoch != 2 || next.From[0].How != lease.HowReleased {
			t.Errorf("%+v", next)
		}
		isLost(t, d.release(a, r(0, 99), row.Epoch, "", 0), r(0, 99)) // it never frees the next one
	})
}

// SPEC SL3
func TestALiveRangeOfAnotherShapeIsRefusedEvenToItsOwner(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1).on(7)
		d.got(a, r(0, 199), 0)
		for _, want := range []Range{r(0, 99), r(0, 200), r(199, 300)} {
			_, err := d.claim(a, want, 0)
			isHeld(t, err, "a", 1)
		}
		if d.at.Counter != 1 {
			t.Error("the counter moved")
		}
	})
}

// SPEC SL3
func TestAReshapedRangeHasANewEpochAndFreesTheRest(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		wide := d.got(a, r(0, 199), 0)
		if err := d.release(a, r(0, 199), wide.Epoch, "", 0); err != nil {
			t.Fatal(err)
		}
		if narrow := d.got(a, r(0, 99), 0); narrow.Epoch != 2 || d.at.RowOf(150) != nil {
			t.Errorf("%+v, %+v", narrow, d.at.RowOf(150))
		}
		if other := d.got(self("b", 2), r(100, 199), 0); other.Epoch != 3 {
			t.Errorf("%+v", other)
		}
	})
}

// SPEC SL3 LS8
func TestLapsedRangesOfOtherShapesAreAbsorbed(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		d.got(self("a", 1), r(0, 99), 0)
		d.got(sessionHost("c", 2), r(100, 199), 0)
		b := self("b", 3)
		_, err := d.claim(b, r(0, 199), 0, d.sight(0)) // one of the two
		isHeld(t, err, "c", 1)
		bare := d.sight(100)
		_, err = d.claim(b, r(0, 199), 0, d.sight(0), bare) // a session falls to evidence only
		isHeld(t, err, "c", 1)
		bare.How, bare.Evidence = lease.HowProven, "certificate"
		row := d.got(b, r(0, 199), 0, d.sight(0), bare)
		if row.Epoch != 3 || len(d.at.Rows) != 1 || len(row.From) != 2 || row.From[0].Evidence != "certificate" || row.From[1].Owner != "a" {
			t.Errorf("%+v", row)
		}
	})
}

// SPEC SL3
// CASE B46
func TestAClaimGoesAboveWhatWasSeen(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		d.got(a, r(0, 99), 0)
		raised, err := d.claim(a, r(0, 99), 7)
		if err != nil || !raised.Fresh || raised.Row.Epoch != 8 || d.at.Counter != 8 || raised.Row.From[0].How != HowRaised {
			t.Fatal(raised, err)
		}
		if again, _ := d.claim(a, r(0, 99), 7); again.Fresh || again.Row.Epoch != 8 {
			t.Errorf("%+v", again)
		}
	})
}

// SPEC SL2
func TestEpochsAreNotUsedAgainAfterRowsWent(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		row := d.got(a, r(0, 99), 0)
		_ = d.release(a, r(0, 99), row.Epoch, "", 0)
		d.got(a, r(0, 49), 0)
		next, n, err := d.at.Clear(r(50, 99), "b", 9, d.attempt())
		if err != nil || n != 0 || next != d.at {
			t.Error(n, err) // the row went with the claim
		}
		if row := d.got(self("b", 2), r(50, 99), 0); row.Epoch != 3 {
			t.Errorf("%+v", row)
		}
	})
}

// Whoever the range was released for claims at once; everybody else, also a session's host,
// watches the free row for the hold.
//
// SPEC LS10
func TestASuccessorComesFirst(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, b, c := self("a", 1), self("b", 2), sessionHost("c", 3)
		row := d.got(a, r(0, 99), 0)
		if err := d.release(a, r(0, 99), row.Epoch, "b", 4000); err != nil {
			t.Fatal(err)
		}
		free := d.at
		_, err := d.claim(c, r(0, 9), 0)
		isHeld(t, err, "a", 1)
		if wait, possible := free.RowOf(0).Wait("c"); wait != 4*time.Second || !possible {
			t.Error(wait)
		}
		d.got(b, r(0, 99), 0)
		d.at = free
		d.got(c, r(0, 9), 0, d.sight(0)) // b did not come
		for hold, ok := range map[int64]bool{0: false, 1: true, ttlMS: true, ttlMS + 1: false, -1: false} {
			_, _, err := d.at.Release(Release{Host: a, Successor: "b", HoldMS: hold, Attempt: id(5)})
			if (err == nil) != ok || err != nil && !errors.Is(err, store.ErrInvalid) {
				t.Errorf("a hold of %d ms: %v", hold, err)
			}
		}
	})
}

// SPEC LS11
func TestSteal(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, b := self("a", 1), self("b", 2)
		row := d.got(a, r(0, 99), 0)
		held := d.at
		th := Theft{Range: r(0, 99), Epoch: row.Epoch, Why: "disk on fire", By: "anna", NowMS: 5, Attempt: id(5)}
		next, freed, err := d.at.Steal(th)
		if err != nil || freed.Freed.How != lease.HowForced || freed.Freed.SupersededTTLMS != ttlMS || next.Counter != 2 || freed.Attempt != row.Attempt || next.Writer != id(5) {
			t.Fatal(freed, err)
		}
		d.set(next)
		isLost(t, d.renew(a, r(0, 99), row.Epoch), r(0, 99))
		for _, h := range []*Host{a, b} { // also the one it was stolen from waits
			_, err = d.claim(h, r(0, 99), 0)
			isHeld(t, err, "a", 1)
		}
		if got := d.got(b, r(0, 99), 0, d.sight(0)); got.Epoch != 3 || got.From[0].Why != "disk on fire" || got.From[0].How != lease.HowForced {
			t.Errorf("%+v", got)
		}
		d.at, th.Vouch = held, true
		if next, _, err = d.at.Steal(th); err != nil {
			t.Fatal(err)
		}
		d.set(next)
		if got := d.got(b, r(0, 99), 0); got.Epoch != 3 || got.From[0].How != lease.HowVouched {
			t.Errorf("%+v", got)
		}
	})
}

// SPEC LS11
func TestStealRefuses(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a, c := self("a", 1), sessionHost("c", 3)
		d.got(a, r(0, 99), 0)
		d.got(c, r(100, 199), 0)
		free := d.got(a, r(200, 299), 0)
		_ = d.release(a, r(200, 299), free.Epoch, "", 0)
		sight := d.sight(100)
		for what, x := range map[string]struct {
			Theft
			want error
		}{
			"another epoch":   {Theft{Range: r(0, 99), Epoch: 2}, store.ErrConflict},
			"other bounds":    {Theft{Range: r(0, 98), Epoch: 1}, store.ErrConflict},
			"a free row":      {Theft{Range: r(200, 299), Epoch: 3}, store.ErrConflict},
			"no row":          {Theft{Range: r(300, 399), Epoch: 1}, store.ErrConflict},
			"a session's":     {Theft{Range: r(100, 199), Epoch: 2, Vouch: true}, store.ErrInvalid},
			"without evid.":   {Theft{Range: r(100, 199), Epoch: 2, Sight: &sight}, store.ErrInvalid},
			"a long reason":   {Theft{Range: r(0, 99), Epoch: 1, Why: strings.Repeat("x", 257)}, store.ErrInvalid},
			"no such range":   {Theft{Range: r(9, 0), Epoch: 1}, store.ErrInvalid},
			"a time below 0":  {Theft{Range: r(0, 99), Epoch: 1, NowMS: -1}, store.ErrInvalid},
			"a bad attempt":   {Theft{Range: r(0, 99), Epoch: 1, Attempt: "x"}, store.ErrInvalid},
			"a counter's end": {Theft{Range: r(0, 99), Epoch: 1, By: "end"}, store.ErrInvalid},
		} {
			if x.Attempt == "" {
				x.Attempt = id(5)
			}
			at := *d.at
			if x.By == "end" {
				at.Counter = record.MaxNumber
			}
			if next, _, err := at.Steal(x.Theft); store.KindOf(err) != x.want || next != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		sight.How, sight.Evidence = lease.HowReleased, "certificate"
		next, row, err := d.at.Steal(Theft{Range: r(100, 199), Epoch: 2, Sight: &sight, Attempt: id(5)})
		if err != nil || row.Freed.How != lease.HowReleased || row.Freed.SupersededTTLMS != 0 || next.Counter != 4 {
			t.Errorf("a session's whose session is over: %+v, %v", row, err)
		}
	})
}

// SPEC LS12 SL2
// CASE B46
func TestJumpAndTheEndOfTheCounter(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		a := self("a", 1)
		row := d.got(a, r(0, 99), 0)
		d.set(must(d.at.Jump(id(5), 1000)))
		if err := d.renew(a, r(0, 99), row.Epoch); err != nil { // it takes nothing away
			t.Error(err)
		}
		if again := must(d.at.Jump(id(6), 1000)); again != d.at {
			t.Error("a jump to where it is")
		}
		if got := d.got(self("b", 2), r(100, 100), 0); got.Epoch != 1001 {
			t.Errorf("%+v", got)
		}
		if _, err := d.at.Jump(id(5), record.MaxJump+1); !errors.Is(err, store.ErrInvalid) {
			t.Error(err)
		}
		at := d.at
		next, answers, err := at.Claim(Claim{Ranges: []Range{r(0, 99), r(200, 200)}, Host: a, Floor: record.MaxNumber, Attempt: id(5)})
		if !errors.Is(err, store.ErrInvalid) || next != nil || answers != nil {
			t.Error("an epoch above 2^53-1 is given:", err)
		}
		if _, _, err := at.Claim(Claim{Ranges: []Range{r(200, 200)}, Host: a, Floor: record.MaxJump + 1, Attempt: id(5)}); !errors.Is(err, store.ErrInvalid) {
			t.Error("one wrong floor ends the table:", err)
		}
		high, _, err := at.Claim(Claim{Ranges: []Range{r(200, 200)}, Host: a, Floor: record.MaxJump, Attempt: id(5)})
		if err != nil || high.Counter != record.MaxJump+1 {
			t.Fatal(err)
		}
		nearly := *at
		nearly.Counter = record.MaxNumber - 1
		last, _, err := nearly.Claim(Claim{Ranges: []Range{r(200, 200)}, Host: a, Attempt: id(5)})
		if err != nil || last.Counter != record.MaxNumber {
			t.Fatal(err)
		}
		if _, _, err := last.Claim(Claim{Ranges: []Range{r(201, 201)}, Host: a, Attempt: id(5)}); !errors.Is(err, store.ErrInvalid) {
			t.Error(err)
		}
		if born := must(New("orders", RowsForm, 41, id(1), 1)); born.Counter != 41 {
			t.Error("the floor at birth is not the counter")
		}
	})
}

// Whatever a decision is asked that makes no sense is refused before anything happens.
//
// SPEC SL1 SL4
func TestBadInput(t *testing.T) {
	both(t, func(t *testing.T, d *desk) {
		good := Claim{Ranges: []Range{r(0, 9)}, Host: self("a", 1), Attempt: id(5)}
		for what, change := range map[string]func(*Claim){
			"upside down":   func(c *Claim) { c.Ranges = []Range{{9, 0}} },
			"beyond":        func(c *Claim) { c.Ranges = []Range{{0, Count}} },
			"twice":         func(c *Claim) { c.Ranges = []Range{r(9, 20), r(0, 9)} },
			"no id":         func(c *Claim) { c.Attempt = "x" },
			"floor":         func(c *Claim) { c.Floor = record.MaxNumber + 1 },
			"time":          func(c *Claim) { c.NowMS = -1 },
			"owner":         func(c *Claim) { c.Host.Owner = " a" },
			"owner control": func(c *Claim) { c.Host.Owner = "a\nb" },
			"owner long":    func(c *Claim) { c.Host.Owner = strings.Repeat("x", 129) },
			"no owner":      func(c *Claim) { c.Host.Owner = "" },
			"incarnation":   func(c *Claim) { c.Host.Incarnation = "x" },
			"kind":          func(c *Claim) { c.Host.Kind = "x" },
			"self term":     func(c *Claim) { c.Host.Term = 1 },
			"no term":       func(c *Claim) { c.Host.Kind, c.Host.Node = lease.Session, "n" },
			"no node":       func(c *Claim) { c.Host.Kind, c.Host.Term = lease.Session, 1 },
			"TTL":           func(c *Claim) { c.Host.TTLMS = 0 },
			"TTL too long":  func(c *Claim) { c.Host.TTLMS = 1 << 62 },
			"address":       func(c *Claim) { c.Host.Addr = strings.Repeat("x", 257) },
			"volume":        func(c *Claim) { c.Host.Volume = &Volume{} },
			"evidence":      func(c *Claim) { c.Sights = []Sight{{Evidence: strings.Repeat("x", MaxEvidence+1)}} },
		} {
			c := good
			c.Host = good.Host.copy()
			change(&c)
			if next, _, err := d.at.Claim(c); !errors.Is(err, store.ErrInvalid) || next != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		part := *d.at
		part.Part = r(0, 99)
		for what, err := range map[string]error{
			"claim":   third(part.Claim(Claim{Ranges: []Range{r(90, 100)}, Host: self("a", 1), Attempt: id(5)})),
			"renew":   third(part.Renew(Renewal{Host: self("a", 1), Holds: []Hold{{Range: r(100, 100)}}, Attempt: id(5)})),
			"release": third(part.Release(Release{Host: self("a", 1), Holds: []Hold{{Range: r(100, 100)}}, Attempt: id(5)})),
			"steal":   third(part.Steal(Theft{Range: r(100, 100), Attempt: id(5)})),
			"clear":   third(part.Clear(r(100, 100), "a", 1, id(5))),
			"id":      third(part.Renew(Renewal{Host: self("a", 1)})),
			"id too":  third(part.Clear(r(0, 1), "a", 1, "")),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s of slots that were not read: %v", what, err)
			}
		}
	})
}

func third[A, B any](_ A, _ B, err error) error { return err }
