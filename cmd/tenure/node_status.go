package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
)

func newNodeStatusCmd(a *app) *cobra.Command {
	var asJSON, observe bool
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show one node: which process owns its name, and what happens next",
		Long: `Show one node. A record that says "held" does not prove that its owner lives,
and an expiry that has passed proves nothing: it was written by the owner's
clock and is read by this one's, which may differ, and a renewal may be on its
way.

With --observe the command watches for the owner's next sign of life, on this
machine's own clock, for the record's whole TTL and 1% more. Exit code 0 if it
came or if nobody owns the name, 76 if the owner was silent: its own deadline
has passed by then.`,
		Example: `  tenure node status web-1
  tenure node status web-1 --observe
  tenure node status web-1 --json | jq -r .incarnation`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err != nil {
				return err
			}
			return a.withReader(ctx, func(c *tenure.Client) error { return a.nodeStatus(ctx, c, node, observe, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().BoolVar(&observe, "observe", false, "watch for a sign of life for one TTL, and say whether it came")
	return cmd
}

func (a *app) nodeStatus(ctx context.Context, c *tenure.Client, node string, observe, asJSON bool) error {
	s, err := c.Node(ctx, node)
	if err != nil {
		return err
	}
	var seen *observed
	if observe && s.State == tenure.Held && !s.Revoker {
		if s, seen, err = a.observeNode(ctx, c, s); err != nil {
			return err
		}
	}
	if asJSON {
		err = a.json(newNodeJSON(c.Namespace(), s, seen))
	} else {
		a.printNode(c.Namespace(), s, seen)
	}
	if err == nil && seen != nil && seen.silent > 0 {
		err = &silentError{node: node, incarnation: s.Incarnation, seen: *seen}
	}
	return err
}

// observeNode watches the owner that s names until it gave a sign of life, another
// one took its place, or it was silent for its TTL: silence counts from a response
// to the sending of a later read.
func (a *app) observeNode(ctx context.Context, c *tenure.Client, s tenure.NodeStatus) (tenure.NodeStatus, *observed, error) {
	from, limit := a.clk.Boot(), nodeWait(s)
	pause := min(max(s.TTL/50, 10*time.Millisecond), time.Second)
	for {
		if !clock.Sleep(a.clk, max(0, min(pause, limit-(a.clk.Boot()-from))), ctx.Done()) {
			return s, nil, context.Cause(ctx)
		}
		passed := a.clk.Boot() - from
		now, err := c.Node(ctx, s.Node)
		if err != nil {
			return s, nil, err
		}
		same := ownedBy(now, s.Incarnation, s.Term)
		switch {
		case !same || now.Sequence != s.Sequence:
			return now, &observed{total: a.clk.Boot() - from, alive: same}, nil
		case passed >= limit:
			return now, &observed{total: passed, silent: passed}, nil
		}
	}
}

// silentError says that an owner gave no sign of life for its whole TTL.
type silentError struct {
	node, incarnation string
	seen              observed
}

func (e *silentError) Error() string {
	return fmt.Sprintf("node %q: incarnation %s was silent for %s, its whole TTL: its own deadline has passed", e.node, e.incarnation, age(e.seen.silent))
}

func (e *silentError) Unwrap() error { return tenure.ErrNotCurrent }

func (a *app) printNode(namespace string, s tenure.NodeStatus, seen *observed) {
	var t table
	t.row("node", showName(s.Node))
	t.row("namespace", showName(namespace))
	t.row("state", nodeStateLine(s))
	if s.State != tenure.Absent {
		t.row("term", nodeTermLine(s))
		t.row("incarnation", printable(s.Incarnation))
	}
	if s.State == tenure.Released {
		t.row("ended", howLine(s.EndedHow, s.EndedBy, s.EndedWhy))
	}
	if s.State == tenure.Held && !s.Revoker {
		t.row("since", since(s.Since, "by the owner's clock"))
		t.row("ttl", s.TTL.String())
	} else if s.State != tenure.Absent {
		t.row("since", since(s.Since, "by the clock of whoever wrote it"))
	}
	if s.State != tenure.Absent {
		t.row("sequence", fmt.Sprintf("%d: signs of life of all its owners", s.Sequence))
	}
	if !s.Expires.IsZero() && !s.Revoker {
		t.row("expires", stamp(s.Expires)+" unless renewed, by its own clock: no proof of anything")
	}
	if s.Note != "" {
		t.row("note", showText(s.Note))
	}
	if s.Unsealed {
		t.row("certificate", "carried by this record yet: whoever takes the name next seals it first")
	}
	if len(s.Revocations) > 0 {
		var names []string
		for _, v := range s.Revocations {
			names = append(names, fmt.Sprintf("%s (token %d)", showName(v.Lease), v.Token))
		}
		t.row("taken", strings.Join(names, ", ")+": its session learns that by its next renewal")
	}
	if seen != nil {
		t.row("observed", nodeSeenLine(s, seen))
	}
	t.row("next", nodeNextLine(s))
	t.print(a.out)
	if s.State == tenure.Held && !s.Revoker && seen == nil {
		a.printf("\nThe record says held; that does not prove that its owner lives (--observe watches for it).\n")
	}
}

func nodeStateLine(s tenure.NodeStatus) string {
	switch {
	case s.State == tenure.Absent:
		return "absent: no process ever joined under this name here"
	case s.Revoker:
		return stateRevoker + ": the name was taken over only to end its owner, no process has it"
	}
	return string(s.State)
}

func nodeTermLine(s tenure.NodeStatus) string {
	if s.Counter > s.Term {
		return fmt.Sprintf("%d (the next one is above %d)", s.Term, s.Counter)
	}
	return fmt.Sprint(s.Term)
}

// howLine is an end in words.
func howLine(how, by, why string) string {
	if by != "" {
		how += " by " + showText(by)
	}
	if why != "" {
		how += ": " + showText(why)
	}
	return how
}

func nodeSeenLine(s tenure.NodeStatus, o *observed) string {
	switch {
	case o.alive:
		return fmt.Sprintf("renewed after %s: its owner is alive", age(o.total))
	case o.silent > 0:
		return fmt.Sprintf("silent for %s, its whole TTL: its owner's deadline has passed", age(o.silent))
	case s.State == tenure.Held && !s.Revoker:
		return fmt.Sprintf("changed hands after %s: another process joined", age(o.total))
	}
	return fmt.Sprintf("its owner ended after %s", age(o.total))
}

// nodeNextLine is what the next process of this name meets.
func nodeNextLine(s tenure.NodeStatus) string {
	switch {
	case s.State == tenure.Held && !s.Revoker && s.Counter > s.Term:
		return "its session ends at its next renewal, for a jump raised the counter: it has to join again"
	case s.State == tenure.Held && !s.Revoker && s.Proof != "":
		return fmt.Sprintf("another process joins as soon as this one is certainly gone, else after seeing it silent for %v", s.TTL)
	case s.State == tenure.Held && !s.Revoker:
		return fmt.Sprintf("another process joins after seeing it silent for %v", s.TTL)
	case s.FreeAfter > 0:
		return fmt.Sprintf("not free yet: the next process first watches this record for %v, in case the last owner lives", s.FreeAfter)
	case s.EndedHow == "vouched":
		return fmt.Sprintf("free at once: that the last owner is gone rests on the word of %s", showText(s.EndedBy))
	}
	return "free: the next process joins at once"
}
