package authoritytest

import (
	"errors"
	"slices"
	"strings"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
	core "github.com/tenure-project/tenure/internal/core/authority"
	corecheckpoint "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

const deployment = "dddddddd-4444-4444-8444-444444444444"

// fence names an assignment of one slot.
var fence = &assignment.Fence{
	Version: 1, Slots: 1, Digest: core.DigestOf("map", nil), Participants: []assignment.Participant{{Node: "node 1", Incarnation: deployment}},
}

// abort appends the outcome that aborts the checkpoint of an epoch, under proof.
func (p *proc) abort(proof tenure.Proof, epoch uint64) (authority.Result, error) {
	body, err := corecheckpoint.NewAbort(checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}, deployment, fence).Encode()
	if err != nil {
		p.w.Fatal(err)
	}
	return p.Append(p.w.within(), proof, corecheckpoint.Rules{}, body)
}

// aborts appends the aborts of the epochs from first to last.
func (p *proc) aborts(l *authority.Leader, first, last uint64) (links []authority.Link) {
	p.w.Helper()
	for epoch := first; epoch <= last; epoch++ {
		res, err := p.abort(l.Proof(), epoch)
		links = append(links, p.w.want("an abort", res, err, authority.Created).Winner)
	}
	return links
}

// text is a catalog's that is as large as said.
func text(bytes int) []catalog.Definition {
	return []catalog.Definition{{Name: "text", Text: strings.Repeat("x", bytes)}}
}

func elections(w *world) {
	p, q := w.proc(w.ttl), w.proc(w.ttl)
	l := p.leadNow()
	var held *authority.HeldError
	if _, err := q.TryLead(w.Context()); !errors.As(err, &held) || held.Leader != l.Proof() {
		w.Errorf("beside a leader: %v", err)
	}
	p.aborts(l, 1, 1)
	w.stepDown(l)
	w.check("the end", l.Err(), tenure.ErrReleased)
	m := q.leadNow()
	q.aborts(m, 2, 2)
	began := time.Now()
	dead := q.die()
	n := p.lead()
	// The last renewal came before the end, at most one interval and its jitter.
	if d := time.Since(began); d < w.ttl*8/10 {
		w.Errorf("the takeover took %v", d)
	}
	if l.Token() != 1 || m.Token() != 2 || n.Token() != 3 {
		w.Errorf("tokens %d, %d, %d", l.Token(), m.Token(), n.Token())
	}
	p.aborts(n, 3, 3)
	p.audit(3)
	if past, _ := p.snapshot().Past(); len(past) != 2 || past[0].How != "released" || past[0].Proof != l.Proof() || past[1].Proof != m.Proof() {
		w.Errorf("past leaderships: %+v", past)
	}
	if <-dead; m.Live() {
		w.Error("a dead leader leads")
	}
}

// requests counts what each thing takes, in requests to the store.
func requests(w *world) {
	p, q := w.proc(long), w.proc(long)
	expect := func(what string, by *proc, f func(), want ...string) {
		w.Helper()
		if got, sound := by.used(f); sound && !slices.Equal(got, want) {
			w.Errorf("%s took %q, want %q", what, got, want)
		}
	}
	var l *authority.Leader
	expect("the first grant", p, func() { l = p.lead() }, "get head", "list entry", "create head")
	expect("a decision", p, func() { p.aborts(l, 1, 1) }, "create entry", "replace head")
	expect("a decision with a blob", p, func() {
		res, err := catalog.Seal(w.within(), p.Authority, l.Proof(), text(70<<10))
		w.want("a seal", res.Result, err, authority.Created)
	}, "create blob", "create entry", "replace head")
	expect("a look at the head", q, func() { q.snapshot() }, "get head")
	s := q.snapshot()
	expect("a validation", q, func() { w.check("validate", s.Validate(w.Context()), nil) }, "get head")
	expect("an audit", q, func() { q.audit(2) }, "get head", "get entry", "get entry", "get blob")
	expect("stepping down", p, func() { w.stepDown(l) }, "replace head")
	expect("a grant", q, func() { l = q.lead() }, "get head", "replace head")
	expect("a decision of the next leader", q, func() { q.aborts(l, 2, 2) }, "create entry", "replace head")
}

// renewals counts: one write each, and one list of reports per interval.
func renewals(w *world) {
	p := w.proc(w.ttl)
	p.lead()
	for try := 1; ; try++ {
		var before, after authority.Snapshot
		calls, sound := p.used(func() {
			before = p.snapshot()
			w.until("four renewals", func() bool { return p.count("replace head") >= 4 })
			after = p.snapshot()
		})
		if !sound && try < 4 { // a call took too long, and was settled: that is no measure
			continue
		}
		count := func(call string) (n int) {
			for _, c := range calls {
				if c == call {
					n++
				}
			}
			return n
		}
		writes, lists := count("replace head"), count("list report")
		if count("get head") != 2 || len(calls) != 2+writes+lists || lists > writes+1 {
			w.Errorf("renewing took %q", calls)
		}
		// One write may have been on its way when the count began, or at the first look.
		if rose := int(after.Sequence() - before.Sequence()); rose < writes-1 || rose > writes+1 {
			w.Errorf("the sequence rose by %d with %d writes", rose, writes)
		}
		return
	}
}

func everyChain(w *world) {
	p, q := w.proc(w.ttl), w.proc(w.ttl)
	l := p.lead()
	proof := l.Proof()
	me := assignment.Participant{Node: proof.Node, Incarnation: proof.Incarnation}
	other := assignment.Participant{Node: q.session.Proof().Node, Incarnation: q.session.Proof().Incarnation}

	slots := assignment.Open(p.Authority)
	if _, ours, err := slots.Seed(w.Context(), []assignment.Participant{me, me}); err != nil || !ours {
		w.Fatalf("seed: %v, %v", ours, err)
	}
	drain, err := slots.BeginDrain(w.Context(), proof, []assignment.Participant{me, other})
	if err != nil {
		w.Fatalf("begin a drain: %v", err)
	}
	moved, err := slots.CommitDrain(w.within(), proof, drain)
	w.want("a drain", moved.Result, err, authority.Created)

	points, err := checkpoint.Open(p.Authority, deployment)
	if err != nil {
		w.Fatal(err)
	}
	done, err := points.Commit(w.within(), proof, checkpoint.Capsule{Attempt: checkpoint.Attempt{Epoch: 1, Checkpoint: 1}, Fence: drain.Target, Data: make([]byte, 200<<10)})
	w.want("a commit", done.Result, err, authority.Created)
	done, err = points.Abort(w.within(), proof, checkpoint.Attempt{Epoch: 2, Checkpoint: 2}, drain.Target)
	w.want("an abort", done.Result, err, authority.Created)

	sealed, err := catalog.Seal(w.within(), p.Authority, proof, text(100<<10))
	w.want("a seal", sealed.Result, err, authority.Created)

	heal := recovery.Open(p.Authority)
	round, err := heal.Begin(w.Context(), proof, []byte("plan"))
	if err != nil {
		w.Fatalf("begin a round: %v", err)
	}
	res, err := heal.Release(w.within(), proof, round, nil)
	w.want("a release", res, err, authority.Created)
	readBack(w, q, drain.Target)
}

// readBack reads what everyChain decided, as another process.
func readBack(w *world, q *proc, target *assignment.Fence) {
	w.Helper()
	cur, err := assignment.Read(q.Reader()).Current(w.Context())
	if err != nil || cur.Fence.State() != target.State() || cur.Fence.Version != 2 {
		w.Errorf("the assignment: %+v, %v", cur, err)
	}
	points := checkpoint.Read(q.Reader())
	terminal, commit, err := points.Newest(w.Context())
	if err != nil || terminal == nil || terminal.Epoch != 2 || commit == nil || commit.Epoch != 1 {
		w.Fatalf("the newest outcomes: %+v, %+v, %v", terminal, commit, err)
	}
	if c, err := points.Capsule(w.Context(), commit); err != nil || len(c.Data) != 200<<10 {
		w.Errorf("the capsule: %v", err)
	}
	if m, err := catalog.Read(w.Context(), q.Reader()); err != nil || len(m.Definitions) != 1 || len(m.Definitions[0].Text) != 100<<10 {
		w.Errorf("the catalog: %v", err)
	}
	if last, err := recovery.Read(q.Reader()).Last(w.Context()); err != nil || last == nil {
		w.Errorf("the last release: %+v, %v", last, err)
	}
	for chain, want := range map[string]int{authority.Checkpoint: 2, authority.Assignment: 1, authority.Recovery: 1, authority.Catalog: 1} {
		n := 0
		for _, err := range q.Reader().Entries(w.Context(), chain) {
			if n++; err != nil {
				w.Errorf("chain %s: %v", chain, err)
			}
		}
		if n != want {
			w.Errorf("chain %s has %d entries", chain, n)
		}
	}
	if blobs := w.keys(q, "blob"); len(blobs) != 1 {
		w.Errorf("blobs %q", blobs)
	}
	q.audit(5)
}

// steal ends the leadership l by force, as somebody who knows its process to be gone.
func (p *proc) steal(l *authority.Leader) {
	p.w.Helper()
	_, err := authority.Steal(p.w.Context(), p.client, name, authority.StealOptions{Token: l.Token(), Why: "it hangs", By: "ann", Vouch: true})
	if err != nil {
		p.w.Fatalf("steal: %v", err)
	}
}

func fenced(w *world) {
	p, q := w.proc(w.ttl), w.proc(w.ttl)
	l := p.lead()
	first := p.aborts(l, 1, 1)[0]
	q.steal(l)
	m := q.leadNow()
	q.aborts(m, 2, 2)
	res, err := p.abort(l.Proof(), 3)
	w.want("a stale proof", res, err, authority.Fenced)
	res, err = p.abort(l.Proof(), 1)
	if res = w.want("a stale proof's own decision", res, err, authority.Unchanged); res.Winner != first {
		w.Errorf("the winner is %+v, not %+v", res.Winner, first)
	}
	res, err = p.abort(l.Proof(), 2)
	w.want("another's decision", res, err, authority.Conflict)
	<-l.Done()
	w.check("the end of the stolen leadership", l.Err(), tenure.ErrLost)
	_, err = p.BeginRound(w.Context(), l.Proof(), nil)
	w.check("a round of a stale proof", err, authority.ErrFenced)
	q.aborts(m, 3, 3)
	q.audit(3)
}

// lateWrite lets a leader's head write arrive when another one leads.
func lateWrite(w *world) {
	p, q := w.proc(10*w.ttl), w.proc(10*w.ttl)
	l := p.lead()
	p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Match: heads, Times: 1, Fault: faultstore.LandOnCall()})
	answer := make(chan error, 1)
	go func() {
		res, err := p.abort(l.Proof(), 1)
		if err == nil && res.Answer != authority.Fenced {
			err = errors.New("the answer was " + res.Answer.String())
		}
		answer <- err
	}()
	w.until("the write's start", func() bool { return p.link.InFlight() == 1 })
	p.link.SetLink(faultstore.Cut) // before what it tries next
	if s := q.snapshot(); s.Sequence() != 1 {
		w.Logf("the second try was faster: this run shows less") // it stands, then
		p.link.SetLink(faultstore.Up)
		return
	}
	q.steal(l)
	m := q.leadNow()
	p.link.Land()
	w.until("the landing", func() bool { return p.link.InFlight() == 0 })
	p.link.SetLink(faultstore.Up)
	if err := <-answer; err != nil {
		w.Error(err)
	}
	q.aborts(m, 2, 2)
	if s := q.snapshot(); !s.Leads(m.Proof()) {
		w.Error("the late write took the leadership back")
	}
	q.audit(1)
}

func heads(c faultstore.Call) bool { return strings.Contains(c.Key, "/authority/") }

// losses loses the reply of each write in turn, and now and then the request.
func losses(w *world) {
	rule := func(op faultstore.Op, kind string, f faultstore.Fault, every int) faultstore.Rule {
		return faultstore.Rule{Ops: []faultstore.Op{op}, Every: every, Match: func(c faultstore.Call) bool {
			return strings.Contains(c.Key, "/authority") && kindOf(c.Key) == kind
		}, Fault: f}
	}
	p := w.proc(w.ttl,
		rule(faultstore.OpCreate, "head", faultstore.LoseReply(), 1),
		rule(faultstore.OpCreate, "entry", faultstore.LoseReply(), 2),
		rule(faultstore.OpCreate, "entry", faultstore.LoseRequest(), 5),
		rule(faultstore.OpCreate, "blob", faultstore.LoseReply(), 1),
		rule(faultstore.OpReplace, "head", faultstore.LoseReply(), 2),
		rule(faultstore.OpReplace, "head", faultstore.LoseRequest(), 5),
	)
	q := w.proc(w.ttl)
	l := p.leadNow()
	p.aborts(l, 1, 6)
	res, err := catalog.Seal(w.within(), p.Authority, l.Proof(), text(70<<10))
	w.want("a seal", res.Result, err, authority.Created)
	renewed := p.snapshot().Renewal()
	w.until("two renewals", func() bool { return p.snapshot().Renewal() > renewed+1 })
	w.stepDown(l)
	if l = p.leadNow(); l.Token() != 2 {
		w.Errorf("token %d", l.Token())
	}
	p.aborts(l, 7, 8)
	if fired := p.link.Fired(); len(fired) < 2 {
		w.Errorf("faults that were met: %v", fired)
	}
	q.audit(9)
}

// rounds has two processes report faults, which the leader folds, and clears them.
func rounds(w *world) {
	p, q, r := w.proc(w.ttl), w.proc(w.ttl), w.proc(w.ttl)
	l := p.lead()
	heal := recovery.Open(p.Authority)
	report := func(by *proc) {
		w.Helper()
		calls, _ := by.used(func() {
			if f, err := by.Report(w.within(), "disk full"); err != nil || !f.Active || f.Proof.Node != by.session.Proof().Node {
				w.Errorf("a report: %+v, %v", f, err)
			}
		})
		if slices.Contains(calls, "replace head") {
			w.Errorf("a reporter wrote the head beside a leader: %q", calls)
		}
	}
	report(q)
	round, err := heal.Begin(w.Context(), l.Proof(), []byte("plan"))
	if err != nil {
		w.Fatalf("begin a round: %v", err)
	}
	report(r)
	stopped := []assignment.Participant{}
	for _, x := range []*proc{q, r} {
		stopped = append(stopped, assignment.Participant{Node: x.session.Proof().Node, Incarnation: x.session.Proof().Incarnation})
	}
	_, err = heal.Release(w.within(), l.Proof(), round, stopped)
	w.check("a release after another fault", err, authority.ErrInventoryChanged)
	if round, err = heal.Begin(w.Context(), l.Proof(), []byte("plan")); err != nil {
		w.Fatalf("begin a round: %v", err)
	}
	seen, err := recovery.Read(q.Reader()).Admission(w.Context())
	if err != nil || !seen.Faulty() {
		w.Errorf("admission: %v", err)
	}
	res, err := heal.Release(w.within(), l.Proof(), round, stopped)
	w.want("a release", res, err, authority.Created)
	faults, _ := q.snapshot().Faults()
	if len(faults) != 2 || slices.ContainsFunc(faults, func(f authority.Fault) bool { return f.Active }) {
		w.Errorf("faults %+v", faults)
	}
	w.until("the removal of the reports", func() bool { return len(w.keys(p, "report")) == 0 })
	q.audit(1)
}

func floors(w *world) {
	p, q := w.proc(w.ttl), w.proc(w.ttl)
	l := p.lead()
	p.aborts(l, 1, 9)
	if changed, err := p.Advance(w.Context(), l.Proof(), authority.Checkpoint, 5, 0, nil); err != nil || !changed {
		w.Fatalf("the floor: %v, %v", changed, err)
	}
	res, err := p.abort(l.Proof(), 2)
	w.want("a decision below the floor", res, err, authority.BelowFloor)
	if done, err := p.Prune(w.Context()); err != nil || done.Removed != 3 || len(w.keys(p, "entry")) != 6 {
		w.Errorf("pruned %+v, %v", done, err)
	}
	left := p.Kit().Key("entry", core.Name{Kind: core.KindEntry, Token: l.Token(), Attempt: p.client.Kit().NewID()}.Element())
	if _, err := w.st.Create(w.Context(), left, []byte("x")); err != nil {
		w.Fatal(err)
	}
	if done, err := authority.Prune(w.Context(), q.client, name); err != nil || done.Removed != 0 {
		w.Errorf("of the present token: %+v, %v", done, err)
	}
	w.stepDown(l)
	l = q.lead()
	if done, err := q.Prune(w.Context()); err != nil || done.Removed != 1 || len(w.keys(p, "entry")) != 6 {
		w.Errorf("of an earlier token: %+v, %v", done, err)
	}
	q.aborts(l, 10, 10)
	q.audit(7) // with the anchor
}

// damage changes an entry and a blob behind everybody's back.
func damage(w *world) {
	p, q := w.proc(long), w.proc(long)
	l := p.lead()
	links := p.aborts(l, 1, 3)
	sealed, err := catalog.Seal(w.within(), p.Authority, l.Proof(), text(70<<10))
	w.want("a seal", sealed.Result, err, authority.Created)
	for key, link := range map[string]authority.Link{
		p.Kit().Key("entry", links[1].Name().Element()): links[1],
		w.keys(p, "blob")[0]:                            sealed.Winner,
	} {
		o, err := w.st.Get(w.Context(), key, core.MaxBlob)
		if err != nil {
			w.Fatal(err)
		}
		found := func(what string, flaw authority.Flaw) {
			w.Helper()
			var broken *authority.BrokenError
			_, err := q.Reader().Audit(w.Context())
			if !errors.Is(err, store.ErrCorrupt) || !errors.As(err, &broken) || broken.Link != link || broken.Flaw != flaw {
				w.Errorf("%s, %s: %v", key, what, err)
			}
		}
		altered := slices.Clone(o.Body)
		altered[len(altered)/2] ^= 1
		_, err = w.st.Replace(w.Context(), key, altered, o.Version)
		if err != nil {
			w.Fatal(err)
		}
		found("altered", authority.Altered)
		if err := w.st.Delete(w.Context(), key); err != nil {
			w.Fatal(err)
		}
		found("missing", authority.Missing)
		if _, err := w.st.Create(w.Context(), key, o.Body); err != nil {
			w.Fatal(err)
		}
	}
	q.audit(4)
	p.aborts(l, 4, 4)
}

func catalogs(w *world) {
	p, q := w.proc(w.ttl), w.proc(w.ttl)
	l := p.lead()
	seal := func(by *proc, l *authority.Leader, bytes int, want authority.Answer) *catalog.Manifest {
		w.Helper()
		res, err := catalog.Seal(w.within(), by.Authority, l.Proof(), text(bytes))
		w.want("a seal", res.Result, err, want)
		return res.Sealed
	}
	first := seal(p, l, 10, authority.Created)
	seal(p, l, 10, authority.Unchanged)
	w.stepDown(l)
	l = q.lead()
	for bytes, want := range map[int]authority.Answer{10: authority.Unchanged, 11: authority.Conflict, 70 << 10: authority.Conflict} {
		if m := seal(q, l, bytes, want); m == nil || m.Link != first.Link || len(m.Definitions[0].Text) != 10 {
			w.Errorf("what stands is %+v", m)
		}
	}
	q.audit(1)
}
