package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
)

// lookLimit is how long the look before a process may take. A store that is slower than
// that is the process's to wait for, and to tell of.
const lookLimit = 5 * time.Second

// looked is what came of the look for an occurrence.
type looked struct {
	t    *task
	done bool
}

// looker looks whether occurrences are done already, by one client for all: where another
// host was faster, no process is started. It is safe for concurrent use.
type looker struct {
	open func(context.Context) (*tenure.Client, error)
	ctx  context.Context
	stop context.CancelFunc // no look goes on

	client chan *tenure.Client // of one element: whoever has it may open the client
}

func newLooker(a *app, t target) *looker {
	opts := a.options(t)
	if !a.flags.verbose {
		opts = append(opts, tenure.WithLogger(slog.New(slog.DiscardHandler))) // the process tells, if it has the same trouble
	}
	l := &looker{client: make(chan *tenure.Client, 1)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	l.client <- nil
	l.open = func(ctx context.Context) (*tenure.Client, error) {
		if err := t.prepare(); err != nil {
			return nil, err
		}
		return tenure.Open(ctx, t.url, opts...)
	}
	return l
}

// done says whether an occurrence is certainly done.
func (l *looker) done(job string, at time.Time) bool {
	ctx, cancel := context.WithTimeout(l.ctx, lookLimit)
	defer cancel()
	run, err := ledger.Occurrence(job, ledger.DefaultTrigger, at)
	if err != nil {
		return false
	}
	var c *tenure.Client
	select {
	case c = <-l.client:
	case <-ctx.Done():
		return false
	}
	if c == nil {
		c, _ = l.open(ctx)
	}
	l.client <- c
	if c == nil {
		return false
	}
	led, err := ledger.Open(c, job)
	if err != nil {
		return false
	}
	answer, err := led.Did(ctx, run)
	return err == nil && answer.Committed
}

// close closes the client, once nobody looks any more.
func (l *looker) close() {
	l.stop()
	if c := <-l.client; c != nil {
		_ = c.Close() // it holds nothing
	}
}
