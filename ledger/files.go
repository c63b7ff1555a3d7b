package ledger

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// look is what was read of one ledger, and of one run in it.
type look struct {
	head *core.Head // nil: there is no ledger yet
	ver  store.Version
	run  RunID
	// block is the one that may know of run, read after head or after one that this
	// process replaced by it; found is both together. Both are nil if the head alone
	// answered.
	block *core.Block
	found *core.Found
	fell  error // it shows less than this host has seen: a tenure.RegressedError
	over  bool  // another wrote over this head already; it has no version

	requests, bytes int
}

// of is what was read of the run: attempts, and the answer.
func (s *look) of() (all []AttemptInfo, yes, repeated bool) {
	if s.found != nil {
		yes, repeated = s.found.Committed()
		return s.found.Attempts(), yes, repeated
	}
	a := core.NewAgent(s.head.Agent, 0)
	s.head.Load(a)
	yes, repeated = a.Committed(s.run)
	return a.Attempts(s.run), yes, repeated
}

// committed is the answer for the run.
func (s *look) committed() (yes, repeated bool, first Key) {
	all, yes, repeated := s.of()
	for _, at := range all {
		if at.Committed {
			return yes, repeated, at.Fact.Key
		}
	}
	return yes, repeated, Key{}
}

// pending are the open attempts of the run.
func (s *look) pending() []Pending {
	all, _, _ := s.of()
	return open(all)
}

func open(all []AttemptInfo) (pending []Pending) {
	for _, at := range all {
		if at.Open != nil {
			pending = append(pending, *at.Open)
		}
	}
	return pending
}

func (f *files) identity() string { return f.k.Store.Info().Identity }

func (f *files) blockKey(leaf string) string { return f.logKey + "block/" + core.BlockName(leaf) }

func (f *files) resultKey(k Key) string { return f.logKey + "result/" + core.ResultName(k) }

// mine returns ErrInvalid unless run is of this agent and has an id.
func (f *files) mine(op string, run Run) error {
	if run.Agent != f.agent || run.ID == (RunID{}) {
		return invalid(op, "the run %v is of job %q, the ledger of %q: make it with Occurrence, Named or Manual", run.ID, run.Agent, f.agent)
	}
	return nil
}

// get reads one object within the attempt limit.
func (f *files) get(ctx context.Context, key string, limit int) (store.Object, error) {
	call, cancel := settle.Limit(ctx, f.k.Clock, f.k.Timing.Attempt)
	defer cancel()
	return f.k.Store.Get(call, key, limit)
}

// readHead looks at the head once, linearizably. A head that shows less than this host
// has seen is an error: who went on with it would repeat what was done since.
func (f *files) readHead(ctx context.Context) (look, error) {
	s, err := f.anyHead(ctx)
	if err == nil {
		err = s.fell
	}
	return s, err
}

// anyHead is readHead for those who mend a ledger that fell: how far it did is in the
// look.
func (f *files) anyHead(ctx context.Context) (look, error) {
	// What others see while the read is under way says nothing of it.
	seen := f.k.Seen(kindHead, f.agent)
	o, err := f.get(ctx, f.headKey, core.MaxHead)
	s := look{ver: o.Version, requests: 1, bytes: len(o.Body)}
	if errors.Is(err, store.ErrNotFound) {
		if s.fell = seen(0); s.fell != nil {
			s.fell = &GoneError{Agent: f.agent, Store: f.identity(), err: s.fell}
		}
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if s.head, err = f.decode(o.Body); err == nil {
		s.fell = seen(s.head.Sequence)
	}
	return s, err
}

func (f *files) decode(body []byte) (*core.Head, error) {
	h, err := core.DecodeHead(f.headKey, f.agent, body)
	if err == nil && f.site != "" && h.Site != f.site {
		err = store.Errorf(store.ErrInvalid, f.identity(), "read", f.headKey, "the ledger of %q is of site %q, not of %q: its site never changes", f.agent, h.Site, f.site)
	}
	return h, err
}

// look reads what is known of a run: the head, then the block (EX7). If quick, the head
// alone may say that the run is committed.
func (f *files) look(ctx context.Context, run RunID, quick bool) (look, error) {
	var before look
	for {
		s, err := f.readHead(ctx)
		s.run, s.requests, s.bytes = run, s.requests+before.requests, s.bytes+before.bytes
		if err != nil || s.head == nil || quick && s.head.Committed(run) {
			return s, err
		}
		leaf, ok := s.head.BlockOf(run)
		if ok {
			err = f.readBlock(ctx, leaf, &s)
		}
		switch {
		case errors.Is(err, store.ErrNotFound) && s.ver != before.ver: // it was split: the next head knows
			before = s
			continue
		case errors.Is(err, store.ErrNotFound): // Look says that it is lost
		case err != nil:
			return s, err
		}
		s.found, err = core.Look(s.head, s.block, run)
		return s, err
	}
}

func (f *files) readBlock(ctx context.Context, leaf string, s *look) error {
	key := f.blockKey(leaf)
	o, err := f.get(ctx, key, core.MaxBlock)
	s.requests++
	s.bytes += len(o.Body)
	if err != nil {
		return err
	}
	s.block, err = core.DecodeBlock(key, f.agent, leaf, o.Body)
	return err
}

// patiently repeats what time may mend, until ctx ends. It warns of that once.
func (f *files) patiently(ctx context.Context, do func() error) error {
	p := f.k.Pace(f.k.Timing)
	warned := false
	for wait := p.Backoff; ; wait = min(2*wait, 16*p.Backoff) {
		err := do()
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return err
		}
		if !warned {
			warned = true
			f.k.Log.Warn("ledger: the store is in trouble, trying again", "job", f.agent, "error", err)
		}
		if !clock.Sleep(f.k.Clock, p.Jitter(wait), ctx.Done()) {
			return err
		}
	}
}

// retryable reports whether time may mend err. An error of no kind, such as a store that
// shows less than was seen, is none that waiting helps.
func retryable(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown)
}

// doubt is a write whose outcome is not known.
type doubt struct {
	w    settle.Write
	sent deadline.Stamp
}

// write sends next over the state s and settles it, until ctx ends. in reports whether
// a later head shows that next was written: then the new state is over already. It has s's
// block. A doubt comes exactly with ErrUnknown.
func (f *files) write(ctx context.Context, s look, next *core.Head, in func(h *core.Head) bool) (look, *doubt, error) {
	body, err := next.Encode()
	if err != nil {
		return s, nil, err
	}
	over := false
	w := settle.Write{
		Key: f.headKey, Body: body, Over: s.ver, Limit: core.MaxHead,
		Mine: func(b []byte) bool {
			h, err := core.DecodeHead(f.headKey, f.agent, b)
			over = err == nil && h.WriterAttempt != next.WriterAttempt
			return err == nil && (!over || in(h))
		},
	}
	sent := deadline.Take(f.k.Clock)
	res, err := settle.Do(ctx, f.k.Store, w, f.k.Pace(f.k.Timing))
	if res.Outcome == settle.Unknown {
		return s, &doubt{w, sent}, err
	}
	if err != nil {
		return s, nil, err
	}
	now := look{head: next, ver: res.Version, run: s.run, block: s.block, over: over && res.Found != nil}
	if now.over { // what stands was not read: nobody may write over it
		now.ver = ""
	}
	_ = f.k.Seen(kindHead, f.agent)(next.Sequence) // from now on less is a store that went back
	return now, nil, nil
}

// plan makes the head that is to follow h, as the write attempt; nil if nothing is to
// change. It may be called more than once.
type plan func(h *core.Head, attempt string) (*core.Head, error)

// change writes what p makes of the head until that sticks or ctx ends. A ledger that
// was never begun is ErrNotFound. A full head is compacted first. hint is the head as it
// was last seen: if it still stands it need not be read.
func (f *files) change(ctx context.Context, hint look, p plan) (*core.Head, error) {
	for s := hint; ; s = (look{}) {
		if s.head == nil {
			if err := f.patiently(ctx, func() (err error) { s, err = f.readHead(ctx); return err }); err != nil {
				return nil, err
			}
		}
		if s.head == nil {
			return nil, store.Errorf(store.ErrNotFound, f.identity(), "read", f.headKey, "job %q never ran", f.agent)
		}
		next, err := p(s.head, f.k.NewID())
		if full := (*core.FullError)(nil); errors.As(err, &full) && full.Facts > 0 {
			if err := f.makeRoom(ctx, err); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil || next == nil {
			return s.head, err
		}
		s, _, err = f.write(ctx, s, next, func(*core.Head) bool { return false })
		if err == nil {
			return s.head, nil
		}
		if !settle.LostRace(err) {
			return nil, err
		}
		f.pause(ctx)
	}
}

// pause keeps two writers that race apart.
func (f *files) pause(ctx context.Context) {
	p := f.k.Pace(f.k.Timing)
	clock.Sleep(f.k.Clock, p.Jitter(p.Backoff), ctx.Done())
}

// put creates an object that is written once; the one that stands there is as good if
// it is the same, or if any will do.
func (f *files) put(ctx context.Context, key string, body []byte, any bool) error {
	_, err := settle.Do(ctx, f.k.Store, settle.Write{
		Key: key, Body: body, Limit: core.MaxResult, Mine: func(b []byte) bool { return bytes.Equal(b, body) },
	}, f.k.Pace(f.k.Timing))
	if any && errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// within is ctx's values with a time limit of its own: what must be written down does
// not end with the caller.
func (f *files) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return settle.Limit(context.WithoutCancel(ctx), f.k.Clock, d)
}
