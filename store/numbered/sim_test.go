package numbered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// The simulation holds every request of every actor to the store below up, and
// lets one at a time go on: in any order, with a lost request or reply, late,
// twice, or into the death of its actor. What the actors were told must be the
// history of one register.

// mutant is a flaw of the protocol, put between an actor and the store.
type mutant int

const (
	sound        mutant = iota
	checkBefore         // a writer lists before its create instead of after it
	deleteBefore        // the mark is made after the deletes
	noCheck             // a writer does not look for marks at all
	noSecondLook        // a reader does not look for marks after it read
)

// sim is one world: the store below, what waits, and what is in the air.
type sim struct {
	place   *memstore.Store
	rng     *rand.Rand
	faults  bool
	page    int // how many keys a page of a listing has
	mutant  mutant
	mu      sync.Mutex
	pending []*request
	flying  []func()
	running int
	asleep  map[int]int // by actor: how many steps it sleeps
	clock   int64
	ops     []*operation
	crashes int
	naps    int
}

// request is one call to the store below that waits for its turn.
type request struct {
	ctx   context.Context
	gate  *gate
	op    string
	key   string
	write bool
	do    func() error
	reply chan error
}

// gate is one actor's way to the store below, until it dies.
type gate struct {
	createOnly
	s     *sim
	actor int
	dead  bool

	before string // the operation before this one
	made   string // the object that was made last

	earlier map[string][]string // checkBefore: by listing, what was there before
	unmade  []func()            // deleteBefore
	hidden  []string            // deleteBefore: their keys
}

func (s *sim) gate(actor int) *gate {
	return &gate{createOnly: createOnly{s.place}, s: s, actor: actor, earlier: map[string][]string{}}
}

// ask waits until the scheduler lets the request go on.
func (g *gate) ask(ctx context.Context, op, key string, write bool, do func() error) error {
	defer func() { g.before = op }()
	r := &request{ctx: ctx, gate: g, op: op, key: key, write: write, do: do, reply: make(chan error)}
	g.s.mu.Lock()
	g.s.pending = append(g.s.pending, r)
	g.s.mu.Unlock()
	return <-r.reply // the scheduler alone wakes anybody, so a seed replays its world
}

func (r *request) lost() error {
	if r.write {
		return store.Errorf(store.ErrUnknown, "sim", r.op, r.key, "lost")
	}
	return store.Errorf(store.ErrUnavailable, "sim", r.op, r.key, "lost")
}

func (g *gate) Get(ctx context.Context, key string, limit int) (o store.Object, err error) {
	err = g.ask(ctx, "get", key, false, func() (err error) {
		o, err = g.s.place.Get(context.Background(), key, limit)
		return err
	})
	return o, err
}

func (g *gate) Create(ctx context.Context, key string, body []byte) (v store.Version, err error) {
	mark := strings.HasSuffix(key, markSuffix)
	do := func() (err error) {
		v, err = g.s.place.Create(context.Background(), key, body)
		return err
	}
	switch {
	case g.s.mutant == checkBefore && !mark:
		d := key[:strings.LastIndexByte(key, '/')+1]
		_ = g.ask(ctx, "list", d, false, func() error {
			g.earlier[d], g.made = g.s.names(d, ""), key
			return nil
		})
	case g.s.mutant == deleteBefore && mark:
		g.unmade, g.hidden = append(g.unmade, func() { _ = do() }), append(g.hidden, key)
		return "1", nil
	}
	return v, g.ask(ctx, "create", key, true, do)
}

func (g *gate) Delete(ctx context.Context, key string) error {
	return g.ask(ctx, "delete", key, true, func() error { return g.s.place.Delete(context.Background(), key) })
}

func (g *gate) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if old, checked := g.earlier[prefix]; checked && after != "" {
			delete(g.earlier, prefix)
			names := slices.DeleteFunc(append(old, g.made), func(n string) bool { return n < after })
			slices.Sort(names)
			for _, n := range names {
				if !yield(n, nil) {
					return
				}
			}
			return
		}
		for previous := g.before; ; { // page by page, and much may happen between two
			var names []string
			err := g.ask(ctx, "list", prefix, false, func() error {
				names = g.list(prefix, after, previous)
				return nil
			})
			if err != nil {
				yield("", err)
				return
			}
			most := min(g.s.page, len(names))
			for _, n := range names[:most] {
				if !yield(n, nil) {
					return
				}
			}
			if most == len(names) {
				return
			}
			after = names[most-1]
		}
	}
}

// list is what the store shows, as the mutant bends it.
func (g *gate) list(prefix, after, previous string) []string {
	names := g.s.names(prefix, after)
	switch g.s.mutant {
	case noCheck, noSecondLook:
		if previous == map[mutant]string{noCheck: "create", noSecondLook: "get"}[g.s.mutant] {
			names = slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, markSuffix) })
		}
	case deleteBefore:
		for _, k := range g.hidden {
			if k > after && strings.HasPrefix(k, prefix) && !slices.Contains(names, k) {
				names = append(names, k)
			}
		}
		slices.Sort(names)
	}
	return names
}

// settleMarks is deleteBefore's end of a call: now the marks are made.
func (g *gate) settleMarks() {
	for _, make := range g.unmade {
		if !g.dead {
			make()
		}
	}
	g.unmade, g.hidden = nil, nil
}

func (s *sim) names(prefix, after string) (names []string) {
	for k := range s.place.List(context.Background(), prefix, after) {
		names = append(names, k)
	}
	return names
}

// run lets requests go on until no actor is left.
func (s *sim) run() {
	for {
		synctest.Wait()
		s.mu.Lock()
		ready, running := s.ready(), s.running
		s.mu.Unlock()
		switch {
		case running == 0:
			for _, land := range s.flying {
				land()
			}
			return
		case len(ready) == 0: // all are asleep, or wait for time to pass
			time.Sleep(time.Second)
			continue
		case s.faults && s.rng.IntN(400) == 0:
			s.naps++
			time.Sleep(2 * time.Minute) // what was known is no longer fresh, clean-ups end
			continue
		case s.faults && len(s.flying) > 0 && s.rng.IntN(12) == 0:
			i := s.rng.IntN(len(s.flying))
			land := s.flying[i]
			s.flying = slices.Delete(s.flying, i, i+1)
			land()
			continue
		}
		s.step(ready[s.rng.IntN(len(ready))])
	}
}

// ready are the requests of those who do not sleep, in an order that does not
// depend on the scheduler of goroutines. Under mu.
func (s *sim) ready() []*request {
	ready := []*request{}
	for _, r := range s.pending {
		if s.asleep[r.gate.actor] == 0 {
			ready = append(ready, r)
		}
	}
	for a := range s.asleep {
		s.asleep[a] = max(s.asleep[a]-1, 0)
	}
	slices.SortFunc(ready, func(a, b *request) int {
		return cmp.Or(a.gate.actor-b.gate.actor, strings.Compare(a.op, b.op), strings.Compare(a.key, b.key))
	})
	return ready
}

// step lets one request go on, or not.
func (s *sim) step(r *request) {
	if s.rng.IntN(15) == 0 { // it sleeps right before its request
		s.asleep[r.gate.actor] = 1 + s.rng.IntN(150)
		return
	}
	s.mu.Lock()
	s.pending = slices.DeleteFunc(s.pending, func(o *request) bool { return o == r })
	s.mu.Unlock()
	if r.gate.dead || r.ctx.Err() != nil {
		if r.write && s.rng.IntN(2) == 0 { // it is on its way
			s.flying = append(s.flying, func() { _ = r.do() })
		}
		r.reply <- r.lost()
		return
	}
	fate := 99
	if s.faults {
		fate = s.rng.IntN(100)
	}
	switch {
	case fate < 3:
		r.reply <- r.lost()
	case fate < 7:
		_ = r.do()
		r.reply <- r.lost()
	case fate < 9 && r.write:
		s.flying = append(s.flying, func() { _ = r.do() })
		r.reply <- r.lost()
	case fate < 13 && r.write:
		s.flying = append(s.flying, func() { _ = r.do() })
		r.reply <- r.do()
	case fate < 15:
		s.crashes++
		r.gate.dead = true
		if s.rng.IntN(2) == 0 {
			_ = r.do()
		}
		r.reply <- r.lost()
	default:
		r.reply <- r.do()
	}
}

// operation is one call of an actor to its register, and what it was told.
type operation struct {
	kind       string // get, create, replace, delete
	begin, end int64
	body       string // written, or read
	over       string // the body that a replace is to replace
	err        error  // by kind
}

func (o operation) String() string {
	return fmt.Sprintf("[%d,%d] %s over %q: %q %v", o.begin, o.end, o.kind, o.over, o.body, o.err)
}

const never = int64(1) << 62

func (s *sim) tick() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	return s.clock
}

func (s *sim) note(o *operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, o)
}

// actor works on one register.
type actor struct {
	s    *sim
	id   int
	t    tuning
	rng  *rand.Rand
	gate *gate
	st   *Store
	saw  store.Object
}

func (a *actor) begin() {
	if a.st == nil || a.gate.dead {
		a.gate = a.s.gate(a.id)
		a.st = newStore(a.gate, a.t)
		a.st.guarded[GuardKey(simKey)] = struct{}{}
		a.saw = store.Object{}
	}
}

const simKey = "n/lease/a"

// call makes one call and notes what it was told.
func (a *actor) call(kind, body string, f func(ctx context.Context, o *operation) error) {
	a.begin()
	o := &operation{kind: kind, begin: a.s.tick(), end: never, body: body}
	err := f(context.Background(), o)
	a.gate.settleMarks()
	o.err = store.KindOf(err)
	switch {
	case a.gate.dead: // nobody is there to be told
		o.err = store.ErrUnknown
	case o.err != store.ErrUnknown:
		o.end = a.s.tick()
	}
	if o.err == store.ErrUnavailable || kind == "get" && o.err == store.ErrUnknown {
		return
	}
	a.s.note(o)
}

func (a *actor) get() {
	a.call("get", "", func(ctx context.Context, o *operation) error {
		got, err := a.st.Get(ctx, simKey, 1000)
		o.body, a.saw = string(got.Body), got
		return err
	})
}

// work makes n calls, mostly read and replace.
func (a *actor) work(n int, deletes bool) {
	for i := range n {
		body := fmt.Sprintf("%d.%d", a.id, i)
		switch roll := a.rng.IntN(10); {
		case roll < 2 || a.saw.Version == "" && roll < 5:
			a.get()
		case deletes && roll == 2:
			a.call("delete", "", func(ctx context.Context, _ *operation) error { return a.st.Delete(ctx, simKey) })
		case a.saw.Version == "":
			a.call("create", body, func(ctx context.Context, o *operation) error {
				v, err := a.st.Create(ctx, simKey, []byte(body))
				if err == nil {
					a.saw = store.Object{Body: []byte(body), Version: v}
				}
				return err
			})
		default:
			a.call("replace", body, func(ctx context.Context, o *operation) error {
				o.over = string(a.saw.Body)
				v, err := a.st.Replace(ctx, simKey, []byte(body), a.saw.Version)
				a.saw = store.Object{Body: []byte(body), Version: v}
				if err != nil {
					a.saw = store.Object{}
				}
				return err
			})
		}
	}
}

// sweepUp cleans up as far as it may, n times.
func (a *actor) sweepUp(n int) {
	for range n {
		a.begin()
		if k, _, err := a.st.find(context.Background(), simKey, 1000); err == nil && k.present {
			a.st.clean(context.Background(), simKey, k)
		}
		a.gate.settleMarks()
	}
}

// simulate runs the world of a seed and says what is wrong with it; "" if
// nothing is.
func simulate(t *testing.T, seed uint64, m mutant, stats *[6]int) (flaw string) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 17))
		s := &sim{place: memstore.New(), rng: rng, mutant: m, asleep: map[int]int{}, faults: rng.IntN(3) > 0}
		if s.page = 1000; rng.IntN(2) == 0 {
			s.page = 1 + rng.IntN(4)
		}
		tn := usual
		tn.keep, tn.every = 1+uint64(rng.IntN(3)), 1+uint64(rng.IntN(2))
		tn.keepMarks, tn.remember = 1+rng.IntN(2), int(tn.keep)+1+rng.IntN(4)
		deletes, calls := rng.IntN(2) == 0, 6+rng.IntN(10)
		start := func(id int, tn tuning, f func(a *actor)) {
			s.running++
			a := &actor{s: s, id: id, t: tn, rng: rand.New(rand.NewPCG(seed, uint64(id)))}
			go func() {
				f(a)
				s.mu.Lock()
				s.running--
				s.mu.Unlock()
			}()
			synctest.Wait()
		}
		for id := range 3 {
			start(id, tn, func(a *actor) { a.work(calls, deletes) })
		}
		cleaner := tn
		cleaner.every = 1
		start(3, cleaner, func(a *actor) { a.sweepUp(calls) })
		s.run()
		flaw = s.judge(stats)
		_ = s.place.Close()
	})
	return flaw
}

// judge reads the end and holds all answers against one register.
func (s *sim) judge(stats *[6]int) string {
	st := newStore(createOnly{s.place}, usual)
	o := &operation{kind: "get", begin: s.tick()}
	got, err := st.Get(context.Background(), simKey, 1000)
	o.end, o.body, o.err = s.tick(), string(got.Body), store.KindOf(err)
	s.note(o)
	listed := false
	for k, err := range st.List(context.Background(), "", "") {
		if err != nil || k != simKey {
			return fmt.Sprintf("the listing shows %q, %v", k, err)
		}
		listed = true
	}
	if present := err == nil; listed != present {
		return fmt.Sprintf("the listing shows the key: %v, a read: %v", listed, err)
	}
	for _, o := range s.ops {
		stats[0]++
		switch {
		case errors.Is(o.err, store.ErrUnknown):
			stats[1]++
		case errors.Is(o.err, store.ErrConflict):
			stats[2]++
		case o.err == nil && o.kind != "get":
			stats[3]++
		}
	}
	stats[4] += s.crashes
	stats[5] += s.naps
	return linearizable(s.ops)
}
