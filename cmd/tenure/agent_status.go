package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// agentJSON is the answer of agent status.
type agentJSON struct {
	Schema      int    `json:"schema"`
	Namespace   string `json:"namespace"`
	Store       string `json:"store"`
	Socket      string `json:"socket"`
	PID         int    `json:"pid"`
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	TTLMS       int64  `json:"ttl_ms"`
	MarginMS    int64  `json:"margin_ms"`
	Healthy     bool   `json:"healthy"`
	Draining    bool   `json:"draining"`
	Trouble     string `json:"trouble"`
	Leases      int    `json:"leases"`
	Waiting     int    `json:"waiting"`
	Lapsing     int    `json:"lapsing"`
	Stuck       int    `json:"stuck"`
	InDoubt     int    `json:"in_doubt"`
}

func newAgentStatusCmd(a *app) *cobra.Command {
	var asJSON bool
	var socket string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the agent of this store and namespace fares",
		Long: `Ask the agent that listens for this store and namespace: its node and term, how
many leases it keeps, and how much time it has left unless it renews. Exit code
69 if there is none.`,
		Example: `  tenure agent status
  tenure agent status --json`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if err := agentsHere(); err != nil {
				return err
			}
			return a.agentStatus(ctx, socket, asJSON)
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().Var(textFlag{&socket}, "socket", "the `path` of the agent's socket (default as for the agent)")
	return cmd
}

func (a *app) agentStatus(ctx context.Context, socket string, asJSON bool) error {
	c, err := a.findAgent(ctx, socket)
	if err != nil {
		return err
	}
	st, err := c.Status(ctx)
	if err = errors.Join(err, c.Close()); err != nil {
		return err
	}
	h := c.Hello()
	j := agentJSON{
		Schema: schema, Namespace: h.Namespace, Store: h.Store, Socket: c.Path(), PID: st.PID,
		Node: h.Proof.Node, Incarnation: h.Proof.Incarnation, Term: h.Proof.Term, TTLMS: h.TTL.Milliseconds(), MarginMS: st.Margin.Milliseconds(),
		Healthy: st.Trouble == "" && st.Margin > 0, Draining: st.Draining, Trouble: st.Trouble,
		Leases: st.Leases, Waiting: st.Waiting, Lapsing: st.Lapsing, Stuck: st.Stuck, InDoubt: st.InDoubt,
	}
	if asJSON {
		return a.json(j)
	}
	a.printAgent(j)
	return nil
}

func (a *app) printAgent(j agentJSON) {
	health := "renewing"
	switch {
	case j.Trouble != "":
		health = "in trouble: " + j.Trouble
	case !j.Healthy:
		health = "over"
	case j.Draining:
		health = "draining"
	}
	a.printf("node     %s, term %d, incarnation %s\n", showName(j.Node), j.Term, printable(j.Incarnation))
	a.printf("store    %s, namespace %s\n", printable(j.Store), showName(j.Namespace))
	a.printf("socket   %s, process %d\n", printable(j.Socket), j.PID)
	a.printf("session  %s; %v left of %v\n", printable(health), time.Duration(j.MarginMS)*time.Millisecond, time.Duration(j.TTLMS)*time.Millisecond)
	a.printf("leases   %d kept, %d of them lapsing, %d stuck; %d commands wait; %d writes in doubt\n", j.Leases, j.Lapsing, j.Stuck, j.Waiting, j.InDoubt)
}
