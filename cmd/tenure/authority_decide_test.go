package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
)

const testDeployment = "dddddddd-4444-4444-8444-444444444444"

// runDecide is the program with only the command decide: a leader that decides
// something in every chain, inside scripts.
func runDecide(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	root := newRootCmd(a)
	root.AddCommand(&cobra.Command{
		Use:  "decide NAME NODE",
		Args: args2("NAME", "NODE"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withClient(ctx, func(c *tenure.Client) error { return decide(ctx, c, args[0], args[1]) })
		}),
	})
	return a.run(root, append([]string{"decide"}, args...))
}

func args2(names ...string) cobra.PositionalArgs { return args(len(names), names...) }

func decide(ctx context.Context, c *tenure.Client, name, node string) error {
	s, err := c.Join(ctx, node, tenure.Note("decider"))
	if err != nil {
		return err
	}
	a, err := authority.Open(ctx, s, name, authority.Note("decides"))
	if err != nil {
		return err
	}
	l, err := a.Lead(ctx)
	if err != nil {
		return err
	}
	return errors.Join(decideAll(ctx, a, l.Proof()), s.Leave(ctx))
}

// decideAll seals a catalog, drains to version 2, commits two checkpoints and aborts
// one, and releases a recovery round.
func decideAll(ctx context.Context, a *authority.Authority, p tenure.Proof) error {
	if _, err := catalog.Seal(ctx, a, p, []catalog.Definition{{Name: "orders", Text: "create\tstream orders"}}); err != nil {
		return err
	}
	me := assignment.Participant{Node: p.Node, Incarnation: p.Incarnation}
	as := assignment.Open(a)
	if _, _, err := as.Seed(ctx, []assignment.Participant{me, me}); err != nil {
		return err
	}
	t, err := as.BeginDrain(ctx, p, []assignment.Participant{me, me})
	if err != nil {
		return err
	}
	if _, err := as.CommitDrain(ctx, p, t); err != nil {
		return err
	}
	ck, err := checkpoint.Open(a, testDeployment)
	if err != nil {
		return err
	}
	for epoch := uint64(1); epoch <= 3; epoch++ {
		at := checkpoint.Attempt{Epoch: epoch, Checkpoint: 10 * epoch}
		if epoch == 2 {
			_, err = ck.Abort(ctx, p, at, t.Target)
		} else {
			_, err = ck.Commit(ctx, p, checkpoint.Capsule{Attempt: at, Fence: t.Target, Data: []byte("state")})
		}
		if err != nil {
			return err
		}
	}
	round, err := a.BeginRound(ctx, p, []byte("restart"))
	if err != nil {
		return err
	}
	_, err = a.Release(ctx, p, round, nil)
	return err
}

// runSpoil damages the newest entry of a chain, or the newest capsule, behind
// everybody's back, or makes a report that nobody can read: spoil NAME CHAIN|capsule
// alter|remove, or spoil NAME ELEMENT litter.
func runSpoil(args []string) int {
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	root := newRootCmd(a)
	root.AddCommand(&cobra.Command{
		Use:  "spoil NAME CHAIN alter|remove",
		Args: args2("NAME", "CHAIN", "HOW"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			return a.withExisting(ctx, func(c *tenure.Client) error { return spoil(ctx, c, args[0], args[1], args[2]) })
		}),
	})
	return a.run(root, append([]string{"spoil"}, args...))
}

func spoil(ctx context.Context, c *tenure.Client, name, chain, how string) error {
	r, err := authority.Read(ctx, c, name)
	if err != nil {
		return err
	}
	s, err := r.Snapshot(ctx)
	if err != nil {
		return err
	}
	if how == "litter" { // a report of nobody's
		_, err := c.Store().Create(ctx, r.Key("report", chain), []byte("litter"))
		return err
	}
	var key string
	if chain == "capsule" {
		for element, err := range r.Elements(ctx, chain, "") {
			if err != nil {
				return err
			}
			key = r.Key(chain, element)
		}
	} else {
		x, ok := s.Chain(chain)
		if !ok {
			return fmt.Errorf("chain %s is empty", chain)
		}
		key = r.Key("entry", x.Head.Name().Element())
	}
	if how == "remove" {
		return c.Store().Delete(ctx, key)
	}
	o, err := c.Store().Get(ctx, key, 1<<20)
	if err != nil {
		return err
	}
	body := bytes.Replace(o.Body, []byte(`"chain"`), []byte(`"chaim"`), 1)
	if bytes.Equal(body, o.Body) || !strings.HasPrefix(string(body), "{") {
		return errors.New("nothing to alter")
	}
	_, err = c.Store().Replace(ctx, key, body, o.Version)
	return err
}
