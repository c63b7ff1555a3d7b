package ledger

import (
	"context"
	"io"
	"iter"

	core "github.com/tenure-project/tenure/internal/core/ledger"
)

// Log is the join of any ledgers and log files, of any agents (EX7). Joining is
// commutative, associative and idempotent: any order gives the same. The zero value is
// not ready: use NewLog. Not for concurrent use.
type Log struct {
	s *core.State
	// Lines, Malformed and Torn count what Read read: whole lines, those among them that
	// were no valid intents, and last lines that a crash tore.
	Lines, Malformed, Torn int
}

// NewLog is an empty log.
func NewLog() *Log { return &Log{s: core.NewState()} }

// ReadFrom joins a log file of one or more agents, of one or more sites. name is for
// messages. A damaged line is ErrCorrupt: a lost commit could become a repeat; a torn
// last line was never acknowledged and is dropped. What a malformed line says of a run
// counts (EX3), and WriteTo keeps it. If two ledgers that are called by one site name
// come together that is ErrInvalid, here and in WriteTo and Import: nothing that the log
// says of that job is to be trusted then.
func (g *Log) ReadFrom(name string, r io.Reader) error { return g.readFrom(name, r) }

// Add joins a whole ledger. One that is called by the site name of another that the log
// knows of is ErrInvalid, and changes nothing.
func (g *Log) Add(x *Listing) error { return g.add(x) }

// Agents are the agents that it knows of, sorted.
func (g *Log) Agents() []string { return g.s.Agents() }

// Runs yields the runs of an agent, by id. Whose lease is whose cannot be known here: an
// open attempt is Unknown.
func (g *Log) Runs(agent string) iter.Seq[RunInfo] { return g.runs(agent) }

// Did is Ledger.Did of what the log knows.
func (g *Log) Did(run Run) (committed, repeated bool) { return g.s.Agent(run.Agent).Committed(run.ID) }

// Epochs are the highest epoch of each site of an agent. Those of different sites are
// not comparable.
func (g *Log) Epochs(agent string) map[string]uint64 { return g.epochs(agent) }

// WriteTo writes the fewest lines that say the same, agent by agent: two logs that know
// the same write the same bytes.
func (g *Log) WriteTo(w io.Writer) (int64, error) { return g.writeTo(w) }

// Imported is what Import did.
type Imported struct {
	// Runs is how many runs the log knows of; Opens are the attempts of other sites that
	// are open now: their runs are unknown here until they are settled.
	Runs  int
	Opens []Pending
	// Seen is the sequence that this host had seen, if the ledger shows less: its store
	// was lost or set back. Once everything is imported, Jump above it: until then nothing
	// is started by who remembers.
	Seen uint64
}

// Import merges what g knows of this agent into the ledger (EX7). After it no run that
// was committed anywhere is started here. It is done when it returns nil, and may be
// repeated. More than 16 other sites are ErrInvalid, and so is a log of another ledger
// that is called like this one, or like one that was merged before: each ledger has a
// birth, an id that its logs carry. Where nothing ever ran and the log is of this
// ledger's own site, the ledger goes on as the one that wrote the log: do that to move a
// ledger, and let nothing run on the old one any more.
func (l *Ledger) Import(ctx context.Context, g *Log) (Imported, error) { return l.importLog(ctx, g) }

// Export writes the whole ledger as log lines: see Log.WriteTo.
func (l *Ledger) Export(ctx context.Context, w io.Writer) error {
	x, err := l.Load(ctx)
	if err != nil {
		return err
	}
	g := NewLog()
	if err := g.Add(x); err != nil {
		return err
	}
	_, err = g.WriteTo(w)
	return err
}
