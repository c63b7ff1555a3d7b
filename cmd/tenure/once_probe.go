package main

import (
	"context"
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

const (
	// defaultProbeLimit is how long a probe may take.
	defaultProbeLimit = time.Minute
	// probeGrace is how long it may take from TERM to KILL.
	probeGrace = 2 * time.Second
)

// probe asks the user's command whether the work of an attempt that vanished was done.
// It runs under the job's lease, and its process tree is ended with that, or at its time
// limit. Then it has not said anything, and the run stays unknown.
func (w *onceWork) probe(ctx context.Context, p ledger.Pending) (ledger.Finding, error) {
	o := w.o
	late := &probeLateError{o.probeLimit}
	limited, cancel := context.WithTimeoutCause(ctx, o.probeLimit, late)
	defer cancel()
	args := shellArgs(o.unknown.probe)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = o.probeEnv(p)
	cmd.Stdout, cmd.Stderr = o.a.stderr, o.a.stderr // its output is not the command's
	cmd.WaitDelay = probeGrace
	left, err := w.s.Aside(limited, cmd, probeGrace)
	if len(left) > 0 {
		o.a.warn("%s: of its probe there is left what cannot be ended: %v", runText(o.run), left)
	}
	switch code := cmd.ProcessState.ExitCode(); {
	case limited.Err() != nil:
		return ledger.CannotSay, context.Cause(limited)
	case code == probeHappened:
		return ledger.Happened, nil
	case code == probeDidNotHappen:
		return ledger.DidNotHappen, nil
	}
	return ledger.CannotSay, fmt.Errorf("the probe does not say: %w", err)
}

// probeLateError is the cause of the end of a probe that took too long.
type probeLateError struct{ limit time.Duration }

func (e *probeLateError) Error() string {
	return fmt.Sprintf("the probe took longer than %v (--probe-limit), and was ended", e.limit)
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
