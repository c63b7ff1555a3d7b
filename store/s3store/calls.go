package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenure-project/tenure/store"
)

// Get returns the present state of key (ST3, ST7).
func (s *Store) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	c, err := s.beginKey(ctx, opGet, key, nil)
	if err != nil {
		return store.Object{}, err
	}
	defer c.done()
	out, err := s.client.GetObject(c.ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.object(key)})
	if err == nil {
		defer out.Body.Close()
	}
	if err := c.settled(err); err != nil {
		return store.Object{}, err
	}
	return c.read(out, limit)
}

// read takes the body of a good answer, if it is what S3 sends.
func (c *call) read(out *s3.GetObjectOutput, limit int) (store.Object, error) {
	var none store.Object
	f := &c.flight
	tag := f.header.Get("Etag")
	encoding := f.header.Get("Content-Encoding")
	switch size := aws.ToInt64(out.ContentLength); {
	case f.status != http.StatusOK:
		return none, c.fail(store.ErrUnavailable, "answered %d to a request for a whole object", f.status)
	case encoding != "" && !strings.EqualFold(encoding, "identity") && encoding != "aws-chunked":
		return none, c.fail(store.ErrCorrupt, "the object came encoded as %q although it was asked for as it is: "+
			"take the proxy away that does this, or the object if it was stored so", clean(encoding, 40))
	case !strong(tag):
		return none, c.fail(store.ErrCorrupt, "the ETag %q is no version: a proxy on the way changed or removed it", clean(tag, 80))
	case out.ContentLength != nil && size > int64(limit):
		return none, c.fail(store.ErrCorrupt, "the body has %d bytes, the caller accepts %d", size, limit)
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, int64(limit)+1))
	if err != nil {
		if ended := c.ended(); ended != nil {
			err = ended
		}
		return none, c.wrap(store.ErrUnavailable, bare(err), fmt.Sprintf("the body broke off after %d bytes", len(body)))
	}
	if len(body) > limit {
		return none, c.fail(store.ErrCorrupt, "the body has more than the %d bytes that the caller accepts", limit)
	}
	return store.Object{Body: body, Version: store.Version(tag), Modified: aws.ToTime(out.LastModified)}, nil
}

// Create stores body if key is absent (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	return s.put(ctx, opCreate, key, body, &s3.PutObjectInput{IfNoneMatch: aws.String("*")})
}

// Replace stores body if key is at version v (ST2).
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	if !strong(string(v)) {
		return "", s.noState(ctx, opReplace, key, body)
	}
	w, err := s.put(ctx, opReplace, key, body, &s3.PutObjectInput{IfMatch: aws.String(string(v))})
	return w, s.distinguish(ctx, key, err)
}

// put sends one conditional PutObject.
func (s *Store) put(ctx context.Context, op, key string, body []byte, in *s3.PutObjectInput) (store.Version, error) {
	c, err := s.beginKey(ctx, op, key, body)
	if err != nil {
		return "", err
	}
	defer c.done()
	in.Bucket, in.Key, in.Body = &s.bucket, s.object(key), bytes.NewReader(body)
	in.ContentLength = aws.Int64(int64(len(body)))
	in.ContentType, in.CacheControl = aws.String("application/octet-stream"), aws.String("no-store")
	_, err = s.client.PutObject(c.ctx, in)
	if err := c.settled(err); err != nil {
		return "", err
	}
	tag := c.flight.header.Get("Etag")
	switch {
	case c.flight.status != http.StatusOK:
		return "", c.fail(store.ErrUnknown, "%s, which S3 does not say of a write", c.said())
	case !strong(tag):
		return "", c.fail(store.ErrUnknown, "%s with the ETag %q, which is no version: a proxy on the way changed or removed it", c.said(), clean(tag, 80))
	}
	return store.Version(tag), nil
}

// noState answers for a version that no state can have, such as the zero one. It
// must not become a condition: If-Match: * would be met by any state.
func (s *Store) noState(ctx context.Context, op, key string, body []byte) error {
	c, err := s.beginKey(ctx, op, key, body)
	if err != nil {
		return err
	}
	c.done()
	_, err = s.Get(ctx, key, MaxBody)
	switch {
	case err == nil, errors.Is(err, store.ErrCorrupt): // there is something
		return c.fail(store.ErrConflict, "no state has the version that was given")
	case errors.Is(err, store.ErrNotFound):
		return c.fail(store.ErrNotFound, "")
	}
	return err
}

// distinguish tells an absent key from another version where the server answers
// 412 to both. The refusal is final, so nothing rests on the read but its name:
// the key was absent at a moment of this call, and whoever replaces then is told
// ErrNotFound. If the read fails, the refusal stands.
func (s *Store) distinguish(ctx context.Context, key string, refused error) error {
	if !s.asks || !errors.Is(refused, store.ErrConflict) {
		return refused
	}
	_, err := s.Get(ctx, key, MaxBody)
	var e *store.Error
	if !errors.Is(err, store.ErrNotFound) || !errors.As(refused, &e) {
		return refused
	}
	return store.Errorf(store.ErrNotFound, e.Store, e.Op, e.Key, "%s; a read then found no such key", e.Detail)
}

// Delete removes key, if it is there (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.remove(ctx, opDelete, key, nil)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// DeleteIf removes key if it is at version v. Config.ConditionalDelete says when
// it is a power of the store (ST5, LS15).
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	if !strong(string(v)) {
		return s.noState(ctx, opDeleteIf, key, nil)
	}
	return s.distinguish(ctx, key, s.remove(ctx, opDeleteIf, key, aws.String(string(v))))
}

func (s *Store) remove(ctx context.Context, op, key string, match *string) error {
	c, err := s.beginKey(ctx, op, key, nil)
	if err != nil {
		return err
	}
	defer c.done()
	_, err = s.client.DeleteObject(c.ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: s.object(key), IfMatch: match})
	if err := c.settled(err); err != nil {
		return err
	}
	if st := c.flight.status; st != http.StatusNoContent && st != http.StatusOK {
		return c.fail(store.ErrUnknown, "%s, which S3 does not say of a delete", c.said())
	}
	return nil
}

// settled judges an answer, and sees to it that credentials which were refused
// are read anew for the next call (CASE B65).
func (c *call) settled(err error) error {
	err = c.judge(err)
	if err != nil && c.s.creds != nil && c.flight.refused() {
		c.s.creds.refresh()
	}
	return err
}
