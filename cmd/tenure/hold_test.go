package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// runHold is the program with only the command hold, which holds a lease inside
// scripts.
func runHold(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	root := newRootCmd(a)
	root.AddCommand(newHoldCmd(a))
	return a.run(root, append([]string{"hold"}, args...))
}

// holder is what the command hold was asked for.
type holder struct {
	ttl, length, handFor          time.Duration
	note, ready, envFile, handTo  string
	crash, noChildren, wait, keep bool
}

func newHoldCmd(a *app) *cobra.Command {
	var h holder
	cmd := &cobra.Command{
		Use:  "hold NAME",
		Args: args(1, "NAME"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withClient(ctx, func(c *tenure.Client) error { return a.hold(ctx, c, args[0], h) }, tenure.WithLabel("test-host/1"))
		}),
	}
	addTTLFlag(cmd, &h.ttl)
	f := cmd.Flags()
	f.DurationVar(&h.length, "for", 0, "release after this long")
	f.BoolVar(&h.keep, "until-signal", false, "hold until a signal comes")
	f.BoolVar(&h.crash, "crash", false, "end without a release")
	f.BoolVar(&h.noChildren, "no-children", false, "let waiters prove that this process is gone")
	f.BoolVar(&h.wait, "wait", false, "wait for the lease")
	f.StringVar(&h.note, "note", "", "the note")
	f.StringVar(&h.ready, "ready", "", "a file that is made once the lease is held")
	f.StringVar(&h.envFile, "env", "", "a file that gets the environment of a command under the lease")
	f.StringVar(&h.handTo, "hand-to", "", "the successor that the release names")
	f.DurationVar(&h.handFor, "hand-for", 0, "how long everyone else waits then")
	return cmd
}

func (a *app) hold(ctx context.Context, c *tenure.Client, name string, h holder) error {
	opts := []tenure.AcquireOption{tenure.Note(h.note)}
	if h.ttl != 0 {
		opts = append(opts, tenure.TTL(h.ttl))
	}
	if h.noChildren {
		opts = append(opts, tenure.NoChildren())
	}
	acquire := c.TryAcquire
	if h.wait {
		acquire = c.Acquire
	}
	l, err := acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	if err := a.tellHeld(l, h); err != nil {
		return err
	}
	if h.crash {
		os.Exit(0)
	}
	if err := h.stay(ctx, l); err != nil {
		return err
	}
	if h.handTo != "" {
		return l.ReleaseTo(ctx, h.handTo, h.handFor)
	}
	return l.Release(ctx)
}

// tellHeld says what was acquired, on standard output and in files.
func (a *app) tellHeld(l *tenure.Lease, h holder) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	pairs, err := t.pairs(a.env)
	if err != nil {
		return err
	}
	pairs = append(pairs, envLease, l.Name(), envToken, fmt.Sprint(l.Token()), envOwner, l.Owner())
	if h.envFile != "" {
		text := strings.Join(environment{}.with(pairs...), "\n") + "\n"
		if err := os.WriteFile(h.envFile, []byte(text), 0o600); err != nil {
			return err
		}
	}
	a.printf("token %d\n", l.Token())
	if err := a.out.flush(); err != nil || h.ready == "" {
		return err
	}
	return os.WriteFile(h.ready, []byte("held\n"), 0o600)
}

func (h holder) stay(ctx context.Context, l *tenure.Lease) error {
	if !h.keep && h.length == 0 {
		return nil
	}
	var timer <-chan time.Time
	if h.length > 0 {
		timer = time.After(h.length)
	}
	select {
	case <-timer:
	case <-ctx.Done():
	case <-l.Done():
		return l.Err()
	}
	return nil
}

// runRawput writes standard input as the record of a lease, past every check.
func runRawput(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	root := newRootCmd(a)
	root.AddCommand(&cobra.Command{
		Use: "rawput KIND NAME",
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			st, _, err := tenure.OpenStore(ctx, t.url, a.options(t)...)
			if err != nil {
				return err
			}
			return errors.Join(overwrite(ctx, st, store.Key(t.namespace, args[0], args[1])), st.Close())
		}),
	})
	return a.run(root, append([]string{"rawput"}, args...))
}

func overwrite(ctx context.Context, st store.Store, key string) error {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	body = bytes.TrimSuffix(body, []byte("\n")) // that every file of a script ends with
	now, err := st.Get(ctx, key, lease.MaxBody)
	if errors.Is(err, store.ErrNotFound) {
		_, err = st.Create(ctx, key, body)
		return err
	}
	if err == nil {
		_, err = st.Replace(ctx, key, body, now.Version)
	}
	return err
}
