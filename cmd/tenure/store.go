package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// newStoreCmd groups what concerns a namespace as a whole.
func newStoreCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Make, show, upgrade or prune a namespace",
		Long: `Make, show, upgrade or prune a namespace of the store.

A namespace has settings that last: its retention is chosen when it is made and
never changes; its format level is raised only by ` + "`tenure store upgrade`" + `. Any
command that meets a new namespace makes it with the defaults, so run
` + "`tenure store init`" + ` first if you want others.`,
		Args: cobra.NoArgs,
		RunE: showHelp,
	}
	cmd.AddCommand(newStoreInitCmd(a), newStoreShowCmd(a), newStoreUpgradeCmd(a), newStorePruneCmd(a))
	return cmd
}

// retention prints how long released records are kept at least.
func retention(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	if d%(24*time.Hour) == 0 {
		return fmt.Sprintf("%v (%d days)", d, d/(24*time.Hour))
	}
	return d.String()
}
