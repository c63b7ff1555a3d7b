package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

func newNodeHistoryCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show who owned a node's name, and how each ownership ended",
		Long: `Show the certificates of a node that are kept, by term: which start of a process
ended, how, and which took the name after it. A successor that is a revoker
took it only to end its predecessor. WAIT is what whoever relies on an end by
force waits first. The present owner's own end has no certificate yet.

Older certificates are folded away (` + "`tenure store prune`" + `): then a later term is
the evidence. Times are by the clocks of those who wrote them. --json has whole
incarnations and the exact bytes, which ` + "`tenure node check-certificate`" + ` takes.`,
		Example: `  tenure node history web-1
  tenure node history web-1 --json | jq -r 'select(.how == "forced") | .by'`,
		Args:              args(1, "NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			node, err := nodeArg(args)
			if err != nil {
				return err
			}
			return a.withExisting(ctx, func(c *tenure.Client) error { return a.nodeHistory(ctx, c, node, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) nodeHistory(ctx context.Context, c *tenure.Client, node string, asJSON bool) error {
	certs, err := c.NodeHistory(ctx, node)
	if err != nil {
		return err
	}
	if len(certs) == 0 {
		return a.noHistory(ctx, c, node)
	}
	var t table
	t.row("TERM", "INCARNATION", "ENDED", "AT", "WAIT", "SUCCESSOR", "ITS TERM", "BY", "WHY")
	for _, x := range certs {
		if asJSON {
			if err := a.json(newCertificateJSON(c.Namespace(), x)); err != nil {
				return err
			}
			continue
		}
		successor, wait := shortID(x.Successor.Incarnation), "-"
		if x.Revoker {
			successor += " (revoker)"
		}
		if x.Wait > 0 {
			wait = x.Wait.String()
		}
		t.row(fmt.Sprint(x.Predecessor.Term), shortID(x.Predecessor.Incarnation), x.How, stamp(x.At), wait,
			successor, fmt.Sprint(x.Successor.Term), showText(x.By), showText(x.Why))
	}
	if !asJSON {
		t.print(a.out)
	}
	s, err := c.Node(ctx, node)
	if err == nil {
		a.tellUnsealed(s)
	}
	return err
}

// tellUnsealed says of a last owner that ended without a successor why it has no
// certificate: that names both.
func (a *app) tellUnsealed(s tenure.NodeStatus) (told bool) {
	if s.State != tenure.Released || s.Revoker {
		return false
	}
	fmt.Fprintf(a.stderr, "tenure: node %s: term %d was %s; its certificate is sealed when the next process joins\n", showName(s.Node), s.Term, printable(s.EndedHow))
	return true
}

// noHistory tells a node without certificates from a name that was never used.
func (a *app) noHistory(ctx context.Context, c *tenure.Client, node string) error {
	s, err := c.Node(ctx, node)
	switch {
	case err != nil:
		return err
	case s.State == tenure.Absent:
		return store.Errorf(tenure.ErrNotFound, c.Store().Info().Identity, "history", node, "no process ever joined under this name here")
	}
	if a.tellUnsealed(s) {
		return nil
	}
	fmt.Fprintf(a.stderr, "tenure: node %s has no certificate: nobody took its name over yet, or older ones were folded away\n", showName(node))
	return nil
}

// printCertificate shows one certificate in full.
func (a *app) printCertificate(namespace string, c tenure.Certificate) {
	var t table
	t.row("node", showName(c.Node))
	t.row("namespace", showName(namespace))
	t.row("over", fmt.Sprintf("incarnation %s, term %d", c.Predecessor.Incarnation, c.Predecessor.Term))
	t.row("ended", howLine(c.How, c.By, c.Why))
	t.row("at", since(c.At, "by the clock of whoever wrote it"))
	next := fmt.Sprintf("incarnation %s, term %d", c.Successor.Incarnation, c.Successor.Term)
	if c.Revoker {
		next += ", a revoker: no process"
	}
	t.row("successor", next)
	switch {
	case c.Wait > 0:
		t.row("wait", fmt.Sprintf("%v from now, before you rely on its death: it was ended by force and may live until then", c.Wait))
	default:
		t.row("wait", "none: it is over for good")
	}
	t.print(a.out)
}
