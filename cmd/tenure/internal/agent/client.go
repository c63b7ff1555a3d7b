package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/clock"
	"github.com/tenure-project/tenure/internal/deadline"
	"github.com/tenure-project/tenure/store"
)

// ErrNone: no agent listens on the socket.
var ErrNone = errors.New("there is no agent")

// answerLimit is how long an agent may take to say who it is. One that is stopped
// takes longer.
const answerLimit = 2 * time.Second

// Hello is what an agent says of itself.
type Hello struct {
	// Store is the identity of its store, Namespace its namespace.
	Store, Namespace string
	// Proof names the process start: node, incarnation and term.
	Proof tenure.Proof
	// TTL is that of the session and all its leases, Margin what is taken off it.
	TTL, Margin time.Duration
}

// Conn is a connection to an agent, for one lease. It is for one goroutine until
// Acquire has returned.
type Conn struct {
	path  string
	hello Hello
	conn  *net.UnixConn
	uid   int // of the agent
	in    receiver
	clk   clock.Clock

	heard  chan heard    // what the agent says once a lease was asked for
	closed chan struct{} // closed by Close
	close  func() error
}

// heard is a message, or why there is no other one.
type heard struct {
	m   message
	err error
}

// Dial connects to the agent at path. It is an ErrNone if nobody listens there, and
// an ErrSilent if the agent does not say who it is within 2 s. An agent of another
// version, another boot or another time namespace is refused, and so is one of
// another user, unless root asks.
func Dial(ctx context.Context, path string, clk clock.Clock) (*Conn, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(limited, "unix", path)
	switch {
	case absent(err):
		return nil, fmt.Errorf("%w at %s", ErrNone, path)
	case errors.Is(err, fs.ErrPermission):
		return nil, store.Wrap(store.ErrDenied, "", socketOp, path, err)
	case err != nil:
		return nil, silent(ctx, path, err)
	}
	conn := nc.(*net.UnixConn)
	c := &Conn{
		path: path, conn: conn, in: newReceiver(conn), clk: clk,
		heard: make(chan heard), closed: make(chan struct{}),
	}
	c.close = sync.OnceValue(func() error {
		close(c.closed)
		return c.conn.Close()
	})
	if err := c.greet(limited); err != nil {
		_ = c.Close()
		return nil, silent(ctx, path, fmt.Errorf("the agent at %s: %w", path, err))
	}
	return c, nil
}

// silent is err, as an ErrSilent if it only says that the agent took too long; ctx
// is that of the caller.
func silent(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil || !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	who := ""
	if pid := signature(path); pid != "" {
		who = " (process " + pid + ")"
	}
	return fmt.Errorf("%s%s: %w within %v: %w", path, who, ErrSilent, answerLimit, os.ErrDeadlineExceeded)
}

// greet exchanges hellos. ctx has a deadline.
func (c *Conn) greet(ctx context.Context) error {
	var err error
	if c.uid, err = peerOf(c.conn); err != nil {
		return err
	}
	if err := mayAsk(c.uid, os.Geteuid()); err != nil {
		return err
	}
	m, err := c.ask(ctx, message{Op: opHello, V: version})
	switch {
	case err != nil:
		return err
	case m.Op != opHello:
		return fmt.Errorf("%w: it begins with %q", ErrProtocol, m.Op)
	case m.TTL <= 0 || m.Margin <= 0 || m.Incarnation == "":
		return fmt.Errorf("%w: its hello is not complete", ErrProtocol)
	}
	if err := sameClock(m.Boot, m.TimeNamespace, bootid.Boot(), bootid.TimeNamespace()); err != nil {
		return err
	}
	c.hello = Hello{
		Store: m.Store, Namespace: m.Namespace, TTL: m.TTL, Margin: m.Margin,
		Proof: tenure.Proof{Node: m.Node, Incarnation: m.Incarnation, Term: m.Term},
	}
	return nil
}

// sameClock refuses an agent whose boot clock is not ours: its deadlines would mean
// nothing here.
func sameClock(boot, timeNS, ourBoot, ourTimeNS string) error {
	switch {
	case runtime.GOOS == "linux" && ourBoot == "":
		return errors.New("this process cannot read the kernel's boot id, so it cannot know whether the agent's clock is its own")
	case boot != ourBoot:
		return fmt.Errorf("it runs on another kernel (boot id %q, here %q): its clock is not this one", boot, ourBoot)
	case timeNS != ourTimeNS:
		return fmt.Errorf("it runs in another time namespace (%q, here %q): its clock is not this one", timeNS, ourTimeNS)
	}
	return nil
}

// ask sends m and reads the answer, by the deadline of ctx.
func (c *Conn) ask(ctx context.Context, m message) (message, error) {
	limit, _ := ctx.Deadline()
	if err := c.conn.SetDeadline(limit); err != nil {
		return message{}, err
	}
	if err := send(c.conn, m); err != nil {
		return message{}, err
	}
	a, err := c.in.next()
	if err == nil && a.Op == opError {
		err = a.err()
	}
	return a, err
}

func send(conn *net.UnixConn, m message) error {
	b, err := m.encode()
	if err == nil {
		_, err = conn.Write(b)
	}
	return err
}

// Hello is what the agent said of itself.
func (c *Conn) Hello() Hello { return c.hello }

// Path is the socket's path.
func (c *Conn) Path() string { return c.path }

// MayBorrow refuses an agent of another user: it could not see to the end of what
// runs under its lease.
func (c *Conn) MayBorrow() error { return mayBorrow(c.uid, os.Geteuid()) }

// Close ends the connection. A lease that was acquired by it lapses. It may be
// called more than once.
func (c *Conn) Close() error { return c.close() }

// Status asks how the agent fares.
func (c *Conn) Status(ctx context.Context) (Status, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	m, err := c.ask(limited, message{Op: opStatus})
	if err == nil && m.Status == nil {
		err = fmt.Errorf("%w: no status in %q", ErrProtocol, m.Op)
	}
	if err != nil {
		return Status{}, silent(ctx, c.path, err)
	}
	return *m.Status, nil
}

// Hold is a lease that an agent keeps. Its methods are safe for concurrent use.
//
// Invariant: its deadline is one that the agent told, and once one of them has
// passed there is no other.
type Hold struct {
	c     *Conn
	name  string
	stop  time.Duration
	proof tenure.Proof

	dl   *deadline.Deadline // the agent's last word
	work *deadline.Deadline // the same less the time that the work needs to stop

	answers chan message  // to the release
	closed  chan struct{} // closed when the agent says nothing more
	gone    error         // why it does not; set before that
}

func newHold(c *Conn, r Request, m message) *Hold {
	h := &Hold{
		c: c, name: r.Lease, stop: r.Stop, proof: c.hello.Proof,
		dl: deadline.New(c.clk, c.hello.Margin), work: deadline.New(c.clk, c.hello.Margin),
		answers: make(chan message, 1), closed: make(chan struct{}),
	}
	h.proof.Token = m.Token
	go h.follow()
	return h
}

// Name is the lease's name.
func (h *Hold) Name() string { return h.name }

// Token is the fencing token.
func (h *Hold) Token() uint64 { return h.proof.Token }

// Owner is the incarnation of the agent's session.
func (h *Hold) Owner() string { return h.proof.Incarnation }

// Proof names this exact ownership.
func (h *Hold) Proof() tenure.Proof { return h.proof }

// Deadline is the instant on the boot clock by which the work must have ended: the
// last one that the agent told.
func (h *Hold) Deadline() (time.Duration, bool) { return h.dl.T() }

// Done is closed when the work must begin to end: the lease is lost, the agent
// drains or is gone, or no deadline came in time.
func (h *Hold) Done() <-chan struct{} { return h.work.Done() }

// Err says why Done was closed, nil before that. It is a tenure.ErrLost, or a
// tenure.ErrShutdown if the agent drains, or a tenure.ErrReleased.
func (h *Hold) Err() error {
	err := h.work.Cause()
	if errors.Is(err, deadline.ErrExpired) {
		err = h.because(fmt.Errorf("%w: the agent told of no renewal", tenure.ErrExpired))
	}
	return err
}

func (h *Hold) because(err error) error {
	return fmt.Errorf("lease %q (token %d): %w", h.name, h.proof.Token, err)
}

// extend takes a deadline that the agent told, unless the one before has passed
// (DL1). It reports whether there is time to work.
func (h *Hold) extend(t time.Duration) bool {
	now := deadline.Take(h.c.clk)
	left := t - now.Boot()
	return h.dl.Extend(now, left) && h.work.Extend(now, left-h.stop)
}

func (h *Hold) end(err error) {
	h.dl.End(err)
	h.work.End(err)
}

// follow heeds what the agent says until it says nothing more. The last deadline
// stands then, for whoever ends the work.
func (h *Hold) follow() {
	defer close(h.closed)
	for {
		m, err := h.c.hear()
		if err != nil {
			h.gone = fmt.Errorf("the agent of node %q is gone: %w", h.proof.Node, err)
			h.work.End(h.because(fmt.Errorf("%w: %w", tenure.ErrLost, h.gone)))
			return
		}
		switch m.Op {
		case opDeadline:
			h.extend(m.Deadline)
		case opStop:
			h.work.End(h.because(fmt.Errorf("the agent of node %q drains: %w", h.proof.Node, tenure.ErrShutdown)))
		case opLost:
			h.end(&RefusedError{kind: tenure.ErrLost, text: m.Text})
		case opWaiting: // not any more
		default:
			select {
			case h.answers <- m:
			default: // nobody asked
			}
		}
	}
}

// Release gives the lease up, once the work under it has ended. It has its own time
// limit and does not mind if ctx has ended. A release that the agent does not
// confirm is a tenure.ErrUnconfirmed; the lease then lapses. It closes the
// connection: call it once.
func (h *Hold) Release(ctx context.Context) error {
	h.end(h.because(tenure.ErrReleased))
	m, err := h.askRelease(context.WithoutCancel(ctx))
	_ = h.c.Close()
	<-h.closed
	switch {
	case err != nil:
		return h.because(fmt.Errorf("%w: %w", tenure.ErrUnconfirmed, err))
	case m.Op != opReleased:
		return m.err()
	}
	return nil
}

// releaseLimit leaves the agent the time of its own release and something beyond.
func (h *Hold) releaseLimit() time.Duration {
	return max(6*h.c.hello.TTL/15, time.Second) + max(h.c.hello.TTL/15, time.Second)
}

func (h *Hold) askRelease(ctx context.Context) (message, error) {
	limit := h.releaseLimit()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the agent does not answer within %v", limit))
	defer cancel()
	_ = h.c.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	if err := send(h.c.conn, message{Op: opRelease}); err != nil {
		return message{}, fmt.Errorf("the agent of node %q cannot be told: %w", h.proof.Node, err)
	}
	select {
	case m := <-h.answers:
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	case <-h.closed:
	}
	select {
	case m := <-h.answers: // its last word
		return m, nil
	default:
		return message{}, h.gone
	}
}
