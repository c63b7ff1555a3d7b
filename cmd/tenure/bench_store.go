package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/bench"
	"github.com/tenure-project/tenure/cmd/tenure/internal/prices"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// benchCleanUp bounds the removal of what a run made.
const benchCleanUp = 10 * time.Second

// benchFlags are what bench store was asked for.
type benchFlags struct {
	rounds, concurrency int
	limit, ttl          time.Duration
	asJSON              bool
}

func newBenchStoreCmd(a *app) *cobra.Command {
	f := benchFlags{rounds: 200, concurrency: 1, limit: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "store [URL]",
		Short: "Measure a store's operations and lease steps, and what a lease costs",
		Long: `Measure how long the operations of a store and the steps of leases take, and
count the requests of each step. Say what a lease that is held all the time, and
one who waits for it, send in a month of 30 days, and what the provider's list
price for that is.

It works on fresh keys of its own under the namespace's probe keys, with the
real library on top, and removes them, also after a signal. It touches no
lease and does not make the namespace. It respects the store's limit of writes
per key. Where requests cost money, so does this: about 15 requests per round.`,
		Example: `  tenure bench store
  tenure bench store sqlite:///var/lib/tenure/leases.db --rounds 1000
  tenure bench store s3://bucket/leases --ttl 1m --json | jq .cost`,
		Args: args(0, "URL"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if args[0] == "" {
					return &usageError{err: errors.New("the URL is empty"), path: cmd.CommandPath()}
				}
				if a.flags.store != "" && a.flags.store != args[0] {
					return &usageError{err: errors.New("two stores are given, as URL and by --store: give one"), path: cmd.CommandPath()}
				}
				a.flags.store = args[0]
			}
			return a.benchStore(ctx, f)
		}),
	}
	addJSONFlag(cmd, &f.asJSON)
	cmd.Flags().Var(rangeFlag{&f.rounds, 1, 100_000}, "rounds", "how often to measure each step at most")
	cmd.Flags().Var(rangeFlag{&f.concurrency, 1, 64}, "concurrency", "how many steps to have under way at once")
	cmd.Flags().Var(durationFlag{&f.limit, benchLimit}, "duration", "stop measuring after this long")
	cmd.Flags().Var(durationFlag{&f.ttl, ttlRange}, "ttl", "the TTL to tell the cost for (default 15s)")
	return cmd
}

func benchLimit(d time.Duration) error {
	if d <= 0 || d > time.Hour {
		return fmt.Errorf("it must be above 0 and at most 1h, not %v", d)
	}
	return nil
}

// benchStore measures and prints. Whatever can be checked without the store is
// checked before.
func (a *app) benchStore(ctx context.Context, f benchFlags) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	if err := t.prepare(); err != nil {
		return err
	}
	st, _, err := tenure.OpenStore(ctx, t.url, a.options(t)...)
	if err != nil {
		return err
	}
	return errors.Join(a.benchOn(ctx, st, t, f), st.Close())
}

func (a *app) benchOn(ctx context.Context, st store.Store, t target, f benchFlags) error {
	info := st.Info()
	lowest := prices.LowestTTL(info)
	switch {
	case f.ttl == 0:
		f.ttl = max(lease.Timing{}.Defaults().TTL, lowest)
	case f.ttl < lowest:
		return invalid("--ttl %v: a key of this store takes %g writes per second, so a TTL is at least %v", f.ttl, info.WritesPerSecond, lowest)
	}
	report, err := bench.Run(ctx, st, bench.Options{
		Namespace: t.namespace, Rounds: f.rounds, Concurrency: f.concurrency, Limit: f.limit, CleanUp: benchCleanUp,
		Client: []tenure.Option{tenure.WithLogger(a.logger()), tenure.WithClock(a.clk)},
	})
	a.warnOfLeftovers(report)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		err = errors.New("the figures are of what was measured until then")
	}
	r := benchResult{info: info, namespace: t.namespace, flags: f, report: report, cost: costOf(info, f.ttl, callsOf(report.Steps, bench.StepRenew))}
	if f.asJSON {
		return errors.Join(a.json(r.json()), err)
	}
	r.print(a.out)
	return err
}

// warnOfLeftovers says what the clean-up could not remove.
func (a *app) warnOfLeftovers(r bench.Report) {
	switch {
	case r.Left == 0:
	case errors.Is(r.LeftWhy, store.ErrDenied):
		a.warn("these credentials may not delete: %d keys that start with %s are left behind, and may be deleted by hand", r.Left, r.Prefix)
	default:
		a.warn("%d keys that start with %s may be left behind, and may be deleted by hand: %v", r.Left, r.Prefix, r.LeftWhy)
	}
}

// callsOf are the mean store calls of one step, by operation.
func callsOf(steps []bench.Step, name string) map[string]float64 {
	for _, s := range steps {
		if s.Name == name {
			return s.Calls
		}
	}
	return nil
}

// cost is what a lease that is held all the time takes in a month, and what one
// who waits for it does.
type cost struct {
	ttl, every  time.Duration
	even        float64 // renewals a month if each came after the interval as it stands
	average     float64 // and with the library's jitter
	measured    bool    // whether the requests of a renewal were counted here
	month       prices.Requests
	waiter      prices.Waiter
	list        prices.List
	priced      bool
	billed      bool // requests to such stores cost money somewhere
	underDollar time.Duration
}

// costOf works out the cost at a TTL. calls are those of one renewal, empty if
// none was measured: then it is the one conditional write that it should be.
func costOf(i store.Info, ttl time.Duration, calls map[string]float64) cost {
	c := cost{ttl: ttl, every: prices.RenewEvery(ttl), measured: len(calls) > 0, waiter: prices.WaiterFor(i, ttl), billed: prices.Billed(i.Scheme)}
	if !c.measured {
		calls = map[string]float64{"replace": 1}
	}
	c.even, c.average = prices.Renewals(ttl)
	renewal := prices.Classify(calls)
	if strings.HasPrefix(i.Driver, "numbered/") { // each call there is that call and a listing
		renewal = prices.Classify(map[string]float64{"create": renewal.Writes, "list": renewal.Writes + renewal.Reads, "get": renewal.Reads})
	}
	c.month = renewal.Times(c.average)
	if c.list, c.priced = prices.Of(i); c.priced {
		c.underDollar = c.list.LeastTTL(1, renewal, prices.LowestTTL(i))
	}
	return c
}
