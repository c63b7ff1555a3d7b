package tenure

import (
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/membership"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/filestore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/numbered"
)

// Client holds and watches leases in one namespace of one store. It is safe for
// concurrent use. Close it to leave no goroutine behind.
type Client struct {
	config
	st     store.Store
	owned  bool // Close closes st
	memory *memory
	ids    *membership.Identities

	decoded decoded

	accept context.Context // ends when Close begins: no acquisition goes on
	refuse context.CancelCauseFunc

	acquiring sync.WaitGroup // calls of Acquire under way

	ctx    context.Context // ends when Close has ended the leases
	cancel context.CancelCauseFunc
	bg     sync.WaitGroup // background settling and archiving

	witnessing chan struct{} // held (capacity 1) by who takes the witness
	witness    store.Witness

	mu       sync.Mutex
	lines    map[string]*line
	leases   map[*Lease]struct{} // that renew themselves
	sessions map[*Session]struct{}
	space    *lease.Namespace
	// The namespace's record as last read: its bytes and what they say.
	spaceBody []byte
	spaceRead lease.Namespace
	closed    bool
	settled   bool // Close waits for what runs in the background; nothing new begins
}

// Open opens the store named by rawURL and a client on it: mem:, file:/path, or
// a scheme of [WithDrivers]. It probes the store unless told otherwise and
// refuses one that lacks what leases need (ST10). The URL's parameter namespace
// chooses the namespace; a namespace that does not exist yet is created. The
// parameter register=numbered is for stores that cannot replace by version: it
// puts package numbered over the driver (ST17).
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	st, namespace, err := openStore(ctx, rawURL, newConfig(opts).drivers)
	if err != nil {
		return nil, err
	}
	if namespace != "" {
		opts = append([]Option{WithNamespace(namespace)}, opts...)
	}
	c, err := New(ctx, st, opts...)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	c.owned = true
	return c, nil
}

// OpenStore opens only the store named by rawURL, and returns the namespace
// that the URL asks for ("" if none).
func OpenStore(ctx context.Context, rawURL string, opts ...Option) (st store.Store, namespace string, err error) {
	return openStore(ctx, rawURL, newConfig(opts).drivers)
}

func openStore(ctx context.Context, rawURL string, drivers []store.Driver) (store.Store, string, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" {
		return nil, "", store.Errorf(ErrInvalid, "", "open", "", "%q is not a store URL such as file:///var/lib/tenure", redact(rawURL))
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil { // a part that is left out silently might be the one that matters
		return nil, "", store.Errorf(ErrInvalid, u.Scheme, "open", "", "the parameters of the store URL are malformed: write a semicolon as %%3B and a percent sign as %%25")
	}
	namespace := q.Get("namespace")
	if len(q["namespace"]) > 1 {
		return nil, "", store.Errorf(ErrInvalid, u.Scheme, "open", "", "the store URL names %d namespaces", len(q["namespace"]))
	}
	if q.Has("namespace") {
		if err := store.CheckName("namespace", namespace); err != nil {
			return nil, "", err
		}
	}
	register, err := registerOf(u.Scheme, q)
	if err != nil {
		return nil, "", err
	}
	for _, p := range store.CommonParams {
		q.Del(p)
	}
	u.RawQuery = q.Encode()
	known := []string{}
	for _, d := range append([]store.Driver{memstore.Driver(), filestore.Driver()}, drivers...) {
		if d.Scheme == u.Scheme {
			st, err := d.Open(ctx, u)
			if err == nil {
				st = register(st)
			}
			return st, namespace, err
		}
		known = append(known, d.Scheme+":")
	}
	return nil, "", store.Errorf(ErrInvalid, u.Scheme, "open", "", "no driver for %s: is given (have %s)%s",
		u.Scheme, strings.Join(known, " "), missingImport(u.Scheme))
}

// registerOf is what the URL puts over the store: nothing, or a numbered
// register.
func registerOf(scheme string, q url.Values) (func(store.Store) store.Store, error) {
	switch given := q[numbered.Parameter]; {
	case len(given) == 0:
		return func(st store.Store) store.Store { return st }, nil
	case len(given) == 1 && given[0] == numbered.Value:
		return numbered.New, nil
	default:
		return nil, store.Errorf(ErrInvalid, scheme, "open", "",
			"the store URL's parameter %s is %q; leave it away, or give %q once", numbered.Parameter, given, numbered.Value)
	}
}

// missingImport names what to import for a scheme that Tenure has a driver for.
func missingImport(scheme string) string {
	pkg, ok := map[string]string{
		"sqlite": "sqlstore", "postgres": "sqlstore/pgstore", "postgresql": "sqlstore/pgstore", "s3": "s3store", "gs": "gcsstore",
		"azblob": "azurestore", "etcd": "etcdstore", "nats": "natsstore", "http": "httpstore", "https": "httpstore",
	}[scheme]
	if !ok {
		return ""
	}
	return ": import github.com/tenure-project/tenure/store/" + pkg + " and pass its Driver to WithDrivers"
}

// redact keeps what may stand in a message of a URL that could not be parsed.
func redact(rawURL string) string {
	if i := strings.LastIndexByte(rawURL, '@'); i >= 0 { // first: a password may hold a question mark
		rawURL = "...@" + rawURL[i+1:]
	}
	if i := strings.IndexByte(rawURL, '?'); i >= 0 {
		rawURL = rawURL[:i] + "?..."
	}
	return rawURL
}

// New makes a client on a store that the caller opened and goes on owning.
func New(ctx context.Context, st store.Store, opts ...Option) (*Client, error) {
	cfg := newConfig(opts)
	if err := store.CheckName("namespace", cfg.namespace); err != nil {
		return nil, err
	}
	if len(cfg.label) > store.MaxName {
		return nil, store.Errorf(ErrInvalid, "", "open", "", "the label has %d bytes, at most %d are allowed", len(cfg.label), store.MaxName)
	}
	if err := lease.CheckWhy("label", cfg.label); err != nil { // the history keeps it, too
		return nil, err
	}
	t := cfg.timing.Defaults()
	if err := t.Check(); err != nil {
		return nil, err
	}
	if r := cfg.retention; r != nil && *r != 0 && (*r < lease.MinRetention || *r%time.Millisecond != 0) {
		return nil, store.Errorf(ErrInvalid, "", "open", "", "a retention is 0 (for ever) or at least %v, not %v", lease.MinRetention, *r)
	}
	c := &Client{config: cfg, st: st, lines: map[string]*line{}, leases: map[*Lease]struct{}{}, sessions: map[*Session]struct{}{}, witnessing: make(chan struct{}, 1)}
	var err error
	if c.memory, err = openMemory(cfg.stateDir, st.Info(), cfg.namespace); err != nil {
		return nil, err
	}
	c.memory.failed = func(err error) {
		c.log.Warn("state folder: nothing is kept for the next command, so that one that does not wait never takes over from a dead holder", "folder", cfg.stateDir, "error", err)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.accept, c.refuse = context.WithCancelCause(c.ctx)
	if err := c.start(ctx); err != nil {
		c.cancel(ErrClosed)
		return nil, err
	}
	return c, nil
}

func (c *Client) start(ctx context.Context) error {
	if c.probe {
		if err := c.probeStore(ctx); err != nil {
			return err
		}
	}
	c.ids = c.identities() // to look for what is there already
	if err := c.openNamespace(ctx); err != nil {
		return c.explainGuard(ctx, err)
	}
	c.ids = c.identities()
	return nil
}

// explainGuard makes of settings that cannot be read what they are, if they are
// the guard of a namespace that is kept in a numbered register.
func (c *Client) explainGuard(ctx context.Context, err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	if o, readErr := c.st.Get(ctx, c.spaceKey(), lease.MaxNamespaceBody); readErr != nil || !numbered.Guarded(o.Body) {
		return err
	}
	return store.Errorf(ErrInvalid, c.st.Info().Identity, "open", c.spaceKey(),
		"the namespace %q is kept in a numbered register: add %s=%s to the store URL", c.namespace, numbered.Parameter, numbered.Value)
}

// probeStore probes the store, or trusts a verdict of the last day for the same
// place and driver revision (ST10). Of many processes that begin at once one probes.
func (c *Client) probeStore(ctx context.Context) error {
	info := c.st.Info()
	return c.memory.probedOnce(ctx, c.clk, info, func() error {
		c.log.Debug("probing the store: no verdict of the last day is kept", "store", info.Identity)
		_, err := store.Probe(ctx, c.st, store.ProbeOptions{Prefix: store.Prefix(c.namespace, "probe")})
		return err
	})
}

// Namespace is the namespace's name.
func (c *Client) Namespace() string { return c.namespace }

// Store is the store that the client works on.
func (c *Client) Store() store.Store { return c.st }

// Close ends every lease of the client, and its sessions leave: their contexts are
// cancelled with ErrShutdown, then they are released. Work under Do is waited for within its
// stop limit. Close waits for unsettled writes for at most their own limits,
// and returns what could not be confirmed. Calling it twice is fine.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	c.refuse(ErrClosed)
	c.acquiring.Wait() // from here on no lease is added
	c.mu.Lock()
	ends := make([]func() error, 0, len(c.leases)+len(c.sessions))
	for l := range c.leases {
		ends = append(ends, l.shutdown)
	}
	for s := range c.sessions {
		ends = append(ends, func() error { return s.leave(context.Background()) })
	}
	c.mu.Unlock()

	errs := make([]error, len(ends)+2)
	var wg sync.WaitGroup
	for i, end := range ends {
		wg.Go(func() { errs[i] = end() })
	}
	wg.Wait()
	c.awaitBackground()
	if c.witness != nil { // nobody acquires any more
		errs[len(ends)] = c.witness.Close()
	}
	if c.owned {
		errs[len(ends)+1] = c.st.Close()
	}
	return errors.Join(errs...)
}

// awaitBackground gives what is still in doubt (an acquisition that was given up,
// a release that was not confirmed) the time of one release to be settled, and
// ends the rest. Nothing new begins in the background from here on.
func (c *Client) awaitBackground() {
	c.mu.Lock()
	c.settled = true
	c.mu.Unlock()
	t := c.clk.AfterFunc(c.releaseLimit(c.timing.Defaults()), func() { c.cancel(ErrClosed) })
	c.bg.Wait()
	t.Stop()
	c.cancel(ErrClosed)
}

// releaseLimit is how long a release may take before it is reported as
// unconfirmed.
func (c *Client) releaseLimit(t lease.Timing) time.Duration {
	if c.release > 0 {
		return c.release
	}
	return max(3*t.Attempt, time.Second)
}

// background runs f in a goroutine that Close waits for, unless the client is
// closed. f's context ends at Close.
func (c *Client) background(f func(ctx context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		c.bg.Go(func() { f(c.ctx) })
	}
}

func (c *Client) pace(t lease.Timing) settle.Pace {
	return settle.Pace{Clock: c.clk, Attempt: t.Attempt, Backoff: max(t.Attempt/16, time.Millisecond), Rand: c.rand}
}

func (c *Client) nowMS() int64 { return c.clk.Read().Wall.Milliseconds() }

func (c *Client) leaseKey(name string) string { return store.Key(c.namespace, "lease", name) }

// DefaultStateDir is where a command keeps its observations: the user's runtime
// folder if there is one, else the cache folder.
func DefaultStateDir(runtimeDir, cacheDir string) string {
	if runtimeDir != "" {
		return filepath.Join(runtimeDir, "tenure")
	}
	return filepath.Join(cacheDir, "tenure")
}
