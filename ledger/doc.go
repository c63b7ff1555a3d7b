// Package ledger does each scheduled thing once (EX). Any number of hosts ask for
// the same run; the ledger answers which of them may start it, and remembers for ever
// that it happened:
//
//	l, err := ledger.Open(client, "nightly-report")
//	run, err := ledger.Occurrence("nightly-report", ledger.DefaultTrigger, at)
//	out, err := l.Once(ctx, run, func(ctx context.Context, a *ledger.Attempt) (ledger.Result, error) {
//		return ledger.Result{}, report(ctx, a.Epoch())
//	})
//
// A run that is committed is never started again, whatever hosts, clocks and crashes
// lie between. An attempt whose host vanished between its start and its record stays
// unknown until a policy, a probe or a person settles it: nothing turns it into a
// success or a failure by itself, and nothing hides it.
//
// # What it does not do
//
// It does not make an effect happen once. A host can die after the effect and before
// the record, and can be stopped after its last check and act later. With [Hold] such
// a run is never repeated; with [Retry] it may be, and is listed as repeated or
// unknown. Where the thing that is acted on refuses an older [Attempt.Epoch], and
// keeps the run's id in the same transaction as the effect, there is neither case left.
//
// # The lease
//
// Two hosts do not try at the same time because a named lease, [LeaseName], keeps them
// apart. It is only for that: a run that was committed needs no lease to be found
// (EX6).
//
// docs/design/0008-ledger.md has the whole argument.
package ledger
