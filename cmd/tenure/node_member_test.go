package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

// runMember is the program with only the command member: a process that joins as a
// node and holds leases under its session, inside scripts.
func runMember(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	root := newRootCmd(a)
	root.AddCommand(newMemberCmd(a))
	return a.run(root, append([]string{"member"}, args...))
}

// member is what the command member was asked for.
type member struct {
	ttl                     time.Duration
	note, ready             string
	crash, keep, noChildren bool
	wait                    bool
}

func newMemberCmd(a *app) *cobra.Command {
	var m member
	cmd := &cobra.Command{
		Use:  "member NODE [LEASE...]",
		Args: cobra.MinimumNArgs(1),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withClient(ctx, func(c *tenure.Client) error { return a.member(ctx, c, args[0], args[1:], m) })
		}),
	}
	addTTLFlag(cmd, &m.ttl)
	f := cmd.Flags()
	f.StringVar(&m.note, "note", "", "the note")
	f.StringVar(&m.ready, "ready", "", "a file that is made once everything is held")
	f.BoolVar(&m.keep, "until-signal", false, "stay until a signal comes, or the session is over")
	f.BoolVar(&m.crash, "crash", false, "end without leaving")
	f.BoolVar(&m.noChildren, "no-children", false, "let others prove that this process is gone")
	f.BoolVar(&m.wait, "wait", false, "wait for the name and the leases")
	return cmd
}

// member says "ID TERM" of its session, and "NAME TOKEN" of each lease.
func (a *app) member(ctx context.Context, c *tenure.Client, node string, leases []string, m member) error {
	opts := []tenure.AcquireOption{tenure.Note(m.note)}
	if m.ttl != 0 {
		opts = append(opts, tenure.TTL(m.ttl))
	}
	if m.noChildren {
		opts = append(opts, tenure.NoChildren())
	}
	join := c.TryJoin
	if m.wait {
		join = c.Join
	}
	s, err := join(ctx, node, opts...)
	if err != nil {
		return err
	}
	a.printf("%s %d\n", s.Proof().Incarnation, s.Proof().Term)
	held := make([]*tenure.Lease, 0, len(leases))
	for _, name := range leases {
		acquire := s.TryAcquire
		if m.wait {
			acquire = s.Acquire
		}
		l, err := acquire(ctx, name)
		if err != nil {
			return errors.Join(err, s.Leave(ctx))
		}
		a.printf("%s %d\n", name, l.Token())
		held = append(held, l)
	}
	if err := a.tellReady(s, m.ready); err != nil {
		return err
	}
	if m.crash {
		os.Exit(0)
	}
	if m.keep {
		for _, l := range held {
			go tellLost(a, l)
		}
		select {
		case <-ctx.Done():
		case <-s.Lost():
			return s.Err()
		}
	}
	return s.Leave(ctx)
}

// tellReady writes the session's proof into a file that sets it for a script.
func (a *app) tellReady(s *tenure.Session, file string) error {
	if err := a.out.flush(); err != nil || file == "" {
		return err
	}
	p := s.Proof()
	return os.WriteFile(file, fmt.Appendf(nil, "ID=%s\nTERM=%d\n", p.Incarnation, p.Term), 0o600)
}

// tellLost says on standard error why a lease ended before its session.
func tellLost(a *app, l *tenure.Lease) {
	<-l.Done()
	if err := l.Err(); errors.Is(err, tenure.ErrLost) {
		fmt.Fprintf(a.stderr, "member: %s\n", errorText(err))
	}
}

// scriptCite writes the exact bytes of the certificate that a line of --json holds,
// with one text replaced by another if asked: cite FILE OUT [OLD NEW].
func scriptCite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 && len(args) != 4 {
		ts.Fatalf("usage: cite FILE OUT [OLD NEW]")
	}
	var c certificateJSON
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &c))
	text := c.Certificate
	if len(args) == 4 {
		text = strings.Replace(text, args[2], args[3], 1)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text+"\n"), 0o600))
}
