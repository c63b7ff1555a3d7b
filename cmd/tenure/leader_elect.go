package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// electing is one run of the command leader elect: what run does, under a
// leadership.
type electing struct {
	running
	node string
}

func newLeaderElectCmd(a *app) *cobra.Command {
	e := &electing{running: running{a: a, wait: forever, session: sessionNever}}
	e.proves = e.leaderPairs
	cmd := &cobra.Command{
		Use:   "elect NAME [flags] -- CMD [ARG...]",
		Short: "Run a command while leading an authority",
		Long: `Join as a node, wait until this process leads the authority NAME, run CMD while
it leads, and step down when CMD and everything that it started have ended.
CMD's exit status is returned. Processes, signals, losses and exit codes are
those of ` + "`tenure run`" + `.

CMD finds TENURE_LEADER, TENURE_TOKEN, TENURE_OWNER, TENURE_NODE, TENURE_TERM
and TENURE_DEADLINE_FILE in its environment, and the way to the same store and
namespace: together they are the proof that a decision of the log carries.`,
		Example: `  tenure leader elect scheduler -- ./scheduler
  tenure leader elect scheduler --node web-3 --wait 0 -- ./once.sh   # 75 if another leads`,
		Args: func(cmd *cobra.Command, args []string) error { return e.told(e.args(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			e.authority, e.command = args[0], args[1:]
			if err := e.complete(cmd); err != nil {
				return e.told(err)
			}
			return e.told(e.play(e.hold))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return e.told(&usageError{err: err, path: cmd.CommandPath()})
	})
	e.addFlags(cmd, "leadership")
	cmd.Flags().Lookup("ttl").Usage = "how long node and leadership outlive their last renewal (default 15s)"
	cmd.Flags().Var(textFlag{&e.node}, "node", "the node's `name` (default HOST/NAME)")
	return cmd
}

// args wants the authority's name, "--" and then a command.
func (e *electing) args(cmd *cobra.Command, args []string) error {
	bad := func(text string) error { return &usageError{err: errors.New(text), path: cmd.CommandPath()} }
	switch dash := cmd.ArgsLenAtDash(); {
	case dash == 0 || len(args) == 0:
		return bad("NAME is missing")
	case dash > 1 || dash < 0 && len(args) > 1:
		return bad(fmt.Sprintf(`write "--" before the command, and only NAME and flags before it (not %q)`, args[1]))
	case len(args) == 1:
		return bad(`there is no command: write "-- CMD" at the end`)
	case args[1] == "":
		return bad("the command's name is empty")
	}
	return nil
}

// complete checks everything that can be checked before anything happens.
func (e *electing) complete(cmd *cobra.Command) error {
	err := e.begin(cmd, func() error {
		if err := store.CheckName("authority name", e.authority); err != nil {
			return err
		}
		return e.chooseNode()
	})
	if err != nil {
		return err
	}
	return e.checkFiles()
}

// chooseNode names the node. The default has the authority's name in it: candidates
// of two authorities on one host, and the host's agent, are nodes of their own.
func (e *electing) chooseNode() error {
	if e.node == "" {
		host, err := os.Hostname()
		if err != nil {
			return invalid("this host has no name (%v): give --node", err)
		}
		if e.node = host + "/" + e.authority; len(e.node) > store.MaxName {
			return invalid("the names of this host and of the authority are too long for a node's name together: give --node")
		}
	}
	return store.CheckName("node name", e.node)
}

// hold wins the leadership, runs the command under it, and steps down. It runs in the
// process that owns the command's tree.
func (e *electing) hold(s *proc.Supervisor) (proc.Outcome, runStatus) {
	ctx, cancel := e.waiting(s.Context())
	defer cancel()
	client, err := e.open(ctx)
	if err != nil {
		if cause := context.Cause(ctx); isA[*waitedError](cause) {
			err = &endedError{cause: cause, err: err}
		}
		return e.failed(s, err)
	}
	l, err := e.campaign(ctx, s, client)
	if err != nil {
		if err := client.Close(); err != nil {
			e.a.warn("%v", err)
		}
		return e.failed(s, err)
	}
	return e.runUnder(s, client, l)
}

// campaign joins as the node and waits until it leads. A session that was joined in
// vain ends with the client.
func (e *electing) campaign(ctx context.Context, s *proc.Supervisor, c *tenure.Client) (*leading, error) {
	if err := e.waitsForItself(ctx, c); err != nil {
		return nil, err
	}
	e.tellWaiting(ctx, c)
	opts := []tenure.AcquireOption{tenure.Note(e.note)}
	if group := s.Contain(); group != "" {
		opts = append(opts, tenure.ContainedIn(group))
	}
	join := c.Join
	if e.wait == 0 {
		join = c.TryJoin
	}
	session, err := join(ctx, e.node, opts...)
	if err != nil {
		return nil, e.notLed(ctx, s, c, err)
	}
	a, err := authority.Open(ctx, session, e.authority, authority.Note(e.note), authority.Stop(proc.StopTime(e.grace, e.reserve)))
	if err != nil {
		return nil, err
	}
	lead := a.Lead
	if e.wait == 0 {
		lead = a.TryLead
	}
	l, err := lead(ctx)
	if err != nil {
		return nil, e.notLed(ctx, s, c, err)
	}
	return &leading{Leader: l, name: e.authority, session: session}, nil
}

// waitsForItself refuses to wait for the very leadership or node that this process
// runs under, which would never end.
func (e *electing) waitsForItself(ctx context.Context, c *tenure.Client) error {
	above := e.a.env.get(envHeld)
	if e.wait == 0 || above == "" {
		return nil
	}
	var held *authority.HeldError
	if errors.As(e.whoLeads(ctx, c), &held) && slices.Contains(strings.Split(above, "\t"), leaderEntry(held.Leader, e.authority)) {
		return fmt.Errorf("this process runs under that very leadership, and would wait for itself: %w", held)
	}
	n, err := c.Node(ctx, e.node)
	if err == nil && n.State == tenure.Held && strings.Contains(above, n.Incarnation+" ") { // ids are never used twice
		return fmt.Errorf("this process runs under the session of node %q, and would wait for itself: %w: give another --node", e.node, tenure.ErrHeld)
	}
	return nil // whatever is wrong, the campaign shows it
}

// tellWaiting tells a person at a terminal who leads.
func (e *electing) tellWaiting(ctx context.Context, c *tenure.Client) {
	if e.wait == 0 || !e.a.flags.verbose && !isTerminal(e.a.stderr) {
		return
	}
	if err := e.whoLeads(ctx, c); err != nil {
		fmt.Fprintf(e.a.stderr, "tenure: waiting: %s\n", errorText(err))
	}
}

// whoLeads is a *authority.HeldError if the head names a leader.
func (e *electing) whoLeads(ctx context.Context, c *tenure.Client) error {
	r, err := authority.Read(ctx, c, e.authority)
	if err != nil {
		return nil
	}
	now, err := r.Snapshot(ctx)
	if err != nil {
		return nil // whatever is wrong, the campaign shows it
	}
	if p, led := now.Leader(); led {
		return &authority.HeldError{Authority: e.authority, Leader: p, Since: now.Since(), Note: now.Note()}
	}
	return nil
}

// notLed says why this process does not lead: the wait that is over, and who leads.
func (e *electing) notLed(ctx context.Context, s *proc.Supervisor, c *tenure.Client, err error) error {
	if !isA[*waitedError](context.Cause(ctx)) || s.Context().Err() != nil {
		return err
	}
	if held := e.whoLeads(s.Context(), c); held != nil {
		return fmt.Errorf("waited for %v: %w", e.wait, held)
	}
	if trouble := storeTrouble(err); trouble != nil {
		return fmt.Errorf("waited for %v, and the store does not take the leadership: %w", e.wait, trouble)
	}
	return fmt.Errorf("waited for %v: %w", e.wait, &authority.HeldError{Authority: e.authority, Free: "others were faster, or have to be watched first"})
}

// leaderPairs are the proof of a leadership, and that no lease is held beside it.
func (e *electing) leaderPairs(l holding) []string {
	p := l.Proof()
	pairs := []string{
		envLeader, l.Name(), envToken, fmt.Sprint(l.Token()), envOwner, l.Owner(), envNode, p.Node, envTerm, fmt.Sprint(p.Term),
		envHeld, e.a.env.get(envHeld) + leaderEntry(p, l.Name()) + "\t",
	}
	if e.a.env.get(envLease) != "" { // its token is not this one
		pairs = append(pairs, envLease, "")
	}
	return pairs
}

// leaderEntry is one leadership in envHeld, which no lease's entry looks like.
func leaderEntry(p tenure.Proof, name string) string {
	return "leader " + heldEntry(p.Incarnation, p.Token, name)
}

// leading is a leadership as the rest of run sees it.
type leading struct {
	*authority.Leader
	name    string
	session *tenure.Session
}

// Name is the authority's.
func (l *leading) Name() string { return l.name }

// Owner is the incarnation of the process that leads.
func (l *leading) Owner() string { return l.Proof().Incarnation }

// Err is why the leadership is over. What the library calls a lease, whatever the kind,
// is a leadership here.
func (l *leading) Err() error {
	err := l.Leader.Err()
	if err == nil || !errors.Is(err, tenure.ErrLost) {
		return err
	}
	return &leadershipError{err}
}

// leadershipError is an error of a leadership, in its words.
type leadershipError struct{ err error }

func (e *leadershipError) Error() string {
	return strings.Replace(e.err.Error(), tenure.ErrLost.Error(), "the leadership was lost", 1)
}

func (e *leadershipError) Unwrap() error { return e.err }

// Release steps down, and leaves, so that the node's next process need not wait. After
// a step-down that the store did not confirm it would not confirm that either: the
// name lapses, as the leadership does.
func (l *leading) Release(ctx context.Context) error {
	err := l.StepDown(ctx)
	if errors.Is(err, tenure.ErrUnconfirmed) {
		return err
	}
	left := l.session.Leave(ctx)
	if err == nil && errors.Is(left, tenure.ErrLost) { // after the leadership was given up
		return nil
	}
	return errors.Join(err, left)
}

var _ holding = (*leading)(nil)
