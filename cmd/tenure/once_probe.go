package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/ledger"
)

// The exit codes of a probe. Any other one means that it cannot say.
const (
	probeHappened     = 0
	probeDidNotHappen = 1
)

// probe asks the user's command whether the work of an attempt that vanished was done.
// It runs under the job's lease, and ends with it.
func (w *onceWork) probe(ctx context.Context, p ledger.Pending) (ledger.Finding, error) {
	o := w.o
	args := shellArgs(o.unknown.probe)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = o.probeEnv(p)
	cmd.Stdout, cmd.Stderr = o.a.stderr, o.a.stderr // its output is not the command's
	cmd.WaitDelay = 2 * time.Second
	ownGroup(cmd)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ledger.CannotSay, context.Cause(ctx)
	case err == nil:
		return ledger.Happened, nil
	case errors.As(err, &exit) && exit.ExitCode() == probeDidNotHappen:
		return ledger.DidNotHappen, nil
	}
	return ledger.CannotSay, fmt.Errorf("the probe does not say: %w", err)
}

// probeEnv is the environment of a probe: it is about an earlier attempt, and has no
// lease of its own to act under. What our own processes tell each other is not for it.
func (o *doing) probeEnv(p ledger.Pending) []string {
	at := ""
	if p.At != 0 {
		at = instantText(time.UnixMilli(p.At))
	}
	pairs := []string{envJob, o.job, envRun, p.Run.String(), envAttempt, fmt.Sprint(p.Attempt), envAt, at, envToken, fmt.Sprint(p.Epoch), envOwner, p.Holder}
	return slices.DeleteFunc(o.a.env.with(append(pairs, o.way...)...), func(kv string) bool { return strings.HasPrefix(kv, "_TENURE_") })
}
