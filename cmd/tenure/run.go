package main

import (
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/proc"
	"github.com/tenure-project/tenure/store"
)

// envDeadlineFile leads a command to the moving deadline of its lease.
const envDeadlineFile = "TENURE_DEADLINE_FILE"

// forever is the wait that does not end.
const forever = time.Duration(-1)

// running is one run of the command run.
type running struct {
	a          *app
	t          target
	way        []string // that leads the command to the same store and namespace
	lease      string   // what is held: either a lease,
	authority  string   // or the leadership of an authority,
	owns       bool     // or slots of a table
	ttl, grace time.Duration
	graceGiven bool
	reserve    time.Duration
	session    string // whether to use an agent's
	borrows    bool   // its TTL is that of an agent, which no flag changes
	wait       time.Duration
	note       string
	guards     []string
	raisers    []tenure.Raiser // the guards, opened
	statusFile string
	command    []string
	// proves is what the command finds in its environment of what is held.
	proves func(l holding) []string
	// marks, if there is one, adds to the status file what else was held or done.
	marks func(st *runStatus)
	// fitsGrace, if there is one, is in place of fitGrace.
	fitsGrace func(given bool) error
}

func newRunCmd(a *app) *cobra.Command {
	r := &running{a: a, wait: forever, session: sessionAuto}
	r.proves = r.leasePairs
	cmd := &cobra.Command{
		Use:   "run --lease NAME [flags] -- CMD [ARG...]",
		Short: "Run a command while holding a lease",
		Long: `Wait for the lease, run CMD while holding it, and release it when CMD and
everything that it started have ended. CMD's exit status is returned.

CMD finds TENURE_LEASE, TENURE_TOKEN, TENURE_OWNER and TENURE_DEADLINE_FILE in
its environment, and the way to the same store and namespace. Its standard
streams and its terminal are untouched.

If the lease is lost, or cannot be renewed in time, the whole process tree gets
TERM and, after --grace, KILL, both before anybody else can hold the lease; the
exit code is 76 then. A process that stalls between its last check and its
effect, or that runs on while both processes of tenure are stopped, is stopped
by a guard only: see --guard and "tenure guard".`,
		Example: `  tenure run --lease backup -- ./backup.sh
  tenure run --lease backup --wait 0 -- ./backup.sh      # from cron: 75 if it is held
  tenure run --lease ledger --guard /srv/ledger -- tenure guard /srv/ledger -- ./append.sh`,
		Args: func(cmd *cobra.Command, args []string) error { return r.told(runArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			r.command = args
			if err := r.complete(cmd); err != nil {
				return r.told(err)
			}
			return r.told(r.play(r.hold))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return r.told(&usageError{err: err, path: cmd.CommandPath()})
	})
	f := cmd.Flags()
	f.Var(textFlag{&r.lease}, "lease", "the lease's `name`")
	r.addFlags(cmd, "lease")
	f.Var(sessionFlag{&r.session}, "session", "whether an agent of this host keeps the lease: auto, always or never")
	f.Lookup("session").NoOptDefVal = sessionAlways
	_ = cmd.RegisterFlagCompletionFunc("session", cobra.FixedCompletions([]string{sessionAuto, sessionAlways, sessionNever}, cobra.ShellCompDirectiveNoFileComp))
	f.StringArrayVar(&r.guards, "guard", nil, "a `path` whose guard is raised to the new token before CMD starts (may be repeated)")
	return cmd
}

// addFlags adds the flags of every command that runs another one. what is held
// meanwhile.
func (r *running) addFlags(cmd *cobra.Command, what string) {
	addTTLFlag(cmd, &r.ttl)
	f := cmd.Flags()
	f.Var(waitFlag{&r.wait}, "wait", "how long to wait for the "+what+": 0, a duration, or forever")
	f.Var(durationFlag{&r.grace, notNegative}, "grace", "how long the tree may take from TERM to KILL (default 5s or a third of the TTL, whichever is less)")
	f.StringVar(&r.note, "note", "", "a `text` for whoever finds the "+what+" held")
	f.Var(textFlag{&r.statusFile}, "status-file", "a `file` that tells at the end who ended and why, as JSON")
}

// play runs the command in the two processes of package proc; hold is what the
// process does that owns the command's tree.
func (r *running) play(hold func(*proc.Supervisor) (proc.Outcome, runStatus)) error {
	r.a.verdictTells = true
	report, err := proc.Main(proc.Options{
		Clock: r.a.clk, Grace: r.grace, Reserve: r.reserve, Stderr: r.a.stderr,
		LostCode: exitNotCurrent, FailCode: exitUnavailable,
	}, func(s *proc.Supervisor) proc.Outcome { return r.conclude(hold(s)) })
	if err != nil {
		return err
	}
	r.a.status = report.Code
	if report.TookOver {
		st := runStatus{End: endSupervisorGone, Code: report.Code, Reason: plain(report.Message), Survivors: texts(report.Survivors)}
		st.inherit(report.Note)
		if err := r.writeStatus(st); err != nil {
			r.a.warn("%v", err)
		}
	}
	return nil
}

// waitFlag is 0, a duration, or forever.
type waitFlag struct{ p *time.Duration }

func (f waitFlag) String() string {
	if f.p == nil || *f.p == forever {
		return "forever"
	}
	return f.p.String()
}

func (f waitFlag) Type() string { return "0|duration|forever" }

func (f waitFlag) Set(s string) error {
	if s == "forever" {
		*f.p = forever
		return nil
	}
	return durationFlag{f.p, notNegative}.Set(s)
}

// runArgs wants "--" and then a command.
func runArgs(cmd *cobra.Command, args []string) error {
	bad := func(text string) error { return &usageError{err: errors.New(text), path: cmd.CommandPath()} }
	switch dash := cmd.ArgsLenAtDash(); {
	case dash > 0 || dash < 0 && len(args) > 0:
		return bad(fmt.Sprintf(`write "--" before the command, and nothing but flags before it (not %q)`, args[0]))
	case len(args) == 0:
		return bad(`there is no command: write "-- CMD" at the end`)
	case args[0] == "":
		return bad("the command's name is empty")
	}
	return nil
}

// complete checks everything that can be checked before anything happens.
func (r *running) complete(cmd *cobra.Command) error {
	if err := required(cmd, "lease"); err != nil {
		return err
	}
	if err := r.begin(cmd, func() error { return store.CheckName("lease name", r.lease) }); err != nil {
		return err
	}
	for _, path := range r.guards {
		g, err := fileguard.Open(path, r.t.namespace, r.lease)
		if err != nil {
			return err
		}
		r.raisers = append(r.raisers, g)
	}
	return r.checkFiles()
}

// begin finds the store and the times, and checks them with names, which are those
// of what is to be held.
func (r *running) begin(cmd *cobra.Command, names func() error) (err error) {
	if r.t, err = r.a.target(); err != nil {
		return err
	}
	if r.way, err = r.t.pairs(r.a.env); err != nil {
		return err
	}
	r.graceGiven = cmd.Flags().Changed("grace")
	fit := r.fitGrace
	if r.fitsGrace != nil {
		fit = r.fitsGrace
	}
	err = fit(r.graceGiven)
	if r.session == sessionAlways {
		err = nil // the agent's TTL decides
	}
	return errors.Join(names(), lease.CheckNote(r.note), err)
}

// checkFiles finds out before anything happens whether the files can be written.
func (r *running) checkFiles() error {
	if err := r.checkStatusFile(); err != nil {
		return err
	}
	return r.checkDeadlineFile()
}

// fitGrace chooses the grace, or refuses one that leaves no time to renew (DL5).
func (r *running) fitGrace(given bool) error {
	t := lease.Timing{TTL: r.ttl}.Defaults()
	if !given {
		r.grace = min(5*time.Second, t.TTL/3)
	}
	r.reserve = proc.DefaultReserve(t.TTL)
	if fits(t.TTL, r.grace) {
		return nil
	}
	const step, steps = 100 * time.Millisecond, int(lease.MaxTTL / (100 * time.Millisecond))
	text := fmt.Sprintf("--grace %v does not fit a TTL of %v: give less than %v", r.grace, t.TTL,
		t.TTL-t.Margin-r.reserve-t.Renew-2*t.Attempt)
	if r.borrows {
		return invalid("%s, or --session=never", text)
	}
	if n := sort.Search(steps, func(n int) bool { return fits(time.Duration(n+1)*step, r.grace) }); n < steps {
		text += fmt.Sprintf(", or --ttl %v", time.Duration(n+1)*step)
	}
	return invalid("%s", text)
}

// fits says whether a tree can be ended within grace and the lease be renewed
// before that.
func fits(ttl, grace time.Duration) bool {
	t := lease.Timing{TTL: ttl}.Defaults()
	t.Stop = proc.StopTime(grace, proc.DefaultReserve(ttl))
	return t.Check() == nil
}
