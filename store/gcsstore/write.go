package gcsstore

import (
	"context"
	"errors"
	"hash/crc32"
	"net/http"

	"cloud.google.com/go/storage"

	"github.com/tenure-project/tenure/store"
)

// cacheControl keeps caches from serving an old record of a bucket that
// somebody made public, and the server from changing what it sends.
const cacheControl = "private, no-store, no-transform"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Create stores body only if key is absent (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	c, end, err := s.beginWrite(ctx, "create", key, body)
	if err != nil {
		return "", err
	}
	defer end()
	v, a, err := c.put(storage.Conditions{DoesNotExist: true}, body)
	switch {
	case a == nil || a.code != http.StatusPreconditionFailed || a.kind(true) == store.ErrDenied:
		return v, err
	case a.condition():
		return "", c.fail(store.ErrExists, "", nil)
	}
	// Refused, but not in the words of a refused condition.
	g, found, err := c.present()
	switch {
	case err != nil:
		return "", err
	case found:
		return "", c.fail(store.ErrExists, "it is at version "+string(version(g)), nil)
	}
	return "", c.fail(store.ErrUnavailable, "the server refused to create an absent object", a)
}

// Replace stores body only if key is at exactly version v (ST2). A refusal
// costs a read: Cloud Storage answers the same whether the object is absent or
// at another generation, so what the read finds is the answer. It is the truth
// of that instant, which lies within the call; v itself never comes back.
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	c, end, err := s.beginWrite(ctx, "replace", key, body)
	if err != nil {
		return "", err
	}
	defer end()
	g, ok := generation(v)
	if !ok {
		return "", c.refused(0, nil)
	}
	w, a, err := c.put(storage.Conditions{GenerationMatch: g}, body)
	if a != nil && undecided(a) {
		return "", c.refused(g, a)
	}
	return w, err
}

// undecided reports whether an answer to a conditional write refuses it because
// of the object's state, without saying which that is.
func undecided(a *answer) bool {
	switch a.code {
	case http.StatusPreconditionFailed:
		return a.kind(true) != store.ErrDenied
	case http.StatusNotFound:
		return !a.noBucket()
	}
	return false
}

// refused decides by a read how a write at generation g was refused; g is 0 if
// nothing was sent because there is no such generation. Nothing happened in any
// case.
func (c *call) refused(g int64, a *answer) error {
	if a != nil && a.noObject() {
		return c.fail(store.ErrNotFound, "", nil)
	}
	at, found, err := c.present()
	switch {
	case err != nil:
		return err
	case !found:
		return c.fail(store.ErrNotFound, "", nil)
	case at == g:
		return c.fail(store.ErrUnavailable, "the server refused a write at the version that the object has", a)
	}
	return c.fail(store.ErrConflict, "it is at version "+string(version(at)), nil)
}

func (s *Store) beginWrite(ctx context.Context, op, key string, body []byte) (*call, func(), error) {
	if len(body) > MaxBody {
		return nil, nil, store.Errorf(store.ErrInvalid, s.identity, op, key, "the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.begin(ctx, op, key, true)
}

// put uploads body in one request. If the server answered no, its answer is
// given beside the error.
func (c *call) put(cond storage.Conditions, body []byte) (store.Version, *answer, error) {
	sh := &shot{want: metaForm}
	w := c.object().If(cond).NewWriter(sh.in(c.ctx))
	w.ChunkSize = 0 // one request, not a resumable session
	w.ContentType = "application/octet-stream"
	w.CacheControl = cacheControl
	w.SendCRC32C, w.CRC32C, w.DisableAutoChecksum = true, crc32.Checksum(body, castagnoli), true
	_, writeErr := w.Write(body)
	err := w.Close()
	if err == nil {
		err = writeErr
	}
	if err != nil {
		return "", answerOf(err, sh.hidden()), c.failed(sh, true, err)
	}
	if got := w.Attrs(); got == nil || got.Generation <= 0 || got.Name != c.s.prefix+c.key || got.Size != int64(len(body)) {
		return "", nil, c.failed(sh, true, errors.New("the reply says success, but does not describe the object that was written"))
	}
	return version(w.Attrs().Generation), nil, nil
}

// Delete removes key; an absent key is a success (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	c, end, err := s.begin(ctx, "delete", key, true)
	if err != nil {
		return err
	}
	defer end()
	a, err := c.remove(c.object())
	if a != nil && a.code == http.StatusNotFound {
		return c.proveAbsent(a)
	}
	return err
}

// DeleteIf removes key if it is at version v (ST5). Cloud Storage decides the
// condition and the delete as one; an emulator may not, so nothing rests on it
// before a probe has raced the two (LS15).
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	c, end, err := s.begin(ctx, "delete-if", key, true)
	if err != nil {
		return err
	}
	defer end()
	g, ok := generation(v)
	if !ok {
		return c.refused(0, nil)
	}
	a, err := c.remove(c.object().If(storage.Conditions{GenerationMatch: g}))
	if a != nil && undecided(a) {
		return c.refused(g, a)
	}
	return err
}

func (c *call) remove(o *storage.ObjectHandle) (*answer, error) {
	sh := &shot{want: doneForm}
	err := o.Delete(sh.in(c.ctx))
	if err == nil {
		return nil, nil
	}
	return answerOf(err, sh.hidden()), c.failed(sh, true, err)
}
