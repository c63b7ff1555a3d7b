package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
)

func newLeaderLsCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the authorities of a namespace and who leads them",
		Long: `List the authorities whose names start with PREFIX, in the order of their keys,
with one read of each. That a head names a leader does not prove that it lives.
FAULTS counts the reported faults that no recovery round has cleared.`,
		Example: `  tenure leader ls
  tenure leader ls --json | jq -r 'select(.state == "vacant") | .authority'`,
	}
	return a.listing(cmd, a.listLeaders)
}

func (a *app) listLeaders(ctx context.Context, c *tenure.Client, prefix string, asJSON bool) error {
	var t table
	t.row("AUTHORITY", "STATE", "NODE", "TOKEN", "SINCE", "TTL", "SEQUENCE", "FAULTS", "NOTE")
	var errs []error
	for name, err := range authority.List(ctx, c) {
		if err == nil && !strings.HasPrefix(name, prefix) {
			continue
		}
		var s authority.Snapshot
		if err == nil {
			s, err = snapshotOf(ctx, c, name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		j := newLeaderJSON(c.Namespace(), s)
		if asJSON {
			if err := a.json(j); err != nil {
				return err
			}
			continue
		}
		t.row(showName(name), j.State, showName(j.Node), fmt.Sprint(j.Token), stamp(*j.Since), s.TTL().String(),
			fmt.Sprint(j.Sequence), fmt.Sprint(j.Faults), orDash(printable(j.Note)))
	}
	return a.endListing(&t, asJSON, errs, c.Namespace(), "authority", prefix)
}

func snapshotOf(ctx context.Context, c *tenure.Client, name string) (authority.Snapshot, error) {
	r, err := authority.Read(ctx, c, name)
	if err != nil {
		return authority.Snapshot{}, err
	}
	return r.Snapshot(ctx)
}
