package main

import (
	"context"
	"errors"
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
the command watches for a renewal, up to that long, and says what it saw. A
session's lease is renewed by its session's one record: that is shown, and
watched.`,
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
				under, trouble := newSessions(c).of(ctx, s)
				if asJSON {
					return errors.Join(a.json(newStatusJSON(c.Namespace(), s, seen, under)), trouble)
				}
				a.printStatus(c.Namespace(), s, seen, under)
				return trouble
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
	s, sign, err := lookOnce(ctx, c, name, limit > 0)
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
		now, latest, err := lookOnce(ctx, c, name, true)
		if err != nil {
			return s, nil, err
		}
		same := now.State == tenure.Held && now.Token == s.Token && now.Owner == s.Owner
		if !same || latest != sign {
			return now, &observed{total: a.clk.Boot() - from, alive: same && latest > sign}, nil
		}
	}
}

// lookOnce reads the lease and, if signs are wanted, how many signs of life its
// holder gave: renewals of the lease, or of the session that it rests on. It is 0
// for a session that its node's record does not name any more.
func lookOnce(ctx context.Context, c *tenure.Client, name string, signs bool) (tenure.Status, uint64, error) {
	s, err := c.Status(ctx, name)
	if err != nil || !signs || s.State != tenure.Held || s.Kind != kindSession {
		return s, s.Renewal, err
	}
	node, err := c.Node(ctx, s.Label)
	if err != nil || !ownedBy(node, s.Owner, s.Term) {
		return s, 0, err
	}
	return s, node.Sequence, nil
}

func (a *app) printStatus(namespace string, s tenure.Status, seen *observed, under *session) {
	var t table
	t.row("lease", showName(s.Name))
	t.row("namespace", showName(namespace))
	t.row("state", stateLine(s))
	if s.State != tenure.Absent {
		t.row("token", tokenLine(s))
	}
	if s.State == tenure.Held && under != nil {
		t.row("holder", fmt.Sprintf("a session of node %s (incarnation %s, term %d)", showName(s.Label), s.Owner, s.Term))
		t.row("session", under.String())
		t.row("since", since(s.Since, "by the holder's clock"))
		t.row("ttl", fmt.Sprintf("%v, its session's", s.TTL))
	} else if s.State == tenure.Held {
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
	if seen != nil && seen.silent == 0 && under != nil && under.state == sessionOver {
		t.row("observed", fmt.Sprintf("its session ended after %s", age(seen.total)))
	} else if seen != nil {
		t.row("observed", seen.String())
	}
	if under != nil {
		t.row("next", under.next())
	} else {
		t.row("next", nextLine(s))
	}
	t.print(a.out)
	if s.State == tenure.Held && seen == nil && (under == nil || under.state != sessionOver) {
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
	return howLine(s.EndedHow, s.EndedBy, s.EndedWhy)
}

// nextLine is what happens next.
func nextLine(s tenure.Status) string {
	switch {
	case s.State == tenure.Absent:
		return "free: the first to acquire it gets it at once"
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
