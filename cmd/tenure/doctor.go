package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/store"
)

// The results of a check.
const (
	resultOK   = "ok"
	resultWarn = "warn" // it works, but somebody should know
	resultFail = "fail" // leases cannot be trusted here, or do not work
)

// finding is one line of the doctor's report.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
	Todo   string `json:"todo"`
	err    error  // why it failed
}

func good(check, format string, args ...any) finding {
	return finding{Check: check, Result: resultOK, Detail: fmt.Sprintf(format, args...)}
}

func warning(check, todo, format string, args ...any) finding {
	return finding{Check: check, Result: resultWarn, Detail: fmt.Sprintf(format, args...), Todo: todo}
}

func failure(check string, err error) finding {
	v := verdictOn(err)
	todo := v.next
	switch {
	case v.code == exitUnavailable:
		todo = "see that the store is up and answers from here, then try again"
	case v.code == exitDenied:
		todo = "mend these credentials, or grant them the missing right"
	case todo == "":
		todo = "see the message"
	}
	return finding{Check: check, Result: resultFail, Detail: err.Error(), Todo: todo, err: err}
}

// doctorJSON is the shape of doctor --json.
type doctorJSON struct {
	Schema    int       `json:"schema"`
	OK        bool      `json:"ok"`
	Scheme    string    `json:"scheme"`
	Namespace string    `json:"namespace"`
	Checks    []finding `json:"checks"`
}

// doctorError says which checks failed.
type doctorError struct{ failed []finding }

func (e *doctorError) Error() string {
	names := make([]string, len(e.failed))
	for i, f := range e.failed {
		names[i] = f.Check
	}
	return "failed: " + strings.Join(names, ", ")
}

func (e *doctorError) Unwrap() []error {
	errs := make([]error, len(e.failed))
	for i, f := range e.failed {
		errs[i] = f.err
	}
	return errs
}

func newDoctorCmd(a *app) *cobra.Command {
	var asJSON, deep bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check clocks, store, rights and speed, and say what to do",
		Long: `Check this machine's clocks and the store: whether it keeps what leases need,
how fast it answers, and which rights are there. It writes only fresh keys of
its own and removes them. Warnings do not change the exit code; 78 says that the
store failed its probe.

A plain probe proves "never" or "always" broken. --deep makes 500 conditional
writes more and says what they prove about a store that fails now and then.`,
		Example: `  tenure doctor
  tenure --store sqlite:///var/lib/tenure/leases.db doctor --deep
  tenure doctor --json | jq '.checks[] | select(.result != "ok")'`,
		Args: args(0),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			t, err := a.target()
			if err != nil {
				return err
			}
			found := append(a.clockFindings(), a.stateFinding())
			found = append(found, a.storeFindings(ctx, t, store.ProbeOptions{
				Prefix: store.Prefix(t.namespace, "probe"), Deep: deep, CleanUp: timeoutOf(cmd),
			})...)
			return a.printFindings(t, found, asJSON)
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	cmd.Flags().BoolVar(&deep, "deep", false, "probe with 500 more conditional writes, and state the odds")
	return cmd
}

func (a *app) printFindings(t target, found []finding, asJSON bool) error {
	var failed []finding
	for _, f := range found {
		if f.Result == resultFail {
			failed = append(failed, f)
		}
	}
	if asJSON {
		scheme, _, _ := strings.Cut(t.url, ":")
		if err := a.json(doctorJSON{schema, len(failed) == 0, scheme, t.namespace, found}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			a.printf("%-4s  %-13s %s\n", f.Result, f.Check, indented(f.Detail))
			if f.Todo != "" {
				a.printf("%21sdo: %s\n", "", printable(f.Todo))
			}
		}
	}
	if len(failed) > 0 {
		return &doctorError{failed}
	}
	return nil
}

// stateFinding looks at the private folder of observations.
func (a *app) stateFinding() finding {
	const check = "state-folder"
	dir, err := a.stateDirOrWhy()
	if err != nil {
		return warning(check, "set XDG_RUNTIME_DIR or HOME to a folder on a local disk that this user may write to",
			"there is none (%v): a command that does not wait cannot build on what the one before it saw", err)
	}
	if open, who := openToOthers(dir); open {
		return warning(check, "chmod 700 "+dir, "others may write to %s (%s), and could hide that a store was rolled back", dir, who)
	}
	return good(check, "%s: what one command observes, the next one knows", dir)
}
