package azurestore

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"io"
	"iter"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenure-project/tenure/store"
)

// Get reads a blob by one request (ST3). A body longer than limit bytes is
// ErrCorrupt before it is loaded (ST7). Object.Modified is set, in whole
// seconds; it is no declared power, since many front ends stamp it.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	c, err := s.beginKey(ctx, opGet, key)
	if err != nil {
		return store.Object{}, err
	}
	defer c.end()
	x := c.exchange()
	defer x.done()
	_, err = s.blob(key).DownloadStream(x.ctx, nil)
	if x.resp == nil {
		return store.Object{}, c.noAnswer(x, err, false)
	}
	if x.resp.StatusCode != http.StatusOK {
		a := c.answer(x, err)
		if a.absent() {
			return store.Object{}, c.errorf(store.ErrNotFound, "%s", a)
		}
		return store.Object{}, c.refusal(a, false)
	}
	if err := c.checkBlob(x.resp.Header); err != nil {
		return store.Object{}, err
	}
	body, err := c.body(x.resp, limit)
	if err != nil {
		return store.Object{}, err
	}
	modified, _ := time.Parse(time.RFC1123, x.resp.Header.Get("Last-Modified"))
	return store.Object{Body: body, Version: versionOf(x.resp.Header), Modified: modified}, nil
}

// checkBlob refuses an answer that is not the present state of a record as Azure
// keeps it, although its status says 200.
func (c *call) checkBlob(h http.Header) error {
	switch encoding := h.Get("Content-Encoding"); {
	case encoding != "" && encoding != "identity":
		return c.errorf(store.ErrUnavailable, "the answer is encoded as %q although it was asked for as it is; a proxy does that, or somebody set it on the blob", encoding)
	case h.Get("Age") != "":
		return c.errorf(store.ErrUnavailable, "a cache gave the answer; use the endpoint of the account itself")
	case h.Get("X-Ms-Resource-Type") == "directory" || strings.EqualFold(h.Get("X-Ms-Meta-Hdi_isfolder"), "true"):
		return c.errorf(store.ErrInvalid, hierarchical)
	case h.Get("X-Ms-Blob-Type") == "":
		return c.errorf(store.ErrUnavailable, "the answer does not come from Azure Blob Storage: it names no blob type")
	case h.Get("X-Ms-Blob-Type") != "BlockBlob":
		return c.errorf(store.ErrCorrupt, "it is a blob of the type %q, which Tenure does not write", h.Get("X-Ms-Blob-Type"))
	case versionOf(h) == "":
		return c.errorf(store.ErrUnavailable, "the answer names no usable ETag but %q; does a proxy change it?", h.Get("Etag"))
	}
	return nil
}

const hierarchical = "the account has a hierarchical namespace, where keys are not flat and not in byte order; use an account without one"

// body reads at most limit bytes.
func (c *call) body(resp *http.Response, limit int) ([]byte, error) {
	if resp.ContentLength > int64(limit) {
		return nil, c.errorf(store.ErrCorrupt, "the body has %d bytes, more than the %d that a reader allows", resp.ContentLength, limit)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(min(limit, math.MaxInt-1))+1))
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, store.Wrap(store.ErrUnavailable, c.s.identity, c.op, c.key, context.Cause(c.ctx))
	case len(body) > limit:
		return nil, c.errorf(store.ErrCorrupt, "the body has more than the %d bytes that a reader allows", limit)
	case err != nil:
		return nil, c.errorf(store.ErrUnavailable, "the answer broke off after %d bytes: %v", len(body), err)
	}
	if sum, err := base64.StdEncoding.DecodeString(resp.Header.Get("Content-Md5")); err == nil && len(sum) == md5.Size {
		if got := md5.Sum(body); !bytes.Equal(sum, got[:]) {
			return nil, c.errorf(store.ErrCorrupt, "the body does not have the checksum that the store has for it")
		}
	}
	return body, nil
}

// List yields keys in byte order, 5,000 to a request (ST6). Azure's own start
// mark is inclusive and new; what it may not skip is skipped here.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := store.CtxErr(ctx, s.identity, opList, ""); err != nil {
			yield("", err)
			return
		}
		if !canList(prefix, after) {
			return
		}
		l := &listing{s: s, prefix: prefix, after: after}
		for {
			keys, err := l.page(ctx)
			for _, k := range keys {
				if !yield(k, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
				return
			}
			if l.marker == nil {
				return
			}
		}
	}
}

// canList reports whether any key can start with prefix and be greater than
// after, so that nothing strange is sent to the server.
func canList(prefix, after string) bool {
	if after > prefix && !strings.HasPrefix(after, prefix) {
		return false
	}
	return prefix == "" || store.CheckKey(strings.TrimSuffix(prefix, "/")) == nil
}

// keyPart is as much of after as a key may begin with: no key between the two
// is lost by it, and nothing strange is sent.
func keyPart(after string) string {
	return after[:len(after)-len(strings.TrimLeft(after, "abcdefghijklmnopqrstuvwxyz0123456789=_-/"))]
}

// listing is a List under way.
type listing struct {
	s      *Store
	prefix string
	after  string
	seen   string  // the last key that a page held
	marker *string // of the next page; nil after the last
}

// page fetches one page and returns its keys that are greater than after. It is
// a call of its own: between pages a listing holds nothing.
func (l *listing) page(ctx context.Context) ([]string, error) {
	c, err := l.s.begin(ctx, opList, "")
	if err != nil {
		return nil, err
	}
	defer c.end()
	x := c.exchange()
	defer x.done()
	full := l.s.prefix + l.prefix
	o := &container.ListBlobsFlatOptions{Prefix: &full, Marker: l.marker, MaxResults: l.s.pageSize}
	if from := l.s.prefix + keyPart(l.after); from > full {
		o.StartFrom = &from
	}
	r, err := l.s.container.NewListBlobsFlatPager(o).NextPage(x.ctx)
	if x.resp == nil {
		return nil, c.noAnswer(x, err, false)
	}
	switch a := c.answer(x, err); {
	case a.status != http.StatusOK:
		return nil, c.refusal(a, false)
	case err != nil && c.ctx.Err() != nil:
		return nil, store.Wrap(store.ErrUnavailable, l.s.identity, opList, "", context.Cause(c.ctx))
	case err != nil:
		return nil, c.errorf(store.ErrUnavailable, "the answer is no whole page of a listing: %v", withoutURL(err))
	case r.Segment == nil || deref(r.ContainerName) == "":
		return nil, c.errorf(store.ErrUnavailable, "the answer is no page of a listing, although its status is 200")
	case x.resp.Header.Get("Age") != "":
		return nil, c.errorf(store.ErrUnavailable, "a cache gave the answer; use the endpoint of the account itself")
	}
	before := deref(l.marker)
	if l.marker = r.NextMarker; deref(l.marker) == "" {
		l.marker = nil
	}
	keys, err := l.keys(c, r.Segment.BlobItems)
	if err == nil && before != "" && before == deref(l.marker) {
		err = c.errorf(store.ErrUnavailable, "the listing does not get on: two pages name the same next one")
	}
	return keys, err
}

// keys are the keys among items that come next. Items out of order would hide
// keys from a caller that goes on after the last one, so they are an error.
func (l *listing) keys(c *call, items []*container.BlobItem) ([]string, error) {
	keys := make([]string, 0, len(items))
	for _, b := range items {
		if b == nil || b.Name == nil {
			return keys, c.errorf(store.ErrUnavailable, "the page holds a blob without a name")
		}
		if b.Properties != nil && b.Properties.ResourceType != nil && *b.Properties.ResourceType == "directory" {
			return keys, c.errorf(store.ErrInvalid, hierarchical)
		}
		k, found := strings.CutPrefix(*b.Name, l.s.prefix)
		switch {
		case !found || !strings.HasPrefix(k, l.prefix):
			return keys, c.errorf(store.ErrUnavailable, "the page holds the blob %q, which was not asked for", *b.Name)
		case store.CheckKey(k) != nil: // what others put there is no record
			continue
		case k <= l.seen:
			return keys, c.errorf(store.ErrUnavailable, "the listing is not in byte order: %q came after %q", k, l.seen)
		}
		if l.seen = k; k > l.after {
			keys = append(keys, k)
		}
	}
	return keys, nil
}
