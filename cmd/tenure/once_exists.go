package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
)

func addMustExistFlag(cmd *cobra.Command, p *bool) {
	cmd.Flags().BoolVar(p, "must-exist", false, "refuse a store or namespace that is not there, instead of making it: for a store on a volume that may not be mounted")
}

// existing is t if store and namespace are there, for a driver that makes nothing. An
// empty store in their place would know of no run, and all would be done again.
func (a *app) existing(ctx context.Context, t target) (target, error) {
	err := t.exists()
	t.url, t.folder = t.withoutMaking(), ""
	if err == nil {
		err = a.withStoreOf(ctx, t, func(c *tenure.Client) error {
			_, err := c.Settings(ctx)
			if errors.Is(err, tenure.ErrNotFound) {
				err = invalid("there is no namespace %q in this store: see that it is the right one; `tenure store init` makes it", t.namespace)
			}
			return err
		})
	}
	return t, err
}
