package s3store

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

const (
	// maxErrorBody and maxListBody bound what is read of an answer that is no
	// record.
	maxErrorBody = 64 << 10
	maxListBody  = 16 << 20

	connectLimit = 5 * time.Second
	// idleLimit is shorter than S3 and common proxies keep an idle connection, so
	// that few requests meet one that is just being closed.
	idleLimit = 15 * time.Second
)

// wire stands between the SDK and the network. It notes what the judge of an
// answer must know and the SDK does not say: whether a connection ever carried
// the request, the status, and what the body of an answer really holds.
type wire struct {
	next   aws.HTTPClient
	tigris bool
}

// flight is what wire noted of one request.
type flight struct {
	want    string // root element that a good answer must have; "" is none
	started bool   // the SDK handed the request over: it has credentials
	carried atomic.Bool
	sends   int
	status  int
	header  http.Header
	fault   fault // what an answer that is an error says
	flaw    error // why an answer that looks good is not
	auth    []string
}

// fault is S3's error document.
type fault struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	Region  string
}

type flightKey struct{}

func withFlight(ctx context.Context, f *flight) context.Context {
	return context.WithValue(ctx, flightKey{}, f)
}

// Do sends one request, once. It is called by the SDK only.
func (w *wire) Do(req *http.Request) (*http.Response, error) {
	f, ok := req.Context().Value(flightKey{}).(*flight)
	if !ok {
		f = &flight{}
	}
	f.started = true
	f.sends++
	f.auth = []string{req.Header.Get("Authorization"), req.Header.Get("X-Amz-Security-Token")}
	// From here on some of the request may reach the server.
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.carried.Store(true) }}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	if w.tigris {
		req.Header.Set("X-Tigris-Consistent", "true")
	}
	resp, err := w.next.Do(req)
	if err != nil {
		return nil, err
	}
	f.status, f.header = resp.StatusCode, resp.Header
	f.inspect(req.Method, resp)
	return resp, nil
}

// inspect reads whatever is no record and puts it back for the SDK. The status
// line has come, so a body that breaks off takes nothing away from a refusal.
func (f *flight) inspect(method string, resp *http.Response) {
	good, list := resp.StatusCode/100 == 2, f.want != ""
	if good && !list && method == http.MethodGet {
		return // a record: read with the caller's limit
	}
	limit := maxErrorBody
	if good && list {
		limit = maxListBody
	}
	body, err := readAll(resp, limit)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	name := root(body)
	if name == "Error" {
		_ = xml.Unmarshal(body, &f.fault) // as much of it as there is
	}
	switch {
	case !good:
	case err != nil:
		f.flaw = err
	case name == "Error":
		f.flaw = errors.New("the status says success, the body is an error")
	case !list && len(bytes.TrimSpace(body)) > 0:
		f.flaw = errors.New("the answer to a write has a body, which S3 never sends")
	case list && (name != f.want || !complete(body)):
		f.flaw = fmt.Errorf("the answer is not a complete %s document", f.want)
	}
}

// readAll reads a body of at most limit bytes, unpacks it if a proxy packed it
// all the same, and closes it. With an error it returns what it could read.
func readAll(resp *http.Response, limit int) ([]byte, error) {
	defer resp.Body.Close()
	var r io.Reader = resp.Body
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		r = z
		resp.Header.Del("Content-Encoding")
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(body) > limit {
		body, err = nil, errors.New("the answer is larger than any that S3 sends")
	}
	resp.ContentLength = int64(len(body))
	resp.Header.Del("Content-Length")
	return body, err
}

// root is the name of a document's outermost element, "" if it has none.
func root(body []byte) string {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		t, err := d.Token()
		if err != nil {
			return ""
		}
		if e, ok := t.(xml.StartElement); ok {
			return e.Name.Local
		}
	}
}

// complete reports whether body is one whole document. The SDK takes one that
// was cut off, or is of another kind, for an empty answer.
func complete(body []byte) bool {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := d.Token(); err != nil {
			return err == io.EOF
		}
	}
}

// ownPool makes an HTTP client that shares no connection with c, follows no
// redirect and unpacks nothing. It keeps c's proxy, certificates and dialler.
// close frees its idle connections. A client of a kind that it does not know is
// used as it is.
func ownPool(c aws.HTTPClient) (own aws.HTTPClient, closeIdle func()) {
	switch c := c.(type) {
	case nil:
		return pooled(awshttp.NewBuildableClient().GetTransport(), 0)
	case *awshttp.BuildableClient:
		return pooled(c.GetTransport(), c.GetTimeout())
	case *http.Client:
		if c.Transport == nil {
			return pooled(awshttp.NewBuildableClient().GetTransport(), c.Timeout)
		}
		if t, ok := c.Transport.(*http.Transport); ok {
			return pooled(t.Clone(), c.Timeout)
		}
		own := *c
		own.CheckRedirect = noRedirect
		return &own, func() {}
	}
	return c, func() {}
}

func pooled(t *http.Transport, limit time.Duration) (aws.HTTPClient, func()) {
	t.DisableCompression = true
	t.MaxIdleConnsPerHost = 64
	t.MaxIdleConns = 0
	t.MaxConnsPerHost = 0
	t.IdleConnTimeout = idleLimit
	t.TLSHandshakeTimeout = connectLimit
	// One connection per call in flight: a connection that died silently holds up
	// one renewal, not all of them.
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	if dial := t.DialContext; dial != nil {
		t.DialContext = dialWithin(dial)
	}
	return &http.Client{Transport: t, Timeout: limit, CheckRedirect: noRedirect}, t.CloseIdleConnections
}

// noRedirect: a signed write must not be sent to wherever an answer points.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
