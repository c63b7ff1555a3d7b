package ledger

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Answer is the answer to "did it happen?".
type Answer struct {
	// Committed: it happened. Repeated: it may have happened more than once.
	Committed, Repeated bool
	// Attempt is the committed attempt, the first if there are several.
	Attempt Key
	// Pending are the attempts that are open. A commit that the head tells is answered
	// without the block, which may know more of Repeated and Attempt: Show reads both.
	Pending []Pending
	// Requests is how many requests the answer took: one or two, more only if blocks
	// were split meanwhile. Bytes is how much was read, at most 64 KiB in two requests.
	Requests, Bytes int
}

// Did tells whether the run happened, at whatever site and epoch: exact as of one
// instant of the call, in at most two requests and 64 KiB (EX3, EX7).
func (l *Ledger) Did(ctx context.Context, run Run) (Answer, error) {
	if err := l.mine("look", run); err != nil {
		return Answer{}, err
	}
	s, err := l.look(ctx, run.ID, true)
	a := Answer{Requests: s.requests, Bytes: s.bytes}
	if err != nil || s.head == nil {
		return a, err
	}
	a.Committed, a.Repeated, a.Attempt = s.committed()
	a.Pending = s.pending()
	return a, nil
}

// RunInfo is what the ledger knows of one run.
type RunInfo struct {
	// ID is the run's.
	ID RunID
	// Committed: it happened. Repeated: it may have happened more than once.
	Committed, Repeated bool
	// Running: an open attempt's holder has the job's lease. A holder that died is not
	// told from one that lives until somebody takes the lease over.
	Running bool
	// Unknown: an attempt is open whose holder has no lease any more, or is of another
	// site.
	Unknown bool
	// Failed: no attempt is open or committed, and the newest was tried or not started.
	Failed bool
	// Trigger and At are the occurrence's, of a run with an open attempt or a kept
	// result.
	Trigger string
	At      time.Time
	// Attempts are all that are known, by site and number. Of older ones that failed, the
	// last 16 are known while the run is not committed; of those that did not start none.
	Attempts []AttemptInfo
	// Saved are the results that are kept, in the order of Attempts; only Show fills it.
	Saved []Saved
}

func (l *Ledger) info(id RunID, attempts []AttemptInfo, committed, repeated bool, over func(Pending) bool) RunInfo {
	r := RunInfo{ID: id, Attempts: attempts, Committed: committed, Repeated: repeated}
	for _, at := range attempts {
		o := at.Open
		if o == nil {
			continue
		}
		r.Trigger, r.At = o.Trigger, instant(o.At)
		if over(*o) {
			r.Unknown = true
		} else {
			r.Running = true
		}
	}
	r.Failed = !committed && !r.Unknown && !r.Running && len(attempts) > 0
	return r
}

// Show is everything that is known of the run, with the results that are kept. A run
// that the ledger never saw has no attempts.
func (l *Ledger) Show(ctx context.Context, run Run) (RunInfo, error) {
	if err := l.mine("show", run); err != nil {
		return RunInfo{}, err
	}
	s, err := l.look(ctx, run.ID, false)
	if err != nil || s.head == nil {
		return RunInfo{ID: run.ID}, err
	}
	held, err := l.holder(ctx)
	if err != nil {
		return RunInfo{}, err
	}
	yes, twice := s.found.Committed()
	r := l.info(run.ID, s.found.Attempts(), yes, twice, func(o Pending) bool { return l.lost(s.head, o, held) })
	for _, at := range r.Attempts {
		saved, err := l.Result(ctx, at.Fact.Key)
		if err != nil {
			return r, err
		}
		if saved != nil {
			r.Saved = append(r.Saved, *saved)
			if r.Trigger == "" {
				r.Trigger, r.At = saved.Trigger, saved.At
			}
		}
	}
	return r, nil
}

// lost reports whether an open attempt's holder has no right to be at it that can be
// seen here.
func (l *Ledger) lost(h *core.Head, o Pending, held core.Lease) bool {
	return o.Site != h.Site || core.Over(h, o, held)
}

// Result is what the attempt k left; nil if nothing was kept, or it was removed.
func (l *Ledger) Result(ctx context.Context, k Key) (*Saved, error) {
	key := l.resultKey(k)
	o, err := l.get(ctx, key, core.MaxResult)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := core.DecodeResult(key, l.agent, k, o.Body)
	if err != nil {
		return nil, err
	}
	s := &Saved{
		Key: r.Key, Holder: r.Holder, Epoch: r.Epoch, Failed: r.Status == core.Failed, Exit: r.Exit, Why: r.Why, Output: r.Output,
		OutputBytes: r.OutputBytes, Started: time.UnixMilli(r.Started).UTC(), Ended: time.UnixMilli(r.Ended).UTC(), Trigger: r.Trigger, At: instant(r.At),
	}
	return s, nil
}

// instant is a record's time; 0 is none.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// Counts are how many runs are in which state. A run that is repeated is committed,
// too, and may be unknown or running as well.
type Counts struct {
	Committed, Repeated, Failed, Running, Unknown int
}

// Listing is a ledger as it was during one reading of all of it.
type Listing struct {
	// Agent and Site are the ledger's; Site is "" if nothing ever ran.
	Agent, Site string
	// Birth is an id of this ledger alone: it tells two of one site name apart.
	Birth string
	// Epoch is the highest, Holder raised it.
	Epoch  uint64
	Holder string
	// Sites are the other sites that were merged.
	Sites []string
	// Sequence counts the writes of the head, Blocks how many blocks there are.
	Sequence uint64
	Blocks   int
	// Counts are of all runs.
	Counts Counts

	l    *Ledger
	a    *core.Agent
	head *core.Head
	held core.Lease
}

// Load reads the whole ledger: the head, and then every block. What was
// committed before it began is in it. It takes a request per block and about 200
// bytes of memory per run.
func (l *Ledger) Load(ctx context.Context) (*Listing, error) {
	h, a, err := l.all(ctx)
	if err != nil {
		return nil, err
	}
	x := &Listing{Agent: l.agent, l: l, a: a, head: h}
	if h == nil {
		return x, nil
	}
	if x.held, err = l.holder(ctx); err != nil {
		return nil, err
	}
	x.Birth = h.Birth
	x.Site, x.Epoch, x.Holder, x.Sequence, x.Blocks = h.Site, h.Epoch, h.Holder, h.Sequence, len(h.Blocks())
	for _, e := range h.Epochs {
		x.Sites = append(x.Sites, e.Site)
	}
	for r := range x.Runs() {
		x.Counts.add(r)
	}
	return x, nil
}

func (c *Counts) add(r RunInfo) {
	for _, n := range []struct {
		yes bool
		n   *int
	}{{r.Committed, &c.Committed}, {r.Repeated, &c.Repeated}, {r.Failed, &c.Failed}, {r.Running, &c.Running}, {r.Unknown, &c.Unknown}} {
		if n.yes {
			*n.n++
		}
	}
}

// Runs yields every run, by id.
func (x *Listing) Runs() iter.Seq[RunInfo] {
	return func(yield func(RunInfo) bool) {
		for _, id := range x.ids() {
			yes, twice := x.a.Committed(id)
			over := func(o Pending) bool { return x.head == nil || x.l.lost(x.head, o, x.held) }
			if !yield(x.l.info(id, x.a.Attempts(id), yes, twice, over)) {
				return
			}
		}
	}
}

// ids are the runs, sorted.
func (x *Listing) ids() []RunID {
	var ids []RunID
	for _, f := range x.a.Facts() {
		ids = append(ids, f.Run)
	}
	for _, o := range x.a.Opens() {
		ids = append(ids, o.Run)
	}
	slices.SortFunc(ids, func(a, b RunID) int { return strings.Compare(string(a[:]), string(b[:])) })
	return slices.Compact(ids)
}

// Unsettled are the runs with an open attempt, by id, in two requests: of the head and
// of the lease. It is what a person looks at first.
func (l *Ledger) Unsettled(ctx context.Context) ([]RunInfo, error) {
	s, err := l.readHead(ctx)
	if err != nil || s.head == nil {
		return nil, err
	}
	held, err := l.holder(ctx)
	if err != nil {
		return nil, err
	}
	a := core.NewAgent(l.agent, 0)
	s.head.Load(a)
	x := &Listing{l: l, a: a, head: s.head, held: held}
	var all []RunInfo
	for r := range x.Runs() {
		if r.Running || r.Unknown {
			all = append(all, r)
		}
	}
	return all, nil
}

// list yields the agents of the namespace.
func list(ctx context.Context, k *kit.Client) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		prefix := store.Prefix(k.Namespace, kindHead)
		for key, err := range settle.Keys(ctx, k.Store, k.Clock, k.Timing.Attempt, prefix, "") {
			if err != nil {
				yield("", err)
				return
			}
			name, err := nameOf(ctx, k, key, strings.TrimPrefix(key, prefix))
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if !yield(name, err) {
				return
			}
		}
	}
}

// nameOf is the agent of a head's key: of a long name only the head tells it.
func nameOf(ctx context.Context, k *kit.Client, key, element string) (string, error) {
	name, exact, err := store.DecodeName(element)
	if err != nil || exact {
		return name, err
	}
	call, cancel := settle.Limit(ctx, k.Clock, k.Timing.Attempt)
	defer cancel()
	o, err := k.Store.Get(call, key, core.MaxHead)
	if err != nil {
		return "", err
	}
	return core.AgentOf(key, o.Body)
}
