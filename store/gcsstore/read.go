package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"strconv"
	"strings"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"

	"github.com/tenure-project/tenure/store"
)

// Get returns the present state of key in one request (ST3, ST7). An answer of
// 404 that does not name the object costs a second one.
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	c, end, err := s.begin(ctx, "get", key, false)
	if err != nil {
		return store.Object{}, err
	}
	defer end()
	sh := &shot{want: mediaForm}
	r, err := c.object().NewReader(sh.in(c.ctx))
	if err != nil {
		if a := answerOf(err, sh.hidden()); a != nil && a.code == http.StatusNotFound {
			return store.Object{}, c.missing(a)
		}
		return store.Object{}, c.failed(sh, false, err)
	}
	defer func() { _ = r.Close() }()
	if err := c.vetReader(sh, r, limit); err != nil {
		return store.Object{}, err
	}
	body, err := io.ReadAll(io.LimitReader(r, min(int64(limit), math.MaxInt64-1)+1))
	switch {
	case err != nil:
		return store.Object{}, c.failed(sh, false, err)
	case len(body) > limit:
		return store.Object{}, c.tooLarge(int64(len(body)), limit)
	case r.Attrs.Size >= 0 && r.Attrs.Size != int64(len(body)):
		return store.Object{}, c.fail(store.ErrUnavailable, fmt.Sprintf("the body has %d of %d bytes", len(body), r.Attrs.Size), nil)
	}
	return store.Object{Body: body, Version: version(r.Attrs.Generation), Modified: r.Attrs.LastModified}, nil
}

// vetReader refuses a reply that is not the whole, unchanged object.
func (c *call) vetReader(sh *shot, r *storage.Reader, limit int) error {
	status, header := sh.reply()
	stored := header.Get("X-Goog-Stored-Content-Encoding")
	switch {
	case status != http.StatusOK:
		return c.fail(store.ErrUnavailable, fmt.Sprintf("the server answered %d to a request for the whole object", status), nil)
	case r.Attrs.Generation <= 0:
		return c.fail(store.ErrUnavailable, "the reply names no generation; a proxy is in the way", nil)
	case stored != "" && stored != "identity":
		return c.fail(store.ErrCorrupt, "the object is stored with a content encoding, as this program never does", nil)
	case r.Attrs.Decompressed, r.Attrs.ContentEncoding != "" && r.Attrs.ContentEncoding != "identity":
		return c.fail(store.ErrUnavailable, "the reply was encoded although that was declined; a proxy is in the way", nil)
	case r.Attrs.Size > int64(limit):
		return c.tooLarge(r.Attrs.Size, limit)
	}
	return nil
}

func (c *call) tooLarge(size int64, limit int) error {
	return c.fail(store.ErrCorrupt, fmt.Sprintf("the body has at least %d bytes, at most %d are accepted", size, limit), nil)
}

// missing is the error of a read that was answered 404: ErrNotFound only if it
// is sure that it is the object that is not there (ST3).
func (c *call) missing(a *answer) error {
	if err := c.proveAbsent(a); err != nil {
		return err
	}
	return c.fail(store.ErrNotFound, "", nil)
}

// proveAbsent returns nil if an answer of 404 is about the object and not about
// the bucket. Where its words leave that open, a listing decides: it fails if
// the bucket is missing.
func (c *call) proveAbsent(a *answer) error {
	switch {
	case a.noObject():
		return nil
	case a.noBucket():
		return c.fail(store.ErrInvalid, a.advice(c.op), a)
	}
	name := c.s.prefix + c.key
	sh := &shot{want: pageForm}
	it := c.s.bucket.Objects(sh.in(c.ctx), nameQuery(name, ""))
	it.PageInfo().MaxSize = 1
	found, err := it.Next()
	switch {
	case errors.Is(err, iterator.Done):
		return nil
	case err != nil:
		return c.failed(sh, false, err)
	case found.Name == name:
		return c.fail(store.ErrUnavailable, "the server says that the object is absent, and lists it", a)
	}
	return nil
}

// present looks whether the key's object exists, and at which generation.
func (c *call) present() (generation int64, found bool, err error) {
	sh := &shot{want: metaForm}
	attrs, err := c.object().Attrs(sh.in(c.ctx))
	if err == nil {
		if attrs.Generation <= 0 || attrs.Name != c.s.prefix+c.key {
			return 0, false, c.fail(store.ErrUnavailable, "the reply does not describe the object; a proxy is in the way", nil)
		}
		return attrs.Generation, true, nil
	}
	if a := answerOf(err, sh.hidden()); a != nil && a.code == http.StatusNotFound {
		return 0, false, c.proveAbsent(a)
	}
	return 0, false, c.failed(sh, false, err)
}

func nameQuery(prefix, start string) *storage.Query {
	q := &storage.Query{Prefix: prefix, StartOffset: start, Projection: storage.ProjectionNoACL}
	_ = q.SetAttrSelection([]string{"Name"}) // fails for unknown names only
	return q
}

// List yields the keys that start with prefix and are greater than after, in
// byte order (ST6). Objects whose names are no keys, such as a console's
// folders, are passed over.
func (s *Store) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := store.CtxErr(ctx, s.identity, "list", ""); err != nil {
			yield("", err)
			return
		}
		c, end := s.call(ctx, "list", "", false)
		defer end()
		start := ""
		if after != "" {
			start = s.prefix + after // inclusive; after itself is passed over below
		}
		sh := &shot{want: pageForm, pages: true}
		it := s.bucket.Objects(sh.in(c.ctx), nameQuery(s.prefix+prefix, start))
		for last := after; ; {
			key, err := c.nextKey(sh, it, prefix)
			switch {
			case errors.Is(err, iterator.Done):
				return
			case err != nil:
				yield("", err)
				return
			case key == after || key == "":
				continue
			case key <= last:
				yield("", c.fail(store.ErrUnavailable, fmt.Sprintf("the listing is out of order: %q after %q", key, last), nil))
				return
			}
			last = key
			if !yield(key, nil) {
				return
			}
		}
	}
}

// nextKey takes the next object of a listing. It gives the empty key for one
// whose name is no key, and iterator.Done at the end.
func (c *call) nextKey(sh *shot, it *storage.ObjectIterator, prefix string) (string, error) {
	if err := store.CtxErr(c.caller, c.s.identity, c.op, ""); err != nil {
		return "", err
	}
	if !c.s.enter() {
		return "", c.s.errClosed(c.op, "")
	}
	defer c.s.leave()
	attrs, err := it.Next()
	if errors.Is(err, iterator.Done) {
		return "", iterator.Done
	}
	if err != nil {
		return "", c.failed(sh, false, err)
	}
	key, ok := strings.CutPrefix(attrs.Name, c.s.prefix)
	if !ok || !strings.HasPrefix(key, prefix) {
		return "", c.fail(store.ErrUnavailable, fmt.Sprintf("the listing of %q has an object %.100q", c.s.prefix+prefix, attrs.Name), nil)
	}
	if store.CheckKey(key) != nil {
		return "", nil
	}
	return key, nil
}

// version is the mark of a generation.
func version(generation int64) store.Version {
	return store.Version(strconv.FormatInt(generation, 10))
}

// generation is version's inverse; false for a mark that this store never gave.
// A mark that reads as 0 would become the condition "does not exist".
func generation(v store.Version) (int64, bool) {
	g, err := strconv.ParseInt(string(v), 10, 64)
	return g, err == nil && g > 0 && version(g) == v
}
