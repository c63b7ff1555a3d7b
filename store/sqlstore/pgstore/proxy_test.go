package pgstore

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// proxy stands between a store and the real server, knows the messages of the
// protocol, and does to each request what a test says. It passes on what the
// server answers to a request and nothing else: notifications get lost, as in a
// pooler in transaction mode.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu       sync.Mutex
	conns    map[net.Conn]bool
	start    func() *pgproto3.ErrorResponse // refuses a new session
	act      func(sql string) action
	requests []string
}

// action is what happens to one request.
type action struct {
	kind  actionKind
	reply []pgproto3.BackendMessage // for answer, and for passAfter before the server's own
}

type actionKind int

const (
	pass       actionKind = iota
	answer_               // the request does not reach the server
	answerKill            // the same, then the connection ends
	passAfter             // it passes, and the reply goes before the server's answer
	loseReply             // it reaches the server and takes effect; the connection ends
	killBefore            // the connection ends before anything of it arrives
	hang                  // nothing happens until the connection is closed
)

// startProxy puts a proxy before the server of a store URL and returns the URL
// that leads through it.
func startProxy(t testing.TB, rawURL string) (*proxy, string) {
	t.Helper()
	u := must(url.Parse(rawURL))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proxy{listener: l, target: u.Host, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.track(c)
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.wg.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) track(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

// cut ends every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// on sets what happens to requests whose SQL holds part; others pass.
func (p *proxy) on(part string, a action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.act = func(sql string) action {
		if strings.Contains(sql, part) {
			return a
		}
		return action{}
	}
}

// once is on for the first such request only.
func (p *proxy) once(part string, a action) {
	used := false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.act = func(sql string) action {
		if used || !strings.Contains(sql, part) {
			return action{}
		}
		used = true
		return a
	}
}

func (p *proxy) refuse(e *pgproto3.ErrorResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = func() *pgproto3.ErrorResponse { return e }
}

// sent counts the requests since the last call whose SQL holds part.
func (p *proxy) sent(part string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sql := range p.requests {
		if strings.Contains(sql, part) {
			n++
		}
	}
	p.requests = nil
	return n
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	b := pgproto3.NewBackend(client, client)
	first, err := b.ReceiveStartupMessage()
	if _, ssl := first.(*pgproto3.SSLRequest); ssl && err == nil {
		if _, err = client.Write([]byte("N")); err == nil {
			first, err = b.ReceiveStartupMessage()
		}
	}
	hello, ok := first.(*pgproto3.StartupMessage)
	if err != nil || !ok {
		return // a cancel request, say
	}
	p.mu.Lock()
	start := p.start
	p.mu.Unlock()
	if start != nil {
		b.Send(start())
		_ = b.Flush()
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	p.track(server)
	f := pgproto3.NewFrontend(server, server)
	f.Send(hello)
	if f.Flush() == nil && relay(f, b) == nil {
		p.pump(b, f, client)
	}
}

// pump takes one request after the other.
func (p *proxy) pump(b *pgproto3.Backend, f *pgproto3.Frontend, client net.Conn) {
	for {
		raw, sql, err := request_(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.requests = append(p.requests, sql)
		var a action
		if p.act != nil {
			a = p.act(sql)
		}
		p.mu.Unlock()
		for _, m := range a.reply {
			b.Send(m)
		}
		switch a.kind {
		case answer_, answerKill:
			if b.Flush() != nil || a.kind == answerKill {
				return
			}
			continue
		case killBefore:
			return
		case hang:
			_, _ = io.Copy(io.Discard, client)
			return
		}
		for _, m := range raw {
			f.Send(m)
		}
		if f.Flush() != nil {
			return
		}
		if a.kind == loseReply {
			_ = relay(f, nil)
			return
		}
		if relay(f, b) != nil {
			return
		}
	}
}

// request_ reads the messages of one request, to its Sync.
func request_(b *pgproto3.Backend) (raw []pgproto3.FrontendMessage, sql string, err error) {
	for {
		m, err := b.Receive()
		if err != nil {
			return nil, "", err
		}
		if _, end := m.(*pgproto3.Terminate); end {
			return nil, "", io.EOF
		}
		raw = append(raw, clone(m))
		switch m := m.(type) {
		case *pgproto3.Parse:
			sql = m.Query
		case *pgproto3.Query:
			return raw, m.String, nil
		case *pgproto3.Sync:
			return raw, sql, nil
		}
	}
}

// clone copies a message, whose memory the next one reuses.
func clone(m pgproto3.FrontendMessage) pgproto3.FrontendMessage {
	switch m := m.(type) {
	case *pgproto3.Parse:
		c := *m
		c.ParameterOIDs = slices.Clone(m.ParameterOIDs)
		return &c
	case *pgproto3.Bind:
		c := *m
		c.Parameters = slices.Clone(m.Parameters)
		for i, p := range c.Parameters {
			c.Parameters[i] = slices.Clone(p)
		}
		c.ParameterFormatCodes, c.ResultFormatCodes = slices.Clone(m.ParameterFormatCodes), slices.Clone(m.ResultFormatCodes)
		return &c
	case *pgproto3.Describe:
		c := *m
		return &c
	case *pgproto3.Execute:
		c := *m
		return &c
	case *pgproto3.Query:
		c := *m
		return &c
	case *pgproto3.Sync:
		return &pgproto3.Sync{}
	}
	panic(fmt.Sprintf("the proxy does not know %T", m))
}

// relay passes the server's answer on until it is ready again; nil swallows it.
func relay(f *pgproto3.Frontend, to *pgproto3.Backend) error {
	for {
		m, err := f.Receive()
		if err != nil {
			return err
		}
		if to != nil {
			to.Send(m)
			if err := to.Flush(); err != nil {
				return err
			}
		}
		if _, done := m.(*pgproto3.ReadyForQuery); done {
			return nil
		}
	}
}

func errorReply(severity, code, message string) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: message}
}

var ready = &pgproto3.ReadyForQuery{TxStatus: 'I'}
