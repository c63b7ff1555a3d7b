package gcsstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// maxReply bounds the replies that are read whole: metadata, pages of a listing
// and error texts.
const maxReply = 16 << 20

// form is what a good reply to a request must look like.
type form int

const (
	mediaForm form = iota // whatever bytes an object holds; its reader bounds them
	metaForm              // metadata, which is checked once it is decoded
	pageForm              // one page of a listing
	doneForm              // nothing
)

// shot is the one request that a call may send. It travels in the request's
// context, through the client library, down to the wire.
type shot struct {
	want form
	// pages lets the shot send more than one request, as long as no two are
	// alike: the pages of a listing.
	pages bool

	sent atomic.Bool // bytes may have left for the server

	mu     sync.Mutex
	last   string // the last request's target
	fired  bool
	status int
	header http.Header
	secret string // the Authorization header, to keep it out of messages
}

type shotKey struct{}

func (sh *shot) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, shotKey{}, sh)
}

// take claims the right to send req.
func (sh *shot) take(req *http.Request) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	target := req.Method + " " + req.URL.RequestURI()
	switch {
	case sh.fired && !sh.pages:
		return errSecond
	case sh.fired && target == sh.last:
		return errSamePage
	}
	sh.fired, sh.last, sh.secret = true, target, req.Header.Get("Authorization")
	return nil
}

func (sh *shot) got(res *http.Response) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.status, sh.header = res.StatusCode, res.Header
	if res.Request != nil && sh.secret == "" { // a client that was brought signs further down
		sh.secret = res.Request.Header.Get("Authorization")
	}
}

// reply returns the status and headers of the last reply.
func (sh *shot) reply() (int, http.Header) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.status, sh.header
}

// hidden is what must not be printed.
func (sh *shot) hidden() string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.secret
}

var (
	errNoShot   = errors.New("a request outside of any call was refused")
	errSecond   = errors.New("the reply broke off (a second request of the same call was refused)")
	errSamePage = errors.New("the listing does not advance: the same page was asked for twice")
	errNoLength = errors.New("the reply says neither its length nor its end; a proxy is in the way")
)

// wire is the last stop before the network. It makes it impossible that one
// call sends two requests, whatever the layers above it believe about repeats
// (ST9), and refuses replies that cannot be told from truncated or foreign
// ones.
type wire struct {
	base http.RoundTripper
	// traced says that base reports when it has a connection. Of any other it is
	// assumed that each request reached the server.
	traced bool
}

// RoundTrip sends the one request of a call.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	sh, _ := req.Context().Value(shotKey{}).(*shot)
	err := errNoShot
	if sh != nil {
		err = sh.take(req)
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	ctx := req.Context()
	if w.traced {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sh.sent.Store(true) }})
	} else {
		sh.sent.Store(true)
	}
	req = req.Clone(ctx)
	req.Header.Set("Accept-Encoding", "identity")
	res, err := w.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	sh.got(res)
	if err := vet(res, sh.want); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return res, nil
}

// vet refuses replies that say success without being one.
func vet(res *http.Response, want form) error {
	if res.ContentLength < 0 && res.ProtoMajor == 1 && len(res.TransferEncoding) == 0 && res.Body != http.NoBody {
		return errNoLength
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return keep(res, maxReply)
	}
	switch want {
	case metaForm:
		return keep(res, maxReply)
	case pageForm:
		return vetPage(res)
	case doneForm:
		return vetDone(res)
	}
	return nil
}

// keep reads the whole reply and puts it back.
func keep(res *http.Response, most int64) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return err
	}
	if int64(len(body)) > most {
		return fmt.Errorf("the reply (status %d) has more than %d bytes", res.StatusCode, most)
	}
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	res.ContentLength = int64(len(body))
	return nil
}

// vetPage makes sure that a reply is a page of a listing. An error or a page of
// some proxy would read as the end of a listing.
func vetPage(res *http.Response) error {
	if err := keep(res, maxReply); err != nil {
		return err
	}
	body, _ := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(body))
	var page map[string]json.RawMessage
	if err := json.Unmarshal(body, &page); err != nil || page == nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("the reply (status %d) is no page of a listing", res.StatusCode)
	}
	for name := range page {
		switch name {
		case "kind", "items", "prefixes", "nextPageToken":
		default:
			return fmt.Errorf("the reply is no page of a listing: it has a field %.20q", name)
		}
	}
	return nil
}

// vetDone makes sure that a reply without content has none.
func vetDone(res *http.Response) error {
	if err := keep(res, maxReply); err != nil {
		return err
	}
	body, _ := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(nil))
	switch text := string(bytes.TrimSpace(body)); {
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusNoContent, text != "" && text != "{}" && text != "null":
		return fmt.Errorf("the reply (status %d) is not that of a delete", res.StatusCode)
	}
	return nil
}
