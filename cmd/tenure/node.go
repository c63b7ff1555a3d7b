package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

func newNodeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Look at node names and their processes, and end one",
		Long: `A process joins under the stable name of its node and holds any number of leases
by that one membership. Every start is a new owner of the name, with an
incarnation of its own and a higher term; each change of owner leaves a
certificate.`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newNodeLsCmd(a), newNodeStatusCmd(a), newNodeHistoryCmd(a), newNodeVerifyCmd(a), newNodeCheckCmd(a),
		newNodeFenceCmd(a), newNodeForceCmd(a), newNodeRetireCmd(a))
	return cmd
}

// stateRevoker is what is said of a name that was taken over only to end its
// owner: no process has it.
const stateRevoker = "revoker"

// nodeState is the state of a node's record for people and programs.
func nodeState(s tenure.NodeStatus) string {
	if s.Revoker {
		return stateRevoker
	}
	return string(s.State)
}

// ownedBy reports whether the record names exactly this start of a process. That
// does not say that it lives.
func ownedBy(s tenure.NodeStatus, incarnation string, term uint64) bool {
	return s.State == tenure.Held && !s.Revoker && s.Incarnation == incarnation && s.Term == term
}

// shortID is enough of an incarnation to tell it from its neighbours.
func shortID(id string) string {
	if len(id) <= 8 {
		return orDash(printable(id))
	}
	return printable(id[:8])
}

// incarnationFlag is a whole incarnation: acting on a part of one could meet
// another process.
type incarnationFlag struct{ p *string }

func (f incarnationFlag) String() string {
	if f.p == nil {
		return ""
	}
	return *f.p
}

func (f incarnationFlag) Type() string { return "id" }

func (f incarnationFlag) Set(s string) error {
	if !record.IsID(s) {
		return fmt.Errorf("give the whole incarnation, as `tenure node status` shows it, not %q", s)
	}
	*f.p = s
	return nil
}

func addIncarnationFlag(cmd *cobra.Command, p *string, usage string) {
	cmd.Flags().Var(incarnationFlag{p}, "incarnation", usage)
}

// addWithinFlag adds --within; 0 stands for what the record suggests.
func addWithinFlag(cmd *cobra.Command, p *time.Duration) {
	cmd.Flags().Var(durationFlag{p, positive}, "within", "how long it may take (default twice the node's TTL and 30s)")
}

// within is how long a fence of the node's owner, or of one incarnation, may take:
// as asked for, or ample time for what the record says. It tells a person at a
// terminal, who would wonder, what is waited for.
func (a *app) within(ctx context.Context, c *tenure.Client, node, incarnation string, asked time.Duration) (time.Duration, error) {
	s, err := c.Node(ctx, node)
	if err != nil {
		return 0, err
	}
	limit := asked
	if limit == 0 {
		limit = 2*max(s.TTL, s.FreeAfter) + 30*time.Second
	}
	watches := s.FreeAfter > 0 && s.FreeAfter < limit && (incarnation == "" || incarnation == s.Incarnation)
	if watches && (a.flags.verbose || isTerminal(a.stderr)) {
		fmt.Fprintf(a.stderr, "tenure: watching node %s for a sign of life, for up to %v\n", showName(node), s.FreeAfter)
	}
	return limit, nil
}

// nodeWait is how long an observer of s watches on its own clock.
func nodeWait(s tenure.NodeStatus) time.Duration {
	return lease.Stretch(s.TTL, lease.Timing{}.Defaults().Rho)
}

// nodeArg is the node that a command names.
func nodeArg(args []string) (string, error) { return args[0], store.CheckName("node name", args[0]) }
