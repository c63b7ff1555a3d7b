package main

import (
	"context"
	"errors"
	"fmt"
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
	lease      string
	ttl, grace time.Duration
	reserve    time.Duration
	wait       time.Duration
	note       string
	guards     []string
	statusFile string
	command    []string
}

func newRunCmd(a *app) *cobra.Command {
	r := &running{a: a, wait: forever}
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
effect is stopped by a guard only: see --guard and "tenure guard".`,
		Example: `  tenure run --lease backup -- ./backup.sh
  tenure run --lease backup --wait 0 -- ./backup.sh      # from cron: 75 if it is held
  tenure run --lease ledger --guard /srv/ledger -- tenure guard /srv/ledger -- ./append.sh`,
		Args: runArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.begun = true
			r.command = args
			if err := r.complete(cmd); err != nil {
				return err
			}
			report, err := proc.Main(proc.Options{
				Clock: a.clk, Grace: r.grace, Reserve: r.reserve, Stderr: a.stderr,
				LostCode: exitNotCurrent, FailCode: exitUnavailable,
			}, r.lead)
			a.status = report.Code
			if err == nil && report.TookOver {
				err = r.writeStatus(runStatus{End: "supervisor-gone", Code: report.Code, Reason: report.Message, Survivors: texts(report.Survivors)})
			}
			return err
		},
	}
	f := cmd.Flags()
	f.Var(textFlag{&r.lease}, "lease", "the lease's `name`")
	addTTLFlag(cmd, &r.ttl)
	f.Var(waitFlag{&r.wait}, "wait", "how long to wait for the lease: 0, a duration, or forever")
	f.Var(durationFlag{&r.grace, notNegative}, "grace", "how long the tree may take from TERM to KILL (default 5s, at most a third of the TTL)")
	f.StringVar(&r.note, "note", "", "a `text` for whoever finds the lease held")
	f.StringArrayVar(&r.guards, "guard", nil, "a `path` whose guard is raised to the new token before CMD starts (may be repeated)")
	f.Var(textFlag{&r.statusFile}, "status-file", "a `file` that tells at the end who ended and why, as JSON")
	return cmd
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
	}
	return nil
}

// complete checks everything that can be checked before anything happens.
func (r *running) complete(cmd *cobra.Command) (err error) {
	if err := required(cmd, "lease"); err != nil {
		return err
	}
	if r.t, err = r.a.target(); err != nil {
		return err
	}
	timing := lease.Timing{TTL: r.ttl}.Defaults()
	if !cmd.Flags().Changed("grace") {
		r.grace = min(5*time.Second, timing.TTL/3)
	}
	r.reserve = proc.DefaultReserve(timing.TTL)
	timing.Stop = proc.StopTime(r.grace, r.reserve)
	return errors.Join(store.CheckName("lease name", r.lease), timing.Check(), lease.CheckNote(r.note))
}

// lead takes the lease, runs the command under it, and gives it up. It runs in
// the process that owns the command's tree.
func (r *running) lead(s *proc.Supervisor) proc.Outcome {
	out, st := r.hold(s)
	st.Code = out.Code
	if err := r.writeStatus(st); err != nil {
		out.Message = joinLines(out.Message, describe(err))
	}
	return out
}

func (r *running) hold(s *proc.Supervisor) (proc.Outcome, runStatus) {
	client, err := r.open(s.Context())
	if err != nil {
		return r.failed(err)
	}
	defer client.Close()
	l, err := r.acquire(s, client)
	if err != nil {
		return r.failed(err)
	}
	return r.runUnder(s, l)
}

func (r *running) open(ctx context.Context) (*tenure.Client, error) {
	if err := r.t.prepare(); err != nil {
		return nil, err
	}
	opts := append(r.a.options(r.t), tenure.WithTreeProof(proc.CgroupEmpty))
	if r.ttl > 0 {
		opts = append(opts, tenure.WithTTL(r.ttl))
	}
	return tenure.Open(ctx, r.t.url, opts...)
}

// acquire waits as long as it was told to, and raises the guards.
func (r *running) acquire(s *proc.Supervisor, c *tenure.Client) (*tenure.Lease, error) {
	opts := []tenure.AcquireOption{tenure.Note(r.note), tenure.Stop(proc.StopTime(r.grace, r.reserve))}
	if group := s.Contain(); group != "" {
		opts = append(opts, tenure.ContainedIn(group))
	}
	for _, path := range r.guards {
		g, err := fileguard.Open(path, c.Namespace(), r.lease)
		if err != nil {
			return nil, err
		}
		opts = append(opts, tenure.Guards(g))
	}
	ctx := s.Context()
	switch r.wait {
	case 0:
		return c.TryAcquire(ctx, r.lease, opts...)
	case forever:
		return c.Acquire(ctx, r.lease, opts...)
	}
	limit := &timeLimitError{limit: r.wait}
	wctx, cancel := context.WithTimeoutCause(ctx, r.wait, limit)
	defer cancel()
	l, err := c.Acquire(wctx, r.lease, opts...)
	if errors.Is(err, limit) && ctx.Err() == nil {
		return nil, r.stillHeld(ctx, c, err)
	}
	return l, err
}

// stillHeld says who holds the lease, after the wait for it was over.
func (r *running) stillHeld(ctx context.Context, c *tenure.Client, err error) error {
	st, statusErr := c.Status(ctx, r.lease)
	if statusErr != nil || st.State != tenure.Held {
		return err
	}
	held := &tenure.HeldError{Name: st.Name, Owner: st.Owner, Label: st.Label, Token: st.Token, Since: st.Since, Note: st.Note}
	return fmt.Errorf("waited for %v: %w", r.wait, held)
}

// runUnder runs the command under l and releases l once the whole tree is gone.
func (r *running) runUnder(s *proc.Supervisor, l *tenure.Lease) (proc.Outcome, runStatus) {
	file, err := proc.NewDeadlineFile(l.Token())
	if err != nil {
		return r.failed(errors.Join(err, l.Release(context.Background())))
	}
	pairs := []string{
		envLease, l.Name(), envToken, fmt.Sprint(l.Token()), envOwner, l.Owner(), envDeadlineFile, file.Path(),
	}
	if way, err := r.t.pairs(); err == nil {
		pairs = append(pairs, way...)
	}
	res := s.Run(proc.Command{Args: r.command, Env: r.a.env.with(pairs...), DeadlineFile: file}, leaseHold{l})
	var released error
	if len(res.Survivors) == 0 {
		released = l.Release(context.Background())
	}
	return r.verdict(l, res, released)
}

// leaseHold is a lease as the supervisor sees it.
type leaseHold struct{ l *tenure.Lease }

func (h leaseHold) Deadline() (time.Duration, bool) { return h.l.Deadline() }

func (h leaseHold) Done() <-chan struct{} { return h.l.Done() }

func (h leaseHold) Err() error { return h.l.Err() }

// verdict is what the wrapper prints and returns, and what the status file says.
func (r *running) verdict(l *tenure.Lease, res proc.Result, released error) (proc.Outcome, runStatus) {
	out := proc.Outcome{Code: res.Code}
	st := runStatus{Token: l.Token(), Owner: l.Owner(), End: string(res.End), CommandCode: res.Code, Signal: res.Signal, Survivors: texts(res.Survivors)}
	switch {
	case res.Lost != nil:
		out = outcomeOf(res.Lost)
		out.Code = exitNotCurrent // also where it merely could not be renewed
		st.End = string(proc.Lost)
	case errors.Is(released, tenure.ErrUnconfirmed):
		out.Message = describe(released)
		if out.Code == 0 {
			out.Code = exitUnconfirmed
		}
	case errors.Is(released, tenure.ErrLost):
		out = outcomeOf(released)
	case released != nil:
		out.Message = describe(released)
	case res.Err != nil:
		out.Message = describe(res.Err)
	}
	st.Reason = out.Message
	for _, s := range st.Survivors {
		out.Message = joinLines(out.Message, "tenure: still running, so the lease is left to lapse: "+clean(s))
	}
	return out, st
}

// failed is the verdict on a run that did not come to its command.
func (r *running) failed(err error) (proc.Outcome, runStatus) {
	out := outcomeOf(err)
	return out, runStatus{End: string(proc.NotStarted), Reason: out.Message}
}
