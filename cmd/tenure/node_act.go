package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newNodeFenceCmd(a *app) *cobra.Command {
	var asJSON bool
	var incarnation string
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "fence NAME --incarnation ID [--within DUR]",
		Short: "Make durable that one exact start of a process is over",
		Long: `Make durable that this incarnation of the node is over, and print the proof of
that, a certificate. If it left or has a successor, that is at once; else its
record is watched for its TTL, and taken over if there was no sign of life. The
node's next process joins at once then, and its leases can be taken.

It is for a process that is dead. One that renews is left alone (75: it is
alive); one that the store knows nothing of must be taken for alive (76);
without the time to watch nothing is done (64). To end one that may live, see
` + "`tenure node force`" + `.`,
		Example: `  tenure node fence web-1 --incarnation 0f8fad5b-d9cb-469f-a165-70867728950e
  tenure node fence web-1 --incarnation "$id" --within 2m --json > evidence.json`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err := firstErr(err, required(cmd, "incarnation")); err != nil {
				return err
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.fence(ctx, c, node, incarnation, within, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	addIncarnationFlag(cmd, &incarnation, "the start of a process that is over")
	addWithinFlag(cmd, &within)
	return cmd
}

func (a *app) fence(ctx context.Context, c *tenure.Client, node, incarnation string, within time.Duration, asJSON bool) error {
	limit, err := a.within(ctx, c, node, incarnation, within)
	if err != nil {
		return err
	}
	cert, err := c.FenceIncarnation(ctx, node, incarnation, limit)
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(newCertificateJSON(c.Namespace(), cert))
	}
	a.printCertificate(c.Namespace(), cert)
	return nil
}

func newNodeForceCmd(a *app) *cobra.Command {
	var p tenure.Proof
	var o tenure.StealOptions
	cmd := &cobra.Command{
		Use:   "force NAME --incarnation ID --term N --reason TEXT [--vouch]",
		Short: "End the ownership of one process, whether or not it lives",
		Long: `End the ownership of exactly this process, whose incarnation and term
` + "`tenure node status`" + ` shows; another one is not touched (76). Its next renewal
fails, and all its leases end with it. The next process of this name, and
whoever takes one of its leases, first waits its TTL: it may live until then.

With --vouch you give your word that it is gone: the next process joins at
once, and if you are wrong, two act at the same time. Whoever takes one of its
leases waits all the same. Reason and name are kept in the certificate.`,
		Example: `  tenure node force web-1 --incarnation "$id" --term 3 --reason "it hangs"
  tenure node force web-1 --incarnation "$id" --term 3 --reason "power is off" --vouch`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err := firstErr(err, required(cmd, "incarnation", "term", "reason")); err != nil {
				return err
			}
			p.Node = node
			if o.By == "" {
				o.By = operator(a.env)
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.force(ctx, c, p, o) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	addIncarnationFlag(cmd, &p.Incarnation, "the start of a process whose ownership is meant to end")
	f := cmd.Flags()
	f.Var(numberFlag{&p.Term}, "term", "its term")
	f.Var(textFlag{&o.Reason}, "reason", "why, for the certificate")
	f.Var(textFlag{&o.By}, "by", "who, for the certificate (default user@host)")
	f.BoolVar(&o.Vouch, "vouch", false, "give your word that the process is gone, so that the next one joins at once")
	return cmd
}

func (a *app) force(ctx context.Context, c *tenure.Client, p tenure.Proof, o tenure.StealOptions) error {
	before, err := c.Node(ctx, p.Node)
	if err != nil {
		return err
	}
	err = c.ForceNode(ctx, p, o)
	if errors.Is(err, tenure.ErrConflict) || errors.Is(err, tenure.ErrNotFound) {
		why := plainCause(err)
		for _, again := range []string{", not incarnation %s of term %d", ", not %s of term %d"} { // the error names it already
			why = strings.TrimSuffix(why, fmt.Sprintf(again, p.Incarnation, p.Term))
		}
		return &notOwnerError{p, why + "; nothing was changed"}
	}
	if err != nil {
		return err
	}
	wait := max(before.TTL, before.FreeAfter)
	a.printf("ended the ownership of node %s by incarnation %s (term %d), for %s\n", showName(p.Node), p.Incarnation, p.Term, showText(o.By))
	a.printf("its next renewal fails, and its leases end with it: after %v at the latest, if it lives\n", wait)
	if o.Vouch {
		a.printf("the next process joins at once: exclusivity now rests on your word that this one is gone\n")
		a.printf("whoever takes one of its leases first waits %v all the same\n", wait)
		return nil
	}
	a.printf("the next process joins after having watched the record for %v, and whoever takes one of its leases waits as long\n", wait)
	return nil
}

// notOwnerError says in plain words that a process is not the owner of its node's
// name.
type notOwnerError struct {
	proof tenure.Proof
	why   string
}

func (e *notOwnerError) Error() string {
	term := ""
	if e.proof.Term != 0 {
		term = fmt.Sprintf(" of term %d", e.proof.Term)
	}
	return fmt.Sprintf("node %q: incarnation %s%s is not the owner: %s", e.proof.Node, e.proof.Incarnation, term, e.why)
}

func (e *notOwnerError) Unwrap() error { return tenure.ErrNotCurrent }

func newNodeRetireCmd(a *app) *cobra.Command {
	var within time.Duration
	cmd := &cobra.Command{
		Use:   "retire NAME [--within DUR]",
		Short: "Give up a node's name that is not used any more",
		Long: `Leave a record that nobody owns for a node that is not to come back: its last
process is fenced as ` + "`tenure node fence`" + ` does it, with the same exit codes. One
that renews is alive, and is left alone (75).

The record and its counter stay for good, so that a process that joins under
this name after all gets a higher term. Old certificates are folded away by
` + "`tenure store prune`" + `.`,
		Example: `  tenure node retire web-1
  tenure node retire web-1 --within 2m`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err != nil {
				return err
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.retire(ctx, c, node, within) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	addWithinFlag(cmd, &within)
	return cmd
}

func (a *app) retire(ctx context.Context, c *tenure.Client, node string, within time.Duration) error {
	limit, err := a.within(ctx, c, node, "", within)
	if err != nil {
		return err
	}
	if err := c.RetireNode(ctx, node, limit); err != nil {
		return err
	}
	s, err := c.Node(ctx, node)
	if err != nil {
		return fmt.Errorf("the node is retired, but its record cannot be read back: %w", err)
	}
	a.printf("retired node %s: no process owns its name, and the next term is above %d\n", showName(node), s.Counter)
	if s.FreeAfter > 0 {
		a.printf("its last owner was ended by force: a process that joins all the same first watches the record for %v\n", s.FreeAfter)
	}
	return nil
}
