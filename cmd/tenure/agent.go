package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// envAgentSocket is the socket of the agent, where it is not the default one.
const envAgentSocket = "TENURE_AGENT_SOCKET"

// keeping is one run of the command agent.
type keeping struct {
	a          *app
	node       string
	ttl        time.Duration
	socket     string
	drainLimit time.Duration
}

func newAgentCmd(a *app) *cobra.Command {
	k := &keeping{a: a}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep the leases of many commands on this host by one renewal",
		Long: `Join as the node NAME and keep the leases of every ` + "`tenure run`" + ` of this user on
this host, for one store and namespace: one renewal per interval for all.

TERM or INT drains: every command is asked to stop, its lease is released when
it has ended, and then the node's name. A second signal ends the agent at once;
commands then end by themselves, and their leases lapse. If the session is lost
the agent says so to every command and exits with 76.`,
		Example: `  tenure agent
  tenure agent --node web-3 --ttl 30s --drain-limit 2m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a.begun = true
			ctx, stop := signalled(cmd.Context()) // the first one drains, which is no failure
			defer stop()
			return k.run(ctx)
		},
	}
	f := cmd.Flags()
	f.Var(textFlag{&k.node}, "node", "the node's `name` (default the host's name)")
	f.Var(durationFlag{&k.ttl, ttlRange}, "ttl", "how long the session outlives its last renewal (default 15s)")
	f.Var(textFlag{&k.socket}, "socket", "the `path` of the socket, in a folder of this user alone (default $"+envAgentSocket+", else a name in the private folder)")
	f.Var(durationFlag{&k.drainLimit, positive}, "drain-limit", "how long each command may take to stop in a drain (default the TTL)")
	cmd.AddCommand(newAgentStatusCmd(a))
	return cmd
}

// run is the agent's whole life.
func (k *keeping) run(ctx context.Context) error {
	if k.node == "" {
		host, err := os.Hostname()
		if err != nil {
			return invalid("this host has no name (%v): give --node", err)
		}
		k.node = host
	}
	if err := store.CheckName("node name", k.node); err != nil {
		return err
	}
	if err := agentsHere(); err != nil {
		return err
	}
	var srv atomic.Pointer[agent.Server]
	opts := []tenure.Option{tenure.WithTreeProof(proc.CgroupEmpty), tenure.WithObserver(renewals(func() {
		if s := srv.Load(); s != nil {
			s.Renewed()
		}
	}))}
	if k.ttl > 0 {
		opts = append(opts, tenure.WithTTL(k.ttl))
	}
	c, err := k.a.open(ctx, opts...)
	if err != nil {
		return err
	}
	return errors.Join(k.keep(ctx, c, &srv), c.Close())
}

// agentsHere refuses a system without agents before anything happens.
func agentsHere() error {
	if !agent.Supported {
		return invalid("this system has no agents: they need Linux or macOS")
	}
	return nil
}

// renewals tells of every renewal of a session.
type renewals func()

// Observe does not block.
func (f renewals) Observe(e tenure.Event) {
	if e.Kind == tenure.EventRenewed && e.Node != "" {
		f()
	}
}

// keep takes the place, then the name, and serves until the end.
func (k *keeping) keep(ctx context.Context, c *tenure.Client, srv *atomic.Pointer[agent.Server]) error {
	path, err := k.a.agentSocket(k.socket, c.Store().Info().Identity, c.Namespace())
	if err != nil {
		return err
	}
	place, err := agent.Claim(path)
	if err != nil {
		return err
	}
	defer func() { _ = place.Close() }()
	s, err := k.join(ctx, c)
	if err != nil && ctx.Err() != nil {
		return &endedError{cause: context.Cause(ctx), err: err}
	}
	if err != nil {
		return err
	}
	server := agent.NewServer(agent.Config{
		Session: s, Store: c.Store().Info().Identity, Namespace: c.Namespace(),
		Margin: lease.Timing{TTL: s.TTL()}.Defaults().Margin, Clock: k.a.clk, Log: k.a.logger(),
	})
	srv.Store(server)
	l, err := place.Listen()
	if err != nil {
		err = errors.Join(err, s.Leave(context.WithoutCancel(ctx)))
		server.Close()
		return err
	}
	return k.serve(ctx, s, server, l, path)
}

// join waits for the node's name, and says for whom.
func (k *keeping) join(ctx context.Context, c *tenure.Client) (*tenure.Session, error) {
	note := tenure.Note(fmt.Sprintf("tenure agent, process %d", os.Getpid()))
	s, err := c.TryJoin(ctx, k.node, note)
	var held *tenure.HeldError
	if !errors.As(err, &held) {
		return s, err
	}
	k.a.warn("waiting: %v", err)
	return c.Join(ctx, k.node, note)
}

// serve lends leases until a signal comes or the session is lost.
func (k *keeping) serve(ctx context.Context, s *tenure.Session, server *agent.Server, l *net.UnixListener, path string) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	k.a.printf("node %s term %d socket %s\n", showName(s.Node()), s.Proof().Term, printable(path))
	if err := k.a.out.flush(); err != nil {
		k.a.warn("%v", err) // nobody reads it, which is no reason to end
	}
	var err error
	select {
	case <-ctx.Done():
		err = server.Drain(context.WithoutCancel(ctx), k.drainLimit)
	case <-s.Lost():
		err = s.Leave(context.WithoutCancel(ctx)) // says why
	}
	_ = l.Close()
	server.Close()
	return errors.Join(err, <-served)
}

// agentSocket is where the agent of a store and namespace listens: chosen by a
// flag, else by the environment, else in the private folder.
func (a *app) agentSocket(flag, identity, namespace string) (string, error) {
	if path := firstOf(flag, a.env.get(envAgentSocket)); path != "" {
		return path, agent.CheckPath(path)
	}
	dir, err := a.stateDirOrWhy()
	if err != nil {
		return "", invalid("there is no private folder for the agent's socket (%v): give --socket or set %s", err, envAgentSocket)
	}
	path := agent.SocketPath(dir, identity, namespace)
	return path, agent.CheckPath(path)
}
