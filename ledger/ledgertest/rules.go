package ledgertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// races has two hosts that ask for the same 20 runs of a millisecond at the same time.
func races(w *world) {
	const runs = 20
	all := []*host{w.host(long), w.host(long)}
	var wg sync.WaitGroup
	var mu sync.Mutex
	states := map[ledger.State]int{}
	for _, h := range all {
		wg.Go(func() {
			for n := range runs {
				out, err := h.Once(w.within(), at(n), w.work, ledger.Wait(w.patience()))
				if err != nil {
					w.Errorf("run %d: %v, %v", n, out.State, err)
				}
				mu.Lock()
				states[out.State]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for n := range runs {
		if got := w.happened(at(n)); got != 1 {
			w.Errorf("run %d happened %d times", n, got)
		}
	}
	if states[ledger.Ran] != runs || states[ledger.Done] != runs {
		w.Errorf("states %v", states)
	}
	// And both move what they left to blocks, at the same time.
	for _, h := range all {
		wg.Go(func() {
			if _, err := h.Compact(w.within()); err != nil {
				w.Errorf("compact: %v", err)
			}
		})
	}
	wg.Wait()
	all[0].counts(ledger.Counts{Committed: runs})
	all[1].do(at(3), ledger.Done, 1)
}

// unknown has a host die within a run.
func unknown(w *world) {
	p, q := w.host(w.ttl), w.host(w.ttl)
	k := p.dieIn(at(1))
	began := time.Now()
	if out := q.do(at(1), ledger.Busy, 0); out.HeldBy == nil || len(out.Pending) != 0 && out.Pending[0].Key != k {
		w.Errorf("beside a lease that did not lapse: %+v", out)
	}
	out := q.do(at(1), ledger.Held, 1, ledger.Wait(w.patience()))
	// The last renewal came before the end, at most one interval and its jitter.
	if d := time.Since(began); d < w.ttl*7/10 {
		w.Errorf("the takeover took %v", d)
	}
	if out.Attempt != k || len(out.Pending) != 1 || out.Pending[0].Key != k {
		w.Errorf("held: %+v", out)
	}
	if r := q.show(at(1)); !r.Unknown || r.Running || r.Committed {
		w.Errorf("an unknown run: %+v", r)
	}
	q.do(at(2), ledger.Ran, 1) // another run is in nobody's way
	if n := w.happened(at(1)); n != 1 {
		w.Errorf("a held run happened %d times", n)
	}
	if out = q.do(at(1), ledger.Ran, 2, ledger.OnUnknown(ledger.Retry)); out.Epoch < 3 {
		w.Errorf("epoch %d", out.Epoch)
	}
	r := q.show(at(1))
	if !r.Committed || r.Unknown || len(r.Attempts) != 2 || r.Attempts[0].Abandoned == nil {
		w.Errorf("tried again: %+v", r)
	}
	q.compact()
	w.host(w.ttl).do(at(1), ledger.Done, 2)
	q.counts(ledger.Counts{Committed: 2})
}

// outlasts has a host that does not hear that its lease is over, and acts later.
func outlasts(w *world) {
	p, q := w.host(w.ttl), w.host(w.ttl)
	started, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		out, err := p.Once(w.within(), at(1), func(context.Context, *ledger.Attempt) (ledger.Result, error) {
			p.link.SetLink(faultstore.Cut)
			close(started)
			<-goOn // whatever its context says
			p.link.SetLink(faultstore.Up)
			return ledger.Result{}, nil
		}, ledger.WithLease(tenure.StopLimit(2*w.patience())))
		if err == nil && (out.State != ledger.Ran || out.LeaseErr == nil) {
			err = errors.New("the loss of the lease is not told: " + string(out.State))
		}
		ended <- err
	}()
	<-started
	out, err := q.Once(w.within(), at(1), w.work, ledger.OnUnknown(ledger.Retry), ledger.Wait(w.patience()))
	close(goOn)
	w.check("the one that acts late", <-ended, nil)
	if err != nil || out.State != ledger.Ran || out.Attempt.Attempt != 2 {
		w.Fatalf("%+v, %v", out, err)
	}
	for range 2 {
		if r := q.show(at(1)); !r.Committed || !r.Repeated || r.Unknown {
			w.Errorf("a run that happened twice: %+v", r)
		}
		q.compact()
	}
	if out := q.do(at(1), ledger.Done, 1); !out.Repeated {
		w.Errorf("%+v", out)
	}
}

// lateWrite lets an admission arrive when another host has done the run.
func lateWrite(w *world) {
	p, q := w.host(w.ttl), w.host(w.ttl)
	q.do(at(0), ledger.Ran, 1)
	p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpReplace}, Match: kind("head"), Skip: 1, Times: 1, Fault: faultstore.LandOnCall()})
	ended := make(chan ledger.Outcome, 1)
	go func() {
		out, _ := p.Once(w.within(), at(1), w.work)
		ended <- out
	}()
	w.until("the write's start", func() bool { return p.link.InFlight() == 1 })
	p.link.SetLink(faultstore.Cut) // before what it tries next
	out, err := q.Once(w.within(), at(1), w.work, ledger.Wait(w.patience()))
	p.link.Land()
	w.until("the landing", func() bool { return p.link.InFlight() == 0 })
	p.link.SetLink(faultstore.Up)
	late := <-ended
	if err != nil {
		w.Fatalf("%+v, %v", out, err)
	}
	if out.State == ledger.Held || late.State == ledger.Ran {
		w.Logf("the second try was faster: this run shows less") // it stands, then
		return
	}
	if out.State != ledger.Ran || out.Attempt.Attempt != 1 || late.State == ledger.Unsettled || w.happened(at(1)) != 1 {
		w.Errorf("%+v, and late %+v: it happened %d times", out, late, w.happened(at(1)))
	}
	q.counts(ledger.Counts{Committed: 2})
}

// failures are tried again, by whoever asks, and end where that was asked for.
func failures(w *world) {
	p, q := w.host(long), w.host(long)
	broken := errors.New("disk full")
	fails := func(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
		w.act(a)
		return ledger.Result{Exit: 9}, broken
	}
	for n, opts := range [][]ledger.OnceOption{nil, {ledger.MaxFailed(1)}} {
		out, err := p.Once(w.within(), at(n), fails, opts...)
		if out.State != ledger.Failed || out.Attempt.Attempt != 1 {
			w.Fatalf("%+v, %v", out, err)
		}
		w.check("a run that failed", err, broken)
		if r := q.show(at(n)); !r.Failed || r.Committed || len(r.Saved) != 1 || !r.Saved[0].Failed || r.Saved[0].Exit != 9 || r.Saved[0].Why != broken.Error() {
			w.Errorf("a run that failed: %+v", r)
		}
	}
	q.do(at(0), ledger.Ran, 2)
	out := q.do(at(1), ledger.GaveUp, 1, ledger.MaxFailed(1), ledger.Replay())
	if out.Saved == nil || out.Saved.Exit != 9 || w.happened(at(1)) != 1 {
		w.Errorf("given up: %+v, it happened %d times", out, w.happened(at(1)))
	}
	q.compact()
	p.do(at(1), ledger.GaveUp, 1, ledger.MaxFailed(1))
	gone, err := p.Retry(w.within(), at(1), ledger.SettleOptions{By: "ann", Reason: "there is room"})
	if err != nil || len(gone) != 1 {
		w.Fatalf("retry: %v, %v", gone, err)
	}
	q.do(at(1), ledger.Ran, 2, ledger.MaxFailed(1))
	p.counts(ledger.Counts{Committed: 2})
}

// operators settle what hosts left, by each verdict, and not what runs.
func operators(w *world) {
	p, q := w.host(w.ttl), w.host(w.ttl)
	why := ledger.SettleOptions{By: "ann", Reason: "looked"}
	for n, v := range []ledger.Verdict{ledger.AsCommitted, ledger.AsFailed, ledger.AsAbandoned} {
		k := p.leave(at(n))
		w.check(string(v), q.Settle(w.within(), k, v, why), nil)
		w.check(string(v)+" once more", q.Settle(w.within(), k, v, why), nil)
	}
	for n, want := range []ledger.State{ledger.Done, ledger.Ran, ledger.Ran} {
		q.do(at(n), want, uint64(min(n, 1)+1))
	}
	if r := q.show(at(0)); len(r.Saved) != 1 || r.Saved[0].Why != "ann: looked" {
		w.Errorf("the reason: %+v", r.Saved)
	}
	w.check("an attempt that was never made", q.Settle(w.within(), ledger.Key{Run: at(7).ID, Site: ledger.DefaultSite, Attempt: 1}, ledger.AsFailed, why), store.ErrNotFound)

	k := p.dieIn(at(3))
	if all, err := q.Unsettled(w.within()); err != nil || len(all) != 1 || !all[0].Running || all[0].ID != at(3).ID {
		w.Errorf("unsettled: %+v, %v", all, err)
	}
	w.check("what may be running", q.Settle(w.within(), k, ledger.AsFailed, why), ledger.ErrRunning)
	why.Wait = w.patience()
	w.check("what a dead host left", q.Settle(w.within(), k, ledger.AsFailed, why), nil)
	q.do(at(3), ledger.Ran, 2)
	if all, err := q.Unsettled(w.within()); err != nil || len(all) != 0 {
		w.Errorf("unsettled: %+v, %v", all, err)
	}
	q.counts(ledger.Counts{Committed: 4})
}

// replays give back every byte of what a run said, up to its bounds.
func replays(w *world) {
	p, q := w.host(long), w.host(long)
	output := make([]byte, 64<<10)
	for r, i := rand.New(rand.NewPCG(1, 1)), 0; i < len(output); i++ {
		output[i] = byte(r.Uint32())
	}
	for n, more := range []int{0, 5} {
		said := append(slices.Clone(output), make([]byte, more)...)
		p.doWith(at(n), func(context.Context, *ledger.Attempt) (ledger.Result, error) {
			return ledger.Result{Exit: 3, Why: "Ω\n\"", Output: said}, nil
		}, ledger.Ran, 1)
		s := q.do(at(n), ledger.Done, 1, ledger.Replay()).Saved
		if s == nil || s.Exit != 3 || s.Failed || s.Why == "" || !bytes.Equal(s.Output, output) || s.OutputBytes != int64(len(said)) || s.Cut() != (more > 0) || !s.At.Equal(at(n).At) {
			w.Fatalf("the result of %d bytes came back otherwise", len(said))
		}
	}
	p.do(at(2), ledger.Ran, 1) // in silence
	if out := q.do(at(2), ledger.Done, 1, ledger.Replay()); out.Saved != nil {
		w.Errorf("%+v", out.Saved)
	}
	swept, err := p.Sweep(w.within(), time.Hour)
	if err != nil || swept != (ledger.Swept{}) {
		w.Errorf("a sweep of what is young: %+v, %v", swept, err)
	}
	<-time.After(2 * time.Millisecond)
	if swept, err = p.Sweep(w.within(), time.Millisecond); err != nil || swept.Results != 2 {
		w.Errorf("a sweep: %+v, %v", swept, err)
	}
	if out := q.do(at(0), ledger.Done, 1, ledger.Replay()); out.Saved != nil {
		w.Error("what was swept is there")
	}
}

// compactions move facts of every kind into a block, which is binary.
func compactions(w *world) {
	p, q := w.host(long), w.host(long)
	var mu sync.Mutex
	var wrote []byte
	p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpCreate, faultstore.OpReplace}, Fault: faultstore.LoseReply(), Match: func(c faultstore.Call) bool {
		if kindOf(c.Key) == "block" {
			mu.Lock()
			defer mu.Unlock()
			wrote = slices.Clone(c.Body)
		}
		return false // it only looks on
	}})
	p.do(at(0), ledger.Ran, 1)
	k := p.leave(at(1))
	if _, err := p.Retry(w.within(), at(1), ledger.SettleOptions{Reason: "Ω"}); err != nil {
		w.Fatal(err)
	}
	p.do(at(1), ledger.Ran, 2)
	p.leave(at(2)) // this stays in the head
	p.imports(100, 600)
	p.do(at(3), ledger.Ran, 1)
	if done := p.compact(); done.Facts == 0 || done.Blocks != 1 || done.Splits != 0 {
		w.Errorf("%+v", done)
	}
	for name, s := range map[string]store.Store{"the same handle": w.st, "another handle": q.link} {
		key := w.blocks()[0]
		o, err := s.Get(w.within(), key, core.MaxBlock)
		if err != nil || !bytes.Equal(o.Body, wrote) {
			w.Fatalf("%s: %d bytes were written, %d came back, %v: or others", name, len(wrote), len(o.Body), err)
		}
		var seen [256]bool
		for _, b := range o.Body {
			seen[b] = true
		}
		if slices.Contains(seen[:], false) {
			w.Error("the block has not all bytes: this test shows less than it says")
		}
	}
	for _, n := range []int{0, 1, 3, 100, 347, 599} {
		q.did(at(n), 2)
		q.do(at(n), ledger.Done, uint64(1+n%2*(1-min(n/2, 1))))
	}
	q.do(at(2), ledger.Held, 1)
	if r := q.show(at(1)); len(r.Attempts) != 2 || r.Attempts[0].Fact.Key != k || r.Attempts[0].Abandoned == nil || r.Attempts[0].Abandoned.By != "Ω" {
		w.Errorf("an abandoned attempt: %+v", r)
	}
	if x := q.counts(ledger.Counts{Committed: 503, Unknown: 1}); x.Blocks != 1 {
		w.Errorf("%d blocks", x.Blocks)
	}
}

// splits makes one block two, and two four, while another host reads.
func splits(w *world) {
	p, q := w.host(long), w.host(long)
	p.do(at(0), ledger.Ran, 1)
	p.imports(100, 900)
	if n := len(w.blocks()); n != 1 {
		w.Fatalf("%d blocks before the split", n)
	}
	ctx, stop := context.WithCancel(w.within())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 100; ctx.Err() == nil; n = 100 + (n-99)%800 {
			if a, err := q.Did(w.within(), at(n)); err != nil || !a.Committed {
				w.Errorf("meanwhile, run %d: %+v, %v", n, a, err)
				return
			}
		}
	})
	p.link.Add(faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Match: kind("block"), Times: 1, Fault: faultstore.Fail(store.ErrUnavailable)})
	p.imports(900, 1300)
	if n := len(w.blocks()); n != 3 {
		w.Errorf("%d blocks after a split whose delete failed", n)
	}
	if swept, err := p.Sweep(w.within(), 0); err != nil || swept.Blocks != 1 || len(w.blocks()) != 2 {
		w.Errorf("a sweep: %+v, %v", swept, err)
	}
	p.do(at(1), ledger.Ran, 1)
	p.compact()
	p.imports(1300, 2400)
	stop()
	wg.Wait()
	x := q.counts(ledger.Counts{Committed: 2302})
	if n := len(w.blocks()); n != x.Blocks || n < 4 {
		w.Errorf("%d blocks in the store, %d in the ledger", n, x.Blocks)
	}
	for _, n := range []int{0, 1, 100, 899, 1299, 1300, 2399} {
		q.did(at(n), 2)
	}
	q.do(at(2), ledger.Ran, 1)
	q.compact()
	p.did(at(2), 2)
}

// requests counts what each thing takes, in requests to the store.
func requests(w *world) {
	p, q := w.host(long), w.host(long)
	expect := func(what string, by *host, f func(), want string) {
		w.Helper()
		if got, sound := by.used(f); sound && got != want {
			w.Errorf("%s took\n%s, want\n%s", what, got, want)
		}
	}
	once := func(by *host, n int, s ledger.State, opts ...ledger.OnceOption) func() {
		return func() { w.Helper(); by.do(at(n), s, 1, opts...) }
	}
	did := func(n int) func() { return func() { w.Helper(); q.did(at(n), 2) } }
	lease := "get lease, " // the record,
	if s, err := p.client.Settings(w.within()); err != nil {
		w.Fatal(err)
	} else if s.Retention != 0 {
		lease += "get meta, " // and, where an old one may have been deleted, the namespace's floor
	}
	p.do(at(0), ledger.Ran, 1)
	p.compact()
	expect("a commit that a block tells", q, did(0), "get head, get block")
	expect("a fresh run", p, once(p, 1, ledger.Ran), "get head, get block, "+lease+"replace lease, "+
		"replace head, replace head, get head, get lease, replace head, replace lease") // raise, admit, check, outcome, release
	expect("a commit that the head tells", q, did(1), "get head")
	expect("a run that is done", q, once(q, 1, ledger.Done), "get head")
	expect("a run that was done long ago", q, once(q, 0, ledger.Done), "get head, get block")
	expect("a run with a result", p, func() {
		p.doWith(at(2), func(context.Context, *ledger.Attempt) (ledger.Result, error) { return ledger.Result{Exit: 1}, nil }, ledger.Ran, 1)
	}, "get head, get block, "+lease+"replace lease, "+
		"replace head, replace head, get head, get lease, create result, replace head, replace lease")
	expect("its replay", q, once(q, 2, ledger.Done, ledger.Replay()), "get head, get result")
	p.leave(at(3))
	q.do(at(3), ledger.Held, 1) // raises the epoch
	expect("a run that is held", q, once(q, 3, ledger.Held), "get head, get block")
	expect("what is unsettled", q, func() {
		if all, err := q.Unsettled(w.within()); err != nil || len(all) != 1 {
			w.Errorf("%+v, %v", all, err)
		}
	}, "get head, get lease")
	// One block for the facts, which also answers for the open attempt.
	expect("a compaction", p, func() { p.compact() }, "get head, get block, replace block, replace head")
}

// losses loses the reply of each kind of write in turn, and now and then the request.
func losses(w *world) {
	rule := func(op faultstore.Op, k string, f faultstore.Fault, every int) faultstore.Rule {
		return faultstore.Rule{Ops: []faultstore.Op{op}, Every: every, Match: kind(k), Fault: f}
	}
	p := w.host(long,
		rule(faultstore.OpCreate, "head", faultstore.LoseReply(), 1),
		rule(faultstore.OpReplace, "head", faultstore.LoseReply(), 2),
		rule(faultstore.OpReplace, "head", faultstore.LoseRequest(), 5),
		rule(faultstore.OpCreate, "block", faultstore.LoseReply(), 1),
		rule(faultstore.OpReplace, "block", faultstore.LoseReply(), 1),
		rule(faultstore.OpCreate, "result", faultstore.LoseReply(), 1),
		rule(faultstore.OpCreate, "result", faultstore.LoseRequest(), 3),
		rule(faultstore.OpReplace, "lease", faultstore.LoseReply(), 3),
	)
	q := w.host(long)
	const runs = 6
	for n := range runs {
		p.doWith(at(n), func(_ context.Context, a *ledger.Attempt) (ledger.Result, error) {
			w.act(a)
			return ledger.Result{Exit: n}, nil
		}, ledger.Ran, 1)
		if n%2 == 1 {
			p.compact()
		}
	}
	p.imports(100, 900)
	p.imports(900, 1300)
	for n := range runs {
		if got := w.happened(at(n)); got != 1 {
			w.Errorf("run %d happened %d times", n, got)
		}
		q.did(at(n), 2)
		if s := q.do(at(n), ledger.Done, 1, ledger.Replay()).Saved; n > 0 && (s == nil || s.Exit != n) {
			w.Errorf("the result of run %d: %+v", n, s)
		}
	}
	if fired := p.link.Fired(); fired["lose reply"] < 12 || fired["lose request"] == 0 {
		w.Errorf("faults that were met: %v", fired)
	}
	q.counts(ledger.Counts{Committed: runs + 1200})
}

// listing finds the agents of a namespace, whatever they are called.
func listing(w *world) {
	p := w.host(long)
	agents := []string{job, "a", "Z", "a/b", "Ω " + strings.Repeat("x", store.MaxName-len("Ω ")), ".."}
	slices.SortFunc(agents, func(a, b string) int {
		return cmp.Compare(store.Key(namespace, "ledger", a), store.Key(namespace, "ledger", b))
	})
	once := func(l *ledger.Ledger) {
		w.Helper()
		run, err := ledger.Named(l.Agent(), "Ω")
		if err != nil {
			w.Fatal(err)
		}
		if out, err := l.Once(w.within(), run, w.work); err != nil || out.State != ledger.Ran {
			w.Errorf("job %q: %+v, %v", l.Agent(), out, err)
		}
	}
	for _, a := range agents {
		once(w.ledger(p.client, a))
	}
	elsewhere := w.join(shared{p.link}, long, tenure.WithNamespace("elsewhere"))
	once(w.ledger(elsewhere, "other"))
	for c, want := range map[*tenure.Client][]string{p.client: agents, elsewhere: {"other"}} {
		var got []string
		for name, err := range ledger.List(w.within(), c) {
			if err != nil {
				w.Errorf("list: %v", err)
			}
			got = append(got, name)
		}
		if !slices.Equal(got, want) {
			w.Errorf("the agents are %q, want %q", got, want)
		}
	}
}
