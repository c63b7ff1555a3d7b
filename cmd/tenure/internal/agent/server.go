package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/clock"
)

// Config is what an agent needs.
type Config struct {
	// Session keeps the leases. It must have been joined without a proof of death
	// (NoChildren, ContainedIn), since other processes act under them.
	Session *tenure.Session
	// Store is the identity of the session's store, Namespace its namespace.
	Store, Namespace string
	// Margin is that of the session: what is waited beyond a deadline that was told.
	Margin time.Duration
	// Clock is the machine's clock, on whose boot scale the session's deadline is.
	Clock clock.Clock
	// Log receives what a person should know later.
	Log *slog.Logger
}

// Server lends the leases of one session to other processes. Its methods are safe
// for concurrent use.
type Server struct {
	cfg    Config
	boot   string
	timeNS string

	ctx    context.Context // ends when nothing more is waited for
	cancel context.CancelFunc
	renew  chan struct{} // poked when the session's deadline moved
	wg     sync.WaitGroup

	waiting, lapsing atomic.Int64
	draining         atomic.Bool

	mu     sync.Mutex
	peers  map[*peer]struct{}
	closed bool
}

// NewServer makes a server. Close it, after its session is over.
func NewServer(cfg Config) *Server {
	s := &Server{
		cfg: cfg, boot: bootid.Boot(), timeNS: bootid.TimeNamespace(),
		renew: make(chan struct{}, 1), peers: map[*peer]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.spread)
	return s
}

// Renewed says that the session's deadline may have moved. It never blocks.
func (s *Server) Renewed() {
	select {
	case s.renew <- struct{}{}:
	default:
	}
}

// spread tells every holder of the session's new deadline.
func (s *Server) spread() {
	for {
		select {
		case <-s.renew:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		all := make([]*peer, 0, len(s.peers))
		for p := range s.peers {
			all = append(all, p)
		}
		s.mu.Unlock()
		for _, p := range all {
			p.extend()
		}
	}
}

// Serve answers connections until l is closed. A shortage of descriptors is
// waited out.
func (s *Server) Serve(l *net.UnixListener) error {
	trouble := false
	for {
		c, err := l.AcceptUnix()
		if err != nil && !trouble && !errors.Is(err, net.ErrClosed) {
			s.cfg.Log.Warn("agent: cannot accept connections, trying again", "error", err)
		}
		trouble = err != nil
		switch {
		case err == nil:
			s.take(c)
		case errors.Is(err, net.ErrClosed):
			return nil
		case !clock.Sleep(s.cfg.Clock, 50*time.Millisecond, s.ctx.Done()):
			return err
		}
	}
}

// take serves a connection in goroutines of its own.
func (s *Server) take(c *net.UnixConn) {
	uid, err := peerOf(c)
	if err == nil {
		err = trusted(uid, os.Geteuid())
	}
	if err != nil {
		s.cfg.Log.Warn("agent: refused a connection", "error", err)
		_ = c.Close()
		return
	}
	p := &peer{s: s, conn: c, uid: uid, in: newReceiver(c)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return
	}
	p.out = newOutbox(c)
	s.peers[p] = struct{}{}
	s.wg.Go(func() {
		p.serve()
		p.out.finish()
		_ = c.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.peers, p)
	})
}

// lent is the token of the lease of that name that a command of this agent has, or
// had until now: 0 if none has.
func (s *Server) lent(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.peers {
		if l := p.had.Load(); l != nil && l.Name() == name {
			return l.Token()
		}
	}
	return 0
}

// Drain ends the session in the order of [tenure.Session.Drain] (PL8, LS6): nobody
// gets a lease any more, every holder is asked to stop, and the session is left when
// all have released, or its name is left to lapse. limit is how long each may take;
// 0 is the session's TTL.
func (s *Server) Drain(ctx context.Context, limit time.Duration) error {
	s.draining.Store(true)
	return s.cfg.Session.Drain(ctx, tenure.DrainOptions{Limit: limit})
}

// Close ends all connections, once what is queued on them was sent. The session
// must be over: whatever it still held would never be released.
func (s *Server) Close() {
	s.cancel()
	s.mu.Lock()
	s.closed = true
	for p := range s.peers {
		p.hangUp()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Status is how the agent fares.
func (s *Server) Status() Status {
	h := s.cfg.Session.Health()
	st := Status{
		PID: os.Getpid(), Leases: h.Leases, Stuck: h.Stuck, Lapsing: int(s.lapsing.Load()), Waiting: int(s.waiting.Load()),
		InDoubt: h.InDoubt, Margin: h.Margin, Draining: s.draining.Load(),
	}
	s.mu.Lock()
	for p := range s.peers {
		if p.lease.Load() != nil && p.out.silent() {
			st.Lapsing++
		}
	}
	s.mu.Unlock()
	if h.RenewErr != nil {
		st.Trouble = clipped(h.RenewErr.Error())
	}
	return st
}

// hello is what the agent says of itself.
func (s *Server) hello() message {
	p := s.cfg.Session.Proof()
	return message{
		Op: opHello, V: version, Boot: s.boot, TimeNamespace: s.timeNS, Store: s.cfg.Store, Namespace: s.cfg.Namespace,
		Node: p.Node, Incarnation: p.Incarnation, Term: p.Term, TTL: s.cfg.Session.TTL(), Margin: s.cfg.Margin,
	}
}
