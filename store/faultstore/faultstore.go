// Package faultstore puts a bad network, a bad backend or a bad disk between a
// program and a store, on purpose and reproducibly.
//
//	s := faultstore.New(memstore.New(), faultstore.Options{Seed: 7, Rules: []faultstore.Rule{
//		{Ops: []faultstore.Op{faultstore.OpReplace}, Skip: 2, Times: 1, Fault: faultstore.LoseReply()},
//		{Odds: 0.1, Fault: faultstore.Delay(0, time.Second)},
//	}})
//
// A [Rule] picks calls, a [Fault] says what becomes of them. Faults of the
// network (errors, lost replies, late landings, duplicates, delays, hangs,
// partitions) keep the contract of package store; a program must live with
// them. Faults of the backend (stale reads, ignored conditions, damaged
// bodies) break it; a program must notice them.
//
// With one seed, the same calls meet the same faults, whatever the order in
// which calls for different keys arrive. All waiting is by timers and channels
// of package time, so that a store works inside a testing/synctest bubble.
package faultstore

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync"

	"github.com/tenure-project/tenure/store"
)

// Op names an operation of a store.
type Op string

// The operations.
const (
	OpGet        Op = "get"
	OpCreate     Op = "create"
	OpReplace    Op = "replace"
	OpDelete     Op = "delete"
	OpDeleteIf   Op = "delete-if"
	OpList       Op = "list"
	OpWatch      Op = "watch"
	OpNow        Op = "now"
	OpEnqueue    Op = "enqueue"
	OpWaiting    Op = "waiting"
	OpWait       Op = "wait in line"
	OpNewWitness Op = "new witness"
	OpGone       Op = "gone"
	OpWatchGone  Op = "watch gone"
	OpCommit     Op = "commit"
	OpScan       Op = "scan"
)

// Writes reports whether o changes a record, so that its outcome can be
// unknown.
func (o Op) Writes() bool {
	return o == OpCreate || o == OpReplace || o == OpDelete || o == OpDeleteIf || o == OpCommit
}

// Options say how a Store misbehaves.
type Options struct {
	// Seed decides, together with operation, key and the number of the call,
	// whatever a rule leaves to chance.
	Seed uint64
	// Rules are tried in order for each call; all that fire apply, the first
	// outermost.
	Rules []Rule
	// History is what stale reads are served from; handles to one place that
	// share it see each other's old states. nil is a history of the handle's
	// own.
	History *History
	// Info, if set, edits what the store declares: a power that it clears is out
	// of reach, one that it adds must exist.
	Info func(store.Info) store.Info
	// ContentVersions gives equal bodies an equal version, like a backend whose
	// mark is a digest of the content (ST4). Info.ContentVersions is left alone.
	ContentVersions bool
	// Trace, if set, is called in the caller's goroutine before and after each
	// call, without any lock held; it may block, which holds the call up. Calls
	// at the same time trace at the same time; a late landing traces from a
	// goroutine of its own.
	Trace func(Event)
}

// Event is one step of one call, for Options.Trace.
type Event struct {
	// Seq numbers the calls of a handle from 1, in the order of their arrival.
	Seq int
	// Op, Key, Body and Version are what the caller passed. For a listing, Key
	// is the prefix; for a commit it is the key of the first change, and for a
	// scan the lower bound.
	Op      Op
	Key     string
	Body    []byte
	Version store.Version
	// Changes are those of a commit. They must not be changed.
	Changes []store.Change
	// Faults names the faults that apply, outermost first.
	Faults []string
	// Done is false before the call and true after it.
	Done bool
	// Late marks the effect of a late landing or duplicate.
	Late bool
	// Scan is the range of a scan.
	Scan store.ScanRange
	// Result and Err are the call's answer, once Done; Made are the versions that
	// a commit made.
	Result store.Version
	Made   []store.Version
	Err    error
}

// Store is a handle with faults. All methods are safe for concurrent use. It
// has the powers that the inner store declares.
type Store struct {
	inner   store.Store
	seed    uint64
	history *History
	info    store.Info
	trace   func(Event)

	life    context.Context // ends when the handle is Dead or closed
	end     context.CancelCauseFunc
	air     context.Context // ends when it is closed; late landings run under it
	clear   context.CancelFunc
	flights sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	seq      int
	counts   map[Op]int
	fired    map[string]int
	numbers  map[opKey]int
	rules    []*rule
	link     Link
	turned   chan struct{} // closed when link changes
	frozen   frozen
	late     map[*landing]struct{}
	launched int
	tickets  map[*ticket]struct{}
}

type opKey struct {
	op  Op
	key string
}

// New wraps inner, which it owns from now on: Close closes it. It panics if a
// rule makes no sense, naming the rule.
func New(inner store.Store, o Options) *Store {
	if o.ContentVersions {
		inner = contentStore{inner}
	}
	s := &Store{
		inner: inner, seed: o.Seed, history: o.History, info: inner.Info(), trace: o.Trace,
		counts: map[Op]int{}, fired: map[string]int{}, numbers: map[opKey]int{},
		turned: make(chan struct{}), late: map[*landing]struct{}{}, tickets: map[*ticket]struct{}{},
	}
	if s.history == nil {
		s.history = NewHistory()
	}
	if o.Info != nil {
		s.info = o.Info(s.info)
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	s.air, s.clear = context.WithCancel(context.Background())
	s.Add(o.Rules...)
	return s
}

// Counts says how often each operation was called through this handle, whether
// or not the call met a fault. A call with a bad key or an ended context sends
// nothing and does not count. A listing counts once, when it is begun.
func (s *Store) Counts() map[Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.counts)
}

// Fired says how often each fault was met, by its name.
func (s *Store) Fired() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.fired)
}

// Info describes the inner store as Options.Info edited it.
func (s *Store) Info() store.Info { return s.info }

// request is a call on its way, reply its answer on the way back.
type request struct {
	op      Op
	key     string // the prefix of a listing
	after   string
	body    []byte
	version store.Version
	limit   int
	changes []store.Change  // of a commit
	scan    store.ScanRange // of a scan
	effect  handler         // the operation itself
	roll    roll
}

// call is what rules and traces are told of r.
func (r *request) call() Call {
	return Call{Op: r.op, Key: r.key, Body: r.body, Version: r.version, Changes: r.changes, Scan: r.scan}
}

// event is the first step of r.
func (r *request) event() Event {
	return Event{Op: r.op, Key: r.key, Body: r.body, Version: r.version, Changes: r.changes, Scan: r.scan}
}

type reply struct {
	object  store.Object
	version store.Version
	value   any
	err     error
}

// handler carries a request out.
type handler func(ctx context.Context, r *request) reply

// do counts and traces a call and leads it through partition and faults.
func (s *Store) do(ctx context.Context, r *request) reply {
	if err := s.check(ctx, r); err != nil {
		return reply{err: err}
	}
	seq, fired := s.arrive(r)
	e := r.event()
	e.Seq = seq
	h := func(ctx context.Context, r *request) reply { return r.effect(ctx, r) }
	for _, f := range fired {
		e.Faults = append(e.Faults, f.name)
		if f.effect != nil {
			h = f.effect(s, h)
		}
	}
	for i := len(fired) - 1; i >= 0; i-- {
		if f := fired[i]; f.wrap != nil {
			h = f.wrap(s, h)
		}
	}
	s.tell(e)
	alive, done := s.alive(ctx)
	defer done()
	if r.op == OpList {
		alive = ctx // List sees to it, until its last key
	}
	out := s.gate(alive, r, h)
	s.tell(e.ended(out))
	return out
}

// check refuses what no driver would send.
func (s *Store) check(ctx context.Context, r *request) error {
	err := error(nil)
	switch r.op {
	case OpList, OpNow, OpNewWitness, OpGone, OpWatchGone:
	case OpCommit:
		err = store.CheckChanges(r.changes, s.info.MaxBody)
	case OpScan:
		err = store.CheckScan(r.scan)
	default:
		err = store.CheckKey(r.key)
	}
	if err != nil {
		return store.Wrap(store.ErrInvalid, s.info.Identity, string(r.op), r.key, err)
	}
	return store.CtxErr(ctx, s.info.Identity, string(r.op), r.key)
}

// arrive numbers the call and decides which faults it meets.
func (s *Store) arrive(r *request) (seq int, fired []Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	s.counts[r.op]++
	id := opKey{r.op, r.key}
	s.numbers[id]++
	r.roll = newRoll(s.seed, id, s.numbers[id])
	for i, rule := range s.rules {
		if rule.fires(r.call(), r.roll.of(i)) {
			fired = append(fired, rule.Fault)
			s.fired[rule.Fault.name]++
		}
	}
	return s.seq, fired
}

// ended is the last step of the call whose first was e.
func (e Event) ended(out reply) Event {
	e.Done, e.Err, e.Result = true, out.err, out.version
	switch e.Op {
	case OpGet:
		e.Result = out.object.Version
	case OpCommit:
		e.Made, _ = out.value.([]store.Version)
	}
	return e
}

func (s *Store) tell(e Event) {
	if s.trace != nil {
		s.trace(e)
	}
}

// lost is the answer of a call whose reply the caller never sees: a write may
// have happened (ST9).
func (s *Store) lost(r *request, cause error, detail string) reply {
	kind := store.ErrUnavailable
	if r.op.Writes() {
		kind = store.ErrUnknown
	}
	return reply{err: &store.Error{Kind: kind, Store: s.info.Identity, Op: string(r.op), Key: r.key, Detail: detail, Cause: cause}}
}

// Get reads through the faults.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	out := s.do(ctx, &request{op: OpGet, key: key, limit: limit, effect: s.get})
	return out.object, out.err
}

func (s *Store) get(ctx context.Context, r *request) reply {
	o, err := s.inner.Get(ctx, r.key, r.limit)
	if err == nil {
		s.history.saw(r.key, o)
	}
	return reply{object: o, err: err}
}

// Create writes through the faults.
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	out := s.do(ctx, &request{op: OpCreate, key: key, body: body, effect: func(ctx context.Context, r *request) reply {
		v, err := s.inner.Create(ctx, r.key, r.body)
		return s.wrote(r, v, err)
	}})
	return out.version, out.err
}

// Replace writes through the faults.
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	out := s.do(ctx, &request{op: OpReplace, key: key, body: body, version: v, effect: func(ctx context.Context, r *request) reply {
		v, err := s.inner.Replace(ctx, r.key, r.body, r.version)
		return s.wrote(r, v, err)
	}})
	return out.version, out.err
}

// Delete writes through the faults.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.do(ctx, &request{op: OpDelete, key: key, effect: func(ctx context.Context, r *request) reply {
		return s.wrote(r, "", s.inner.Delete(ctx, r.key))
	}}).err
}

// DeleteIf writes through the faults. It is reachable only if the inner store
// declares store.CanDeleteIf.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	d, ok := store.AsConditionalDeleter(s.inner)
	if !ok {
		return s.lacks(OpDeleteIf, key)
	}
	return s.do(ctx, &request{op: OpDeleteIf, key: key, version: v, effect: func(ctx context.Context, r *request) reply {
		return s.wrote(r, "", d.DeleteIf(ctx, r.key, r.version))
	}}).err
}

// wrote notes a finished write in the history.
func (s *Store) wrote(r *request, v store.Version, err error) reply {
	if err == nil {
		s.history.wrote(r, v)
	}
	return reply{version: v, err: err}
}

// List lists through the faults.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ctx, done := s.alive(ctx)
		defer done()
		r := &request{op: OpList, key: prefix, after: after, effect: func(ctx context.Context, r *request) reply {
			return reply{value: s.inner.List(ctx, r.key, r.after)}
		}}
		out := s.do(ctx, r)
		if out.err != nil {
			yield("", out.err)
			return
		}
		_, began := s.linkNow()
		for k, err := range out.value.(iter.Seq2[string, error]) {
			if _, turned := s.linkNow(); err == nil && turned != began {
				err = s.back(ctx, r, reply{}).err
			}
			if err != nil {
				k = ""
			}
			if !yield(k, err) || err != nil {
				return
			}
		}
	}
}

func (s *Store) lacks(op Op, key string) error {
	return store.Errorf(store.ErrInvalid, s.info.Identity, string(op), key, "the inner store does not declare this power")
}

// Close ends the calls that hang, drops what is still on its way, and closes
// the inner store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop()
	s.end(errClosed)
	s.clear()
	s.flights.Wait()
	return s.inner.Close()
}

// What ends a call that hangs, beside its context.
var (
	errClosed = errors.New("the faulty store was closed")
	errDead   = errors.New("injected: this process is gone")
)
