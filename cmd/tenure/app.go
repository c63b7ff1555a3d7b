package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/stores"
)

// app is one run of the program: what it was given, and what every sub-command
// shares. It is for one goroutine.
type app struct {
	stdin  io.Reader
	stdout io.Writer // as it was given, for a child process
	stderr io.Writer
	out    *output // what the program itself prints
	env    environment

	drivers []store.Driver // beyond mem: and file:
	clk     clock.Clock

	flags struct {
		store, namespace string
		verbose          bool
	}
	begun  bool // the command line was understood; errors before that are usage errors
	status int  // what to exit with where there is no error: a child's status

	verdictTells bool // the command's own last message tells of losses: the log need not
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, environ []string) *app {
	return &app{
		stdin: stdin, stdout: stdout, stderr: stderr, out: &output{w: bufio.NewWriter(stdout)},
		env: newEnvironment(environ), drivers: stores.All(), clk: clock.NewSystem(),
	}
}

// run executes root with args and returns the exit code. Every error is printed
// here and nowhere else.
func (a *app) run(root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.out)
	root.SetErr(a.stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	if err != nil && !a.begun && !errors.As(err, new(*usageError)) {
		err = &usageError{err: err, path: cmd.CommandPath()}
	}
	if err = errors.Join(err, a.out.flush()); err == nil {
		return a.status
	}
	return a.report(err)
}

// action wraps the body of a sub-command: it gets a context that ends by signal
// or by --timeout, where the command has that flag. A command that runs another
// program does without it: package proc wants the signals for itself.
func (a *app) action(f func(ctx context.Context, cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.begun = true
		ctx, stop := signalled(cmd.Context())
		defer stop()
		if d := timeoutOf(cmd); d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, d, &timeLimitError{limit: d})
			defer cancel()
		}
		err := f(ctx, cmd, args)
		if err != nil && ctx.Err() != nil {
			return &endedError{cause: context.Cause(ctx), err: err}
		}
		return err
	}
}

// withClient opens the store and the namespace for f, and closes them after it.
// Whatever can be checked without the store is checked before.
func (a *app) withClient(ctx context.Context, f func(c *tenure.Client) error, opts ...tenure.Option) error {
	c, err := a.open(ctx, opts...)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// open opens the client that the flags and the environment choose.
func (a *app) open(ctx context.Context, opts ...tenure.Option) (*tenure.Client, error) {
	t, err := a.target()
	if err != nil {
		return nil, err
	}
	if err := t.prepare(); err != nil {
		return nil, err
	}
	return tenure.Open(ctx, t.url, append(a.options(t), opts...)...)
}

// options are what every client and store of this program is opened with.
func (a *app) options(t target) []tenure.Option {
	opts := []tenure.Option{
		tenure.WithDrivers(a.drivers...), tenure.WithNamespace(t.namespace),
		tenure.WithLogger(a.logger()), tenure.WithClock(a.clk),
	}
	if dir := a.stateDir(); dir != "" {
		opts = append(opts, tenure.WithStateDir(dir))
	}
	return opts
}

// logger prints what a person should know while a command runs.
func (a *app) logger() *slog.Logger {
	h := &logHandler{w: a.stderr, mu: new(sync.Mutex), least: slog.LevelWarn, most: aboveAll}
	switch {
	case a.flags.verbose:
		h.least = slog.LevelDebug
	case a.verdictTells:
		h.most = slog.LevelError - 1
	}
	return slog.New(h)
}

// warn prints a line that is no error.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, "tenure: warning: %s\n", printable(fmt.Sprintf(format, args...)))
}

// output buffers what a command prints and keeps the first error of the writer.
type output struct {
	w   *bufio.Writer
	err error
}

// Write never fails; flush reports what went wrong.
func (o *output) Write(p []byte) (int, error) {
	if _, err := o.w.Write(p); err != nil && o.err == nil {
		o.err = &outputError{err}
	}
	return len(p), nil
}

// flush sends what is buffered.
func (o *output) flush() error {
	if err := o.w.Flush(); err != nil && o.err == nil {
		o.err = &outputError{err}
	}
	return o.err
}

func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

// signalled is a context that the first INT or TERM ends. The next one meets
// the system's default and kills, for a program that hangs.
func signalled(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-ch:
			signal.Stop(ch)
			cancel(&signalError{sig: s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		cancel(nil)
		<-done
	}
}

// signalError is the cause of a context that a signal ended.
type signalError struct{ sig os.Signal }

func (e *signalError) Error() string { return "stopped by signal: " + e.sig.String() }

// code is what shells return for a process that the signal ended.
func (e *signalError) code() int {
	if s, ok := e.sig.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return 130
}

// timeLimitError is the cause of a context that --timeout ended.
type timeLimitError struct{ limit time.Duration }

func (e *timeLimitError) Error() string {
	return fmt.Sprintf("the time limit of %v (--timeout) ended", e.limit)
}

// endedError is an error of a command whose context had ended.
type endedError struct{ cause, err error }

func (e *endedError) Error() string {
	if text := e.err.Error(); !strings.Contains(text, e.cause.Error()) {
		return e.cause.Error() + ": " + text
	}
	return e.err.Error()
}

func (e *endedError) Unwrap() []error { return []error{e.cause, e.err} }

// outputError says that what was to be printed could not be.
type outputError struct{ err error }

func (e *outputError) Error() string { return "cannot write the output: " + e.err.Error() }

func (e *outputError) Unwrap() error { return e.err }
