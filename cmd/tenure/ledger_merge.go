package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
)

func newLedgerCompactCmd(a *app) *cobra.Command {
	var asJSON bool
	var keep time.Duration
	cmd := &cobra.Command{
		Use:   "compact JOB",
		Short: "Pack what is settled, and remove what nobody needs",
		Long: `Move what is settled from the job's head into blocks, and remove blocks that
became two. That is done by itself when it is due, too, and is in nobody's way.
With --results-older-than, results that ended longer ago than that are removed:
output and exit code, never the fact that the run happened.`,
		Args:              args(1, "JOB"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			job, err := jobArg(args)
			if err != nil {
				return err
			}
			return a.withExisting(ctx, func(c *tenure.Client) error {
				l, err := ledger.Open(c, job)
				if err != nil {
					return err
				}
				return a.compact(ctx, c, l, keep, asJSON)
			})
		}),
	}
	cmd.Flags().Var(durationFlag{&keep, positive}, "results-older-than", "remove results that ended longer ago than this")
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) compact(ctx context.Context, c *tenure.Client, l *ledger.Ledger, keep time.Duration, asJSON bool) error {
	n, err := l.Compact(ctx)
	if err == nil && n.Facts == 0 {
		err = everRan(ctx, l)
	}
	if err != nil {
		return err
	}
	swept, err := l.Sweep(ctx, keep)
	if err != nil {
		return err
	}
	if asJSON {
		return a.json(compactedJSON{schema, c.Namespace(), l.Agent(), n.Facts, n.Blocks, n.Splits, swept.Blocks, swept.Results})
	}
	a.printf("job %s: %d facts moved into %d blocks, %d of which became two; %d old blocks and %d results removed\n",
		showName(l.Agent()), n.Facts, n.Blocks, n.Splits, swept.Blocks, swept.Results)
	return nil
}

// everRan is an error if the job has no ledger: its name was misspelt, perhaps.
func everRan(ctx context.Context, l *ledger.Ledger) error {
	x, err := l.Load(ctx)
	if err == nil && x.Site == "" {
		err = notFound("job %q never ran", l.Agent())
	}
	return err
}

func newLedgerMergeCmd(a *app) *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "merge FILE... [-o FILE]",
		Short: "Merge the logs of sites that could not reach each other",
		Long: `Merge log files of any jobs and sites (` + "`tenure ledger export`" + `), in any order
with the same result, and write the merged log. What one of them knows as
committed is committed. Epochs of different sites are not comparable, and are
listed apart. No store is asked; ` + "`tenure ledger import`" + ` brings a log into one.`,
		Example: `  tenure ledger merge east.log west.log -o both.log`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{err: errors.New("FILE is missing"), path: cmd.CommandPath()}
			}
			return nil
		},
		RunE: a.action(func(_ context.Context, cmd *cobra.Command, args []string) error {
			if asJSON && file == "" {
				return &usageError{err: errors.New("--json tells of the merge, so the merged log needs a place: give -o FILE"), path: cmd.CommandPath()}
			}
			g, err := readLogs(args)
			if err != nil {
				return err
			}
			if g.Lines == 0 {
				a.warn("there is no line in %s", strings.Join(args, ", "))
			}
			return a.writeMerged(g, file, asJSON)
		}),
	}
	cmd.Flags().VarP(textFlag{&file}, "output", "o", "the `file` for the merged log, replaced as a whole (default standard output)")
	addJSONFlag(cmd, &asJSON)
	return cmd
}

// readLogs joins log files.
func readLogs(files []string) (*ledger.Log, error) {
	g := ledger.NewLog()
	for _, name := range files {
		if err := readLog(g, name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func readLog(g *ledger.Log, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return store.Wrap(store.ErrInvalid, "", "read the log", name, err)
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return errors.Join(invalid("%s is a folder: name the log files in it", name), f.Close())
	}
	if err := errors.Join(g.ReadFrom(name, f), f.Close()); err != nil {
		return &logFileError{err}
	}
	return nil
}

// logFileError is an error of a log file, whose message says what to do: no store is
// concerned.
type logFileError struct{ err error }

func (e *logFileError) Error() string { return e.err.Error() }

func (e *logFileError) Unwrap() error { return e.err }

func (a *app) writeMerged(g *ledger.Log, file string, asJSON bool) error {
	a.tellOfLines(g)
	write := func(w io.Writer) error {
		_, err := g.WriteTo(w)
		return err
	}
	if file == "" {
		return write(a.out)
	}
	if _, err := replaceFile(file, write); err != nil {
		return err
	}
	var t table
	t.row("JOB", "RUNS", "COMMITTED", "FAILED", "UNKNOWN", "REPEATED", "EPOCHS (not comparable)")
	for _, job := range g.Agents() {
		j := newLogJSON(g, job, file)
		if asJSON {
			if err := a.json(j); err != nil {
				return err
			}
			continue
		}
		epochs := ""
		for i, e := range j.Epochs {
			if i > 0 {
				epochs += ", "
			}
			epochs += fmt.Sprintf("%s %d", showName(e.Site), e.Epoch)
		}
		t.row(showName(job), fmt.Sprint(j.Runs), fmt.Sprint(j.Committed), fmt.Sprint(j.Failed), fmt.Sprint(j.Unknown), fmt.Sprint(j.Repeated), orDash(epochs))
	}
	if !asJSON {
		t.print(a.out)
	}
	return nil
}

// tellOfLines tells of lines that were not as a ledger writes them.
func (a *app) tellOfLines(g *ledger.Log) {
	if g.Torn > 0 {
		a.warn("%d logs end in a line that a crash tore: nobody was told that it was written, and it is left out", g.Torn)
	}
	if g.Malformed > 0 {
		a.warn("%d of %d lines are whole, but no valid intents: they commit nothing", g.Malformed, g.Lines)
	}
}

func newLogJSON(g *ledger.Log, job, file string) logJSON {
	j := logJSON{Schema: schema, Job: job, File: file, Lines: g.Lines, Malformed: g.Malformed, Torn: g.Torn, Epochs: []logEpochJSON{}}
	for range g.Runs(job) {
		j.Runs++
	}
	n := countRuns(g.Runs(job))
	j.Committed, j.Repeated, j.Failed, j.Unknown, j.Free = n.committed, n.repeated, n.failed, n.unknown+n.running, n.free
	epochs := g.Epochs(job)
	for _, site := range slices.Sorted(maps.Keys(epochs)) {
		j.Epochs = append(j.Epochs, logEpochJSON{site, epochs[site]})
	}
	return j
}

// replaceFile writes a file as a whole: there is the old one or the new one.
func replaceFile(name string, write func(io.Writer) error) (size int64, err error) {
	bad := func(err error) error { return store.Wrap(store.ErrInvalid, "", "write the log", name, err) }
	f, err := os.CreateTemp(filepath.Dir(name), ".tenure-log-*")
	if err != nil {
		return 0, bad(err)
	}
	w := bufio.NewWriter(f)
	if err = write(w); err == nil {
		if err = errors.Join(w.Flush(), f.Sync()); err != nil {
			err = &outputError{err}
		}
	}
	if info, statErr := f.Stat(); statErr == nil {
		size = info.Size()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return 0, err
	}
	return size, nil
}

func newLedgerImportCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Bring the logs of other sites into this store",
		Long: `Merge what log files know into the ledgers of this store, job by job. After it
no run that happened anywhere is started here. An attempt of another site that
is open makes its run unknown here until it is settled. It may be repeated.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{err: errors.New("FILE is missing"), path: cmd.CommandPath()}
			}
			return nil
		},
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error {
			g, err := readLogs(args)
			if err != nil {
				return err
			}
			a.tellOfLines(g)
			if g.Lines == 0 {
				return invalid("there is nothing to import: no line in %s", strings.Join(args, ", "))
			}
			return a.withClient(ctx, func(c *tenure.Client) error { return a.importLogs(ctx, c, g, asJSON) })
		}),
	}
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) importLogs(ctx context.Context, c *tenure.Client, g *ledger.Log, asJSON bool) error {
	for _, job := range g.Agents() {
		if job == "" { // malformed lines are nobody's
			continue
		}
		l, err := ledger.Open(c, job)
		if err != nil {
			return err
		}
		got, err := l.Import(ctx, g)
		if err != nil {
			return err
		}
		j := importedJSON{Schema: schema, Namespace: c.Namespace(), Job: job, Runs: got.Runs, Open: []attemptJSON{}, Seen: got.Seen}
		for _, o := range got.Opens {
			j.Open = append(j.Open, attemptJSON{Site: o.Site, Attempt: o.Attempt, State: stateOpen, Holder: o.Holder, Epoch: o.Epoch, Since: ledgerInstant(time.UnixMilli(o.Since))})
		}
		if asJSON {
			if err := a.json(j); err != nil {
				return err
			}
			continue
		}
		a.printf("job %s: %d runs are known now; %d attempts of other sites are open\n", showName(job), got.Runs, len(got.Opens))
		if got.Seen > 0 {
			a.printf("job %s: its ledger was lost or set back; once everything is imported: `tenure ledger jump %s --above %d`\n", showName(job), showName(job), got.Seen)
		}
	}
	return nil
}

func newLedgerExportCmd(a *app) *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "export JOB [-o FILE]",
		Short: "Write a job's ledger as a log",
		Long: `Write everything that this store knows of a job's runs as a log, one line each,
with a checksum: for ` + "`tenure ledger merge`" + ` and ` + "`tenure ledger import`" + `.
Results are not in it.`,
		Args:              args(1, "JOB"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if asJSON && file == "" {
				return &usageError{err: errors.New("--json tells of the export, so the log needs a place: give -o FILE"), path: cmd.CommandPath()}
			}
			job, err := jobArg(args)
			if err != nil {
				return err
			}
			return a.withExisting(ctx, func(c *tenure.Client) error { return a.export(ctx, c, job, file, asJSON) })
		}),
	}
	cmd.Flags().VarP(textFlag{&file}, "output", "o", "the `file` for the log, replaced as a whole (default standard output)")
	addJSONFlag(cmd, &asJSON)
	addTimeoutFlag(cmd, timeoutUsage)
	return cmd
}

func (a *app) export(ctx context.Context, c *tenure.Client, job, file string, asJSON bool) error {
	l, err := ledger.Open(c, job)
	if err != nil {
		return err
	}
	x, err := l.Load(ctx)
	if err != nil {
		return err
	}
	if x.Site == "" {
		return notFound("job %q never ran", job)
	}
	g := ledger.NewLog()
	if err := g.Add(x); err != nil {
		return err
	}
	write := func(w io.Writer) error {
		_, err := g.WriteTo(w)
		return err
	}
	if file == "" {
		return write(a.out)
	}
	size, err := replaceFile(file, write)
	if err != nil {
		return err
	}
	runs := 0
	for range x.Runs() {
		runs++
	}
	if asJSON {
		return a.json(exportedJSON{schema, c.Namespace(), job, runs, file, size})
	}
	a.printf("job %s: %d runs, %d bytes\n", showName(job), runs, size)
	return nil
}
