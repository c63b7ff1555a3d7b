package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

func newStealCmd(a *app) *cobra.Command {
	var o tenure.StealOptions
	cmd := &cobra.Command{
		Use:   "steal NAME --token N --reason TEXT [--vouch]",
		Short: "End the tenure of one token, whether or not its holder lives",
		Long: `End the tenure of exactly this token (` + "`tenure status`" + ` shows it); another one is
not touched, with exit code 76. The lease is then nobody's, and everyone first
watches it for its old TTL before the next acquire, because the holder may live.
The session of a session's lease is told first, and ends that lease at its next
renewal; its other leases stay.

With --vouch you give your word that the holder is gone: the next acquire is at
once, and if you are wrong, two act at the same time. Reason and name are kept
in the history.`,
		Example: `  tenure steal deploy/prod --token 7 --reason "node-3 burnt down"
  tenure steal deploy/prod --token 7 --reason "power is off, I looked" --vouch`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := required(cmd, "token", "reason"); err != nil {
				return err
			}
			if err := store.CheckName("lease name", args[0]); err != nil {
				return err
			}
			if o.By == "" {
				o.By = operator(a.env)
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.steal(ctx, c, args[0], o) })
		}),
	}
	addTimeoutFlag(cmd, timeoutUsage)
	f := cmd.Flags()
	f.Var(numberFlag{&o.Token}, "token", "the token whose tenure is meant to end")
	f.Var(textFlag{&o.Reason}, "reason", "why, for the history")
	f.Var(textFlag{&o.By}, "by", "who, for the history (default user@host)")
	f.BoolVar(&o.Vouch, "vouch", false, "give your word that the holder is gone, so that nobody waits")
	return cmd
}

func (a *app) steal(ctx context.Context, c *tenure.Client, name string, o tenure.StealOptions) error {
	s, err := c.Steal(ctx, name, o)
	if errors.Is(err, tenure.ErrConflict) || errors.Is(err, tenure.ErrNotFound) {
		return notStolen(name, o.Token, err)
	}
	if err != nil {
		return err
	}
	a.printf("ended the tenure of token %d of %s, for %s\n", o.Token, showName(name), showText(o.By))
	if s.Kind == kindSession {
		a.printf("its session is told: if it lives, it ends this lease at its next renewal and keeps its others\n")
	}
	if o.Vouch {
		a.printf("the next acquire is at once: exclusivity now rests on your word that the holder is gone\n")
		return nil
	}
	a.printf("nobody gets it before having watched it for %v: the holder may live until then\n", s.FreeAfter)
	return nil
}

// notStolen says in plain words why the token named is not the current one.
func notStolen(name string, token uint64, err error) error {
	return fmt.Errorf("lease %q: %w: %d: %s; nothing was changed", name, tenure.ErrNotCurrent, token, plainCause(err))
}

// plainCause is what err says in words, without where it happened.
func plainCause(err error) string {
	var e *store.Error
	switch {
	case errors.As(err, &e) && e.Detail != "" && e.Cause == nil:
		return e.Detail
	case e != nil && e.Cause != nil:
		return e.Cause.Error()
	}
	return err.Error()
}

// operator names the person at the keyboard.
func operator(env environment) string {
	name := firstOf(env.get("USER"), env.get("USERNAME"), "unknown")
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s@%.100s", name, host)
}
