package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

// prunedJSON is the shape of store prune --json.
type prunedJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Leases    int    `json:"leases"`
	Archives  int    `json:"archives"`
	Kept      int    `json:"kept"`
	Floor     uint64 `json:"floor"`
	Folded    int    `json:"certificates"`
}

func newStorePruneCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what was released longer ago than the retention",
		Long: `Remove records of leases that were released longer ago than the namespace's
retention, and their history after the same time. The floor is raised first, so
no token is ever given twice. Held leases are never touched; it can run beside
everything else, from cron for example.

Certificates of nodes that are older than 30 days, or than the retention if
that is longer, are folded into their node's record: also where leases are kept
for ever, and without harm where the rights to delete are missing.`,
		Args: args(0),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			return a.withClient(ctx, func(c *tenure.Client) error { return a.prune(ctx, c, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

// prune prints what was done also where it did not get to the end.
func (a *app) prune(ctx context.Context, c *tenure.Client, asJSON bool) error {
	p, err := c.Prune(ctx)
	folded, foldErr := a.foldCertificates(ctx, c)
	refused := err != nil && p == (tenure.Pruned{})
	err = errors.Join(err, foldErr)
	if refused && folded == 0 {
		return err
	}
	if asJSON {
		return errors.Join(a.json(prunedJSON{schema, c.Namespace(), p.Leases, p.Archives, p.Kept, p.Floor, folded}), err)
	}
	if !refused {
		a.printf("removed %d leases and %d archives of history, kept %d leases\n", p.Leases, p.Archives, p.Kept)
	}
	if p.Floor > 0 {
		a.printf("the floor is at least %d now\n", p.Floor)
	}
	a.printf("folded %d old certificates into the records of their nodes\n", folded)
	return err
}

// foldCertificates folds what it can. Nothing depends on it, so rights that are
// missing are no failure.
func (a *app) foldCertificates(ctx context.Context, c *tenure.Client) (int, error) {
	n, _, err := c.PruneCertificates(ctx)
	if errors.Is(err, tenure.ErrDenied) {
		a.warn("old certificates of nodes stay, which costs space only: %v", err)
		return n, nil
	}
	return n, err
}
