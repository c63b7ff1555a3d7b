package world

import (
	"context"
	"iter"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// wire is the way from one process to the place. It takes time there and back,
// by the seed, so that no two events of a world have the same instant; and what
// was sent arrives, whether or not its sender still waits.
type wire struct {
	w   *World
	p   *Proc
	mem *memstore.Store
}

var (
	_ store.Store              = (*wire)(nil)
	_ store.ConditionalDeleter = (*wire)(nil)
	_ store.Watcher            = (*wire)(nil)
	_ store.Clocker            = (*wire)(nil)
	_ store.Queuer             = (*wire)(nil)
	_ store.Prover             = (*wire)(nil)
	_ store.Committer          = (*wire)(nil)
)

// Info describes the place, with the powers that the plan gives it.
func (x *wire) Info() store.Info {
	i := x.mem.Info()
	i.Identity, i.Scheme = "sim:world", "sim"
	i.Can = x.w.Plan.Powers
	return i
}

// latency is how long a request and its answer take. One in fifty is slow.
func (x *wire) latency(ctx context.Context, op faultstore.Op, key string, v store.Version) (out, back time.Duration) {
	h := mix(x.p.seed^now()^stampOf(ctx), hash(string(op), key, string(v)))
	most := uint64(x.w.Plan.Latency)
	if h%50 == 0 {
		most *= 10
	}
	return 1000 + time.Duration(mix(h, 1)%most), 1000 + time.Duration(mix(h, 2)%most)
}

// carry sends effect on its way and waits for the answer. A nil error means
// that the answer came; the cause of ctx, that nobody waited for it.
func (x *wire) carry(ctx context.Context, op faultstore.Op, key string, v store.Version, effect func()) error {
	out, back := x.latency(ctx, op, key, v)
	arrived := make(chan struct{})
	time.AfterFunc(out, func() { effect(); close(arrived) })
	select {
	case <-arrived:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return wait(ctx, back)
}

// wait lets d pass unless ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *wire) unanswered(kind error, op faultstore.Op, key string, cause error) error {
	return store.Wrap(kind, "sim:world", string(op), key, cause)
}

// Get reads.
func (x *wire) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	var a struct {
		o   store.Object
		err error
	}
	if err := x.carry(ctx, faultstore.OpGet, key, "", func() {
		a.o, a.err = x.w.place.get(context.Background(), x.mem, key, limit)
		x.w.oracle.served(x.p, key)
	}); err != nil {
		return store.Object{}, x.unanswered(store.ErrUnavailable, faultstore.OpGet, key, err)
	}
	return a.o, a.err
}

// write sends a conditional write.
func (x *wire) write(ctx context.Context, e effect) (store.Version, error) {
	e.from = x.p
	var a struct {
		v   store.Version
		err error
	}
	err := x.carry(ctx, e.op, e.key, e.over, func() { a.v, a.err = x.w.place.apply(e) })
	if err != nil {
		return "", x.unanswered(store.ErrUnknown, e.op, e.key, err)
	}
	return a.v, a.err
}

// Create stores body if key is absent.
func (x *wire) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	return x.write(ctx, effect{op: faultstore.OpCreate, key: key, body: body, do: func(ctx context.Context) (store.Version, error) {
		return x.mem.Create(ctx, key, body)
	}})
}

// Replace stores body if key is at v.
func (x *wire) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	return x.write(ctx, effect{op: faultstore.OpReplace, key: key, body: body, over: v, do: func(ctx context.Context) (store.Version, error) {
		return x.mem.Replace(ctx, key, body, v)
	}})
}

// Delete removes key.
func (x *wire) Delete(ctx context.Context, key string) error {
	_, err := x.write(ctx, effect{op: faultstore.OpDelete, key: key, do: func(ctx context.Context) (store.Version, error) {
		return "", x.mem.Delete(ctx, key)
	}})
	return err
}

// DeleteIf removes key if it is at v.
func (x *wire) DeleteIf(ctx context.Context, key string, v store.Version) error {
	_, err := x.write(ctx, effect{op: faultstore.OpDeleteIf, key: key, over: v, do: func(ctx context.Context) (store.Version, error) {
		return "", x.mem.DeleteIf(ctx, key, v)
	}})
	return err
}

// List lists what was there when the request arrived.
func (x *wire) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var a struct {
			keys []string
			err  error
		}
		if err := x.carry(ctx, faultstore.OpList, prefix, "", func() { a.keys, a.err = x.w.place.list(context.Background(), x.mem, prefix, after) }); err != nil {
			yield("", x.unanswered(store.ErrUnavailable, faultstore.OpList, prefix, err))
			return
		}
		listOf(a.keys, a.err)(yield)
	}
}

// Commit makes several changes at once.
func (x *wire) Commit(ctx context.Context, changes []store.Change) (made []store.Version, err error) {
	e := effect{op: faultstore.OpCommit, key: changes[0].Key, over: changes[0].Over, changes: changes, made: &made}
	e.do = func(ctx context.Context) (store.Version, error) {
		var err error
		made, err = x.mem.Commit(ctx, changes)
		return "", err
	}
	_, err = x.write(ctx, e)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// Scan reads several keys at one instant.
func (x *wire) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	var a struct {
		found []store.Keyed
		err   error
	}
	if err := x.carry(ctx, faultstore.OpScan, r.From, store.Version(r.To), func() { a.found, a.err = x.w.place.scan(x.mem, r) }); err != nil {
		return nil, x.unanswered(store.ErrUnavailable, faultstore.OpScan, r.From, err)
	}
	return a.found, a.err
}

// Watch waits for a change.
func (x *wire) Watch(ctx context.Context, key string, v store.Version) error {
	out, back := x.latency(ctx, faultstore.OpWatch, key, v)
	err := wait(ctx, out)
	if err == nil {
		err = x.mem.Watch(ctx, key, v)
	}
	if err == nil {
		err = wait(ctx, back)
	}
	if err != nil {
		return x.unanswered(store.ErrUnavailable, faultstore.OpWatch, key, err)
	}
	return nil
}

// Now reads the place's clock, which is true time.
func (x *wire) Now(ctx context.Context) (r store.Reading, err error) {
	out, back := x.latency(ctx, faultstore.OpNow, "", "")
	if err = wait(ctx, out); err == nil {
		r, err = x.mem.Now(ctx)
	}
	if err == nil {
		err = wait(ctx, back)
	}
	if err != nil {
		return store.Reading{}, x.unanswered(store.ErrUnavailable, faultstore.OpNow, "", err)
	}
	return store.Reading{Time: r.Time, Instance: "sim"}, nil
}

// Enqueue joins the line.
func (x *wire) Enqueue(ctx context.Context, key string) (store.Ticket, error) {
	out, back := x.latency(ctx, faultstore.OpEnqueue, key, "")
	if err := wait(ctx, out+back); err != nil {
		return nil, x.unanswered(store.ErrUnavailable, faultstore.OpEnqueue, key, err)
	}
	t, err := x.mem.Enqueue(ctx, key)
	if err == nil && x.w.mutation.ghost {
		return ghostTicket{t}, nil
	}
	return t, err
}

// Waiting reports whether anybody stands in line.
func (x *wire) Waiting(ctx context.Context, key string) (bool, error) {
	out, back := x.latency(ctx, faultstore.OpWaiting, key, "")
	if err := wait(ctx, out+back); err != nil {
		return false, x.unanswered(store.ErrUnavailable, faultstore.OpWaiting, key, err)
	}
	return x.mem.Waiting(ctx, key)
}

// NewWitness names the process.
func (x *wire) NewWitness(ctx context.Context) (store.Witness, error) {
	out, back := x.latency(ctx, faultstore.OpNewWitness, "", "")
	if err := wait(ctx, out+back); err != nil {
		return nil, x.unanswered(store.ErrUnavailable, faultstore.OpNewWitness, "", err)
	}
	return witness{x.p.id}, nil
}

type witness struct{ id int }

// Mark names the process's number as the inode.
func (t witness) Mark() store.Mark { return store.Mark{Boot: "sim", Dev: 1, Inode: uint64(t.id)} }

// Close does nothing: a process that ended in order holds nothing any more.
func (t witness) Close() error { return nil }

// Gone knows exactly which processes have crashed.
func (x *wire) Gone(ctx context.Context, mark store.Mark) (bool, error) {
	out, back := x.latency(ctx, faultstore.OpGone, "", "")
	if err := wait(ctx, out+back); err != nil {
		return false, x.unanswered(store.ErrUnavailable, faultstore.OpGone, "", err)
	}
	q := x.w.proc(int(mark.Inode))
	return q != nil && (q.crashed.Load() || x.w.mutation.hasty && q.gate.stopped()), nil
}

// WatchGone returns when the process has crashed.
func (x *wire) WatchGone(ctx context.Context, mark store.Mark) error {
	q := x.w.proc(int(mark.Inode))
	select {
	case <-q.died:
		_, back := x.latency(ctx, faultstore.OpWatchGone, q.name, "")
		return wait(ctx, back)
	case <-ctx.Done():
		return x.unanswered(store.ErrUnavailable, faultstore.OpWatchGone, "", context.Cause(ctx))
	}
}

// Close gives up what the process has in line.
func (x *wire) Close() error { return x.mem.Close() }

// ghostTicket never comes to the front (a mutation).
type ghostTicket struct{ store.Ticket }

func (g ghostTicket) Wait(ctx context.Context, _ time.Duration) error {
	<-ctx.Done()
	return store.CtxErr(ctx, "sim:world", "wait in line", "")
}
