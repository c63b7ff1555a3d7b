package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// newBenchCmd groups what measures.
func newBenchCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a store, and what leases cost there",
		Long:  `Measure how fast a store is for leases, and what they cost there.`,
		Args:  cobra.NoArgs,
		RunE:  showHelp,
	}
	cmd.AddCommand(newBenchStoreCmd(a))
	return cmd
}

// rangeFlag is a whole number from least to most.
type rangeFlag struct {
	p           *int
	least, most int
}

func (f rangeFlag) String() string {
	if f.p == nil {
		return "0"
	}
	return strconv.Itoa(*f.p)
}

func (f rangeFlag) Type() string { return "number" }

func (f rangeFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < f.least || n > f.most {
		return fmt.Errorf("give a whole number from %d to %d, not %q", f.least, f.most, s)
	}
	*f.p = n
	return nil
}
