package azurestore

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// The bounds of what a server can make us read that is no record: the body of a
// refusal, and one page of a listing (5,000 names of 1 KiB, five times over).
const (
	mostRefusal = 256 << 10
	mostPage    = 32 << 20
)

// newTransport makes a connection pool that only this store uses, so that bulk
// transfers of the program do not make renewals wait. It speaks HTTP/1.1, as
// the service does: each request has a connection to itself.
func newTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 64,
		// Shorter than any server's or proxy's: a write on a connection that the
		// other end has just closed is one of unknown outcome.
		IdleConnTimeout:    20 * time.Second,
		DisableCompression: true,
		Protocols:          protocols,
	}
}

// direct sends requests of the store. It follows no redirect, so a write goes
// where it was addressed or nowhere, and its errors quote no URL.
type direct struct{ t *http.Transport }

// Do implements the SDK's Transporter.
func (d direct) Do(req *http.Request) (*http.Response, error) {
	resp, err := d.t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode >= 300:
		resp.Body = &bounded{ReadCloser: resp.Body, left: mostRefusal}
	case req.URL.Query().Get("comp") == "list":
		resp.Body = &bounded{ReadCloser: resp.Body, left: mostPage}
	}
	return resp, nil
}

// bounded is a body that ends with an error when it is too long.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is too long")
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
