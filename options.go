package tenure

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// Clock is everything that Tenure knows of time; see [WithClock].
type Clock = clock.Clock

// ClockReading is one look at the cheap clocks of a [Clock].
type ClockReading = clock.Reading

// ClockTimer is a pending call of a [Clock].
type ClockTimer = clock.Timer

// Option sets something of a client.
type Option func(*config)

type config struct {
	drivers    []store.Driver
	namespace  string
	clk        clock.Clock
	log        *slog.Logger
	timing     lease.Timing
	poll       time.Duration
	release    time.Duration
	probe      bool
	lookOnly   bool
	stateDir   string
	retention  *time.Duration
	storeClock bool
	recover    *uint64
	label      string
	rand       func() float64
	newID      func() string
	observer   Observer
	treeEmpty  func(cgroup string) (bool, error)
}

func newConfig(opts []Option) config {
	c := config{probe: true, namespace: "default", log: slog.New(slog.DiscardHandler), rand: mathrand.Float64, newID: newID}
	for _, o := range opts {
		o(&c)
	}
	if c.clk == nil {
		c.clk = clock.NewSystem()
	}
	if c.label == "" {
		host, _ := os.Hostname()
		c.label = fmt.Sprintf("%.100s/%d", host, os.Getpid())
	}
	return c
}

// WithDrivers adds drivers for URL schemes beyond mem: and file:.
func WithDrivers(d ...store.Driver) Option {
	return func(c *config) { c.drivers = append(c.drivers, d...) }
}

// WithNamespace chooses the namespace; the default is "default". It wins over
// the store URL's namespace parameter.
func WithNamespace(name string) Option { return func(c *config) { c.namespace = name } }

// WithClock replaces the machine's clocks, for tests and simulation.
func WithClock(clk Clock) Option { return func(c *config) { c.clk = clk } }

// WithLogger receives what a person should know later: takeovers, losses,
// retries. The default discards it.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }

// WithTTL is how long a lease outlives its holder's last renewal: whole
// milliseconds from 100 ms to 24 h; the default is 15 s. Every other duration
// that is not set follows from it (DL5).
func WithTTL(d time.Duration) Option { return func(c *config) { c.timing.TTL = d } }

// WithRenewEvery is the interval between renewals; the default is TTL/5.
func WithRenewEvery(d time.Duration) Option { return func(c *config) { c.timing.Renew = d } }

// WithAttemptLimit limits one store call; the default is 2·TTL/15.
func WithAttemptLimit(d time.Duration) Option { return func(c *config) { c.timing.Attempt = d } }

// WithMargin is taken off the TTL for clock rates and scheduling; the default
// is TTL/10, at least 10 ms.
func WithMargin(d time.Duration) Option { return func(c *config) { c.timing.Margin = d } }

// WithClockRateBound says how far the rate of any clock may differ from true
// time; the default is 0.01.
func WithClockRateBound(rho float64) Option { return func(c *config) { c.timing.Rho = rho } }

// WithPollEvery is how often a waiter looks where the store cannot wake it; the
// default is TTL/15, within 100 ms and 1 s. Pauses are jittered.
func WithPollEvery(d time.Duration) Option { return func(c *config) { c.poll = d } }

// WithReleaseLimit is how long a release may take before it is reported as
// unconfirmed; the default is 3 attempt limits, at least 1 s.
func WithReleaseLimit(d time.Duration) Option { return func(c *config) { c.release = d } }

// WithoutProbe skips the check of the store's guarantees when it is opened
// (ST10). Use it only for a store that something else has probed.
func WithoutProbe() Option { return func(c *config) { c.probe = false } }

// WithoutCreate is for clients that only look: the store is not probed, and a
// namespace that does not exist is not made but reads as empty. Acquiring in it
// is ErrCorrupt, since its settings are missing.
func WithoutCreate() Option { return func(c *config) { c.lookOnly, c.probe = true, false } }

// WithStateDir keeps observations, remembered tokens and probe verdicts in a
// private folder on a local disk, so that a short command profits from an
// earlier one (LS2, LS12, ST10). The default keeps them in memory only.
func WithStateDir(dir string) Option { return func(c *config) { c.stateDir = dir } }

// WithRetention is used if this client creates the namespace, and ignored
// otherwise: how long a released record is kept at least; 0 keeps it for ever.
// At least 48 h. The default is 30 days where the store is on one host and can
// delete by version, and 0 elsewhere (LS15).
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = &d } }

// WithRecovery lets this client make the settings of a namespace anew whose
// record was lost while its leases are still there; without it that is
// ErrCorrupt. above must be at or above every token that anything has ever seen
// in the namespace: with the highest counter that is still found, it becomes the
// floor. Cut every other client off for the largest TTL first.
func WithRecovery(above uint64) Option { return func(c *config) { c.recover = &above } }

// WithStoreClock is used if this client creates the namespace: a lease that is
// silent for its TTL and margin by the store's own clock may then be taken over
// at once (LS3). Enable it only for a store whose clock is one steady clock; a
// fail-over to another server must change its instance. A store without a clock
// is ErrInvalid.
func WithStoreClock() Option { return func(c *config) { c.storeClock = true } }

// WithLabel is how this process describes itself to people who find it holding
// a lease: at most 128 bytes; the default is host and process id. It decides
// nothing.
func WithLabel(label string) Option { return func(c *config) { c.label = label } }

// WithRandom makes jitter and ids come from src, so that a simulation can be
// replayed. src is locked by the client.
func WithRandom(src mathrand.Source) Option {
	return func(c *config) {
		var mu sync.Mutex
		r := mathrand.New(src)
		c.rand = func() float64 { mu.Lock(); defer mu.Unlock(); return r.Float64() }
		c.newID = func() string {
			mu.Lock()
			defer mu.Unlock()
			var b [16]byte
			binary.LittleEndian.PutUint64(b[:8], r.Uint64())
			binary.LittleEndian.PutUint64(b[8:], r.Uint64())
			return formatID(b)
		}
	}
}

// WithObserver receives events for metrics.
func WithObserver(o Observer) Option { return func(c *config) { c.observer = o } }

// WithTreeProof tells how to see that a control group named in a record holds
// no process any more (LS14). Without it such a record is waited out.
func WithTreeProof(empty func(cgroup string) (bool, error)) Option {
	return func(c *config) { c.treeEmpty = empty }
}

// newID is a random UUID (version 4).
func newID() string {
	var b [16]byte
	if _, err := io.ReadFull(rand.Reader, b[:]); err != nil {
		panic("tenure: the system gives no random numbers: " + err.Error())
	}
	return formatID(b)
}

func formatID(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// Raiser is a guard that can lift its mark before the first read under a new
// token (GD1). The guards under guard/ are Raisers.
type Raiser interface {
	// Raise makes the guard refuse every token below token, durably.
	Raise(ctx context.Context, token uint64) error
}

// AcquireOption sets something of one acquisition.
type AcquireOption func(*request)

type request struct {
	s         *Session // that acquires; nil: the lease renews itself
	timing    lease.Timing
	note      string
	guards    []Raiser
	lock      *lockWish
	stopLimit time.Duration
	as        string
}

type lockWish struct{ tree, cgroup string }

// TTL is this lease's TTL, with every other duration following from it; see
// WithTTL.
func TTL(d time.Duration) AcquireOption {
	return func(r *request) { r.timing = lease.Timing{TTL: d, Stop: r.timing.Stop, Rho: r.timing.Rho} }
}

// Stop is the time that the work needs to stop. The lease's context ends that
// much before the instant at which somebody else may hold the lease. The
// default is 0: the work stops at once.
func Stop(d time.Duration) AcquireOption { return func(r *request) { r.timing.Stop = d } }

// StopLimit bounds how long Do goes on renewing while the work stops after a
// shutdown; then the lease is left to lapse. The default is the TTL, or Stop
// if that is longer (LS6).
func StopLimit(d time.Duration) AcquireOption { return func(r *request) { r.stopLimit = d } }

// Note is shown to whoever finds the lease held: at most 1 KiB encoded.
func Note(text string) AcquireOption { return func(r *request) { r.note = text } }

// Guards are raised to the new token before the lease is handed out, so that a
// former holder cannot write between this holder's first read and its write.
func Guards(g ...Raiser) AcquireOption {
	return func(r *request) { r.guards = append(r.guards, g...) }
}

// NoChildren declares that nothing acts under the lease but this very process:
// no child process does. On a store that can prove a process gone, a waiter then
// takes the lease over at once when this process dies, instead of waiting for
// the TTL (LS14).
func NoChildren() AcquireOption { return func(r *request) { r.lock = &lockWish{tree: "none"} } }

// ContainedIn declares that everything that acts under the lease is in the
// control group at path, or is this process: a waiter takes over at once when
// this process is gone and the group is empty (LS14).
func ContainedIn(path string) AcquireOption {
	return func(r *request) { r.lock = &lockWish{tree: "cgroup", cgroup: path} }
}

// As says who acquires, for a lease that was handed over to a successor of that
// name (LS10).
func As(successor string) AcquireOption { return func(r *request) { r.as = successor } }
