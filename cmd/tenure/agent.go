package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
	"github.com/tenure-project/tenure/internal/clock"
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
	wait       time.Duration // for the store and the name
}

func newAgentCmd(a *app) *cobra.Command {
	k := &keeping{a: a, wait: forever}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Keep the leases of many commands on this host by one renewal",
		Long: `Join as the node NAME and keep the leases of every ` + "`tenure run`" + ` of this user on
this host, for one store and namespace: one renewal per interval for all.

TERM or INT drains: every command is asked to stop, its lease is released when
it has ended, and then the node's name. A second signal ends the agent at once;
commands then end by themselves, and their leases lapse. If the session is lost
the agent says so to every command and exits with 76.

A store that cannot be reached at the start, and a name that another process
has, are waited for: see --wait.`,
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
	f.Var(waitFlag{&k.wait}, "wait", "how long to wait at the start for the store and the node's name: 0, a duration, or forever")
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
	t, err := k.a.target()
	if err != nil {
		return err
	}
	if t.ofOneProcess() {
		return invalid("a store in memory (mem:) is this process's alone: no command could use the agent; name a store that they can open")
	}
	var srv atomic.Pointer[agent.Server]
	log, calm := calmLogger(k.a.logger())
	opts := []tenure.Option{tenure.WithTreeProof(proc.CgroupEmpty), tenure.WithLogger(log), tenure.WithObserver(renewals(func() {
		calm()
		if s := srv.Load(); s != nil {
			s.Renewed()
		}
	}))}
	if k.ttl > 0 {
		opts = append(opts, tenure.WithTTL(k.ttl))
	}
	start, cancel := k.starting(ctx)
	defer cancel()
	c, err := k.open(start, opts...)
	if err == nil {
		err = errors.Join(k.keep(ctx, start, c, t, log, &srv), c.Close())
	}
	return err
}

// starting is a context that lasts as long as the start may take.
func (k *keeping) starting(ctx context.Context) (context.Context, context.CancelFunc) {
	if k.wait <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, k.wait, &waitedError{k.wait})
}

// The pauses between two tries to open a store that does not answer.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// open opens the store, and waits for one that does not answer: an agent is started
// with its host, perhaps before the store or the network is there.
func (k *keeping) open(ctx context.Context, opts ...tenure.Option) (c *tenure.Client, err error) {
	err = k.patiently(ctx, func() error {
		c, err = k.a.open(ctx, opts...)
		return err
	})
	return c, err
}

// patiently calls f until the store answers it, or ctx ends.
func (k *keeping) patiently(ctx context.Context, f func() error) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return &endedError{cause: context.Cause(ctx), err: err}
		case k.wait == 0 || !errors.Is(err, tenure.ErrUnavailable) && !errors.Is(err, tenure.ErrUnknown) || isA[*store.ProbeError](err):
			return err
		case pause == firstRetry:
			k.a.warn("waiting for the store: %v", err)
		}
		if !clock.Sleep(k.a.clk, pause, ctx.Done()) {
			return &endedError{cause: context.Cause(ctx), err: err}
		}
	}
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

// keep takes the place, then the name, and serves until the end. start limits the
// waiting for the name.
func (k *keeping) keep(ctx, start context.Context, c *tenure.Client, t target, log *slog.Logger, srv *atomic.Pointer[agent.Server]) error {
	path, err := k.a.agentSocket(k.socket, c.Store().Info().Identity, c.Namespace())
	if err != nil {
		return err
	}
	place, err := agent.Claim(path)
	if err != nil {
		return err
	}
	defer func() { _ = place.Close() }()
	s, err := k.join(start, c)
	if err != nil {
		return err
	}
	server := agent.NewServer(agent.Config{
		Session: s, Store: c.Store().Info().Identity, Namespace: c.Namespace(),
		Margin: lease.Timing{TTL: s.TTL()}.Defaults().Margin, Clock: k.a.clk, Log: log,
	})
	srv.Store(server)
	l, err := place.Listen()
	if err != nil {
		err = errors.Join(err, s.Leave(context.WithoutCancel(ctx)))
		server.Close()
		return err
	}
	k.nameByURL(place, t)
	return k.serve(ctx, s, server, place, l)
}

// nameByURL lets commands find the agent without asking the store who it is. That
// may fail: they ask the store then.
func (k *keeping) nameByURL(place *agent.Place, t target) {
	dir, url := filepath.Dir(place.Path()), t.spelling()
	if k.socket != "" || k.a.env.get(envAgentSocket) != "" || url == "" {
		return
	}
	if err := place.Alias(agent.AliasPath(dir, url, t.namespace)); err != nil {
		k.a.warn("%v", err)
	}
}

// join waits for the node's name, and says for whom.
func (k *keeping) join(ctx context.Context, c *tenure.Client) (s *tenure.Session, err error) {
	err = k.patiently(ctx, func() error {
		s, err = k.joinOnce(ctx, c)
		return err
	})
	return s, err
}

func (k *keeping) joinOnce(ctx context.Context, c *tenure.Client) (*tenure.Session, error) {
	note := tenure.Note(fmt.Sprintf("tenure agent, process %d", os.Getpid()))
	s, held := c.TryJoin(ctx, k.node, note)
	if !isA[*tenure.HeldError](held) || k.wait == 0 {
		return s, held
	}
	k.a.warn("waiting: %v", held)
	s, err := c.Join(ctx, k.node, note)
	switch {
	case err == nil || ctx.Err() == nil:
		return s, err
	case isA[*waitedError](context.Cause(ctx)):
		return nil, held
	}
	return nil, fmt.Errorf("node %q was not joined", k.node)
}

// serve lends leases until a signal comes or the session is lost.
func (k *keeping) serve(ctx context.Context, s *tenure.Session, server *agent.Server, place *agent.Place, l *net.UnixListener) error {
	k.a.printf("node %s term %d socket %s\n", showName(s.Node()), s.Proof().Term, printable(place.Path()))
	if err := k.a.out.flush(); err != nil {
		k.a.warn("%v", err) // nobody reads it, which is no reason to end
	}
	over, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- k.listen(server, place, l, s.TTL(), over) }()
	var err error
	select {
	case <-ctx.Done():
		err = server.Drain(context.WithoutCancel(ctx), k.drainLimit)
	case <-s.Lost():
		err = s.Leave(context.WithoutCancel(ctx)) // says why
	}
	close(over)
	server.Close()
	return errors.Join(err, <-served)
}

// listen answers on the socket until over is closed, and looks now and then whether
// it is still there: what cleans folders up must not cost every later command its
// agent.
func (k *keeping) listen(server *agent.Server, place *agent.Place, l *net.UnixListener, ttl time.Duration, over <-chan struct{}) error {
	var serving errgroup
	serving.run(func() error { return server.Serve(l) })
	trouble := ""
	for clock.Sleep(k.a.clk, min(max(ttl/5, 100*time.Millisecond), 5*time.Second), over) {
		again, err := place.Mend()
		switch {
		case err != nil && err.Error() != trouble:
			k.a.warn("no command finds this agent, for its socket is gone: %v", err)
			trouble = err.Error()
		case err == nil && again != nil:
			k.a.warn("the socket %s was gone, and is made anew", place.Path())
			l = again
			serving.run(func() error { return server.Serve(again) })
		}
		if err == nil {
			trouble = ""
		}
	}
	_ = l.Close()
	return serving.wait()
}

// errgroup joins the errors of functions that run at the same time.
type errgroup struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	errs []error
}

func (g *errgroup) run(f func() error) {
	g.wg.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.errs = append(g.errs, err)
	})
}

func (g *errgroup) wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}
