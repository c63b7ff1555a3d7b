package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/cmd/tenure/internal/agent"
)

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

// agentFolders are where an agent of this user may listen: the private folder of a
// process with a runtime folder, and that of one without. A cron job has none, and
// the agent beside it may have one.
func (a *app) agentFolders() []string {
	runtimeDir, cache := a.env.get("XDG_RUNTIME_DIR"), cacheHome(a.env)
	if runtimeDir == "" && runtime.GOOS == "linux" {
		runtimeDir = fmt.Sprintf("/run/user/%d", os.Getuid()) // where every login session has it
	}
	var dirs []string
	for _, home := range []string{runtimeDir, cache} {
		if home != "" {
			dirs = append(dirs, tenure.DefaultStateDir(home, ""))
		}
	}
	return dirs
}

// dialFirst connects to the agent at the first of paths where one listens. With none
// it is an agent.ErrNone that names them all.
func (a *app) dialFirst(ctx context.Context, paths ...string) (*agent.Conn, error) {
	var asked []string
	for _, path := range paths {
		c, err := agent.Dial(ctx, path, a.clk)
		if !errors.Is(err, agent.ErrNone) {
			return c, err
		}
		if !slices.Contains(asked, path) {
			asked = append(asked, path)
		}
	}
	return nil, fmt.Errorf("%w at %s", agent.ErrNone, strings.Join(asked, ", nor at "))
}

// dialAgent connects to the agent of the store of that identity.
func (a *app) dialAgent(ctx context.Context, identity, namespace string) (*agent.Conn, error) {
	if a.env.get(envAgentSocket) != "" {
		path, err := a.agentSocket("", "", "")
		if err != nil {
			return nil, err
		}
		return a.dialFirst(ctx, path)
	}
	own, err := a.agentSocket("", identity, namespace)
	if err != nil {
		return nil, err
	}
	paths := []string{own}
	for _, dir := range a.agentFolders() {
		if path := agent.SocketPath(dir, identity, namespace); agent.CheckPath(path) == nil {
			paths = append(paths, path)
		}
	}
	return a.dialFirst(ctx, paths...)
}

// findAgent connects to the agent of the store that the flags and the environment
// choose. The store is asked only if no agent is known by the store's URL: it may be
// down, and an agent that has trouble with it is to be asked just then. Nothing is
// made in it.
func (a *app) findAgent(ctx context.Context, socket string) (*agent.Conn, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	if path := firstOf(socket, a.env.get(envAgentSocket)); path != "" {
		if err := agent.CheckPath(path); err != nil {
			return nil, err
		}
		return a.dialFirst(ctx, path)
	}
	if c, err := a.dialByURL(ctx, t); err == nil || !errors.Is(err, agent.ErrNone) {
		return c, err
	}
	if err := t.exists(); err != nil {
		return nil, err
	}
	st, _, err := tenure.OpenStore(ctx, t.withoutMaking(), a.options(t)...)
	if err != nil {
		return nil, fmt.Errorf("no agent was started with this store URL, and the store does not say who it is: %w", err)
	}
	identity := st.Info().Identity
	if err := st.Close(); err != nil {
		return nil, err
	}
	return a.dialAgent(ctx, identity, t.namespace)
}

// dialByURL connects to an agent that was started with the very URL of t.
func (a *app) dialByURL(ctx context.Context, t target) (*agent.Conn, error) {
	var paths []string
	for _, dir := range a.agentFolders() {
		path, err := os.Readlink(agent.AliasPath(dir, t.spelling(), t.namespace))
		if t.spelling() != "" && err == nil && agent.CheckPath(path) == nil {
			paths = append(paths, path)
		}
	}
	c, err := a.dialFirst(ctx, paths...)
	if err == nil && c.Hello().Namespace != t.namespace { // another agent took the path
		err = errors.Join(agent.ErrNone, c.Close())
	}
	return c, err
}

// spelling is what the user calls the store of t: the same text is the same store. It
// holds no secret; "" if there is none.
func (t target) spelling() string {
	text, _, err := handedStore(t.url)
	if err != nil {
		return ""
	}
	return text
}

// ofOneProcess says whether no other process can open the store of t.
func (t target) ofOneProcess() bool {
	u, err := url.Parse(t.url)
	return err == nil && u.Scheme == "mem"
}
