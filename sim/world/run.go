package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Run plays the world of p in the caller's bubble and returns its verdict. The
// trace and the verdict depend on p alone.
func Run(p Plan) Verdict {
	v := make(chan Verdict)
	go func() { v <- play(p) }() // whoever calls must make no difference (site)
	return <-v
}

func play(p Plan) Verdict {
	if p.Mutation.Prepare != nil {
		p.Mutation.Prepare(&p)
	}
	w := New(p)
	defer w.End()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for slot := range p.Slots {
		all.Go(func() { w.slot(ctx, slot) })
	}
	var others sync.WaitGroup
	if !p.Calm {
		others.Go(func() { fate{w, dice(p.Seed, "fate")}.rage(ctx) })
	}
	if p.Mutation.rollback {
		others.Go(func() { w.rollBack(ctx, w.restored()) })
	}
	if p.Mutation.releases || p.Mutation.unseals {
		others.Go(func() { w.meddle(ctx) })
	}
	if p.Mutation.burns || p.Mutation.restores {
		others.Go(func() { w.vandalize(ctx) })
	}
	others.Go(func() { w.look(ctx) })
	select {
	case <-time.After(p.Length):
	case <-w.alarmed: // the first violation is the one to look at
	}
	stop() // no more blows, no more processes
	others.Wait()
	all.Wait()
	w.Recover(0.4)
	return w.Verdict()
}

// Recover ends the faults and judges that everything recovers (R14, R9): some
// processes crash for good first, each with the probability given, the others
// are told to end, and two fresh ones take every lease.
func (w *World) Recover(crashes float64) {
	w.calm(crashes)
	w.settle()
	w.inherit()
}

func slotName(i int) string { return fmt.Sprintf("p%d", i+1) }

// slot keeps one process running: after each crash and each end comes another.
func (w *World) slot(ctx context.Context, i int) {
	r := dice(w.Plan.Seed, "slot", slotName(i))
	rate := w.rate(r.IntN(4), r.Float64())
	for gen := 1; ctx.Err() == nil; gen++ {
		p := w.Spawn(fmt.Sprintf("%s.%d", slotName(i), gen), rate)
		if w.mutation.clock != nil {
			w.mutation.clock(i, p.clk)
		}
		p.rules(w.Plan.Intensity)
		if w.Plan.Retention && (i == 0 || w.Plan.Nodes > 0 && i%2 == 0) {
			p.clk.stepWall(ahead) // who prunes finds everything old enough
		}
		go p.main(i)
		select {
		case <-p.over:
		case <-p.died:
		case <-ctx.Done(): // calm sees to it
		}
		_ = wait(ctx, about(r, w.Plan.TTL))
	}
}

// rate draws the rate of a clock, often at one of the bounds.
func (w *World) rate(kind int, x float64) float64 {
	switch rho := w.Plan.Rho; kind {
	case 0:
		return 1 - rho
	case 1:
		return 1 + rho
	case 2:
		return 1
	default:
		return 1 + rho*(2*x-1)
	}
}

// main is what a process does: it joins, lets its callers act, and leaves in
// order, after a while or when it is told to.
func (p *Proc) main(slot int) {
	p.started.Store(true)
	defer close(p.over)
	a := p.actor("main")
	for {
		err := p.Open(p.ctx)
		if err == nil {
			break
		}
		a.blame(err)
		if !p.Sleep(p.ctx, about(a.r, p.w.Plan.TTL/10)) {
			return
		}
	}
	p.w.trace.add(p.name, "joined")
	var callers sync.WaitGroup
	for i := range p.callers(a.r) {
		callers.Go(func() { p.actor(fmt.Sprint("caller", i)).live(p.until(i)) })
	}
	if nodes := p.w.Plan.Nodes; nodes > 0 {
		if p.w.Plan.Tables == 0 {
			callers.Go(func() { p.actor("member").belong(p.until(5), slot%nodes) })
		}
		if p.w.Plan.Authorities+p.w.Plan.Tables == 0 && chance(a.r, 0.2) { // a second session of the process, or a rival in it
			callers.Go(func() { p.actor("second member").belong(p.until(6), (slot+1)%nodes) })
		}
		if slot < 2 && !p.w.Plan.Calm {
			callers.Go(func() { p.actor("tender").tend(p.until(8)) })
		}
	}
	for i, job := range p.w.Plan.JobNames() {
		callers.Go(func() { p.actor("keeper of "+job).keep(p.until(11+i), job) })
	}
	if slot == 0 && !p.w.Plan.Calm && p.w.Plan.Jobs > 0 {
		callers.Go(func() { p.actor("settler").settleRuns(p.until(15)) })
	}
	if slot == 1 && !p.w.Plan.Calm && p.w.Plan.Merges {
		callers.Go(func() { p.actor("merger").merge(p.until(16)) })
	}
	if slot == 0 && !p.w.Plan.Calm && p.w.Plan.Leases+p.w.Plan.Jobs > 0 {
		callers.Go(func() { p.actor("operator").operate(p.until(9)) })
	}
	if slot == 0 && !p.w.Plan.Calm && p.w.Plan.Authorities > 0 {
		callers.Go(func() { p.actor("overruler").overrule(p.until(10)) })
	}
	for i, table := range p.w.Plan.TableNames() {
		callers.Go(func() { p.actor("host of "+table).hostTable(p.until(17+i), i, slot) })
	}
	if slot == 0 && !p.w.Plan.Calm && p.w.Plan.Tables > 0 {
		callers.Go(func() { p.actor("overseer").oversee(p.until(19)) })
	}
	p.Sleep(p.ctx, p.w.Plan.TTL+about(a.r, 5*p.w.Plan.TTL))
	p.Sleep(context.Background(), time.Microsecond)
	if chance(a.r, 0.5) {
		p.quit()
		callers.Wait()
	}
	p.leave()
	p.quit()
	callers.Wait()
	p.round()
	p.w.trace.add(p.name, "left")
}

// callers is how many callers hold leases without a session.
func (p *Proc) callers(r *rand.Rand) int {
	if p.w.Plan.Leases == 0 {
		return 0
	}
	if p.w.Plan.Nodes > 0 {
		return r.IntN(2)
	}
	return 1 + r.IntN(3)
}

// round waits for a round instant. When a client is closed, its callers end at one
// instant in an order that is the scheduler's; what comes after the process must
// not depend on it.
func (p *Proc) round() {
	grain := p.w.Plan.TTL / 50
	time.Sleep(grain - time.Since(p.w.trace.began)%grain + time.Duration(p.seed%1000))
}

// Go makes f all that the process does. When f returns it leaves in order.
func (p *Proc) Go(f func(ctx context.Context)) {
	p.started.Store(true)
	go func() {
		defer close(p.over)
		f(p.ctx)
		p.leave()
	}()
}

// Await waits until the process has ended or crashed, for d at most, and reports
// whether it has.
func (p *Proc) Await(d time.Duration) bool {
	select {
	case <-p.over:
	case <-p.died:
	case <-time.After(d):
		return false
	}
	return true
}

// until is a context for one of the process's callers, which are told to stop
// one after the other.
func (p *Proc) until(caller int) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	context.AfterFunc(p.ctx, func() { time.AfterFunc(time.Duration(2*caller+3)*time.Microsecond, cancel) })
	return ctx
}

// leave closes the client and judges how long that takes (R14): at most until
// work that does not stop is given up and an unconfirmed release too.
func (p *Proc) leave() {
	stops, began := p.gate.count(), time.Now()
	_ = p.Client.Close() // what it could not confirm is told lease by lease
	took := time.Since(began)
	plan := p.w.Plan
	if plan.Nodes > 0 { // a session settles what is in doubt and gives its name up
		began = began.Add(max(plan.Release, 2*plan.maxTTL()*3/15, time.Second) + max(2*plan.maxTTL()*3/15, time.Second))
		took = time.Since(began)
	}
	most := plan.maxTTL() + max(plan.Release, 2*plan.maxTTL()*3/15, time.Second) + plan.TTL
	if took > most && p.gate.count() == stops && !p.crashed.Load() && p.w.mutation.onTime() {
		p.w.oracle.failNow("R14", "%s took %v to close, want at most %v", p.name, took, most)
	}
	p.w.trace.add(p.name, "closed")
}

// look samples the world now and then, beside the events.
func (w *World) look(ctx context.Context) {
	r := dice(w.Plan.Seed, "look")
	for wait(ctx, 1+about(r, w.Plan.TTL/20)) == nil {
		w.oracle.sample()
	}
}

// calm ends the faults. Some processes crash for good first, by the seed, and
// leave behind what they had; the others are told to end. It takes a little
// time, so that no two things happen at once.
func (w *World) calm(crashes float64) {
	w.calmed.Store(true)
	r := dice(w.Plan.Seed, "calm")
	w.trace.add("world", "THE FAULTS END")
	for _, p := range w.alive() {
		if !w.Plan.Calm && chance(r, crashes) {
			p.Crash()
		}
		w.tick(r)
		p.resume()
		p.Network(faultstore.Up, 0)
		p.Link.Clear()
		p.Link.Add(w.Plan.rules()...)
	}
	for _, p := range w.alive() {
		w.tick(r)
		p.quit()
	}
}

func (w *World) tick(r *rand.Rand) { time.Sleep(1 + between(r, 0, w.Plan.TTL/50)) }

// settle waits until every process has ended that can, and judges how long that
// takes (R14).
func (w *World) settle() {
	deadline := time.After(12 * w.Plan.maxTTL())
	for _, p := range w.all() {
		if !p.started.Load() {
			continue
		}
		select {
		case <-p.over:
		case <-p.died:
		case <-deadline:
			w.oracle.failNow("R14", "%s did not end although it was told to", p.name)
		}
	}
}

// inherit lets two fresh processes take every lease, and judges that they can
// (R14), and what is then told of the past (R9).
func (w *World) inherit() {
	var wg sync.WaitGroup
	for _, name := range []string{"heir1", "heir2"} {
		p := w.Spawn(name, 1)
		if err := again(func() error { return p.Open(p.ctx) }); err != nil {
			w.oracle.failNow("R14", "%v", err)
			continue
		}
		for _, lease := range w.Plan.Names() {
			wg.Go(func() { w.take(p, lease) })
		}
		for _, node := range w.Plan.NodeNames() {
			wg.Go(func() { w.takeName(p, node) })
		}
		for i, table := range w.Plan.TableNames() {
			if name == "heir1" {
				wg.Go(func() { w.takeTable(p, i, table) })
			}
		}
	}
	wg.Wait()
	if p := w.procNamed("heir1"); p.Client != nil {
		w.succeed(p)
		w.finish(p)
		for _, name := range w.Plan.Names() {
			w.remember(p, name)
		}
	}
}

// again calls f up to five times: one slow answer is no reason to complain.
func again(f func() error) (err error) {
	for range 5 {
		if err = f(); !errors.Is(err, tenure.ErrUnavailable) {
			break
		}
	}
	return err
}

// remember reads a lease's past and judges it.
func (w *World) remember(p *Proc, name string) {
	err := again(func() error {
		h, err := p.Client.History(p.ctx, name)
		if err == nil {
			w.oracle.complete(h)
		}
		return err
	})
	if err != nil && !errors.Is(err, tenure.ErrNotFound) {
		w.oracle.failNow("R9", "%s: no history after the faults ended: %v", name, err)
	}
}

// take acquires a lease and releases it.
func (w *World) take(p *Proc, name string) {
	began, most := time.Now(), w.patience()
	ctx, cancel := p.Within(p.ctx, 4*most)
	defer cancel()
	l, err := p.Client.Acquire(ctx, name)
	if err != nil {
		w.oracle.failNow("R14", "%s: stuck after the faults ended: %v", name, err)
		return
	}
	h := p.Handed(l)
	if took := time.Since(began); took > most {
		w.oracle.failNow("R14", "%s: free only %v after the faults ended, want at most %v", name, took, most)
	}
	w.oracle.count("inherited")
	p.Sleep(p.ctx, time.Microsecond)
	_ = h.GiveUp(p.ctx)
}

// takeName joins a node and leaves.
func (w *World) takeName(p *Proc, node string) {
	began, most := time.Now(), w.patience()
	ctx, cancel := p.Within(p.ctx, 4*most)
	defer cancel()
	s, err := p.Join(ctx, node)
	if err != nil {
		w.oracle.failNow("R14", "%s: stuck after the faults ended: %v", node, err)
		return
	}
	if took := time.Since(began); took > most {
		w.oracle.failNow("R14", "%s: free only %v after the faults ended, want at most %v", node, took, most)
	}
	w.oracle.count("names inherited")
	p.Sleep(p.ctx, time.Microsecond)
	if err := s.Quit(func() error { return s.Leave(p.ctx) }); err != nil && !w.gone(s) {
		w.oracle.failNow("R14", "%s: no leave after the faults ended: %v", node, err)
	}
}

// gone reports whether the record says that a session left, though its process may
// have been told too slowly to know.
func (w *World) gone(s *Session) bool {
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	st := w.oracle.nodes[s.Node()].starts[s.Proof().Incarnation]
	return w.Plan.SlowReplies > 0 && st != nil && st.how == lease.HowReleased
}

// patience is how long a lease may be out of reach after the faults ended: what
// is on its way lands, then the longest TTL is observed, by the slowest clock.
func (w *World) patience() time.Duration {
	p := w.Plan
	d := p.longest() + time.Duration(float64(p.maxTTL())*(1+p.Rho)/(1-p.Rho))
	return d + p.TTL + 4*max(p.Poll, time.Second)
}
