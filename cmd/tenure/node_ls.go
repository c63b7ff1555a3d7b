package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func newNodeLsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the nodes of a namespace and who owns their names",
		Long: `List the nodes whose names start with PREFIX, in the order of their keys. A
"revoker" took a name over only to end its owner: no process has that name.

That a record says "held" does not prove that the process lives, and that its
expiry has passed does not prove that it is dead: that time is by the owner's
own clock. Only who watched a record knows more: ` + "`tenure node status --observe`" + `.`,
		Example: `  tenure node ls
  tenure node ls web-
  tenure node ls --json | jq -r 'select(.state == "held") | .incarnation'`,
	}
	return a.listing(cmd, a.listNodes)
}

func (a *app) listNodes(ctx context.Context, c *tenure.Client, prefix string, asJSON bool) error {
	var t table
	t.row("NODE", "STATE", "TERM", "INCARNATION", "SINCE", "TTL", "EXPIRES UNLESS RENEWED, BY ITS CLOCK", "NOTE")
	var errs []error
	for s, err := range c.Nodes(ctx, prefix) {
		switch {
		case err != nil:
			errs = append(errs, err)
		case asJSON:
			if err := a.json(newNodeJSON(c.Namespace(), s, nil)); err != nil {
				return err
			}
		default:
			t.row(showName(s.Node), nodeLsState(s), fmt.Sprint(s.Term), shortID(s.Incarnation), stamp(s.Since),
				s.TTL.String(), stamp(s.Expires), orDash(printable(s.Note)))
		}
	}
	return a.endListing(&t, asJSON, errs, c.Namespace(), "node", prefix)
}

// nodeLsState tells a name that is free from one that everyone first has to watch.
func nodeLsState(s tenure.NodeStatus) string {
	if s.FreeAfter > 0 && (s.Revoker || s.State == tenure.Released) {
		return nodeState(s) + ", watched " + s.FreeAfter.String() + " first"
	}
	return nodeState(s)
}
