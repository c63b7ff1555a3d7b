package azurestore

import (
	"bytes"
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"

	"github.com/tenure-project/tenure/store"
)

// Create stores body if key is absent, by one Put Blob with If-None-Match: *
// (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	c, err := s.beginWrite(ctx, opCreate, key, body)
	if err != nil {
		return "", err
	}
	defer c.end()
	return c.put(body, &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)}, "")
}

// Replace stores body if key is at version v, by one Put Blob with If-Match
// (ST2). Azure refuses another version and an absent key with the same answer;
// a read after the refusal tells them apart. If that read fails, the error is
// its own (ErrUnavailable or ErrDenied): the write certainly did not happen.
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	c, err := s.beginWrite(ctx, opReplace, key, body)
	if err != nil {
		return "", err
	}
	defer c.end()
	if !sendable(v) {
		return "", c.whyRefused(v)
	}
	return c.put(body, &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(quoted(v)))}, v)
}

func (s *Store) beginWrite(ctx context.Context, op, key string, body []byte) (*call, error) {
	if len(body) > MaxBody {
		return nil, store.Errorf(store.ErrInvalid, s.identity, op, key, "a body has at most %d bytes, this one %d", MaxBody, len(body))
	}
	return s.beginKey(ctx, op, key)
}

// put sends one Put Blob. v is the version that it replaces, "" for none.
func (c *call) put(body []byte, cond *blob.ModifiedAccessConditions, v store.Version) (store.Version, error) {
	x := c.exchange()
	defer x.done()
	// A transport may read the body after it has returned, so it gets a copy.
	_, err := c.s.blob(c.key).Upload(x.ctx, readSeekCloser{bytes.NewReader(bytes.Clone(body))}, &blockblob.UploadOptions{
		// A cache on the way must not keep a record.
		HTTPHeaders:      &blob.HTTPHeaders{BlobCacheControl: to.Ptr("no-store")},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: cond},
	})
	if x.resp == nil {
		return "", c.noAnswer(x, err, true)
	}
	if x.resp.Header.Get("X-Ms-Version-Id") != "" {
		c.s.versioned.Store(true)
	}
	if x.resp.StatusCode == http.StatusCreated {
		if got := versionOf(x.resp.Header); got != "" {
			return got, nil
		}
		return "", c.errorf(store.ErrUnknown, "the store took the write but named no usable ETag; does a proxy change its answers?")
	}
	a := c.answer(x, err)
	switch {
	case a.conditionNotMet() && v != "":
		return "", c.whyRefused(v)
	case a.conditionNotMet(), a.status == http.StatusConflict && a.code == "BlobAlreadyExists" && v == "":
		return "", c.errorf(store.ErrExists, "%s", a)
	case a.absent() && v != "":
		return "", c.errorf(store.ErrNotFound, "%s", a)
	}
	return "", c.refusal(a, true)
}

// whyRefused tells, after a conditional write was refused or could not be sent,
// whether the key is absent or at another version than v. The write certainly
// did not happen, so every failure to find out is one where nothing happened.
func (c *call) whyRefused(v store.Version) error {
	c.need = opGet
	x := c.exchange()
	defer x.done()
	_, err := c.s.blob(c.key).GetProperties(x.ctx, nil)
	if x.resp == nil {
		return c.noAnswer(x, err, false)
	}
	a := c.answer(x, err)
	switch got := versionOf(x.resp.Header); {
	case a.absent():
		return c.errorf(store.ErrNotFound, "there is no blob of this name")
	case a.status != http.StatusOK:
		return c.refusal(a, false)
	case got == "":
		return c.errorf(store.ErrUnavailable, "the store refused the write, and a read afterwards showed no usable ETag; does a proxy change its answers?")
	case got == v:
		return c.errorf(store.ErrUnavailable, "the store refused the write from version %q but shows just that one; does a cache answer reads?", v)
	default:
		return c.errorf(store.ErrConflict, "it is at version %q, not %q", got, v)
	}
}

// Delete removes key, with its snapshots if somebody made any; an absent key is
// a success (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	c, err := s.beginKey(ctx, opDelete, key)
	if err != nil {
		return err
	}
	defer c.end()
	return c.remove(nil, "")
}

// DeleteIf removes key, with its snapshots, if it is at version v, by one Delete
// Blob with If-Match (ST5, LS15). A refusal is explained as in Replace.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	c, err := s.beginKey(ctx, opDeleteIf, key)
	if err != nil {
		return err
	}
	defer c.end()
	if !sendable(v) {
		return c.whyRefused(v)
	}
	return c.remove(&blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(quoted(v)))},
	}, v)
}

// remove sends one Delete Blob. v is the version that it is bound to, "" for any.
func (c *call) remove(cond *blob.AccessConditions, v store.Version) error {
	x := c.exchange()
	defer x.done()
	_, err := c.s.blob(c.key).Delete(x.ctx, &blob.DeleteOptions{
		DeleteSnapshots:  to.Ptr(blob.DeleteSnapshotsOptionTypeInclude),
		AccessConditions: cond,
	})
	if x.resp == nil {
		return c.noAnswer(x, err, true)
	}
	if x.resp.StatusCode == http.StatusAccepted {
		return nil
	}
	a := c.answer(x, err)
	switch {
	case a.absent() && v == "":
		return nil
	case a.absent():
		return c.errorf(store.ErrNotFound, "%s", a)
	case a.conditionNotMet() && v != "":
		return c.whyRefused(v)
	}
	return c.refusal(a, true)
}

// readSeekCloser is a body that the SDK can measure; closing it does nothing.
type readSeekCloser struct{ *bytes.Reader }

func (readSeekCloser) Close() error { return nil }
