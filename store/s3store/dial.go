package s3store

import (
	"context"
	"net"
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialWithin bounds the making of a connection, so that an address that does not
// answer leaves time for another try before a lease runs out.
func dialWithin(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		return dial(ctx, network, addr)
	}
}
