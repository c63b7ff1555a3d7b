package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
)

// Flag types that check what they get before anything happens. Each refuses the
// empty text: an unset shell variable is not a wish for the default.

// textFlag is a text that must not be empty.
type textFlag struct{ p *string }

func (f textFlag) String() string {
	if f.p == nil {
		return ""
	}
	return *f.p
}

func (f textFlag) Type() string { return "text" }

func (f textFlag) Set(s string) error {
	if s == "" {
		return fmt.Errorf("it is empty")
	}
	*f.p = s
	return nil
}

// numberFlag is a token or counter: decimal, from 1 to 2^53-1. 0 stands for
// "not given".
type numberFlag struct{ p *uint64 }

func (f numberFlag) String() string {
	if f.p == nil || *f.p == 0 {
		return ""
	}
	return strconv.FormatUint(*f.p, 10)
}

func (f numberFlag) Type() string { return "number" }

func (f numberFlag) Set(s string) (err error) {
	*f.p, err = parseNumber(s)
	return err
}

func parseNumber(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n < 1 || n > record.MaxNumber {
		return 0, fmt.Errorf("give a whole number from 1 to 2^53-1, not %q", s)
	}
	return n, nil
}

// durationFlag is a duration that check accepts.
type durationFlag struct {
	p     *time.Duration
	check func(time.Duration) error
}

func (f durationFlag) String() string {
	if f.p == nil || *f.p == 0 {
		return ""
	}
	return f.p.String()
}

func (f durationFlag) Type() string { return "duration" }

func (f durationFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as 15s, 2m or 1h30m", s)
	}
	if err := f.check(d); err != nil {
		return err
	}
	*f.p = d
	return nil
}

func positive(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("it must be above 0, not %v", d)
	}
	return nil
}

func notNegative(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("it must not be negative, but is %v", d)
	}
	return nil
}

// ttlRange is what every TTL must keep; the default applies only where the flag
// is left out.
func ttlRange(d time.Duration) error {
	if lease.CheckTTL(d) != nil {
		return fmt.Errorf("a TTL is whole milliseconds from %v to %v, not %v", lease.MinTTL, lease.MaxTTL, d)
	}
	return nil
}

// addTTLFlag adds --ttl; 0 stands for the default.
func addTTLFlag(cmd *cobra.Command, p *time.Duration) {
	cmd.Flags().Var(durationFlag{p, ttlRange}, "ttl", "how long the lease outlives its holder's last renewal (default 15s)")
}

// addTimeoutFlag adds --timeout, which action obeys.
func addTimeoutFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().Var(durationFlag{new(time.Duration), positive}, "timeout", usage)
}

const timeoutUsage = "give up after this long, with exit code 69 (default: each store call has its own limit)"

// timeoutOf is the value of --timeout, 0 if the command has none.
func timeoutOf(cmd *cobra.Command) time.Duration {
	f := cmd.Flags().Lookup("timeout")
	if f == nil {
		return 0
	}
	value := f.Value
	if once, ok := value.(*onceFlag); ok {
		value = once.Value
	}
	d, ok := value.(durationFlag)
	if !ok {
		return 0
	}
	return *d.p
}

// addJSONFlag adds --json.
func addJSONFlag(cmd *cobra.Command, p *bool) {
	cmd.Flags().BoolVar(p, "json", false, "print JSON (docs/cli.md has the shape)")
}

// args says which positional arguments a command takes, by name, and refuses
// others with their names.
func args(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, got []string) error {
		switch {
		case len(got) < least:
			return &usageError{err: fmt.Errorf("%s is missing", names[len(got)]), path: cmd.CommandPath()}
		case len(got) > len(names):
			return &usageError{err: fmt.Errorf("%q is one argument too many", got[len(names)]), path: cmd.CommandPath()}
		}
		return nil
	}
}

// required refuses a command line without the flags named.
func required(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			return &usageError{err: fmt.Errorf("--%s is missing", name), path: cmd.CommandPath()}
		}
	}
	return nil
}

// onceFlag is a flag that may be given once: which of two values was meant,
// nobody can know.
type onceFlag struct {
	pflag.Value
	given bool
}

func (f *onceFlag) Set(s string) error {
	if f.given {
		return fmt.Errorf("the flag was given twice")
	}
	f.given = true
	return f.Value.Set(s)
}

// onlyOnce makes every flag of cmd and its sub-commands one that may be given
// once, except those that collect values or just say yes.
func onlyOnce(cmd *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		_, done := f.Value.(*onceFlag)
		if t := f.Value.Type(); !done && t != "bool" && t != "stringArray" {
			f.Value = &onceFlag{Value: f.Value}
		}
	}
	cmd.PersistentFlags().VisitAll(wrap)
	cmd.Flags().VisitAll(wrap)
	for _, sub := range cmd.Commands() {
		onlyOnce(sub)
	}
}

var _ = []pflag.Value{textFlag{}, numberFlag{}, durationFlag{}}
