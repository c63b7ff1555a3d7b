package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/store"
)

func newLeaderCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Lead an authority while a command runs, and see who leads",
		Long: `An authority has one leader at a time and a log of its decisions, which admits
only what the present leader decides (see "tenure authority").`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newLeaderElectCmd(a), newLeaderLsCmd(a), newLeaderStatusCmd(a), newLeaderStepDownCmd(a))
	return cmd
}

// authorityArg is the authority that a command names.
func authorityArg(args []string) (string, error) {
	return args[0], store.CheckName("authority name", args[0])
}

func newLeaderStepDownCmd(a *app) *cobra.Command {
	var o authority.StealOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "step-down NAME --token N --reason TEXT [--vouch]",
		Short: "End the leadership of one token, whether or not its leader lives",
		Long: `End the leadership of exactly this token (` + "`tenure leader status`" + ` shows it);
another one is not touched, with exit code 76. From outside its process that is
a steal: the leader is not asked. Its next write is refused, and it stops then.
Everyone first watches the authority for its TTL before the next election,
because the leader may live. A leader under ` + "`tenure leader elect`" + ` ends with 76
and does not stand again: whatever started it has to start it anew.

A command under ` + "`tenure leader elect`" + ` does not end its own leadership so: it
exits, and the next candidate leads at once.

With --vouch you give your word that the leader is gone: the next one leads at
once, and if you are wrong, two act at the same time. The log refuses the
decisions of the old one in any case.`,
		Example:           `  tenure leader step-down scheduler --token 7 --reason "node-3 burnt down"`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := required(cmd, "token", "reason"); err != nil {
				return err
			}
			name, err := authorityArg(args)
			if err != nil {
				return err
			}
			if err := a.notOwn(name, o.Token); err != nil {
				return err
			}
			if o.By == "" {
				o.By = operator(a.env)
			}
			return a.withExisting(ctx, func(c *tenure.Client) error { return a.stepDown(ctx, c, name, o, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	f := cmd.Flags()
	f.Var(numberFlag{&o.Token}, "token", "the token whose leadership is meant to end")
	f.Var(textFlag{&o.Why}, "reason", "why, for the history")
	f.Var(textFlag{&o.By}, "by", "who, for the history (default user@host)")
	f.BoolVar(&o.Vouch, "vouch", false, "give your word that the leader is gone, so that nobody waits")
	return cmd
}

// notOwn refuses to end, by force, the leadership that this command runs under.
func (a *app) notOwn(name string, token uint64) error {
	own, err := a.under(envLeader, name)
	if err != nil || !own || a.env.get(envToken) != fmt.Sprint(token) {
		return err
	}
	return invalid("this command runs under that very leadership: end the command that `tenure leader elect` runs, and the next candidate leads at once")
}

func (a *app) stepDown(ctx context.Context, c *tenure.Client, name string, o authority.StealOptions, asJSON bool) error {
	s, err := authority.Steal(ctx, c, name, o)
	if errors.Is(err, tenure.ErrConflict) || errors.Is(err, tenure.ErrNotFound) {
		return notLeading(ctx, c, name, o.Token, err)
	}
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(newLeaderJSON(c.Namespace(), s))
	}
	a.printf("ended the leadership of token %d of %s, for %s: a steal, its leader was not asked\n", o.Token, showName(name), showText(o.By))
	if o.Vouch {
		a.printf("the next candidate leads at once: that nobody else acts rests on your word that the leader is gone\n")
		return nil
	}
	a.printf("nobody leads before having watched it for %v: the leader may live until then\n", s.TTL())
	return nil
}

// notLeadingError says that another leadership than the one that was meant stands, or
// none.
type notLeadingError struct {
	text string
	next string // what to do
}

func (e *notLeadingError) Error() string { return e.text }

func (e *notLeadingError) Unwrap() error { return tenure.ErrNotCurrent }

// notLeading is the error for a step-down of token that was refused with err: who leads
// instead, as far as the store tells.
func notLeading(ctx context.Context, c *tenure.Client, name string, token uint64, err error) error {
	why, next := plainCause(err), "see that the store, the namespace and the name are the right ones: `tenure leader ls`"
	if s, failed := snapshotOf(ctx, c, name); failed == nil {
		next = "nobody leads: there is nothing to end"
		if p, led := s.Leader(); led {
			why = fmt.Sprintf("node %q (incarnation %s, term %d) leads with token %d since %s", p.Node, p.Incarnation, p.Term, p.Token, stamp(s.Since()))
			next = fmt.Sprintf("if that one is meant: --token %d", p.Token)
		}
	}
	return &notLeadingError{
		text: fmt.Sprintf("authority %q: %v: %d: %s; nothing was changed", name, tenure.ErrNotCurrent, token, why),
		next: next,
	}
}
