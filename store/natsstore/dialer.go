package natsstore

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer lets an opening be given up although the client's own Connect takes
// no context: the connections that it has made by then are closed.
type dialer struct {
	mu     sync.Mutex
	ctx    context.Context // of the opening; nil once that is over
	opened []net.Conn
}

// dialLimit bounds the connecting to one server.
const dialLimit = 5 * time.Second

// Dial connects to one server.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.ctx
	d.mu.Unlock()
	if ctx == nil {
		ctx = context.Background()
	}
	conn, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx != nil {
		if d.ctx.Err() != nil {
			_ = conn.Close()
			return nil, d.ctx.Err()
		}
		d.opened = append(d.opened, conn)
	}
	return conn, nil
}

// over ends the opening. If it was given up, its connections are closed.
func (d *dialer) over(closeAll bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if closeAll {
		for _, conn := range d.opened {
			_ = conn.Close()
		}
		return
	}
	d.ctx, d.opened = nil, nil
}
