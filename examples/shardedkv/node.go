package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// config is what a process is told.
type config struct {
	url       string
	drivers   []store.Driver
	tableName string
	data      string
	listen    string
	advertise string
	owner     string
	shards    int
	weight    int
	ttl       time.Duration
	settle    time.Duration
	log       *slog.Logger
}

// node is one process of the service.
type node struct {
	config
	client  *tenure.Client
	table   *slots.Table
	router  *slots.Router
	handler *slots.Handler

	// open is what this process serves, by slot.
	open [slots.Count]atomic.Pointer[shard]

	// Tests take these away to show what they are for: the deadline, and the guard.
	live  func(*slots.Grant) (until context.Context, ok bool)
	write writer
}

func newNode(c config) *node { return &node{config: c, live: byDeadline, write: guarded} }

// byDeadline lets a grant live until its deadline, by this machine's clock.
func byDeadline(g *slots.Grant) (until context.Context, ok bool) { return g.Context(), g.Live() }

const pauseAfterError = 200 * time.Millisecond

// run serves until ctx ends, then hands over what it has and leaves.
func (n *node) run(ctx context.Context) (err error) {
	if err := n.connect(ctx); err != nil || n.table == nil {
		return err
	}
	defer func() { err = errors.Join(err, n.client.Close()) }()
	if n.router, err = slots.NewRouter(n.table, slots.RouterConfig{Every: 2 * time.Second, Pause: 50 * time.Millisecond, Log: n.log}); err != nil {
		return err
	}
	if n.handler, err = slots.Serve(slots.ServeConfig{
		Host: n, Owner: n.owner, Slot: slotOfRequest, Router: n.router, Grant: n.granted, RetryAfter: time.Second,
	}, n.routes()); err != nil {
		return err
	}
	l, err := net.Listen("tcp", n.listen)
	if err != nil {
		return err
	}
	if n.advertise == "" {
		n.advertise = l.Addr().String()
	}
	n.log.Info("serving", "address", n.advertise)
	return n.serve(ctx, l)
}

// serve serves on l, beside being a host, and for a while after it: those that ask then
// still learn who serves now.
func (n *node) serve(ctx context.Context, l net.Listener) (err error) {
	var all sync.WaitGroup
	defer all.Wait()
	routing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	all.Go(func() { _ = n.router.Run(routing) })
	server := &http.Server{Handler: n.handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)}
	served, hosted := make(chan error, 1), make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	hosting, end := context.WithCancel(ctx)
	defer end()
	go func() { hosted <- n.hostForever(hosting) }()
	select {
	case err = <-hosted:
	case err = <-served: // nobody can be served any more
		end()
		return errors.Join(err, <-hosted)
	}
	bye, cancel := context.WithTimeout(routing, n.ttl)
	defer cancel()
	if server.Shutdown(bye) != nil {
		_ = server.Close()
	}
	<-served
	return err
}

// connect opens the store and the table, and waits for them while they do not answer.
// There is no table if ctx ended.
func (n *node) connect(ctx context.Context) (err error) {
	for ctx.Err() == nil {
		if n.client == nil {
			n.client, err = tenure.Open(ctx, n.url, tenure.WithDrivers(n.drivers...), tenure.WithTTL(n.ttl), tenure.WithLogger(n.log))
		}
		if err == nil {
			n.table, err = slots.Create(ctx, n.client, n.tableName, slots.Shards(n.shards))
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil && !passing(err):
			if n.client != nil {
				err = errors.Join(err, n.client.Close())
			}
			return err
		}
		n.log.Warn("the store does not answer yet", "error", err)
		pause(ctx, pauseAfterError)
	}
	if n.client != nil {
		return n.client.Close()
	}
	return nil
}

// hostForever is a host of the table until ctx ends. Who was silent for too long may have
// been proven to be over: he begins again as what he is now, a new start without shards.
func (n *node) hostForever(ctx context.Context) error {
	for {
		err := n.host(ctx)
		switch {
		case ctx.Err() != nil && (err == nil || passing(err)):
			return nil
		case err == nil || !passing(err):
			return err
		}
		n.log.Warn("the session is lost, joining again", "error", err)
		pause(ctx, pauseAfterError)
	}
}

// host serves for as long as one session lives.
func (n *node) host(ctx context.Context) error {
	s, err := n.client.Join(ctx, n.owner, tenure.NoChildren())
	if err != nil {
		return err
	}
	var h *slots.Host
	h, err = n.table.Host(slots.HostConfig{
		Session: s, Addr: n.advertise, Log: n.log,
		Balanced: true, Weight: n.weight, Balance: slots.Balance{Settle: cmp.Or(n.settle, -1)},
		OnClaim: func(g *slots.Grant) { n.claimed(h, g) },
		OnLoss:  n.lost,
		Drain:   func(ctx context.Context, g *slots.Grant) error { return n.handler.Drain(ctx, g.Range(), g.Epoch()) },
	})
	if err == nil {
		n.log.Info("joined", "session", s.Proof().Incarnation)
		err = n.hold(ctx, h)
	}
	return errors.Join(err, s.Leave(context.WithoutCancel(ctx))) // the name is free at once
}

// hold runs the host until ctx ends and its shards are with others, as far as there are
// others.
func (n *node) hold(ctx context.Context, h *slots.Host) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	left := make(chan struct{})
	begin := context.AfterFunc(ctx, func() {
		defer close(left)
		defer stop()
		limited, cancel := context.WithTimeout(running, n.ttl)
		defer cancel()
		if err := h.Leave(limited); err != nil {
			n.log.Warn("leaving with shards that nobody took", "error", err)
		}
	})
	err := h.Run(running)
	stop()
	if !begin() {
		<-left
	}
	return err
}

// claimed opens the shard of a new grant, for as long as that lives.
func (n *node) claimed(h *slots.Host, g *slots.Grant) {
	for g.Live() {
		s, err := openShard(n.data, n.client.Namespace(), n.table.Name(), g, n.write)
		if err == nil {
			s.host = h
			n.place(g.Range(), nil, s)
			n.log.Info("serves", "range", g.Range(), "epoch", g.Epoch(), "keys", len(*s.values.Load()))
			return
		}
		n.log.Warn("a shard cannot be opened yet", "range", g.Range(), "epoch", g.Epoch(), "error", err)
		tell(h, g, err)
		pause(g.Context(), pauseAfterError)
	}
}

// lost closes the shard of a grant that is over. It comes after claimed.
func (n *node) lost(g *slots.Grant, cause error) {
	n.log.Info("serves no more", "range", g.Range(), "epoch", g.Epoch(), "cause", cause)
	s := n.open[g.Range().A].Load()
	if _, live := n.live(g); s != nil && s.grant == g && !live {
		n.place(g.Range(), s, nil)
	}
}

// place puts next where was is.
func (n *node) place(r slots.Range, was, next *shard) {
	for slot := int(r.A); slot <= int(r.B); slot++ {
		if was == nil || n.open[slot].Load() == was {
			n.open[slot].Store(next)
		}
	}
}

// tell lets the host know if a guard saw a newer epoch than the grant's: it is superseded,
// whatever its clock says.
func tell(h *slots.Host, g *slots.Grant, err error) {
	if newer := (*guard.FencedError)(nil); errors.As(err, &newer) {
		h.Lose(g.Range().A, newer.Highest)
	}
}

// granted is what this process may serve slot under. A grant whose shard is not open yet
// is none.
func (n *node) granted(slot uint16) (context.Context, uint64, bool) {
	s := n.open[slot].Load()
	if s == nil {
		return nil, 0, false
	}
	until, ok := n.live(s.grant)
	return until, s.grant.Epoch(), ok
}

// EpochFor makes a node what [slots.Serve] asks.
func (n *node) EpochFor(slot uint16) (epoch uint64, ok bool) {
	_, epoch, ok = n.granted(slot)
	return epoch, ok
}

// passing reports whether an error says only to look again: the store did not answer, or
// this process was superseded.
func passing(err error) bool {
	for _, kind := range []error{
		store.ErrUnavailable, store.ErrUnknown, store.ErrConflict, guard.ErrFenced, tenure.ErrUnconfirmed,
		tenure.ErrHeld, tenure.ErrLost, tenure.ErrReleased, tenure.ErrShutdown, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
