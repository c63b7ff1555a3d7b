package ledger

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Answer is what a dispatch is told (EX4). Only Proceed may act.
type Answer int

// The answers.
const (
	// Undecided is no answer; an error says why.
	Undecided Answer = iota
	// Proceed: nothing stands in the way.
	Proceed
	// AlreadyCommitted: the run happened, at whatever epoch and site.
	AlreadyCommitted
	// StaleEpoch: another holder, or another epoch.
	StaleEpoch
	// NotHeld: nobody holds the lease.
	NotHeld
	// Unknown: another attempt of the run is open. A policy decides.
	Unknown
	// Withdrawn: the caller's own attempt was settled by somebody else.
	Withdrawn
	// LookAgain: another site was merged since the admission; record the attempt as
	// not started, and begin again.
	LookAgain
)

// String names the answer.
func (a Answer) String() string {
	names := [...]string{"undecided", "proceed", "already committed", "stale epoch", "not held", "unknown", "withdrawn", "look again"}
	if a < 0 || int(a) >= len(names) {
		return fmt.Sprintf("answer %d", int(a))
	}
	return names[a]
}

// Decision is an answer with what it rests on.
type Decision struct {
	Answer Answer
	// Attempt is the caller's own, with Proceed.
	Attempt Key
	// Fact is a committed attempt, with AlreadyCommitted.
	Fact Fact
	// Repeated: the run may have happened more than once.
	Repeated bool
	// Open is the attempt in the way, with Unknown.
	Open Open
	// Running: Open is of the head's epoch, so its holder has not lost the lease by
	// anything that the head knows.
	Running bool
	// Current is the highest epoch and Holder its holder, with StaleEpoch.
	Current uint64
	Holder  string
}

// Committed reports whether the head alone says that the run happened: then no block
// need be read. A no says nothing.
func (h *Head) Committed(run RunID) bool {
	for _, f := range h.Facts {
		if f.Run == run && f.Committed {
			return true
		}
	}
	return false
}

// Found is what is known of one run from a head and the block that was read after
// it (EX4, EX7).
type Found struct {
	head *Head
	a    *Agent
	run  RunID
}

// Look joins what head and block say of a run: the exact answer to "did it happen?"
// as of the head's read. block must be the one of head.BlockOf(run), read after the
// head; nil where BlockOf says that there is none. A block that should be there and
// is absent was split: read the head again; if it did not change, the store lost it
// (ErrCorrupt).
func Look(h *Head, block *Block, run RunID) (*Found, error) {
	leaf, ok := h.BlockOf(run)
	switch {
	case ok && block == nil:
		return nil, store.Errorf(store.ErrCorrupt, "", "look", "", "block %q of %q is missing", BlockName(leaf), h.Agent)
	case ok && (block.p.line.Leaf != leaf || block.p.line.Agent != h.Agent), !ok && block != nil:
		return nil, store.Errorf(store.ErrInvalid, "", "look", "", "this is not the block of run %v", run)
	}
	f := &Found{head: h, a: NewAgent(h.Agent, 0), run: run}
	if block != nil {
		for _, x := range block.Find(run) {
			f.a.t.put(x)
		}
	}
	for _, x := range h.Facts {
		if x.Run == run {
			f.a.t.put(x)
		}
	}
	for _, o := range h.Open {
		if o.Run == run {
			f.a.t.putOpen(o)
		}
	}
	f.a.epochs[h.Site] = h.Epoch
	for _, e := range h.Epochs {
		f.a.epochs[e.Site] = e.Epoch
	}
	return f, nil
}

// BlockName is the last element of a block's key: never empty, and none is used
// again once it was split.
func BlockName(leaf string) string { return "r" + leaf }

// Committed is Agent.Committed of the run.
func (f *Found) Committed() (yes, repeated bool) { return f.a.Committed(f.run) }

// Attempts is Agent.Attempts of the run.
func (f *Found) Attempts() []Attempt { return f.a.Attempts(f.run) }

// Current is Agent.Current of the run.
func (f *Found) Current() (Attempt, bool) { return f.a.Current(f.run) }

// Claim is a holder that wants to act.
type Claim struct {
	// Holder is unique to the process start and lease handle.
	Holder string
	// Epoch is the token of its lease.
	Epoch uint64
}

// Raise is the head with the claim's epoch: what a new holder writes before its
// first read (EX4). It is nil if the head has it already. A head above it is
// StaleEpoch: another holder came later, or the lease lost its counter, which then
// must be jumped above Seed (EX2).
func (h *Head) Raise(c Claim, attempt string) (*Head, Decision, error) {
	if err := c.check(); err != nil {
		return nil, Decision{}, err
	}
	if c.Epoch < h.Epoch || c.Epoch == h.Epoch && c.Holder != h.Holder {
		return nil, h.stale(), nil
	}
	d := Decision{Answer: Proceed}
	if c.Epoch == h.Epoch {
		return nil, d, nil
	}
	n := h.next(attempt)
	n.Epoch, n.Holder = c.Epoch, c.Holder
	n, err := n.checked("raise", 0)
	return n, d, err
}

func (h *Head) stale() Decision {
	return Decision{Answer: StaleEpoch, Current: h.Epoch, Holder: h.Holder}
}

func (c Claim) check() error {
	if c.Holder == "" || c.Epoch < 1 || c.Epoch > record.MaxNumber {
		return store.Errorf(store.ErrInvalid, "", "claim", "", "a claim needs a holder and an epoch, not %q and %d", c.Holder, c.Epoch)
	}
	return checkText("holder", c.Holder)
}

// Admit is the head with a new pending attempt of the run (EX4): the run is
// uncommitted, the claim's epoch is the head's, and no attempt is open. d.Write is
// the id of the write. The write proves all of that at once, since it replaces the
// head that was looked at. Any answer but Proceed comes without a head.
func (f *Found) Admit(c Claim, d Detail) (*Head, Decision, error) { return f.admit(c, d, nil) }

// Retry is Admit that abandons the open attempts of the run in the same write: the
// policy "retry" of EX4. Each must be over: one of the claim's own epoch is not, nor
// is another site's that is not among vouched, whose lease the caller cannot judge.
func (f *Found) Retry(c Claim, d Detail, vouched ...Key) (*Head, Decision, error) {
	over := map[Key]bool{}
	for _, k := range vouched {
		over[k] = true
	}
	return f.admit(c, d, func(o Open) bool {
		return over[o.Key] || o.Site == f.head.Site && o.Epoch < c.Epoch
	})
}

func (f *Found) admit(c Claim, d Detail, mayAbandon func(Open) bool) (*Head, Decision, error) {
	if err := c.check(); err != nil {
		return nil, Decision{}, err
	}
	if !record.IsID(d.Write) {
		return nil, Decision{}, store.Errorf(store.ErrInvalid, "", "admit", "", "the write %q is not an id", d.Write)
	}
	if dec := f.blocked(c, mayAbandon); dec.Answer != Proceed {
		return nil, dec, nil
	}
	k := Key{Run: f.run, Site: f.head.Site, Attempt: 1}
	a, gone := f.head.agent(), 0
	for _, at := range f.Attempts() {
		if at.Site == k.Site {
			k.Attempt = at.Attempt + 1
		}
		if at.Abandoned != nil || at.Open != nil {
			gone++
		}
		if at.Open != nil {
			a.t.fold(&Intent{Key: at.Key, Holder: c.Holder, Epoch: c.Epoch, Status: Abandoned})
		}
	}
	if gone >= MaxAbandoned || k.Attempt > MaxAttempt {
		return nil, Decision{}, store.Errorf(store.ErrInvalid, "", "admit", "",
			"%d attempts of run %v were given up: a person must settle it", gone, f.run)
	}
	o := Open{Key: k, Holder: c.Holder, Epoch: c.Epoch, Detail: d}
	a.t.putOpen(o)
	n := f.head.next(d.Write)
	n.set(a)
	n, err := n.checked("admit", Headroom)
	if err != nil {
		return nil, Decision{}, err
	}
	return n, Decision{Answer: Proceed, Attempt: k}, nil
}

// blocked is what stands in the way of an admission.
func (f *Found) blocked(c Claim, mayAbandon func(Open) bool) Decision {
	if yes, repeated := f.Committed(); yes {
		return f.done(repeated)
	}
	h := f.head
	if c.Epoch != h.Epoch || c.Holder != h.Holder {
		return h.stale()
	}
	for _, at := range f.Attempts() {
		if o := at.Open; o != nil && (mayAbandon == nil || !mayAbandon(*o)) {
			return h.unknown(*o)
		}
	}
	return Decision{Answer: Proceed}
}

func (h *Head) unknown(o Open) Decision {
	return Decision{Answer: Unknown, Open: o, Running: o.Site == h.Site && o.Epoch == h.Epoch}
}

func (f *Found) done(repeated bool) Decision {
	d := Decision{Answer: AlreadyCommitted, Repeated: repeated}
	for _, at := range f.Attempts() {
		if at.Committed {
			d.Fact = at.Fact
			break
		}
	}
	return d
}

// Lease is a linearizable read of the agent's lease (EX1): who has it, lapsed or
// not. The zero value is a lease that nobody has.
type Lease struct {
	Holder string
	Epoch  uint64
}

// Check is the last look before the effect (EX4): two reads, the head and then the
// lease, both after the admission was applied. admitted is the head that the
// admission wrote. The block is not needed: a commit of this run would have had to
// replace the head, and stays in it while the attempt is open.
func Check(admitted, now *Head, l Lease, c Claim, k Key) Decision {
	f := &Found{head: now, a: now.agent(), run: k.Run}
	if yes, repeated := f.Committed(); yes {
		return f.done(repeated)
	}
	switch {
	case now.Epoch != c.Epoch || now.Holder != c.Holder:
		return now.stale()
	case l == Lease{}:
		return Decision{Answer: NotHeld}
	case l.Epoch != c.Epoch || l.Holder != c.Holder:
		return Decision{Answer: StaleEpoch, Current: l.Epoch, Holder: l.Holder}
	case now.Imports != admitted.Imports:
		return Decision{Answer: LookAgain}
	}
	for _, o := range now.Open {
		if o.Run == k.Run && o.Key != k {
			return now.unknown(o)
		}
	}
	mine := admitted.open(k)
	if o := now.open(k); o == nil || mine == nil || *o != *mine {
		return Decision{Answer: Withdrawn}
	}
	return Decision{Answer: Proceed, Attempt: k}
}

// Outcome is what became of an attempt, by whoever knows.
type Outcome struct {
	Key
	// Status is Committed, Failed or Abandoned.
	Status Status
	// NotStarted goes with Failed: the effect certainly did not begin.
	NotStarted bool
	// By and Epoch say who gave it up, with Abandoned.
	By    string
	Epoch uint64
}

// check allows what malformed intents of a merge left behind too: it must be
// possible to settle that.
func (o Outcome) check() error {
	switch {
	case o.Status != Committed && o.Status != Failed && o.Status != Abandoned:
		return fmt.Errorf("%q is no outcome", o.Status)
	case o.NotStarted && o.Status != Failed:
		return errors.New("only a failed attempt did not start")
	}
	return given{o.Key, Abandonment{By: o.By, Epoch: o.Epoch}}.valid()
}

// Settle is the head with an outcome, which is a fact and accepted at any epoch
// (EX4): the holder's own, however late, a probe's, or an operator's. It is nil if
// the head knows it already. A *FullError means: compact, then again.
//
// Whether an open attempt may be settled by another than its holder is the caller's
// to know: see Over.
func (h *Head) Settle(o Outcome, attempt string) (*Head, error) {
	return h.SettleAll([]Outcome{o}, attempt)
}

// SettleAll is Settle of several outcomes in one write.
func (h *Head) SettleAll(all []Outcome, attempt string) (*Head, error) {
	before, a := h.agent(), h.agent()
	for _, o := range all {
		err := o.check()
		if o.Run == (RunID{}) && h.open(o.Key) == nil {
			err = errors.New("the run id is missing")
		}
		if err != nil {
			return nil, store.Wrap(store.ErrInvalid, "", "settle", "", err)
		}
		a.t.fold(&Intent{Key: o.Key, Holder: o.By, Epoch: o.Epoch, Status: o.Status, NotStarted: o.NotStarted})
	}
	if a.Equal(before) {
		return nil, nil
	}
	n := h.next(attempt)
	n.set(a)
	return n.checked("settle", 0)
}
