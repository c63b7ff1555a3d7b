package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/core/slots/balance"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// hosting is one run of slots host.
type hosting struct {
	claiming
	weight, capacity, moves int
	settle                  time.Duration
}

func newSlotsHostCmd(a *app) *cobra.Command {
	x := &hosting{claiming: claiming{running: running{a: a, wait: forever}}}
	cmd := &cobra.Command{
		Use:   "host TABLE",
		Short: "Own the shards that the plan of a table means for this host",
		Long: `Join as the node OWNER, announce it, and own what the plan of the table means
for it, until INT or TERM: each claim, loss and release is a line on standard
output. The balanced hosts of a table choose one among them that makes the
plan; there is no other balancer to run. On the signal the shards are released,
and the others share them out.

The lines are for scripts and for trials. A server that asks before each write
whether it may uses the Go package slots, which also stops work on a shard
before it is handed over.`,
		Example:           `  tenure slots host orders --owner host-7 --addr 10.0.0.7:8080 --weight 2`,
		Args:              args(1, "TABLE"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			if err := x.completeHost(args); err != nil {
				return err
			}
			ctx, stop := signalled(cmd.Context()) // the first one releases, which is no failure
			defer stop()
			return x.serveBalanced(ctx)
		},
	}
	f := cmd.Flags()
	f.Var(textFlag{&x.owner}, "owner", "the owner's `name`, and its node's, the same after a restart (default the host's name)")
	f.Var(textFlag{&x.addr}, "addr", "where requests for the slots are sent: an `address` for routers and people")
	f.Var(durationFlag{&x.ttl, ttlRange}, "ttl", "how long the session outlives its last renewal (default 15s)")
	f.Var(countFlag{&x.weight, balance.MaxWeight}, "weight", "the host's part of the whole beside the weights of others (default 1)")
	f.Var(countFlag{&x.capacity, slots.Count}, "capacity", "the most shards that it takes (default any number)")
	f.Var(durationFlag{&x.settle, positive}, "settle", "while this host balances: how long a new host must have been there before shards are moved to it (default 1m)")
	f.Var(countFlag{&x.moves, slots.Count}, "max-moves", "while this host balances: how many shards may move at the same time (default 8)")
	f.BoolVar(&x.asJSON, "json", false, "print claims and losses as JSON")
	return cmd
}

func (x *hosting) completeHost(args []string) (err error) {
	if x.t, err = x.a.target(); err != nil {
		return err
	}
	if x.t.ofOneProcess() {
		return ownMemory()
	}
	if x.table, err = tableArg(args); err != nil {
		return err
	}
	if x.owner == "" {
		if x.owner, err = os.Hostname(); err != nil {
			return invalid("this host has no name (%v): give --owner", err)
		}
	}
	return errors.Join(store.CheckName("owner", x.owner), lease.CheckWhy("address", x.addr))
}

// serveBalanced owns what the plan says until ctx ends, or the session is lost.
func (x *hosting) serveBalanced(ctx context.Context) error {
	var opts []tenure.Option
	if x.ttl > 0 {
		opts = append(opts, tenure.WithTTL(x.ttl))
	}
	c, err := x.a.open(ctx, opts...)
	if err != nil {
		return err
	}
	return errors.Join(x.balanced(ctx, c), c.Close())
}

func (x *hosting) balanced(ctx context.Context, c *tenure.Client) error {
	t, err := openTable(ctx, c, x.table)
	if err != nil {
		return err
	}
	p, err := t.Plan(ctx)
	if err != nil {
		return err
	}
	if p == nil {
		return noShards(x.table)
	}
	s, err := c.Join(ctx, x.owner, tenure.Note(fmt.Sprintf("tenure slots host, process %d", os.Getpid())))
	if err != nil && ctx.Err() != nil {
		return &endedError{cause: context.Cause(ctx), err: err}
	}
	if err != nil {
		return err
	}
	tells := newTelling(&x.claiming, c.Namespace())
	defer tells.finish()
	h, err := t.Host(slots.HostConfig{
		Owner: x.owner, Addr: x.addr, Session: s, Balanced: true, Weight: x.weight, Capacity: x.capacity,
		Balance: slots.Balance{Settle: x.settle, MaxMoves: x.moves},
		OnClaim: tells.claimed, OnLoss: tells.ended,
	})
	if err != nil {
		return errors.Join(err, s.Leave(context.WithoutCancel(ctx)))
	}
	err = h.Run(ctx)
	return errors.Join(err, s.Leave(context.WithoutCancel(ctx)))
}
