package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// hostTable lets one host after the other serve ranges of a table until ctx ends.
func (a *actor) hostTable(ctx context.Context, table, slot int) {
	for n := 0; a.p.Sleep(ctx, about(a.r, a.ttl()/8)); n++ {
		t, err := a.p.Table(ctx, table)
		if err == nil {
			err = a.host(ctx, t, table, slot, n)
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// Table makes a table, or opens it: the second is a register on any store.
func (p *Proc) Table(ctx context.Context, table int) (*slots.Table, error) {
	var opts []slots.Option
	if table > 0 {
		opts = append(opts, slots.Register())
	}
	if p.w.Plan.Balanced {
		opts = append(opts, slots.Shards(p.w.Plan.Shards))
	}
	return slots.Create(ctx, p.Client, p.w.Plan.TableNames()[table], opts...)
}

// host serves for a while and ends in one way or another: as one host of all ranges, or
// as one for each.
func (a *actor) host(ctx context.Context, t *slots.Table, table, slot, n int) (err error) {
	cfg := slots.HostConfig{Owner: a.p.Slot(), Addr: a.p.name + ":80"}
	purpose := fmt.Sprint(t.Name(), " ", n)
	if !a.w.Plan.Balanced {
		cfg.Ranges = shapes[(slot+a.r.IntN(6)/5)%len(shapes)]
	}
	if a.w.Plan.Nodes > 0 && (a.w.Plan.Balanced || chance(a.r, 0.4)) {
		s, err := a.joinOwn(ctx, slot+table*a.w.Plan.Slots)
		if err != nil {
			return err
		}
		cfg.Session = s.Session
		if a.w.Plan.Balanced {
			a.balanced(&cfg)
		}
		return errors.Join(a.hostAs(ctx, t, cfg, s, purpose), a.leaveOwn(s))
	}
	if cfg.TTL = a.ttl(); chance(a.r, 0.2) {
		cfg.TTL *= 2
	}
	if !a.w.Plan.Split || t.Form() == slots.RegisterForm {
		return a.hostAs(ctx, t, cfg, nil, purpose)
	}
	var all sync.WaitGroup
	errs := make([]error, len(cfg.Ranges))
	for i, r := range cfg.Ranges {
		b, one := a.p.actor(fmt.Sprint(purpose, " of ", r)), cfg
		one.Ranges = []slots.Range{r}
		all.Go(func() {
			b.p.Sleep(ctx, time.Duration(1+i)*73*time.Microsecond)
			errs[i] = b.hostAs(ctx, t, one, nil, fmt.Sprint(purpose, " of ", r))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// balanced makes a host one that serves what the plan means for it.
func (a *actor) balanced(cfg *slots.HostConfig) {
	cfg.Balanced, cfg.Weight = true, 1+a.r.IntN(3)
	cfg.Balance = slots.Balance{Settle: a.ttl() / 2, Window: a.ttl(), Burst: 4, MaxMoves: 2, Slack: -1}
	cfg.Drain = func(ctx context.Context, _ *slots.Grant) error {
		a.p.Sleep(ctx, a.ttl()/16)
		return nil
	}
}

// hostAs is one host from its beginning to its end.
func (a *actor) hostAs(ctx context.Context, t *slots.Table, cfg slots.HostConfig, s *Session, purpose string) (err error) {
	sh := &slotHost{p: a.p, ts: a.w.oracle.tables[t.Name()], s: s}
	cfg.OnClaim, cfg.OnLoss = sh.claimed, sh.ended
	v := a.volume(purpose)
	if cfg.Volume = v; v != nil {
		defer a.closeVolume(v)
	}
	if sh.h, err = t.Host(cfg); err != nil {
		return err
	}
	a.w.oracle.hosted(sh)
	a.w.trace.add(a.p.name, "%s: a host of %v, session %v, volume %v", t.Name(), cfg.Ranges, s != nil, v != nil)
	a.whileServing(ctx, sh, purpose)
	return nil
}

// joinOwn joins the node that only the processes of this place join.
func (a *actor) joinOwn(ctx context.Context, node int) (*Session, error) {
	wctx, cancel := a.p.Within(ctx, 2*a.ttl()+about(a.r, 2*a.ttl()))
	defer cancel()
	return a.p.Join(wctx, a.w.Plan.NodeNames()[node])
}

// leaveOwn gives the node up.
func (a *actor) leaveOwn(s *Session) error {
	_ = s.Quit(func() error { return s.Leave(context.Background()) }) // which judges the answer
	return nil
}

// whileServing lets the host run, writes to the resource, and ends it.
func (a *actor) whileServing(ctx context.Context, sh *slotHost, purpose string) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	b, c := a.p.actor(purpose+" loop"), a.p.actor(purpose+" writer")
	all.Go(func() { b.loop(run, sh) })
	all.Go(func() { c.write(run, sh) })
	a.p.Sleep(ctx, a.ttl()/2+about(a.r, 4*a.ttl()))
	a.p.Sleep(context.Background(), time.Microsecond)
	a.w.oracle.closes(sh)
	switch n := a.r.IntN(10); {
	case n < 3: // Run gives everything up
		stop()
	case n < 5:
		err := sh.h.Release(context.Background())
		a.w.trace.add(a.p.name, "%s: release of everything: %s", sh.ts.name, kind(err))
	case n < 8: // its rows stay
		sh.h.Close()
	case sh.s != nil:
		_ = a.leaveOwn(sh.s)
	default: // its client is closed, or the process dies with it
		<-ctx.Done()
	}
	stop()
	all.Wait()
	sh.h.Close()
	a.w.oracle.unhosted(sh)
	a.complain(sh)
}

// closes notes that a host is about to give its ranges up.
func (o *oracle) closes(sh *slotHost) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sh.closing = true
}

// loop refreshes, by the host's own loop or by hand.
func (a *actor) loop(ctx context.Context, sh *slotHost) {
	if a.w.Plan.Balanced || chance(a.r, 0.6) {
		err := sh.h.Run(ctx)
		a.w.trace.add(a.p.name, "%s: the host ran: %s", sh.ts.name, kind(err))
		return
	}
	for ctx.Err() == nil && sh.h.Health().Over == nil {
		before := a.w.oracle.effects(sh.ts, a.p)
		sh.reported(sh.h.Refresh(ctx), before)
		a.complain(sh)
		if !a.p.Sleep(ctx, min(max(sh.h.NextWake(), a.ttl()/100), a.ttl())+time.Microsecond) {
			return
		}
	}
}

// complain judges the failures of a host (R12).
func (a *actor) complain(sh *slotHost) {
	for _, f := range sh.h.Health().Failed {
		a.blame(f.Err)
	}
}

// write writes to the resource that the slots guard as long as the host answers, and tells
// the host what is in the way.
func (a *actor) write(ctx context.Context, sh *slotHost) {
	for a.p.Sleep(ctx, about(a.r, a.ttl()/8)) {
		slot := sh.ts.slots[a.r.IntN(len(sh.ts.slots))]
		e, ok := sh.h.EpochFor(slot)
		if !ok {
			continue
		}
		if !a.w.Plan.Calm && chance(a.r, 0.02) {
			a.fenceSlot(sh, slot, e+1+uint64(a.r.IntN(3)))
			continue
		}
		a.p.Sleep(context.Background(), time.Microsecond+about(a.r, a.ttl()/50)) // it may be stopped here
		newer, told := uint64(0), make(chan struct{})
		time.AfterFunc(1+about(a.r, a.w.Plan.Latency), func() {
			newer = a.w.oracle.reaches(sh, slot, e)
			close(told)
		})
		<-told
		a.p.Sleep(context.Background(), time.Microsecond)
		if newer > 0 {
			a.fenceSlot(sh, slot, newer)
		}
	}
}

// fenceSlot tells the host of a newer epoch, and judges that it answers none below (SL6).
func (a *actor) fenceSlot(sh *slotHost, slot uint16, newer uint64) {
	o := a.w.oracle
	o.mu.Lock()
	sh.fenced = true
	o.mu.Unlock()
	lost := sh.h.Lose(slot, newer)
	a.w.trace.add(a.p.name, "%s: was told of epoch %d of slot %d, lost %v", sh.ts.name, newer, slot, lost)
	if e, ok := sh.h.EpochFor(slot); ok && e < newer {
		o.failNow("R46", "%s: %s serves slot %d under epoch %d, and was told of %d", sh.ts.name, a.p.name, slot, e, newer)
	}
}

// volume is the volume that a host serves from, now and then: that of its place. What a
// process had that crashed there, nobody unlocks in this world: the next has another.
func (a *actor) volume(purpose string) *slots.Volume {
	if !chance(a.r, 0.5) {
		return nil
	}
	place := strings.Fields(purpose) // all but the number of the host
	place = slices.Delete(place, 1, 2)
	dir := filepath.Join(a.w.volumes(), a.p.Slot(), strings.Join(place, "-"), fmt.Sprint(a.w.crashes(a.p.Slot())))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		panic(err)
	}
	v, err := slots.OpenVolume(dir)
	if err != nil && !errors.Is(err, store.ErrUnavailable) && runtime.GOOS == "linux" {
		panic(err)
	}
	return v
}

// closeVolume frees the lock once no call can write in its name any more.
func (a *actor) closeVolume(v *slots.Volume) {
	for range 50 {
		a.p.Sleep(context.Background(), time.Microsecond)
		if v.Close() == nil {
			return
		}
		a.p.Sleep(context.Background(), a.ttl()/10)
	}
	a.w.oracle.failNow("R46", "%s: a volume cannot be closed", a.p.name)
}

// crashes is how many processes of a place have crashed.
func (w *World) crashes(slot string) (n int) {
	for _, p := range w.all() {
		if p.Slot() == slot && p.crashed.Load() {
			n++
		}
	}
	return n
}

// volumes is the directory of the world's volumes, made when it is first asked for.
func (w *World) volumes() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir == "" {
		var err error
		if w.dir, err = os.MkdirTemp("", "tenure-world-"); err != nil {
			panic(err)
		}
	}
	return w.dir
}

func (w *World) removeVolumes() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dir != "" {
		_ = os.RemoveAll(w.dir)
	}
}

// takeTable lets a fresh process serve all slots of a table after the faults ended, and
// judges that it can within a bound (R47).
func (w *World) takeTable(p *Proc, table int, name string) {
	most, began := w.patience(), time.Now()
	ctx, cancel := p.Within(p.ctx, 4*most)
	defer cancel()
	var t *slots.Table
	err := again(func() (err error) { t, err = p.Table(ctx, table); return err })
	if err != nil {
		w.oracle.failNow("R47", "%s: cannot be opened after the faults ended: %v", name, err)
		return
	}
	whole := wholeShape
	if w.Plan.Balanced {
		whole = slots.All
	}
	sh := &slotHost{p: p, ts: w.oracle.tables[name]}
	cfg := slots.HostConfig{Owner: "heir", TTL: w.Plan.TTL, Ranges: []slots.Range{whole}, OnClaim: sh.claimed, OnLoss: sh.ended}
	if sh.h, err = t.Host(cfg); err != nil {
		w.oracle.failNow("R47", "%s: %v", name, err)
		return
	}
	w.oracle.hosted(sh)
	a := p.actor("heir of " + name)
	for len(sh.h.Held()) == 0 {
		sh.h.Refresh(ctx)
		a.complain(sh)
		if took := time.Since(began); took > most && len(sh.h.Held()) == 0 {
			w.oracle.failNow("R47", "%s: nobody can serve it %v after the faults ended: %+v", name, took, sh.h.Health().Waiting)
			break
		}
		p.Sleep(ctx, min(sh.h.NextWake(), w.Plan.TTL/8)+time.Microsecond)
	}
	w.oracle.count("tables inherited")
	w.oracle.closes(sh)
	if err := sh.h.Release(ctx); err != nil && w.Plan.Calm {
		w.oracle.failNow("R47", "%s: cannot be released: %v", name, err)
	}
	w.oracle.unhosted(sh)
}

// oversee acts as a person would who looks after the tables: it steals, raises counters
// and reads.
func (a *actor) oversee(ctx context.Context) {
	for a.p.Sleep(ctx, about(a.r, a.ttl())) {
		t, err := a.p.Table(ctx, a.r.IntN(a.w.Plan.Tables))
		var v slots.View
		if err == nil {
			v, err = t.Read(ctx)
		}
		switch n := a.r.IntN(20); {
		case err != nil || len(v.Rows) == 0:
		case n < 2:
			_, err = t.Jump(ctx, v.Counter+uint64(a.r.IntN(4)))
		case n < 4 && v.Plan != nil:
			_, err = t.Pin(ctx, v.Plan.Shards[a.r.IntN(len(v.Plan.Shards))].Range, []string{"", slotName(a.r.IntN(a.w.Plan.Slots))}[a.r.IntN(2)])
		case n < 14:
			err = a.stealRow(ctx, t, v.Rows[a.r.IntN(len(v.Rows))])
		}
		if errors.Is(err, tenure.ErrClosed) {
			return
		}
		a.blame(err)
	}
}

// stealRow ends an ownership, as a person who knows which processes died.
func (a *actor) stealRow(ctx context.Context, t *slots.Table, r slots.Row) error {
	if !r.Held() {
		return nil
	}
	o := a.w.oracle
	o.mu.Lock()
	ts := o.tables[t.Name()]
	p := ts.starts[r.Host.Incarnation]
	dead := p != nil && p.crashed.Load()
	o.mu.Unlock()
	if !dead && chance(a.r, 0.6) {
		return nil // it seems to be well
	}
	_, err := t.Steal(ctx, slots.StealOptions{Range: r.Range, Epoch: r.Epoch, Why: "the simulation wants it", By: a.p.name, Vouch: dead && chance(a.r, 0.6)})
	a.w.trace.add(a.p.name, "%s: steal of epoch %d of %v: %s", t.Name(), r.Epoch, r.Range, kind(err))
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil && ts.given[r.Epoch].how == "" && !a.p.misled() {
		o.fail("R46", "%s: epoch %d was ended by %s, and it lasts", t.Name(), r.Epoch, a.p.name)
	}
	if errors.Is(err, tenure.ErrInvalid) && r.Host.Kind == slots.SessionKind {
		return nil // its session is to be ended first
	}
	return err
}
