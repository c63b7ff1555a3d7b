package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

// settling is one run of ledger settle or ledger retry.
type settling struct {
	a       *app
	attempt uint64
	site    string
	verdict string
	opts    ledger.SettleOptions
	asJSON  bool
}

// settleWait is how long a command tries to take the job's lease over from a holder
// that may be dead: twice the default TTL.
const settleWait = 30 * time.Second

func (x *settling) addFlags(cmd *cobra.Command) {
	x.opts.Wait = settleWait
	f := cmd.Flags()
	f.Var(textFlag{&x.opts.Reason}, "reason", "why, which is kept")
	f.Var(textFlag{&x.opts.By}, "by", "who, which is kept (default user@host)")
	f.BoolVar(&x.opts.Vouch, "vouch", false, "give your word that the attempt is over, though its holder has the lease or is of another site")
	f.Var(durationFlag{&x.opts.Wait, notNegative}, "wait", "how long to try to take the job's lease over from a holder that may be dead")
	addJSONFlag(cmd, &x.asJSON)
}

func (x *settling) complete(cmd *cobra.Command, names ...string) error {
	if err := required(cmd, names...); err != nil {
		return err
	}
	if x.opts.By == "" {
		x.opts.By = operator(x.a.env)
	}
	return nil
}

func newLedgerSettleCmd(a *app) *cobra.Command {
	x := &settling{a: a}
	cmd := &cobra.Command{
		Use:   "settle JOB RUN --attempt N --as committed|failed|abandoned --reason TEXT",
		Short: "Write down what became of an attempt that vanished",
		Long: `Settle exactly this attempt, whose host vanished without a word. Find out first:
the ledger believes you.

committed: it did its work; the run is never started again. failed: it did not,
and will not any more; the next ` + "`tenure once`" + ` tries the run again. abandoned:
nobody knows, and the run is tried again all the same; if the attempt did its
work, it comes twice. An attempt whose holder still has the job's lease is
refused (75), after --wait; one that was settled otherwise is refused at once
(80).`,
		Example: `  tenure ledger settle backup 2026-03-01T02:30:00Z --attempt 1 --as committed --reason "the file is there"`,
	}
	a.aboutRun(cmd, func(ctx context.Context, c *tenure.Client, l *ledger.Ledger, run ledger.Run) error {
		k, err := x.key(ctx, l, run)
		if err == nil {
			err = settledOtherwise(l.Settle(ctx, k, ledger.Verdict(x.verdict), x.opts))
		}
		if err != nil {
			return err
		}
		return x.tell(ctx, c, l, run, fmt.Sprintf("attempt %d is settled as %s, for %s", k.Attempt, x.verdict, showText(x.opts.By)))
	})
	x.before(cmd, "attempt", "as", "reason")
	f := cmd.Flags()
	f.Var(numberFlag{&x.attempt}, "attempt", "the attempt's number")
	f.Var(textFlag{&x.site}, "site", "the attempt's site, where several have that number")
	f.Var(verdictFlag{&x.verdict}, "as", "what became of it: `committed`, failed or abandoned")
	_ = cmd.RegisterFlagCompletionFunc("as", cobra.FixedCompletions([]string{string(ledger.AsCommitted), string(ledger.AsFailed), string(ledger.AsAbandoned)}, cobra.ShellCompDirectiveNoFileComp))
	x.addFlags(cmd)
	return cmd
}

// settledError says that another verdict on an attempt stands. To wait never helps.
type settledError struct{ err error }

func (e *settledError) Error() string { return e.err.Error() }

func (e *settledError) Unwrap() error { return e.err }

// settledOtherwise tells that refusal of package ledger from every other error: lost
// races it repeats by itself.
func settledOtherwise(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return &settledError{err}
	}
	return err
}

// before checks the flags ahead of everything else.
func (x *settling) before(cmd *cobra.Command, names ...string) {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		x.a.begun = true
		if err := x.complete(cmd, names...); err != nil {
			return err
		}
		return run(cmd, args)
	}
}

func newLedgerRetryCmd(a *app) *cobra.Command {
	x := &settling{a: a}
	cmd := &cobra.Command{
		Use:   "retry JOB RUN --reason TEXT",
		Short: "Let the next call try a run again",
		Long: `Give up what stands in the way of the run, an attempt that is open or failed, so
that the next ` + "`tenure once`" + ` tries it once more, also if it failed as often as
--attempts allows.
If one of them did its work after all, it comes twice: the run is listed as
repeated then. A run that happened is refused (80). This starts nothing.`,
		Example: `  tenure ledger retry backup 2026-03-01T02:30:00Z --reason "disk was full"`,
	}
	a.aboutRun(cmd, func(ctx context.Context, c *tenure.Client, l *ledger.Ledger, run ledger.Run) error {
		if _, err := known(ctx, l, run); err != nil {
			return err
		}
		gone, err := l.Retry(ctx, run, x.opts)
		if err != nil {
			return err
		}
		what := "nothing stood in the way: the next `tenure once` tries it again"
		if len(gone) > 0 {
			var n []string
			for _, k := range gone {
				n = append(n, fmt.Sprint(k.Attempt))
			}
			what = fmt.Sprintf("attempt %s is given up, for %s: the next `tenure once` tries it again", strings.Join(n, ", "), showText(x.opts.By))
		}
		return x.tell(ctx, c, l, run, what)
	})
	x.before(cmd, "reason")
	x.addFlags(cmd)
	return cmd
}

// key is the attempt that is meant. Its site need not be told where one alone has it.
func (x *settling) key(ctx context.Context, l *ledger.Ledger, run ledger.Run) (ledger.Key, error) {
	r, err := known(ctx, l, run)
	if err != nil {
		return ledger.Key{}, err
	}
	var found []ledger.Key
	for _, at := range r.Attempts {
		if at.Attempt == x.attempt && (x.site == "" || x.site == at.Site) {
			found = append(found, at.Fact.Key)
		}
	}
	switch len(found) {
	case 0:
		return ledger.Key{}, notFound("%s: there is no attempt %d of it; see `tenure ledger show`", runText(run), x.attempt)
	case 1:
		return found[0], nil
	}
	return ledger.Key{}, invalid("%s: several sites have an attempt %d of it: give --site", runText(run), x.attempt)
}

// tell says what was done, or shows the run as it is then.
func (x *settling) tell(ctx context.Context, c *tenure.Client, l *ledger.Ledger, run ledger.Run, text string) error {
	if !x.asJSON {
		x.a.printf("%s: %s\n", runText(run), text)
		return nil
	}
	r, err := known(ctx, l, run)
	return errors.Join(err, x.a.json(newRunJSON(c.Namespace(), l.Agent(), r)))
}

// verdictFlag is what an operator says of an attempt.
type verdictFlag struct{ p *string }

func (f verdictFlag) String() string {
	if f.p == nil {
		return ""
	}
	return *f.p
}

func (f verdictFlag) Type() string { return "verdict" }

func (f verdictFlag) Set(s string) error {
	switch ledger.Verdict(s) {
	case ledger.AsCommitted, ledger.AsFailed, ledger.AsAbandoned:
		*f.p = s
		return nil
	}
	return fmt.Errorf("give committed, failed or abandoned, not %q", s)
}
