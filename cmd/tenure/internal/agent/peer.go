package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/proc"
)

// helloLimit is how long a peer may take to say who it is and what it wants.
const helloLimit = 10 * time.Second

// peer is one connection of the agent.
//
// Invariants: its lease is released only on the word of the other side that the
// work has ended, or when nothing was told of it, or when the connection is closed
// and the last deadline told has passed with the margin, or the kernel shows that
// nothing of the work is left; nothing is told once the lease's end was told.
type peer struct {
	s    *Server
	conn *net.UnixConn
	uid  int // of the other side
	in   receiver
	out  *outbox

	lease atomic.Pointer[tenure.Lease] // that the other side knows of
	had   atomic.Pointer[tenure.Lease] // the same, also when it is over
	wants chan message                 // what it says; closed when it has hung up
	gone  context.Context              // ends when it wants nothing more

	group   string   // that the work is in; "" for none
	process *process // of the other side, if there is a group
}

// serve answers until a lease was asked for, then keeps that.
func (p *peer) serve() {
	_ = p.conn.SetReadDeadline(time.Now().Add(helloLimit))
	m, err := p.in.next()
	if err == nil && m.Op != opHello {
		err = fmt.Errorf("%w: it begins with %q", ErrProtocol, m.Op)
	}
	if err != nil {
		p.refuse(err)
		return
	}
	p.out.send(p.s.hello())
	for {
		m, err := p.in.next()
		switch {
		case err != nil:
			p.refuse(err)
			return
		case m.Op == opStatus:
			st := p.s.Status()
			p.out.send(message{Op: opStatus, Status: &st})
		case m.Op == opAcquire:
			if err := mayBorrow(p.uid, os.Geteuid()); err != nil {
				p.out.send(failure(err))
				return
			}
			_ = p.conn.SetReadDeadline(time.Time{})
			p.acquire(m)
			return
		default:
			p.refuse(fmt.Errorf("%w: %q comes too early", ErrProtocol, m.Op))
			return
		}
	}
}

// refuse says what was wrong, if the other side said anything wrong at all.
func (p *peer) refuse(err error) {
	if errors.Is(err, ErrProtocol) {
		p.out.send(failure(err))
	}
}

// hangUp makes the other side's messages end.
func (p *peer) hangUp() { _ = p.conn.CloseRead() }

// listen reads what the other side wants until it hangs up. Nonsense is the same
// as hanging up: whatever was meant, it was no release.
func (p *peer) listen(hungUp context.CancelFunc) {
	defer close(p.wants)
	defer hungUp()
	for {
		m, err := p.in.next()
		if err == nil && m.Op != opRelease {
			err = fmt.Errorf("%w: %q comes too late", ErrProtocol, m.Op)
		}
		if err != nil {
			p.refuse(err)
			return
		}
		hungUp() // a release that comes before the grant gives up waiting for it
		select {
		case p.wants <- m:
		case <-p.s.ctx.Done():
			return
		}
	}
}

// acquire gets the lease for the other side and keeps it until it is over.
func (p *peer) acquire(m message) {
	p.wants = make(chan message)
	var hungUp context.CancelFunc
	p.gone, hungUp = context.WithCancel(p.s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.listen(hungUp)
	}()
	defer func() {
		p.hangUp()
		for range p.wants { // nobody hears it any more
		}
		<-done
	}()
	l, err := p.get(m)
	if err != nil {
		p.out.send(failure(err))
		return
	}
	t, err := deadlineOf(l)
	if err != nil { // the other side does not know of it
		p.out.send(failure(errors.Join(err, l.Release(context.Background()))))
		return
	}
	proof := l.Proof()
	p.out.send(message{Op: opGranted, Token: proof.Token, Node: proof.Node, Incarnation: proof.Incarnation, Term: proof.Term, Deadline: t})
	if p.group = m.Group; p.group != "" {
		p.process = peerProcess(p.conn)
		defer p.process.close()
	}
	p.had.Store(l)
	p.lease.Store(l)
	p.extend() // a renewal meanwhile was not told
	p.keep(l)
}

func (p *peer) get(m message) (*tenure.Lease, error) {
	if m.Wait < -1 || m.Stop < 0 {
		return nil, fmt.Errorf("%w: wait %d, stop %d", ErrProtocol, m.Wait, m.Stop)
	}
	p.s.waiting.Add(1)
	defer p.s.waiting.Add(-1)
	ctx, acquire := p.gone, p.s.cfg.Session.Acquire
	switch {
	case m.Wait == 0:
		acquire = p.s.cfg.Session.TryAcquire
	case m.Wait > 0:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, m.Wait, ErrWaited)
		defer cancel()
	}
	hush := p.sayItWaits()
	l, err := acquire(ctx, m.Lease, tenure.Note(m.Note), tenure.Stop(m.Stop))
	hush()
	if s := p.s.cfg.Session; err != nil && s.Err() != nil {
		err = fmt.Errorf("%w: %w", ErrEnding, err)
	}
	return l, p.inWords(err)
}

// sayItWaits tells the other side that this agent lives, until it is hushed: a grant
// or its refusal may be long in coming. Nothing of it is sent after that.
func (p *peer) sayItWaits() (hush func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for clock.Sleep(p.s.cfg.Clock, p.s.cfg.Session.TTL()/waitingParts, quit) {
			p.out.send(message{Op: opWaiting})
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

// inWords is err as somebody in another process understands it: what the library says
// of callers in this process is of commands under this agent there.
func (p *peer) inWords(err error) error {
	var held *tenure.HeldError
	if !errors.As(err, &held) || held.Free == "" || held.Token != 0 {
		return err
	}
	e := *held
	if e.Token = p.s.lent(held.Name); e.Token != 0 {
		e.Free = fmt.Sprintf("the agent of node %q ends the command that had it first", p.s.cfg.Session.Node())
	} else {
		e.Free = fmt.Sprintf("another command of the agent of node %q is about to take it", p.s.cfg.Session.Node())
	}
	return &e
}

// deadlineOf is until when whoever works under l may be told to work. It looks
// twice: a session's deadline that moves while the lease ends is none of the
// lease's any more.
func deadlineOf(l *tenure.Lease) (time.Duration, error) {
	t, ok := l.Deadline()
	if _, still := l.Deadline(); ok && still {
		return t, nil
	}
	return 0, fmt.Errorf("lease %q (token %d): %w before it was handed out", l.Name(), l.Token(), tenure.ErrLost)
}

// extend tells the other side of a deadline that moved.
func (p *peer) extend() {
	l := p.lease.Load()
	if l == nil {
		return
	}
	if t, err := deadlineOf(l); err == nil {
		p.out.extend(t)
	}
}

// keep keeps l until the other side releases it or hangs up.
func (p *peer) keep(l *tenure.Lease) {
	ended := l.Done()
	for {
		select {
		case <-ended:
			ended = nil
			p.tellEnd(l)
		case _, ok := <-p.wants:
			switch {
			case !ok && p.s.cfg.Session.Err() != nil: // nobody can release it any more
				if <-l.Done(); ended != nil {
					p.tellEnd(l)
				}
				return
			case !ok:
				p.lapse(l)
				return
			default:
				p.release(l)
				return
			}
		}
	}
}

// tellEnd says that the work must end. A lease that ends by a drain is held on
// until the work has ended.
func (p *peer) tellEnd(l *tenure.Lease) {
	m := message{Op: opLost, Text: clipped(l.Err().Error())}
	if errors.Is(l.Err(), tenure.ErrShutdown) {
		m.Op = opStop
	} else {
		p.lease.Store(nil)
	}
	p.out.send(m)
}

// release frees the lease: the work under it has ended.
func (p *peer) release(l *tenure.Lease) {
	p.lease.Store(nil)
	if err := l.Release(context.Background()); err != nil {
		p.out.send(failure(err))
		return
	}
	p.out.send(message{Op: opReleased})
}

// lookEvery is the pause between two looks for a proof that a command is gone.
const lookEvery = 50 * time.Millisecond

// provenGone says whether the kernel shows that the other side is gone, and with it
// all that works under its lease (LS14). The group holds the wrapper as well, which
// leaves it only when it has ended what had left the group.
func (p *peer) provenGone() bool {
	if !p.process.gone() {
		return false
	}
	empty, err := proc.CgroupEmpty(p.group)
	return err == nil && empty
}

// lapse frees a lease whose holder is gone without a word. What works under it may
// be ended by others, as late as the last deadline that was told.
func (p *peer) lapse(l *tenure.Lease) {
	t := p.out.silence()
	p.lease.Store(nil)
	s := p.s
	s.lapsing.Add(1)
	defer s.lapsing.Add(-1)
	passed := make(chan struct{})
	timer := s.cfg.Clock.AfterBoot(t+s.cfg.Margin, func() { close(passed) })
	defer timer.Stop()
	if t > 0 {
		s.cfg.Log.Warn("agent: a supervisor is gone, its lease is kept until its command must have ended", "lease", l.Name(), "token", l.Token(), "for", max(0, t+s.cfg.Margin-s.cfg.Clock.Boot()))
	}
	for waiting := true; waiting && !p.provenGone(); {
		look := make(chan struct{})
		again := s.cfg.Clock.AfterFunc(lookEvery, func() { close(look) })
		select {
		case <-look:
		case <-passed:
			waiting = false
		case <-s.cfg.Session.Lost(): // nobody can release it any more, and it lapses
			again.Stop()
			return
		}
		again.Stop()
	}
	if err := l.Release(context.Background()); err != nil && !errors.Is(err, tenure.ErrLost) {
		s.cfg.Log.Warn("agent: a lease is not released", "lease", l.Name(), "token", l.Token(), "error", err)
	}
}
