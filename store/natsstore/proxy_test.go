package natsstore

import (
	"net"
	"sync"
	"testing"
)

// proxy passes bytes on between a client and a server, until told otherwise.
type proxy struct {
	target string
	listen net.Listener
	group  sync.WaitGroup

	mu      sync.Mutex
	change  *sync.Cond
	stalled bool // nothing passes
	mute    bool // nothing passes to the client
	refused bool // new connections are closed at once
	closed  bool
	conns   map[net.Conn]struct{}
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, listen: l, conns: map[net.Conn]struct{}{}}
	p.change = sync.NewCond(&p.mu)
	p.group.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listen.Addr().String() }

func (p *proxy) url() string { return "nats://" + p.address() }

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listen.Close()
	p.cut()
	p.group.Wait()
}

// cut breaks every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
		delete(p.conns, c)
	}
	p.change.Broadcast()
}

// stall holds everything back, or lets it go on.
func (p *proxy) stall(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = on
	p.change.Broadcast()
}

// refuse closes new connections at once, or lets them in.
func (p *proxy) refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = on
}

// silence drops what the server sends, or lets it through.
func (p *proxy) silence(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

func (p *proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	if p.closed || p.refused {
		_, _ = client.Close(), up.Close()
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[up] = struct{}{}, struct{}{}
	p.mu.Unlock()
	p.group.Go(func() { p.pass(up, client, false) })
	p.pass(client, up, true)
}

// pass copies from one side to the other.
func (p *proxy) pass(to, from net.Conn, toClient bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			for _, open := p.conns[from]; p.stalled && open; _, open = p.conns[from] {
				p.change.Wait()
			}
			drop := toClient && p.mute
			p.mu.Unlock()
			if !drop {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}
