package authority

import (
	"context"
	"errors"
	"fmt"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Append makes body a decision of the chain of r, as p's (LA4): an entry, and the
// head that admits it, over exactly the state in which p leads; a body of more than
// 64 KiB is a blob of its own, at most 8 MiB. Calling it again with the same proof
// and body converges: Unchanged. A stale proof is told what stands, too; one of
// another process admits nothing (ErrInvalid).
//
// Lost replies are settled by reading back. If ctx ends before the outcome is known,
// the error is a store.ErrUnknown and the decision is settled in the background,
// before the session leaves; calling Append again tells what became of it. Any
// other error means that this call's decision was not and will not be admitted.
// The rules' own refusals are errors, too (ErrInventoryChanged, for one).
func (a *Authority) Append(ctx context.Context, p tenure.Proof, r Rules, body []byte) (Result, error) {
	return a.append(ctx, p, r, Draft{Body: body})
}

// decision is one decision through all its attempts. Its methods are for one
// goroutine.
type decision struct {
	a        *Authority
	proof    tenure.Proof
	rules    Rules
	draft    Draft
	key      uint64
	blob     string // the blob's attempt id
	written  bool   // the blob stands
	attempts map[string]bool
	names    []core.Name // to be noted as landed with the final answer
	head     *core.Head  // of the last round
	leader   *Leader     // under which the blob is written
	trail    *core.Trail
	due      bool // the compaction that is due was seen to
	whole    bool // the chain must be walked to its end: it may be full for want of a compaction
	fresh    bool // the head must be read before the next plan
	doubt    bool // a head was sent, and nothing final is known of it
	settling bool // only what was sent is brought to its end
	result   Result
}

// step is what a round came to.
type step int

const (
	answered  step = iota
	again          // plan anew, at once
	walkFirst      // the answer needs the chain
	blobFirst      // the blob must stand before the entry
)

func (a *Authority) append(ctx context.Context, p tenure.Proof, r Rules, draft Draft) (Result, error) {
	// What its bytes alone show is told before anything is sent.
	it, err := r.Item(r.Chain(), core.Proof(p), draft.Body)
	if err = errors.Join(core.Proof(p).Valid(), err); err != nil {
		a.Kit().Landed(draft.Objects...)
		return Result{}, store.Wrap(store.ErrInvalid, "", "append", r.Chain(), err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.over, func() { cancel(context.Cause(a.over)) })()
	d := &decision{a: a, proof: p, rules: r, draft: draft, key: it.Key, blob: a.c.NewID(), attempts: map[string]bool{}, names: draft.Objects}
	from := a.c.Clock.Boot()
	err = d.run(ctx)
	defer func() {
		e := kit.Event{Chain: r.Chain(), Took: a.c.Clock.Boot() - from, Err: err}
		if err == nil {
			e.Answer = d.result.Answer.String()
		}
		a.tell(tenure.EventDecided, p.Token, e)
	}()
	if d.doubt {
		a.session.Settle(fmt.Sprintf("a decision in chain %s of authority %q", r.Chain(), a.name), d.finish)
		err = store.Wrap(store.ErrUnknown, a.identity(), "append", a.headKey, err)
		return Result{}, err
	}
	d.landed()
	return d.result, err
}

// finish settles the decision of a caller that went. It admits nothing any more.
func (d *decision) finish(ctx context.Context) error {
	d.fresh, d.settling = true, true
	err := d.run(ctx)
	if d.doubt {
		return err
	}
	d.landed()
	return nil
}

// landed notes that nothing will link the decision's objects but what does.
func (d *decision) landed() {
	d.a.mu.Lock()
	defer d.a.mu.Unlock()
	for _, n := range d.names {
		d.a.cand.Landed(n)
	}
	d.names = nil
}

// run goes on until the answer is final, an error is, or ctx ends.
func (d *decision) run(ctx context.Context) error {
	p := d.a.c.Pace(d.a.cfg.timing)
	var refused *refusal
	for wait := p.Backoff; ; {
		s, err := d.round(ctx)
		if err == nil {
			switch s {
			case answered:
				return nil
			case again:
				continue
			case walkFirst:
				err = d.walk(ctx)
			case blobFirst:
				err = d.writeBlob(ctx)
			}
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return store.Wrap(store.ErrUnavailable, d.a.identity(), "append", d.a.headKey, fmt.Errorf("%w: %w", context.Cause(ctx), err))
		case errors.As(err, &refused):
			if !errors.Is(refused.err, store.ErrCorrupt) { // it was judged at a head that was read since
				d.doubt = false
			}
			return refused.err
		case !d.doubt && !retryable(err):
			return err
		}
		clock.Sleep(d.a.c.Clock, p.Jitter(wait), ctx.Done())
		wait = min(2*wait, 16*p.Backoff)
	}
}

// round plans the decision over the head as it is, and writes what the plan needs.
// It holds the lock, so that no write of the head comes between, and at most one
// decision stands before the keeper at a time.
func (d *decision) round(ctx context.Context) (step, error) {
	a := d.a
	next, err := a.take(ctx, a.turn)
	if err != nil {
		return again, err
	}
	defer next()
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return again, err
	}
	defer free()
	l, err := d.look(ctx)
	if err != nil {
		return again, err
	}
	plan, err := d.plan()
	if l != nil && !d.due && !plan.Compacted && plan.Answer != core.Look && core.Due(d.head, d.rules) {
		return d.compact(l, err != nil), nil
	}
	if plan.Answer == core.Admit {
		d.doubt = false // judged at a head that was read since: what was sent does not stand
	}
	switch {
	case err != nil && d.fresh:
		return again, &refusal{err}
	case err != nil:
		d.fresh = true
		return again, nil
	case plan.Answer != core.Admit && plan.Answer != core.Look && !d.fresh:
		d.fresh = true // an answer that is final needs a head that was read
		return again, nil
	case plan.Answer == core.Look:
		return walkFirst, nil
	case plan.Answer != core.Admit:
		return d.answer(plan.Answer, plan.Winner), nil
	case l == nil || d.settling:
		return d.refuse()
	}
	if n, ok := plan.Entry.BlobName(); ok && !d.written {
		d.names = append(d.names, n)
		d.leader = l
		a.mu.Lock()
		defer a.mu.Unlock()
		return blobFirst, a.cand.Writing(n, plan.Entry.Blob.Digest)
	}
	return d.admit(ctx, l, plan)
}

// compact sees to it, once, that the chain is walked, which its compaction needs (CK).
// What is known without reading is enough for a leader that appended all of it;
// otherwise the decision goes on, and a later one compacts. Only one that was refused
// waits for the walk: the chain may be full.
func (d *decision) compact(l *Leader, refused bool) step {
	d.due = true
	chain := d.rules.Chain()
	if t := d.a.walked.trail(d.head, chain); t.Done() {
		d.a.walked.keep(chain, t)
		d.trail = t
		return again
	}
	if refused {
		d.whole = true
		return walkFirst
	}
	l.walkLater(d.head, chain)
	return again
}

// look finds the head to plan over, and the leadership of the proof if it is live
// here. A leader knows its head; everybody else reads it.
func (d *decision) look(ctx context.Context) (*Leader, error) {
	a := d.a
	if l := a.leader.Load(); l != nil && l.Leads(d.proof) {
		look := l.current
		if d.fresh {
			look = l.reread
		}
		h, err := look(ctx)
		if err == nil {
			d.head = h
			return l, nil
		}
		if l.Live() {
			return nil, err
		}
	}
	s, err := a.refresh(ctx)
	if err != nil {
		return nil, err
	}
	d.head, d.fresh = s.head, true
	return nil, nil
}

// plan asks what becomes of the decision at the head.
func (d *decision) plan() (core.Plan, error) {
	a := d.a
	if d.trail != nil && d.head != nil && !d.trail.Of(d.head) {
		d.trail = core.Follow(d.head, d.rules.Chain(), d.trail)
	}
	return core.Append(d.head, d.rules, d.trail, core.Decision{
		Proof: core.Proof(d.proof), Body: d.draft.Body, Attempt: a.c.NewID(), Blob: d.blob, NowMS: a.c.NowMS(),
		Mine: func(id string) bool { return d.attempts[id] },
	})
}

func (d *decision) answer(a Answer, winner Link) step {
	d.doubt = false // it is final, also for what was sent
	d.result = Result{Answer: a, Winner: winner, Sequence: d.head.Sequence, Token: d.head.Token}
	return answered
}

// refuse answers where the head would admit the decision and this process may not
// write it: its leadership is over, and nothing of it is on its way.
func (d *decision) refuse() (step, error) {
	a := d.a
	a.mu.Lock()
	last, _ := a.cand.Proof()
	a.mu.Unlock()
	if d.proof.Token > last.Token || core.Proof(d.proof).Owner() != a.me {
		return again, store.Errorf(store.ErrInvalid, "", "append", a.name,
			"the proof is of node %q, incarnation %s, token %d: only its own process appends under it", d.proof.Node, d.proof.Incarnation, d.proof.Token)
	}
	return d.answer(core.Fenced, Link{}), nil
}

// admit writes the entry, and then the head that links it. Both are of this very
// state of the head: if another write comes first, neither is ever used.
func (d *decision) admit(ctx context.Context, l *Leader, plan core.Plan) (step, error) {
	a, name := d.a, plan.Entry.Name()
	ctx, cancel := l.while(ctx)
	defer cancel()
	a.mu.Lock()
	err := a.cand.Writing(name, plan.Link.Digest)
	a.mu.Unlock()
	if err != nil {
		return again, err
	}
	d.names = append(d.names, name)
	once, stop := settle.Limit(ctx, a.c.Clock, a.cfg.timing.Attempt) // the keeper waits
	err = a.put(once, a.key(string(name.Kind), name.Element()), plan.Body, core.MaxEntry)
	stop()
	if err != nil {
		return again, unsent(a, err)
	}
	d.attempts[plan.Entry.Attempt] = true
	d.fresh, d.doubt = true, true // whatever comes next was read after this attempt
	res, err := a.write(ctx, plan.Head, l.hurry)
	switch {
	case err == nil:
		l.renewed(res)
		if d.rules.Policy().CompactAt > 0 { // the compaction will need it
			a.walked.add(plan)
		}
		d.head = plan.Head
		return d.answer(core.Created, plan.Link), nil
	case settle.LostRace(err): // a driver may have repeated it
		return again, nil
	case res.Outcome == settle.Rejected:
		d.doubt = false
	}
	return again, err
}

// unsent is the error of an object that could not be written: no head links it, and
// none will be sent.
func unsent(a *Authority, err error) error {
	if retryable(err) {
		return store.Wrap(store.ErrUnavailable, a.identity(), "append", a.logKey, err)
	}
	return err
}

// walk reads the chain as far as the answer needs it, beside the keeper. What this
// process appended itself is not read.
func (d *decision) walk(ctx context.Context) error {
	a, chain := d.a, d.rules.Chain()
	var enough func(t *core.Trail) bool
	if !d.whole {
		enough = func(t *core.Trail) bool { _, p := t.Find(d.key); return p != core.Further }
	}
	from := a.walked.trail(d.head, chain)
	t, err := a.walkOn(ctx, from, enough)
	if from.Broken() == nil {
		a.walked.keep(chain, from) // also what came of a walk that the store or the caller ended
	}
	if err == nil {
		d.trail = t
		return nil
	}
	if t == nil {
		return err
	}
	s, bad := a.read(ctx) // a compaction may have taken what was to be read
	if bad != nil {
		return bad
	}
	if s.head == nil || t.Of(s.head) {
		return err
	}
	d.trail, d.fresh = nil, true
	return nil
}

// writeBlob writes the decision's bytes, beside the keeper.
func (d *decision) writeBlob(ctx context.Context) error {
	a := d.a
	ctx, cancel := d.leader.while(ctx)
	defer cancel()
	n := core.Name{Kind: core.KindBlob, Token: d.proof.Token, Attempt: d.blob}
	err := a.put(ctx, a.key(string(n.Kind), n.Element()), d.draft.Body, core.MaxBlob)
	if err != nil {
		return unsent(a, err)
	}
	d.written = true
	return nil
}
