package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"sync"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/store"
)

// Ledger is one agent's ledger in a client's namespace. It is safe for concurrent use.
// It holds nothing between calls; the client is the caller's to close.
type Ledger struct {
	*files
	c     *tenure.Client
	from  leaser
	lease string
	opts  []tenure.AcquireOption

	mu         sync.Mutex
	compacting chan struct{} // closed when the compaction in the background is over
	trouble    error         // of the last one
}

// leaser is a client or a session.
type leaser interface {
	Acquire(ctx context.Context, name string, opts ...tenure.AcquireOption) (*tenure.Lease, error)
	Do(ctx context.Context, name string, fn func(ctx context.Context, l *tenure.Lease) error, opts ...tenure.AcquireOption) error
	TryDo(ctx context.Context, name string, fn func(ctx context.Context, l *tenure.Lease) error, opts ...tenure.AcquireOption) error
}

// Option sets something of a ledger.
type Option func(*Ledger)

// DefaultSite is the name of a store's ledgers where nobody names another.
const DefaultSite = "main"

// Site is the name that this store's ledgers have among others that they are merged
// with (EX7). The first run of an agent fixes it; another one later is ErrInvalid. The
// default is DefaultSite, or whatever was fixed. Ledgers of one name are never merged:
// name those that may be before their first run.
func Site(name string) Option { return func(l *Ledger) { l.site = name } }

// Under takes the job's lease by a session, whose one renewal keeps any number of
// leases (LS8). The session is of the ledger's client.
func Under(s *tenure.Session) Option { return func(l *Ledger) { l.from = s } }

// LeaseOptions are used for the job's lease: TTL, Stop and StopLimit of the work, a
// Note, NoChildren or ContainedIn, and Guards, which are raised to the epoch before
// anything is started.
func LeaseOptions(opts ...tenure.AcquireOption) Option {
	return func(l *Ledger) { l.opts = append(l.opts, opts...) }
}

// LeaseName is the lease whose token is agent's epoch: once/<agent>, or once/sha256-
// and the hash where that is longer than a name may be. Whoever takes it himself makes
// the job wait, and breaks nothing.
func LeaseName(agent string) string {
	if name := "once/" + agent; len(name) <= store.MaxName {
		return name
	}
	sum := sha256.Sum256([]byte(agent))
	return "once/sha256-" + hex.EncodeToString(sum[:])
}

// Open is agent's ledger in c's namespace. It does no I/O: the ledger begins with its
// first run. A bad name is ErrInvalid.
func Open(c *tenure.Client, agent string, opts ...Option) (*Ledger, error) {
	f, err := newFiles(c.Kit(), agent)
	if err != nil {
		return nil, err
	}
	l := &Ledger{files: f, c: c, from: c, lease: LeaseName(agent)}
	for _, o := range opts {
		o(l)
	}
	if l.site != "" {
		if err := store.CheckName("site", l.site); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Agent is the job's name.
func (l *Ledger) Agent() string { return l.agent }

// files is where one agent's ledger is kept.
type files struct {
	k       *kit.Client
	agent   string
	site    string // "": whatever the head says
	headKey string
	logKey  string // what every other object's key starts with
}

// The kinds of keys.
const (
	kindHead = "ledger"
	kindLog  = "ledger-log"
)

func newFiles(k *kit.Client, agent string) (*files, error) {
	if err := store.CheckName("job name", agent); err != nil {
		return nil, err
	}
	return &files{k: k, agent: agent, headKey: store.Key(k.Namespace, kindHead, agent), logKey: store.Key(k.Namespace, kindLog, agent) + "/"}, nil
}

// List yields the agents that have a ledger in c's namespace, in the order of their
// keys. One that cannot be read is yielded as an error, and the listing goes on.
func List(ctx context.Context, c *tenure.Client) iter.Seq2[string, error] {
	return list(ctx, c.Kit())
}

// OnceOption sets something of one call of Once.
type OnceOption func(*onceConfig)

type onceConfig struct {
	policy    Policy
	probe     ProbeFunc
	wait      time.Duration
	replay    bool
	maxFailed int
	limit     time.Duration
	settle    time.Duration
	lease     []tenure.AcquireOption
}

// ProbeFunc finds out whether the effect of an attempt whose host vanished happened. It
// is called under the job's lease at a later epoch, and ctx ends with it. Raise a guard
// first: an attempt that may still act lets nobody say that it did not happen. An error
// holds the run like CannotSay, and is returned by Once.
type ProbeFunc func(ctx context.Context, p Pending) (Finding, error)

// OnUnknown is what is done if an earlier attempt is unknown; the default is Hold. With
// Probe use WithProbe.
func OnUnknown(p Policy) OnceOption { return func(c *onceConfig) { c.policy = p } }

// WithProbe settles unknown attempts by what f finds.
func WithProbe(f ProbeFunc) OnceOption {
	return func(c *onceConfig) { c.policy, c.probe = Probe, f }
}

// Wait is how long to wait for whoever has the job's lease, to see whether the run is
// committed or free then; 0, the default, is not at all. The function itself is not
// limited by it.
func Wait(d time.Duration) OnceOption { return func(c *onceConfig) { c.wait = d } }

// Replay asks for the committed attempt's result if the run is done already (EX6): one
// request more.
func Replay() OnceOption { return func(c *onceConfig) { c.replay = true } }

// MaxFailed is how many attempts of a run may fail before it is given up: with 1 five
// hosts that ask for a run at the same time try it once, whatever becomes of it. 0, the
// default, is any number. Attempts that did not start or were abandoned do not count. Of
// those that failed before the newest the last 16 are known: with more than 17, an attempt
// that did not start may count once as many failed. A run is never given up if the newest
// attempt did not start. An operator's Retry lets it go on once.
func MaxFailed(n int) OnceOption { return func(c *onceConfig) { c.maxFailed = n } }

// TimeLimit ends the function's context after d; 0 is never. The record of the attempt
// says when that will be.
func TimeLimit(d time.Duration) OnceOption { return func(c *onceConfig) { c.limit = d } }

// SettleLimit is how long Once goes on recording the outcome while the store is in
// trouble; the default is twice the lease's TTL, at least a minute.
func SettleLimit(d time.Duration) OnceOption { return func(c *onceConfig) { c.settle = d } }

// WithLease adds to LeaseOptions for this call.
func WithLease(opts ...tenure.AcquireOption) OnceOption {
	return func(c *onceConfig) { c.lease = append(c.lease, opts...) }
}

// Attempt is this process's attempt at a run, while its function runs.
type Attempt struct {
	run   Run
	key   Key
	epoch uint64
	lease *tenure.Lease
}

// Run is the run.
func (a *Attempt) Run() Run { return a.run }

// Key names the attempt.
func (a *Attempt) Key() Key { return a.key }

// Number counts the attempts of the run at this site from 1.
func (a *Attempt) Number() uint64 { return a.key.Attempt }

// Epoch is the fencing token: hand it to the resource with every write. A later attempt
// after a crash has a higher one.
func (a *Attempt) Epoch() uint64 { return a.epoch }

// Lease is the job's lease; nil where the ledger is a log file.
func (a *Attempt) Lease() *tenure.Lease { return a.lease }
