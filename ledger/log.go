package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/store"
)

func (g *Log) readFrom(name string, r io.Reader) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return store.Wrap(store.ErrUnavailable, "", "read log", name, err)
	}
	read, err := core.ReadLog(name, body, g.s.Fold)
	g.Lines += read.Lines
	g.Malformed += read.Malformed
	if read.Torn {
		g.Torn++
	}
	if err == nil {
		if err = g.s.OneEach(); err != nil {
			err = fmt.Errorf("log %s: %w", name, err)
		}
	}
	return err
}

func (g *Log) add(x *Listing) error {
	into := g.agent(x.Agent)
	if err := into.CanJoin(x.a); err != nil {
		return err
	}
	into.Join(x.a)
	return nil
}

// agent is the agent's fold, to join into.
func (g *Log) agent(name string) *core.Agent { return g.s.Into(name) }

func (g *Log) runs(agent string) iter.Seq[RunInfo] {
	x := &Listing{Agent: agent, a: g.s.Agent(agent), l: &Ledger{files: &files{agent: agent}}}
	return x.Runs()
}

func (g *Log) epochs(agent string) map[string]uint64 { return g.s.Agent(agent).Epochs() }

func (g *Log) writeTo(w io.Writer) (int64, error) {
	var total int64
	if err := g.s.OneEach(); err != nil {
		return 0, err
	}
	for _, name := range g.s.Agents() {
		var lines []byte
		for _, i := range g.s.Agent(name).Intents() {
			var err error
			if lines, err = core.AppendFolded(lines, &i); err != nil {
				return total, err
			}
			if len(lines) >= 64<<10 {
				if err := flush(w, &lines, &total); err != nil {
					return total, err
				}
			}
		}
		if err := flush(w, &lines, &total); err != nil {
			return total, err
		}
	}
	return total, nil
}

func flush(w io.Writer, lines *[]byte, total *int64) error {
	n, err := w.Write(*lines)
	*total += int64(n)
	*lines = (*lines)[:0]
	if err != nil {
		return store.Wrap(store.ErrUnavailable, "", "write log", "", err)
	}
	return nil
}

// importLog merges what g knows into the ledger.
func (l *Ledger) importLog(ctx context.Context, g *Log) (Imported, error) {
	from := g.s.Agent(l.agent)
	if from.Len() == 0 && len(from.Epochs()) == 0 {
		return Imported{}, store.Errorf(store.ErrNotFound, "", "import", "", "the log knows nothing of job %q; it has %q", l.agent, g.Agents())
	}
	if err := from.OneEach(); err != nil {
		return Imported{}, err
	}
	if err := l.begin(ctx, from); err != nil {
		return Imported{}, err
	}
	_, head, err := l.move(ctx, l.anyHead, func(h *core.Head) (*core.Compaction, error) { return core.Import(h, from) })
	if err != nil {
		return Imported{}, err
	}
	done := Imported{Runs: from.Len()}
	var fell *tenure.RegressedError
	if errors.As(l.k.Seen(kindHead, l.agent)(head.Sequence), &fell) {
		done.Seen = fell.Seen
	}
	for _, o := range head.Open {
		if o.Site != head.Site {
			done.Opens = append(done.Opens, o)
		}
	}
	return done, nil
}

// begin makes the ledger if it is not there. If from knows of one of its site, it is that
// one that goes on.
func (l *Ledger) begin(ctx context.Context, from *core.Agent) error {
	s, err := l.anyHead(ctx)
	if err != nil || s.head != nil {
		return err
	}
	site := l.siteName()
	h, err := core.Continue(l.agent, site, l.k.NewID(), from)
	if err != nil {
		return err
	}
	if from.Birth(site) != "" {
		l.k.Log.Warn("ledger: this ledger goes on as the one that wrote the log; let nothing run on that one any more", "job", l.agent, "site", site, "birth", h.Birth)
	}
	if _, _, err = l.write(ctx, s, h, func(*core.Head) bool { return true }); store.KindOf(err) == store.ErrExists {
		return nil
	}
	return err
}
