package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
)

func newStatusCmd(a *app) *cobra.Command {
	var asJSON bool
	var observe time.Duration
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show one lease: who holds it, since when, and what happens next",
		Long: `Show one lease. NAME is $TENURE_LEASE by default.

A record that says "held" does not prove that its holder lives. With --observe
the command watches for a renewal, up to that long, and says what it saw.`,
		Example: `  tenure status deploy/prod
  tenure status deploy/prod --observe 20s
  tenure status deploy/prod --json | jq .state`,
		Args:              args(0, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			name, err := a.leaseName(cmd, args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error {
				s, seen, err := a.look(ctx, c, name, observe)
				if err != nil {
					return err
				}
				if asJSON {
					return a.json(newStatusJSON(c.Namespace(), s, seen))
				}
				a.printStatus(c.Namespace(), s, seen)
				return nil
			})
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(durationFlag{&observe, positive}, "observe", "watch for a renewal for up to this long")
	return cmd
}

// observed is what this command saw of a held lease with its own eyes.
type observed struct {
	total  time.Duration // how long it watched
	silent time.Duration // how long the record did not change, up to the end
	alive  bool          // a renewal arrived
}

// look reads the lease once, and then until limit has passed, the holder has
// renewed, or another state is reached. Durations are by the boot clock.
func (a *app) look(ctx context.Context, c *tenure.Client, name string, limit time.Duration) (tenure.Status, *observed, error) {
	s, err := c.Status(ctx, name)
	if err != nil || limit == 0 || s.State != tenure.Held {
		return s, nil, err
	}
	from := a.clk.Boot()
	pause := min(max(s.TTL/50, 10*time.Millisecond), time.Second)
	for {
		passed := a.clk.Boot() - from
		if passed >= limit {
			return s, &observed{total: passed, silent: passed}, nil
		}
		if !clock.Sleep(a.clk, min(pause, limit-passed), ctx.Done()) {
			return s, nil, context.Cause(ctx)
		}
		now, err := c.Status(ctx, name)
		if err != nil {
			return s, nil, err
		}
		same := now.State == tenure.Held && now.Token == s.Token && now.Owner == s.Owner
		if !same || now.Renewal != s.Renewal {
			return now, &observed{total: a.clk.Boot() - from, alive: same}, nil
		}
	}
}

func (a *app) printStatus(namespace string, s tenure.Status, seen *observed) {
	var t table
	t.row("lease", showName(s.Name))
	t.row("namespace", showName(namespace))
	t.row("state", stateLine(s))
	if s.State != tenure.Absent {
		t.row("token", tokenLine(s))
	}
	if s.State == tenure.Held {
		t.row("holder", fmt.Sprintf("%s (owner %s)", showText(s.Label), s.Owner))
		t.row("since", since(s.Since, "by the holder's clock"))
		t.row("ttl", fmt.Sprintf("%v, renewed %d times", s.TTL, s.Renewal))
	}
	if s.State == tenure.Released {
		t.row("ended", endedLine(s))
		t.row("since", since(s.Since, "by the clock of whoever wrote it"))
	}
	if s.Note != "" {
		t.row("note", showText(s.Note))
	}
	if seen != nil {
		t.row("observed", seen.String())
	}
	t.row("next", nextLine(s))
	t.print(a.out)
	if s.State == tenure.Held && seen == nil {
		a.printf("\nThe record says held; that does not prove that the holder lives (--observe watches for it).\n")
	}
}

func (o *observed) String() string {
	switch {
	case o.alive:
		return fmt.Sprintf("renewed after %s: the holder is alive", age(o.total))
	case o.silent > 0:
		return fmt.Sprintf("silent for %s: no renewal while this command watched", age(o.silent))
	}
	return fmt.Sprintf("changed hands after %s", age(o.total))
}

func stateLine(s tenure.Status) string {
	if s.State == tenure.Absent {
		return "absent: never used here, or removed by retention"
	}
	return string(s.State)
}

func tokenLine(s tenure.Status) string {
	if s.Counter > s.Token {
		return fmt.Sprintf("%d (the next one is above %d)", s.Token, s.Counter)
	}
	return fmt.Sprint(s.Token)
}

func endedLine(s tenure.Status) string {
	line := s.EndedHow
	if s.EndedBy != "" {
		line += " by " + showText(s.EndedBy)
	}
	if s.EndedWhy != "" {
		line += ": " + showText(s.EndedWhy)
	}
	return line
}

// nextLine is what happens next.
func nextLine(s tenure.Status) string {
	switch {
	case s.State == tenure.Absent:
		return "free: the first to acquire it gets it at once"
	case s.State == tenure.Held && s.Kind == "session":
		return "it is free when its holder releases it, or when its session is certainly over"
	case s.State == tenure.Held && s.Proof != "":
		return fmt.Sprintf("a waiter takes it over as soon as the holder's process is certainly gone, else after seeing it silent for %v", s.TTL)
	case s.State == tenure.Held:
		return fmt.Sprintf("a waiter takes it over after seeing it silent for %v", s.TTL)
	case s.FreeAfter > 0 && s.Successor != "":
		return fmt.Sprintf("%s gets it at once; everyone else first watches this record for %v", showName(s.Successor), s.FreeAfter)
	case s.FreeAfter > 0:
		return fmt.Sprintf("not free yet: whoever wants it first watches this record for %v, in case the holder lives", s.FreeAfter)
	case s.EndedHow == "vouched":
		return fmt.Sprintf("free at once: that the last holder is gone rests on the word of %s", showText(s.EndedBy))
	}
	return "free: the first to acquire it gets it at once"
}

// since prints an instant with its distance from now. Both are wall clocks, of
// two machines perhaps: for people only.
func since(t time.Time, whose string) string {
	return fmt.Sprintf("%s (%s ago, %s)", stamp(t), age(time.Since(t)), whose)
}

// showText prints a text that somebody else wrote.
func showText(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}
