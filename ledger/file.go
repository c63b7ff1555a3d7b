package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// FileLedger is the ledger of a site that has no store for a while: a log file on a
// local disk, for the processes of one host (EX7). What keeps two of them apart is an
// operating-system lock beside it, path with ".lock" at its end (of the file that symbolic
// links lead to), which ends with its process; its epochs are counted in the log. Import
// what it holds when the store is there again. It is safe for concurrent use. It keeps no
// results, and every call reads the whole file, which Compact makes as short as can be: it
// is for thousands of runs, not for millions. Systems without flock, such as Windows, are
// refused.
type FileLedger struct {
	path, agent, site string

	mu   sync.Mutex
	left []*os.File // locks of runs that left something behind: they end with the process
}

// filePoll is how often a waiter tries the lock.
const filePoll = 50 * time.Millisecond

// always is longer than anybody waits.
const always = 100 * 365 * 24 * time.Hour

// OpenFile is agent's ledger in the log file at path, which is made by the first run.
// site names this log among the ledgers that it is merged with: it must be another than
// theirs. A file may hold any number of agents, which then run one at a time.
func OpenFile(path, agent, site string) (*FileLedger, error) {
	if err := errors.Join(store.CheckName("job name", agent), store.CheckName("site", site)); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, invalid("open log", "the path is empty")
	}
	return &FileLedger{path: path, agent: agent, site: site}, nil
}

// Read joins the log file; one that is not there is an empty log.
func (f *FileLedger) Read() (*Log, error) {
	g := NewLog()
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return g, nil
	}
	if err != nil {
		return nil, f.broken("read", err)
	}
	defer file.Close()
	return g, g.ReadFrom(f.path, file)
}

func (f *FileLedger) broken(op string, err error) error {
	return store.Wrap(store.ErrUnavailable, "", op, f.path, err)
}

// Once is Ledger.Once on the log file. Its function's context ends with ctx and at its
// time limit; the lock is kept until the function returns, or the process ends. An open
// attempt of this site is unknown once the lock is free: its process is gone, and what it
// started may not be. WithLease, Replay and SettleLimit have no meaning here.
func (f *FileLedger) Once(ctx context.Context, run Run, fn Func, opts ...OnceOption) (Outcome, error) {
	o := &fileRun{f: f, fn: fn, out: Outcome{Run: run, State: NotRun}}
	l := &Ledger{files: &files{agent: f.agent}}
	var err error
	if o.cfg, err = l.check(run, fn, onceConfig{policy: Hold, settle: time.Minute}, opts); err != nil {
		return o.out, err
	}
	g, err := f.Read()
	if err != nil || o.decided(g.s.Agent(f.agent)) {
		return o.out, err
	}
	lock, err := f.lock(ctx, o.cfg.wait)
	if lock == nil {
		if err == nil {
			o.out.State = Busy
		}
		return o.out, err
	}
	defer func() {
		if o.keep {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.left = append(f.left, lock)
			return
		}
		_ = lock.Close()
	}()
	err = o.locked(ctx)
	return o.out, err
}

// Settle is Ledger.Settle of an attempt of this site. While a run has the lock that is
// ErrRunning, after o.Wait; a reason is required, and kept with the verdict abandoned only.
func (f *FileLedger) Settle(ctx context.Context, k Key, v Verdict, o SettleOptions) error {
	out, err := outcome(k, v, o)
	if err = errors.Join(err, o.check()); err != nil {
		return err
	}
	lock, err := f.lock(ctx, o.Wait)
	if err != nil {
		return err
	}
	if lock == nil {
		return &RunningError{Agent: f.agent, Pending: Pending{Key: k}}
	}
	defer lock.Close()
	r := &fileRun{f: f, holder: clip(o.why())}
	return r.open(func() error {
		r.epoch = r.agent.Epoch(f.site)
		i := slices.IndexFunc(r.agent.Opens(), func(p Pending) bool { return p.Key == k && p.Site == f.site })
		if i < 0 {
			return store.Errorf(store.ErrNotFound, "", "settle", f.path, "job %q: run %v has no open attempt %d at site %q", f.agent, k.Run, k.Attempt, f.site)
		}
		return r.write(core.Intent{Key: k, Status: out.Status, NotStarted: out.NotStarted})
	})
}

// lock takes the lock, within wait; nil if somebody else has it.
func (f *FileLedger) lock(ctx context.Context, wait time.Duration) (*os.File, error) {
	end := time.Now().Add(wait)
	for {
		file, err := f.tryLock()
		if file != nil || err != nil {
			return file, err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		t := time.NewTimer(min(left, filePoll))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// tryLock takes the lock if nobody has it; nil if somebody has. A file that was replaced
// between its opening and its lock keeps nobody away who opens the path now.
func (f *FileLedger) tryLock() (*os.File, error) {
	path, err := f.lockPath()
	if err != nil {
		return nil, f.broken("lock", err)
	}
	for {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, f.broken("lock", err)
		}
		ok, err := tryFlock(file)
		if err == nil && ok {
			ok, err = stillAt(path, file)
			if ok && err == nil {
				return file, nil
			}
			if err == nil {
				_ = file.Close()
				continue
			}
		}
		if err != nil {
			return nil, errors.Join(f.broken("lock", err), file.Close())
		}
		return nil, file.Close()
	}
}

// stillAt reports whether path names the open file.
func stillAt(path string, file *os.File) (bool, error) {
	is, err := file.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(is, now), err
}

// fileRun is one call of Once.
type fileRun struct {
	f      *FileLedger
	cfg    onceConfig
	fn     Func
	out    Outcome
	log    *os.File
	all    *core.State
	agent  *core.Agent // of all
	holder string
	epoch  uint64
	keep   bool
}

// decided reports whether the run is done or given up, and answers if it is.
func (o *fileRun) decided(a *core.Agent) bool {
	run := o.out.Run.ID
	if yes, twice := a.Committed(run); yes {
		o.out.State, o.out.Repeated = Done, twice
		for _, at := range a.Attempts(run) {
			if at.Committed {
				o.out.Attempt = at.Fact.Key
				break
			}
		}
		return true
	}
	if last, over := tooManyFailed(a.Attempts(run), o.cfg.maxFailed); over {
		o.out.State, o.out.Attempt = GaveUp, last
		return true
	}
	return false
}

// locked goes on under the lock.
func (o *fileRun) locked(ctx context.Context) (err error) {
	return o.open(func() error {
		o.holder, o.epoch = freshID(), o.agent.Epoch(o.f.site)+1
		for !o.decided(o.agent) {
			again, err := o.dispatch(ctx)
			if !again || err != nil {
				return err
			}
		}
		return nil
	})
}

// open calls do with the log open and read.
func (o *fileRun) open(do func() error) (err error) {
	if o.log, err = os.OpenFile(o.f.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return o.f.broken("open log", err)
	}
	defer func() { err = errors.Join(err, o.log.Close()) }()
	if err := o.load(); err != nil {
		return err
	}
	return do()
}

// load reads the log and cuts a torn end off, before anything is written behind it.
func (o *fileRun) load() error {
	body, err := io.ReadAll(o.log)
	if err != nil {
		return o.f.broken("read log", err)
	}
	o.all = core.NewState()
	read, err := core.ReadLog(o.f.path, body, o.all.Fold)
	if err != nil {
		return err
	}
	if read.Torn {
		if err := errors.Join(o.log.Truncate(int64(read.Good)), o.log.Sync()); err != nil {
			return o.f.broken("cut log", err)
		}
	}
	if _, err := o.log.Seek(int64(read.Good), io.SeekStart); err != nil {
		return o.f.broken("read log", err)
	}
	if len(body) == 0 { // the file's name must last as long as its lines
		if err := syncFolder(filepath.Dir(o.f.path)); err != nil {
			return o.f.broken("open log", err)
		}
	}
	o.agent = o.all.Into(o.f.agent)
	return o.agent.OneEach()
}

// write appends intents, and returns once they are durable. Nothing may be written behind
// a line of which that is not known: the lock is not given up for that, but the call ends,
// and the next one reads what there is.
func (o *fileRun) write(intents ...core.Intent) error {
	var lines []byte
	for _, i := range intents {
		i.V, i.Agent, i.Holder, i.Epoch = 1, o.f.agent, o.holder, o.epoch
		if i.Site == "" {
			i.Site = o.f.site
		}
		var err error
		if lines, err = core.AppendLine(lines, &i); err != nil {
			return err
		}
	}
	_, err := o.log.Write(lines)
	if err == nil {
		err = o.log.Sync()
	}
	if err == nil {
		err = o.inPlace()
	}
	if err != nil {
		return store.Wrap(store.ErrUnknown, "", "append log", o.f.path, err)
	}
	_, err = core.ReadLog(o.f.path, lines, o.all.Fold)
	return err
}

// inPlace is an error if the log was replaced while it was open: what was written is in
// no log then.
func (o *fileRun) inPlace() error {
	ok, err := stillAt(o.f.path, o.log)
	if err == nil && !ok {
		err = errors.New("the file was moved or replaced meanwhile: no log has the line")
	}
	return err
}

// dispatch admits an attempt and carries it out; again is true if an open attempt was
// settled instead.
func (o *fileRun) dispatch(ctx context.Context) (again bool, err error) {
	k := Key{Run: o.out.Run.ID, Site: o.f.site, Attempt: 1}
	lines := []core.Intent{{Key: Key{Site: o.f.site}, Status: core.Raised}}
	if o.agent.Birth(o.f.site) == "" {
		lines[0].Birth = freshID()
	}
	for _, at := range o.agent.Attempts(k.Run) {
		if at.Site == k.Site {
			k.Attempt = at.Attempt + 1
		}
		if at.Open == nil {
			continue
		}
		step, settled, err := o.unknown(ctx, *at.Open)
		switch {
		case step == core.StepSettle:
			i := core.Intent{Key: settled.Key, Status: settled.Status, NotStarted: settled.NotStarted}
			return true, o.write(lines[0], i)
		case step == core.StepRetry:
			lines = append(lines, core.Intent{Key: at.Fact.Key, Status: core.Abandoned})
			continue
		}
		o.out.State, o.out.Attempt, o.out.Pending = Held, at.Open.Key, open(o.agent.Attempts(k.Run))
		return false, err
	}
	pending := core.Intent{Key: k, Status: core.Pending, Detail: detail(o.out.Run, freshID(), time.Now().UnixMilli(), o.cfg.limit)}
	if err := o.write(append(lines, pending)...); err != nil {
		return false, err
	}
	return false, o.effect(ctx, k)
}

// unknown is what the policy says about an open attempt. Of another site nobody here
// knows whether it is over.
func (o *fileRun) unknown(ctx context.Context, p Pending) (core.Step, core.Outcome, error) {
	finding := core.NotAsked
	for {
		step, out := o.cfg.policy.Next(core.Decision{Answer: core.Unknown, Open: p}, p.Site == o.f.site, finding, o.holder)
		if step != core.StepProbe {
			return step, out, nil
		}
		var err error
		if finding, err = o.cfg.probe(ctx, p); err != nil {
			return core.StepHold, out, fmt.Errorf("job %q: probe of attempt %d of run %v: %w", o.f.agent, p.Attempt, p.Run, err)
		}
		if finding == core.NotAsked {
			finding = core.CannotSay
		}
	}
}

// effect calls the function and records what became of it.
func (o *fileRun) effect(ctx context.Context, k Key) error {
	o.out.State, o.out.Attempt, o.out.Epoch = NotRun, k, o.epoch
	if ctx.Err() != nil {
		return errors.Join(context.Cause(ctx), o.write(core.Intent{Key: k, Status: core.Failed, NotStarted: true}))
	}
	o.out.State = Unsettled
	if o.cfg.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.cfg.limit)
		defer cancel()
	}
	res, err := o.fn(ctx, &Attempt{run: o.out.Run, key: k, epoch: o.epoch})
	o.out.Result = res
	if errors.Is(err, ErrUnsettled) || errors.Is(err, tenure.ErrOverlap) {
		o.keep = errors.Is(err, tenure.ErrOverlap)
		return err
	}
	i, state := core.Intent{Key: k, Status: core.Committed}, Ran
	if o.out.Result = failed(res, err); o.out.Result.Failed {
		i.Status, i.NotStarted, state = core.Failed, res.NotStarted, Failed
	}
	if lost := o.write(i); lost != nil {
		return errors.Join(err, fmt.Errorf("job %q: %w: the function ended as %s: %w", o.f.agent, ErrUnsettled, i.Status, lost))
	}
	o.out.State = state
	return err
}

// freshID is a UUID like no other.
func freshID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	if !record.IsID(id) {
		panic("ledger: " + id + " is not an id")
	}
	return id
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
