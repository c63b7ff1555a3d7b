package main

import (
	"iter"
	"time"

	"github.com/tenure-project/tenure/ledger"
)

// jobJSON is one job, for ledger ls.
type jobJSON struct {
	Schema    int      `json:"schema"`
	Namespace string   `json:"namespace"`
	Job       string   `json:"job"`
	Site      string   `json:"site"`
	Epoch     uint64   `json:"epoch"`
	Holder    string   `json:"holder"`
	Sites     []string `json:"sites"`
	Sequence  uint64   `json:"sequence"`
	Blocks    int      `json:"blocks"`
	Committed int      `json:"committed"`
	Repeated  int      `json:"repeated"`
	Failed    int      `json:"failed"`
	Running   int      `json:"running"`
	Unknown   int      `json:"unknown"`
	Free      int      `json:"free"`
}

func newJobJSON(namespace string, x *ledger.Listing, n jobCounts) jobJSON {
	return jobJSON{
		Schema: schema, Namespace: namespace, Job: x.Agent, Site: x.Site, Epoch: x.Epoch, Holder: x.Holder, Sites: append([]string{}, x.Sites...),
		Sequence: x.Sequence, Blocks: x.Blocks, Committed: n.committed, Repeated: n.repeated, Failed: n.failed, Running: n.running, Unknown: n.unknown, Free: n.free,
	}
}

// runJSON is one run, for ledger ls --state, show, settle and retry.
type runJSON struct {
	Schema    int           `json:"schema"`
	Namespace string        `json:"namespace"`
	Job       string        `json:"job"`
	Run       string        `json:"run"`
	State     string        `json:"state"`
	Committed bool          `json:"committed"`
	Repeated  bool          `json:"repeated"`
	Trigger   string        `json:"trigger"`
	At        *time.Time    `json:"at"`
	Attempts  []attemptJSON `json:"attempts"`
}

// attemptJSON is one attempt of a run.
type attemptJSON struct {
	Site      string      `json:"site"`
	Attempt   uint64      `json:"attempt"`
	State     string      `json:"state"`
	Holder    string      `json:"holder"`
	Epoch     uint64      `json:"epoch"`
	Since     *time.Time  `json:"since"`
	Abandoned string      `json:"abandoned_by"`
	Result    *resultJSON `json:"result"`
}

// resultJSON is what an attempt left.
type resultJSON struct {
	Exit        int        `json:"exit"`
	Why         string     `json:"why"`
	Started     *time.Time `json:"started"`
	Ended       *time.Time `json:"ended"`
	Output      []byte     `json:"output"`
	OutputBytes int64      `json:"output_bytes"`
}

func newRunJSON(namespace, job string, r ledger.RunInfo) runJSON {
	j := runJSON{
		Schema: schema, Namespace: namespace, Job: job, Run: r.ID.String(), State: runState(r), Committed: r.Committed, Repeated: r.Repeated,
		Trigger: r.Trigger, At: ledgerInstant(r.At), Attempts: []attemptJSON{},
	}
	for _, at := range r.Attempts {
		j.Attempts = append(j.Attempts, newAttemptJSON(at, r.Saved))
	}
	return j
}

func newAttemptJSON(at ledger.AttemptInfo, saved []ledger.Saved) attemptJSON {
	j := attemptJSON{Site: at.Site, Attempt: at.Attempt, State: attemptState(at)}
	if o := at.Open; o != nil {
		j.Holder, j.Epoch, j.Since = o.Holder, o.Epoch, ledgerInstant(time.UnixMilli(o.Since))
	}
	if at.Abandoned != nil {
		j.Abandoned = at.Abandoned.By
	}
	for _, s := range saved {
		if s.Key != at.Fact.Key {
			continue
		}
		j.Holder, j.Epoch = s.Holder, s.Epoch
		j.Result = &resultJSON{Exit: s.Exit, Why: s.Why, Started: ledgerInstant(s.Started), Ended: ledgerInstant(s.Ended), Output: append([]byte{}, s.Output...), OutputBytes: s.OutputBytes}
	}
	return j
}

// The states of a run, and of an attempt.
const (
	stateUnknown   = "unknown"
	stateRunning   = "running"
	stateFailed    = "failed"
	stateCommitted = "committed"
	stateRepeated  = "repeated"
	stateFree      = "free"
	stateAll       = "all"

	stateOpen       = "open"
	stateNotStarted = "not-started"
	stateAbandoned  = "abandoned"
)

// runState is what matters most about a run.
func runState(r ledger.RunInfo) string {
	switch {
	case r.Unknown:
		return stateUnknown
	case r.Running:
		return stateRunning
	case r.Committed:
		return stateCommitted
	case runFailed(r):
		return stateFailed
	}
	return stateFree
}

// runFailed reports whether the run is over because the last attempt of a site failed:
// one that did not begin, or that was given up, stands in nobody's way.
func runFailed(r ledger.RunInfo) bool {
	failed := false
	for i, at := range r.Attempts {
		newest := i+1 == len(r.Attempts) || r.Attempts[i+1].Site != at.Site
		failed = failed || newest && at.Open == nil && at.Failed && at.Abandoned == nil
	}
	return failed && !r.Committed && !r.Running && !r.Unknown
}

// jobCounts are how many runs are in which state. One that is repeated or open may be
// committed, too.
type jobCounts struct{ committed, repeated, failed, running, unknown, free int }

func countRuns(runs iter.Seq[ledger.RunInfo]) (n jobCounts) {
	for r := range runs {
		for _, c := range []struct {
			yes bool
			n   *int
		}{{r.Committed, &n.committed}, {r.Repeated, &n.repeated}, {runFailed(r), &n.failed}, {r.Running, &n.running}, {r.Unknown, &n.unknown}, {runState(r) == stateFree, &n.free}} {
			if c.yes {
				*c.n++
			}
		}
	}
	return n
}

func attemptState(at ledger.AttemptInfo) string {
	switch {
	case at.Open != nil:
		return stateOpen
	case at.Committed:
		return stateCommitted
	case at.Abandoned != nil:
		return stateAbandoned
	case at.NotBegun && !at.Failed:
		return stateNotStarted
	}
	return stateFailed
}

// compactedJSON is what ledger compact did.
type compactedJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Facts     int    `json:"facts"`
	Blocks    int    `json:"blocks"`
	Splits    int    `json:"splits"`
	Removed   int    `json:"removed_blocks"`
	Results   int    `json:"removed_results"`
}

// logJSON is one job of a merged log.
type logJSON struct {
	Schema    int            `json:"schema"`
	Job       string         `json:"job"`
	Runs      int            `json:"runs"`
	Committed int            `json:"committed"`
	Repeated  int            `json:"repeated"`
	Failed    int            `json:"failed"`
	Unknown   int            `json:"unknown"`
	Free      int            `json:"free"`
	Epochs    []logEpochJSON `json:"epochs"`
	File      string         `json:"file"`
	Lines     int            `json:"lines"`
	Malformed int            `json:"malformed"`
	Torn      int            `json:"torn"`
}

// logEpochJSON is the highest epoch of one site. Those of two sites are not comparable.
type logEpochJSON struct {
	Site  string `json:"site"`
	Epoch uint64 `json:"epoch"`
}

// importedJSON is what ledger import did to one job.
type importedJSON struct {
	Schema    int           `json:"schema"`
	Namespace string        `json:"namespace"`
	Job       string        `json:"job"`
	Runs      int           `json:"runs"`
	Open      []attemptJSON `json:"open"`
	Seen      uint64        `json:"seen"`
}

// exportedJSON is what ledger export wrote.
type exportedJSON struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Runs      int    `json:"runs"`
	File      string `json:"file"`
	Bytes     int64  `json:"bytes"`
}

// lastYear is the last that RFC 3339, and with it JSON, can write.
const lastYear = 9999

// ledgerInstant is instant, and null beyond the last year: the log of another program may
// name any time, and one such run must not hide all others.
func ledgerInstant(t time.Time) *time.Time {
	if t.UTC().Year() > lastYear {
		return nil
	}
	return instant(t)
}
