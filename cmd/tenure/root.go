package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRootCmd builds the whole command tree for one run.
func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "tenure",
		Short: "Leases with fencing tokens on ordinary storage",
		Long: `tenure decides who owns what, on storage that you already have.

A store is named by one URL: --store, else TENURE_STORE, else a folder of your
own. Its leases are in namespaces: --namespace, else the URL's ?namespace=, else
TENURE_NAMESPACE, else "default". Durations are written like 15s, 2m or 1h30m.`,
		Example: `  tenure doctor
  tenure ls
  tenure status deploy/prod
  tenure --store sqlite:///var/lib/tenure/leases.db watch deploy/prod`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          showHelp,
	}
	f := root.PersistentFlags()
	f.Var(textFlag{&a.flags.store}, "store", "the store's `URL`, such as file:, sqlite:, postgres: or s3: (default $TENURE_STORE, else a folder of your own)")
	f.VarP(textFlag{&a.flags.namespace}, "namespace", "n", "the namespace's `name` (default the URL's, $TENURE_NAMESPACE or \"default\")")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "say more on standard error while the command runs")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{err: err, path: cmd.CommandPath()}
	})
	addCommands(root, a)
	root.SetHelpCommand(newHelpCmd())
	onlyOnce(root)
	return root
}

// newHelpCmd is cobra's help command, but a command that does not exist is an
// error.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return &usageError{err: fmt.Errorf("there is no command %q", strings.Join(args, " ")), path: cmd.Root().CommandPath()}
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// addCommands is the one list of sub-commands, one file each.
func addCommands(root *cobra.Command, a *app) {
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupAct, Title: "Act:"},
		&cobra.Group{ID: groupStore, Title: "The store:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupLook, newStatusCmd(a), newLsCmd(a), newWatchCmd(a), newHistoryCmd(a), newCheckCmd(a), newNodeCmd(a), newAuthorityCmd(a), newLedgerCmd(a))
	add(groupAct, newRunCmd(a), newOnceCmd(a), newScheduleCmd(a), newAgentCmd(a), newReleaseCmd(a), newStealCmd(a), newJumpCmd(a), newGuardCmd(a), newLeaderCmd(a), newSlotsCmd(a))
	add(groupStore, newStoreCmd(a), newDoctorCmd(a), newBenchCmd(a), newDemoCmd(a), newVersionCmd(a))
}

const (
	groupLook  = "look"
	groupAct   = "act"
	groupStore = "store"
)

// showHelp is the body of a command that only has sub-commands.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }
