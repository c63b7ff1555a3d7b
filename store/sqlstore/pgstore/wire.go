package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// wires are the open network connections of a store, so that Close can cut what
// a server that hangs would keep for long.
type wires struct {
	dial pgconn.DialFunc
	stop context.Context

	mu   sync.Mutex
	open map[*wire]struct{}
	cut  bool
}

var errCut = errors.New("the store is closed")

func newWires(stop context.Context, dial pgconn.DialFunc) *wires {
	return &wires{dial: dial, stop: stop, open: map[*wire]struct{}{}}
}

// dialTracked is a pgconn.DialFunc.
func (w *wires) dialTracked(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n := &wire{Conn: c, all: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		_ = c.Close()
		return nil, errCut
	}
	w.open[n] = struct{}{}
	return n, nil
}

// cutAll closes every connection, and every later one at once.
func (w *wires) cutAll() {
	w.mu.Lock()
	w.cut = true
	open := make([]*wire, 0, len(w.open))
	for n := range w.open {
		open = append(open, n)
	}
	w.mu.Unlock()
	for _, n := range open {
		_ = n.Conn.SetDeadline(time.Unix(1, 0)) // wakes a reader
		_ = n.Close()
	}
}

// wire is one network connection below TLS.
type wire struct {
	net.Conn
	all *wires
}

// Close closes the connection.
func (n *wire) Close() error {
	n.all.mu.Lock()
	delete(n.all.open, n)
	n.all.mu.Unlock()
	return n.Conn.Close()
}

// usedMark is kept with a connection that was lent once.
const usedMark = "tenure used"

// fresh is false if an idle connection was ended by the other side, or if it
// said something: then it is not used, for a write sent over it would have an
// unknown outcome. It sends nothing and costs a microsecond.
func fresh(c *pgx.Conn) bool {
	marks := c.PgConn().CustomData()
	if _, used := marks[usedMark]; !used {
		marks[usedMark] = true
		return true
	}
	conn := c.PgConn().Conn()
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if n, ok := conn.(*wire); ok {
		conn = n.Conn
	}
	return silent(conn)
}
