package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
)

func newLedgerShowCmd(a *app) *cobra.Command {
	var asJSON, output bool
	cmd := &cobra.Command{
		Use:   "show JOB RUN",
		Short: "Show one run: its attempts, and what they left",
		Long: `Show everything that the ledger knows of one run. RUN is its id, the instant of
an occurrence, or the name that --run-id gave.`,
		Example: `  tenure ledger show backup 2026-03-01T02:30:00Z
  tenure ledger show migrate v42 --output`,
	}
	a.aboutRun(cmd, func(ctx context.Context, c *tenure.Client, l *ledger.Ledger, run ledger.Run) error {
		r, err := known(ctx, l, run)
		switch {
		case err != nil:
			return err
		case asJSON:
			return a.json(newRunJSON(c.Namespace(), l.Agent(), r))
		case output:
			return a.printOutput(run, r)
		}
		a.printRun(c.Namespace(), l.Agent(), r)
		return nil
	})
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&output, "output", false, "print only the output that the newest attempt left")
	cmd.MarkFlagsMutuallyExclusive("json", "output")
	return cmd
}

// printOutput prints the output of the newest attempt that left any, byte for byte.
func (a *app) printOutput(run ledger.Run, r ledger.RunInfo) error {
	if len(r.Saved) == 0 {
		return invalid("%s: no attempt left a result, or it was removed", runText(run))
	}
	last := r.Saved[len(r.Saved)-1]
	_, err := a.out.Write(last.Output)
	if last.Cut() {
		a.warn("only the first %d bytes were kept, of %d", len(last.Output), last.OutputBytes)
	}
	return err
}

func (a *app) printRun(namespace, job string, r ledger.RunInfo) {
	var t table
	t.row("job", showName(job))
	t.row("namespace", showName(namespace))
	t.row("run", r.ID.String())
	t.row("occurrence", occurrenceText(r))
	state := runState(r)
	if r.Committed && state != stateCommitted {
		state += "; committed, too"
	}
	if r.Repeated {
		state += "; may have happened more than once"
	}
	t.row("state", state)
	for _, at := range r.Attempts {
		t.row("attempt "+fmt.Sprint(at.Attempt), attemptLine(newAttemptJSON(at, r.Saved)))
	}
	t.print(a.out)
}

// attemptLine tells of one attempt.
func attemptLine(j attemptJSON) string {
	line := j.State + " at site " + showName(j.Site)
	if j.Holder != "" {
		line += fmt.Sprintf(", holder %s, epoch %d", printable(j.Holder), j.Epoch)
	}
	if j.Since != nil {
		line += ", since " + stamp(*j.Since)
	}
	if j.Abandoned != "" {
		line += ", given up by " + printable(j.Abandoned)
	}
	if r := j.Result; r != nil {
		line += fmt.Sprintf(", exit code %d", r.Exit)
		if r.Started != nil && r.Ended != nil {
			line += fmt.Sprintf(", %s to %s", stamp(*r.Started), r.Ended.UTC().Format(time.RFC3339))
		}
		if r.Why != "" {
			line += ": " + printable(r.Why)
		}
		if r.OutputBytes > 0 {
			line += fmt.Sprintf(", %d bytes of output", r.OutputBytes)
		}
	}
	return line
}
