package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
)

// guardReserve is the time kept for a tree to be gone after KILL, and
// guardEndLimit how long one that was killed from outside may take to be gone.
const (
	guardReserve  = 500 * time.Millisecond
	guardEndLimit = 15 * time.Second
)

// guarded is one run of the command guard.
type guarded struct {
	clk              clock.Clock
	path             string
	namespace, lease string
	token            uint64
	wait, grace      time.Duration
	command          []string
}

func newGuardCmd(a *app) *cobra.Command {
	g := guarded{clk: a.clk, wait: 10 * time.Second, grace: 5 * time.Second}
	cmd := &cobra.Command{
		Use:   "guard PATH [--lease NAME] [--token N] -- CMD [ARG...]",
		Short: "Run a command on a path only if no higher token was seen there",
		Long: `Run CMD only if no higher token was seen at PATH, and hold PATH while it runs.
The highest token seen is kept durably beside PATH. A lower one is refused, with
exit code 79; an equal one waits for its turn. CMD's exit status is returned.

A higher token that comes later ends CMD (TERM, and KILL after --grace) and goes
on when it is gone. If that takes longer than --wait, it ends the other side's
tenure process as well.

In a command that runs under a lease, lease and token are its own by default.
PATH must be on a local disk; programs that use it without a guard are not
stopped.`,
		Example: `  tenure guard /srv/data -- rsync -a /srv/data/ backup:/srv/data
  tenure guard /srv/data --lease backup --token 7 --wait 30s -- ./import.sh`,
		Args: guardArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			g.path, g.command = args[0], args[1:]
			if err := g.complete(a, cmd); err != nil {
				return err
			}
			report, err := proc.Main(proc.Options{
				Clock: a.clk, Grace: g.grace, Reserve: guardReserve, Stderr: a.stderr, LostCode: exitFenced, FailCode: exitUnavailable,
			}, g.lead)
			a.status = report.Code
			return err
		},
	}
	f := cmd.Flags()
	f.Var(textFlag{&g.lease}, "lease", "the lease whose tokens PATH is guarded by (default $TENURE_LEASE)")
	f.Var(numberFlag{&g.token}, "token", "this holder's token (default $TENURE_TOKEN under that lease)")
	f.Var(durationFlag{&g.wait, notNegative}, "wait", "how long to wait for who is inside")
	f.Var(durationFlag{&g.grace, notNegative}, "grace", "how long CMD may take from TERM to KILL, if it is superseded")
	return cmd
}

// guardArgs wants PATH, then "--", then a command.
func guardArgs(cmd *cobra.Command, args []string) error {
	bad := func(text string) error { return &usageError{err: errors.New(text), path: cmd.CommandPath()} }
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return bad("PATH is missing")
	case dash < 0:
		return bad(`write "--" before the command`)
	case dash > 1:
		return bad(fmt.Sprintf("%q is one argument too many before the \"--\"", args[1]))
	case len(args) == dash:
		return bad(`there is no command after the "--"`)
	}
	return nil
}

func (g *guarded) complete(a *app, cmd *cobra.Command) (err error) {
	var names []string
	if g.lease != "" {
		names = []string{g.lease}
	}
	if g.lease == "" && a.env.get(envLease) == "" {
		return &usageError{err: fmt.Errorf("--lease is missing, and %s is not set", envLease), path: cmd.CommandPath()}
	}
	if g.lease, err = a.leaseName(cmd, names); err != nil {
		return err
	}
	if g.namespace, err = a.namespace(); err != nil {
		return err
	}
	return a.proof(cmd, g.lease, &g.token, nil)
}

// lead gets inside, runs the command there, and leaves. It runs in the process
// that owns the command's tree.
func (g *guarded) lead(s *proc.Supervisor) proc.Outcome {
	held, err := g.enter(s.Context())
	if err != nil {
		return outcomeOf(err)
	}
	defer held.Release()
	lock, err := held.File()
	if err == nil {
		err = inheritable(lock)
	}
	if err != nil {
		return outcomeOf(err)
	}
	defer lock.Close()
	res := s.Run(proc.Command{Args: g.command, Env: os.Environ()}, &guardHold{held: held, until: g.clk.Boot() + 1000*24*time.Hour})
	return guardOutcome(res)
}

// enter gets inside, and ends a holder of a lower token that does not leave.
func (g *guarded) enter(ctx context.Context) (*fileguard.Held, error) {
	fg, err := fileguard.Open(g.path, g.namespace, g.lease)
	if err != nil {
		return nil, err
	}
	held, err := hold(ctx, fg, g.token, g.wait)
	var busy *fileguard.BusyError
	if !errors.As(err, &busy) || ctx.Err() != nil || busy.Holder.Token >= g.token || !busy.Holder.Running() {
		return held, err
	}
	p, findErr := os.FindProcess(busy.Holder.PID)
	if findErr == nil {
		findErr = p.Kill()
	}
	if findErr != nil && !errors.Is(findErr, os.ErrProcessDone) {
		return nil, fmt.Errorf("%w; it cannot be ended: %w", err, findErr)
	}
	return hold(ctx, fg, g.token, guardEndLimit)
}

func hold(ctx context.Context, g *fileguard.Guard, token uint64, limit time.Duration) (*fileguard.Held, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("waited for %v", limit))
	defer cancel()
	return g.Hold(ctx, token)
}

// guardHold is a hold that lasts until a higher token comes. It has no deadline:
// the other side waits until the tree is gone, since the lock is inherited by it.
type guardHold struct {
	held  *fileguard.Held
	until time.Duration
}

func (h *guardHold) Deadline() (time.Duration, bool) { return h.until, true }

func (h *guardHold) Done() <-chan struct{} { return h.held.Context().Done() }

func (h *guardHold) Err() error { return context.Cause(h.held.Context()) }

// guardOutcome is the verdict on a run that got inside.
func guardOutcome(res proc.Result) proc.Outcome {
	out := proc.Outcome{Code: res.Code}
	switch {
	case res.Lost != nil:
		out = outcomeOf(&commandEndedError{"the command was ended", res.Lost})
	case res.Err != nil:
		out.Message = describe(res.Err)
	}
	for _, s := range res.Survivors {
		out.Message += fmt.Sprintf("\ntenure: still there, and still inside: %s", printable(s.String()))
	}
	return out
}

// outcomeOf is the verdict on err.
func outcomeOf(err error) proc.Outcome {
	var s *proc.SignalError
	if errors.As(err, &s) {
		return proc.Outcome{Code: s.Code(), Message: describe(err)}
	}
	return proc.Outcome{Code: exitCode(err), Message: describe(err)}
}

var _ proc.Hold = (*guardHold)(nil)
