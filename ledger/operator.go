package ledger

import (
	"context"
	"slices"
	"time"
)

// Verdict is what an operator says of an attempt.
type Verdict string

// The verdicts.
const (
	// AsCommitted: the effect happened.
	AsCommitted Verdict = "committed"
	// AsFailed: it did not happen, and will not; the run may be tried again, and MaxFailed
	// does not count the attempt.
	AsFailed Verdict = "failed"
	// AsAbandoned: nobody knows; the run may be tried again all the same.
	AsAbandoned Verdict = "abandoned"
)

// SettleOptions say who settles and why.
type SettleOptions struct {
	// By and Reason are kept: with the verdicts committed and failed as a result, if the
	// attempt left none, also when the same verdict is given again; with abandoned for ever. Reason must not be empty. Together they
	// have at most 200 bytes.
	By, Reason string
	// Vouch says that the attempt is certainly over, though its holder still has the
	// lease or is of another site. Without it that is ErrRunning.
	Vouch bool
	// Wait is how long to try to take the job's lease over from a holder that may be
	// dead; 0 is one try. A holder that lives keeps it.
	Wait time.Duration
}

// Settle writes down what became of an open attempt. It is nil if that is so already.
// An attempt that was never made is ErrNotFound, one that was settled otherwise
// ErrConflict, but for a commit: that is a fact, whoever learns of it late. The write
// itself proves that this was so: an outcome that another writes meanwhile is seen.
func (l *Ledger) Settle(ctx context.Context, k Key, v Verdict, o SettleOptions) error {
	return l.settleBy(ctx, k, v, o)
}

// Fence takes the job's lease over from a holder that is dead, and raises the epoch, so
// that what it left open is Unknown instead of Running; wait is how long to try, as in
// SettleOptions. A holder that lives keeps it: that is a tenure.ErrHeld. Where nothing is
// running it does nothing.
func (l *Ledger) Fence(ctx context.Context, wait time.Duration) error {
	all, err := l.Unsettled(ctx)
	if err != nil || !slices.ContainsFunc(all, func(r RunInfo) bool { return r.Running }) {
		return err
	}
	return l.fence(ctx, SettleOptions{Wait: wait})
}

// Retry gives up every open attempt of the run, and the newest of each site if it failed,
// so that the next Once tries it once more, also above MaxFailed: its effect may come
// twice. It returns the
// attempts that it gave up, none if the run may be tried anyway. A committed run is
// ErrCommitted.
func (l *Ledger) Retry(ctx context.Context, run Run, o SettleOptions) ([]Key, error) {
	return l.retry(ctx, run, o)
}

// Compacted is what Compact did.
type Compacted struct {
	// Facts were moved from the head into Blocks; Splits of these became two.
	Facts, Blocks, Splits int
}

// Compact moves what is settled from the head into blocks (EX7). It is in nobody's way:
// a run that writes the head meanwhile makes it begin again. It is done by itself after
// a run that finds the head full.
func (l *Ledger) Compact(ctx context.Context) (Compacted, error) { return l.compact(ctx) }

// Flush waits for the compaction that a run began in the background, and returns its
// error. A short command calls it before it closes its client; what a compaction did not
// do is done by a later one.
func (l *Ledger) Flush(ctx context.Context) error { return l.flush(ctx) }

// Swept is what Sweep removed.
type Swept struct {
	// Blocks were split and not deleted then; Results were older than the retention.
	Blocks, Results int
}

// Sweep removes blocks that were split, and results that ended longer ago than keep by
// this host's wall clock; keep 0 leaves all results. Nothing that an answer rests on is
// removed.
func (l *Ledger) Sweep(ctx context.Context, keep time.Duration) (Swept, error) {
	return l.sweep(ctx, keep)
}

// Jump raises the sequence of the head to at least above (LS12): after a restore, for
// hosts that remember a higher one and get ErrRegressed. Runs that were committed after
// the backup are forgotten: import what knows of them first. Jump the lease, too. A
// sequence below what this host remembers is ErrInvalid; where there is no ledger that
// is ErrNotFound: see Begin.
func (l *Ledger) Jump(ctx context.Context, above uint64) error { return l.jump(ctx, above, false) }

// Begin makes a ledger where there is none, with a sequence of at least above: after the
// store was lost, for hosts that remember the ledger and get a GoneError. It knows of no
// run: where a copy is left, Import that instead, and Jump. A ledger that is there is
// raised as by Jump.
func (l *Ledger) Begin(ctx context.Context, above uint64) error { return l.jump(ctx, above, true) }
