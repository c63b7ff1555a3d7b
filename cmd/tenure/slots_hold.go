package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/slots"
)

// slotPairs tell the command what is owned for it.
func (x *claiming) slotPairs(l holding) []string {
	o, ok := l.(*owning)
	if !ok {
		return nil
	}
	all, held := make([]string, 0, len(o.grants)), x.a.env.get(envHeld)
	for _, g := range o.grants {
		all = append(all, fmt.Sprintf("%v=%d", g.Range(), g.Epoch()))
		held += slotsEntry(o.birth, g.Epoch(), x.table) + "\t"
	}
	pairs := []string{envSlotsTable, x.table, envSlotsOwner, x.owner, envSlots, strings.Join(all, " "), envHeld, held}
	switch {
	case len(o.grants) == 1:
		pairs = append(pairs, envEpoch, fmt.Sprint(o.grants[0].Epoch()))
	case x.a.env.get(envEpoch) != "": // it is not of these
		pairs = append(pairs, envEpoch, "")
	}
	return pairs
}

// slotsEntry is one range in envHeld, which no lease's entry looks like: an epoch is given
// once in a table, and a table's birth is its own.
func slotsEntry(birth string, epoch uint64, table string) string {
	return "slots " + heldEntry(birth, epoch, table)
}

// hold claims the ranges, runs the command while all are owned, and releases them. It runs
// in the process that owns the command's tree.
func (x *claiming) hold(s *proc.Supervisor) (proc.Outcome, runStatus) {
	ctx, cancel := x.waiting(s.Context())
	defer cancel()
	client, err := x.open(ctx)
	if err != nil {
		if cause := context.Cause(ctx); isA[*waitedError](cause) {
			err = &endedError{cause: cause, err: err}
		}
		return x.failed(s, err)
	}
	o, err := x.claim(ctx, client, slots.HostConfig{})
	if err != nil {
		if err := client.Close(); err != nil {
			x.a.warn("%v", err)
		}
		return x.failed(s, err)
	}
	o.guard(x.ttl, proc.StopTime(x.grace, x.reserve))
	x.marks = func(st *runStatus) { st.Table, st.Slots = x.table, o.claimed() }
	return x.runUnder(s, client, o)
}

// owning is a host whose ranges are owned, as the rest of run sees it: as one holding,
// which ends with the first range that does.
type owning struct {
	x      *claiming
	host   *slots.Host
	birth  string // the table's
	grants []*slots.Grant
	stop   context.CancelFunc // ends what renews
	ran    chan error         // that has ended

	reserve time.Duration // from the first end of a grant to when the ranges can be another's
	over    chan struct{}
	once    sync.Once
	why     error // set before over is closed
}

// claim starts a host, and waits until it owns every range, or ctx ends.
func (x *claiming) claim(ctx context.Context, c *tenure.Client, cfg slots.HostConfig) (*owning, error) {
	t, err := openTable(ctx, c, x.table)
	if err != nil {
		return nil, err
	}
	v, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	if err := x.waitsForItself(&v); err != nil {
		return nil, err
	}
	cfg.Owner, cfg.Addr, cfg.Ranges, cfg.TTL = x.owner, x.addr, x.ranges, x.ttl
	h, err := t.Host(cfg)
	if err != nil {
		return nil, plainHost(err)
	}
	o := &owning{x: x, host: h, birth: v.Birth, ran: make(chan error, 1), over: make(chan struct{})}
	err = x.await(ctx, o)
	if err == nil {
		return o, nil
	}
	return nil, errors.Join(err, ignoreReleased(o.end(context.WithoutCancel(ctx))))
}

// waitsForItself refuses to wait for a range that this process runs under, which would
// never end.
func (x *claiming) waitsForItself(v *slots.View) error {
	above := strings.Split(x.a.env.get(envHeld), "\t")
	for i := range v.Rows {
		r := &v.Rows[i]
		wanted := slices.ContainsFunc(x.ranges, r.Range.Overlaps)
		if wanted && r.Held() && slices.Contains(above, slotsEntry(v.Birth, r.Epoch, x.table)) {
			return fmt.Errorf("this process runs under slots %v, epoch %d, and would wait for itself: %w", r.Range, r.Epoch, tenure.ErrHeld)
		}
	}
	return nil
}

// plainHost is an error about a host in the words of the command line.
func plainHost(err error) error {
	text := plainCause(err)
	if before, _, found := strings.Cut(text, ": give HostConfig.Session, or "); found {
		return invalid("%s: give a longer --ttl, or keep the table in another store", before)
	}
	return err
}

// await starts the host and waits for its ranges. What cannot pass ends the wait.
func (x *claiming) await(ctx context.Context, o *owning) error {
	run, stop := context.WithCancel(context.Background())
	o.stop = stop
	go func() { o.ran <- o.host.Run(run) }()
	for pause, told := 5*time.Millisecond, false; ; pause = min(2*pause, 250*time.Millisecond) {
		o.grants = o.grants[:0]
		for _, r := range x.ranges {
			if g, ok := o.host.Grant(r.A); ok && g.Range() == r {
				o.grants = append(o.grants, g)
			}
		}
		if len(o.grants) == len(x.ranges) {
			return nil
		}
		health := o.host.Health()
		final, err := obstacle(&health)
		tried := len(health.Held)+len(health.Waiting)+len(health.Failed) >= len(x.ranges)
		if health.Over != nil || final || x.wait == 0 && tried && err != nil {
			return errors.Join(health.Over, err)
		}
		if err != nil && !told && (x.a.flags.verbose || isTerminal(x.a.stderr)) {
			fmt.Fprintf(x.a.stderr, "tenure: waiting: %s\n", errorText(err))
			told = true
		}
		if !clock.Sleep(x.a.clk, pause, ctx.Done()) {
			return x.unowned(context.Cause(ctx), err)
		}
	}
}

// unowned says why the ranges are not owned once the wait for them ended with cause.
func (x *claiming) unowned(cause, err error) error {
	switch {
	case len(x.command) == 0 && isA[*signalError](cause):
		return nil // what is owned is released, which is no failure
	case !isA[*waitedError](cause):
		return cmp.Or(cause, err)
	case err == nil:
		return fmt.Errorf("waited for %v, and the store did not answer: %w", x.wait, tenure.ErrUnavailable)
	}
	return fmt.Errorf("waited for %v: %w", x.wait, err)
}

// obstacle is what keeps the host from owning all its ranges: another host, or else the
// store. final says that waiting does not help.
func obstacle(h *slots.Health) (final bool, err error) {
	for _, f := range h.Failed {
		if fatal(f.Err) {
			return true, f.Err
		}
		err = cmp.Or(err, f.Err)
	}
	if len(h.Waiting) > 0 {
		return false, h.Waiting[0].Err
	}
	return false, err
}

// fatal reports whether waiting does not help.
func fatal(err error) bool {
	return is(tenure.ErrDenied, tenure.ErrCorrupt, tenure.ErrNewer, tenure.ErrInvalid, tenure.ErrRegressed, tenure.ErrNotFound)(err)
}

// claimed are the ranges for the status file.
func (o *owning) claimed() []claimedJSON {
	var all []claimedJSON
	for _, g := range o.grants {
		all = append(all, claimedJSON{Range: g.Range().String(), Epoch: g.Epoch()})
	}
	return all
}

// guard makes the ranges one holding: it ends as soon as any range does, and early enough
// that stop fits before somebody else can own one. A grant ends two thirds of the TTL
// after it was sent for, and a rival watches a whole TTL; the command may use what is
// between, less the margin, to end in.
func (o *owning) guard(ttl, stop time.Duration) {
	o.reserve = ttl/3 - slotsMargin(ttl)
	for _, g := range o.grants {
		context.AfterFunc(g.Context(), func() { o.finish(g.Err()) })
	}
	go func() {
		for {
			at, ok := o.Deadline()
			if !ok {
				return // a grant is over, which finishes
			}
			left := at - stop - o.x.a.clk.Boot()
			if left <= 0 {
				o.finish(fmt.Errorf("slots of table %q: %w", o.x.table, tenure.ErrExpired))
				return
			}
			if !clock.Sleep(o.x.a.clk, left, o.over) {
				return
			}
		}
	}()
}

func (o *owning) finish(why error) {
	o.once.Do(func() {
		o.why = &rangeError{why}
		close(o.over)
	})
}

// Deadline is when the first of the ranges can be another's.
func (o *owning) Deadline() (time.Duration, bool) {
	first := time.Duration(0)
	for i, g := range o.grants {
		at, ok := g.Deadline()
		if !ok {
			return 0, false
		}
		if i == 0 || at < first {
			first = at
		}
	}
	return first + o.reserve, true
}

// Done is closed when the command must begin to end.
func (o *owning) Done() <-chan struct{} { return o.over }

// Err says why.
func (o *owning) Err() error {
	select {
	case <-o.over:
		return o.why
	default:
		return nil
	}
}

// Name is the table's.
func (o *owning) Name() string { return o.x.table }

// Token is the epoch, 0 if there are several.
func (o *owning) Token() uint64 {
	if len(o.grants) == 1 {
		return o.grants[0].Epoch()
	}
	return 0
}

// Owner is the owner's name.
func (o *owning) Owner() string { return o.x.owner }

// Proof is none: the ranges have one each.
func (o *owning) Proof() tenure.Proof { return tenure.Proof{Token: o.Token()} }

// Release releases every range that is still owned. It is an ErrLost if one was lost before
// that, which the command may not have noticed.
func (o *owning) Release(ctx context.Context) error {
	var lost error
	for _, g := range o.grants {
		if err := g.Err(); err != nil {
			lost = &rangeError{err}
			break
		}
	}
	o.finish(tenure.ErrReleased)
	return errors.Join(lost, ignoreReleased(o.end(ctx)))
}

// end releases what the host owns, and waits until nothing renews it.
func (o *owning) end(ctx context.Context) error {
	err := o.host.Release(ctx)
	if o.stop != nil {
		o.stop()
		<-o.ran
	}
	return err
}

func ignoreReleased(err error) error {
	if errors.Is(err, tenure.ErrReleased) {
		return nil
	}
	return err
}

// rangeError is an error of a range, in its words. What the library calls a lease, whatever
// the kind, is a range here.
type rangeError struct{ err error }

func (e *rangeError) Error() string {
	return strings.Replace(e.err.Error(), tenure.ErrLost.Error(), "the range was lost", 1)
}

func (e *rangeError) Unwrap() error { return e.err }

var _ holding = (*owning)(nil)
