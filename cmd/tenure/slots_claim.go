package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// The environment of a command that runs while ranges are held. TENURE_TOKEN and its
// relatives are left alone: a lease that this process runs under is still held.
const (
	envSlotsTable = "TENURE_SLOTS_TABLE"
	envSlotsOwner = "TENURE_SLOTS_OWNER"
	envSlots      = "TENURE_SLOTS" // "0-255=4711 512-767=4712": range=epoch, one space between
	envEpoch      = "TENURE_EPOCH" // where there is exactly one range
)

// mostRanges is how many ranges a command may run under: they must fit its environment.
const mostRanges = 1024

// claiming is one run of slots claim.
type claiming struct {
	running
	table, owner, addr string
	ranges             []slots.Range
	volume             string
	asJSON             bool
}

func newSlotsClaimCmd(a *app) *cobra.Command {
	x := &claiming{running: running{a: a, wait: forever, session: sessionNever, owns: true}}
	cmd := &cobra.Command{
		Use:   "claim TABLE RANGE... [flags] [-- CMD [ARG...]]",
		Short: "Own ranges of slots, while a command runs or until a signal",
		Long: `Wait until every RANGE is this owner's, run CMD, and release them when CMD and
everything that it started have ended: processes, signals and exit codes are
those of ` + "`tenure run`" + `. CMD finds the ranges with their epochs in TENURE_SLOTS,
and TENURE_EPOCH if it is one. It is all or nothing: if any range is lost, or
cannot be renewed in time, CMD is ended (76), before anybody else can own that
range.

Without CMD the ranges are owned until INT or TERM; each claim and loss is a
line, a lost range is claimed again, and the others stay. --volume lets a
restart go on under the same epochs, at once; it is not for a CMD, which may
outlive this process.

While it waits for some ranges it owns the others: two claims of each other's
ranges need a --wait.`,
		Example: `  tenure slots claim orders 0-255 --addr 10.0.0.7:8080 -- ./serve
  tenure slots claim orders 0-255 512-767 --owner host-7 --wait 0 -- ./migrate.sh`,
		Args: func(cmd *cobra.Command, args []string) error { return x.told(x.args(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			if err := x.complete(cmd, args); err != nil {
				return x.told(err)
			}
			if len(x.command) > 0 {
				return x.told(x.play(x.hold))
			}
			ctx, stop := signalled(cmd.Context()) // the first one releases, which is no failure
			defer stop()
			return x.serve(ctx)
		},
	}
	x.proves, x.marks = x.slotPairs, func(st *runStatus) { st.Table = x.table }
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return x.told(&usageError{err: err, path: cmd.CommandPath()})
	})
	f := cmd.Flags()
	f.Var(textFlag{&x.owner}, "owner", "the owner's `name`, the same after a restart (default the host's name)")
	f.Var(textFlag{&x.addr}, "addr", "where requests for the slots are sent: an `address` for routers and people")
	f.Var(durationFlag{&x.ttl, slotsTTL}, "ttl", "how long the ranges outlive their last renewal, 3s to 1h (default 30s)")
	f.Var(waitFlag{&x.wait}, "wait", "how long to wait for the ranges: 0, a duration, or forever")
	f.Var(durationFlag{&x.grace, notNegative}, "grace", "how long the tree of CMD may take from TERM to KILL (default 5s or a fifth of the TTL, whichever is less)")
	f.Var(textFlag{&x.statusFile}, "status-file", "a `file` that tells at the end of CMD who ended and why, as JSON")
	f.Var(textFlag{&x.volume}, "volume", "a local `folder`, whose lock lets a restart go on with its ranges; without CMD, on Linux")
	f.BoolVar(&x.asJSON, "json", false, "print claims and losses as JSON; without CMD")
	_ = cmd.MarkFlagDirname("volume")
	return cmd
}

// slotsTTL is what the TTL of ranges must keep.
func slotsTTL(d time.Duration) error {
	if d < slots.MinTTL || d > slots.MaxTTL || d%time.Millisecond != 0 {
		return fmt.Errorf("a TTL of ranges is whole milliseconds from %v to %v, not %v", slots.MinTTL, slots.MaxTTL, d)
	}
	return nil
}

// args wants a table, ranges, and perhaps "--" and a command.
func (x *claiming) args(cmd *cobra.Command, args []string) error {
	bad := func(text string) error { return &usageError{err: errors.New(text), path: cmd.CommandPath()} }
	names := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		names = args[:dash]
		switch {
		case dash == len(args):
			return bad(`there is no command behind "--"`)
		case args[dash] == "":
			return bad("the command's name is empty")
		}
	}
	switch len(names) {
	case 0:
		return bad("TABLE is missing")
	case 1:
		return bad("RANGE is missing: give at least one, such as 0-255")
	}
	return nil
}

// complete checks everything that can be checked before anything happens.
func (x *claiming) complete(cmd *cobra.Command, args []string) error {
	names := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		names, x.command = args[:dash], args[dash:]
	}
	if err := x.completeFlags(cmd); err != nil {
		return err
	}
	err := x.begin(cmd, func() error { return x.names(names) })
	if err != nil || len(x.command) == 0 {
		return err
	}
	if len(x.ranges) > mostRanges {
		return invalid("%d ranges do not fit the environment of a command: give at most %d, joined where they touch, or no command", len(x.ranges), mostRanges)
	}
	return x.checkFiles()
}

// completeFlags refuses flags that mean nothing together.
func (x *claiming) completeFlags(cmd *cobra.Command) error {
	bad := func(text string) error { return &usageError{err: errors.New(text), path: cmd.CommandPath()} }
	switch f := cmd.Flags(); {
	case len(x.command) > 0 && f.Changed("volume"):
		return bad("--volume is not for a command: its processes can outlive this one, and a restart that goes on at once would run beside them")
	case len(x.command) > 0 && x.asJSON:
		return bad("--json is not for a command, whose standard output this is: see --status-file")
	case len(x.command) == 0 && (f.Changed("grace") || f.Changed("status-file")):
		return bad(`--grace and --status-file are about a command: write "-- CMD" at the end`)
	}
	if x.ttl == 0 {
		x.ttl = slots.DefaultTTL
	}
	x.fitsGrace = x.fitSlotsGrace
	return nil
}

// names checks the table, the owner, the address and the ranges.
func (x *claiming) names(args []string) (err error) {
	if x.table, err = tableArg(args); err != nil {
		return err
	}
	for _, text := range args[1:] {
		r, err := rangeArg(text)
		if err != nil {
			return err
		}
		for _, o := range x.ranges {
			if o.Overlaps(r) {
				return invalid("the ranges %v and %v overlap", o, r)
			}
		}
		x.ranges = append(x.ranges, r)
	}
	slices.SortFunc(x.ranges, func(a, b slots.Range) int { return int(a.A) - int(b.A) })
	if x.owner == "" {
		if x.owner, err = os.Hostname(); err != nil {
			return invalid("this host has no name (%v): give --owner", err)
		}
	}
	return errors.Join(store.CheckName("owner", x.owner), lease.CheckWhy("address", x.addr))
}

// fitSlotsGrace chooses the grace, or refuses one that leaves no time to renew: after a
// renewal that was due and failed, another must fit before the command is told to end
// (DL5). A host renews every quarter of the TTL, and a call takes up to a sixth (SL5).
func (x *claiming) fitSlotsGrace(given bool) error {
	if !given {
		x.grace = min(5*time.Second, x.ttl/5)
	}
	x.reserve = proc.DefaultReserve(x.ttl)
	most := x.ttl - slotsMargin(x.ttl) - x.reserve - x.ttl/4 - 2*(x.ttl/6)
	if x.grace > most {
		return invalid("--grace %v does not fit a TTL of %v: give at most %v, or a longer --ttl", x.grace, x.ttl, most.Truncate(time.Millisecond))
	}
	return nil
}

// slotsMargin is what of the TTL nobody may act in: the rate of clocks, and scheduling.
func slotsMargin(ttl time.Duration) time.Duration { return lease.Timing{TTL: ttl}.Defaults().Margin }
