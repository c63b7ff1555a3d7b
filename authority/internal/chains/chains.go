// Package chains is what the clients of the chains share: reading one decision by
// its link, walking a chain while compactions come between, and objects that are
// created once.
package chains

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Walks is how often a walk begins anew because the chain changed under it. Each time
// a decision or a compaction came between, which takes a leader two writes: a reader
// that loses four races in a row is slower than its leader decides, and is told so.
const Walks = 4

// Decision is one decision that a link names, verified.
type Decision struct {
	Item  core.Item
	Entry *core.Entry
	Proof tenure.Proof
}

// Decode reads the decision that l links: its entry and its blob are the linked
// bytes, and r accepts them; anything else is ErrCorrupt. One that is not there is
// ErrNotFound: whoever got l from an older head reads the head again (LA4, LA5).
func Decode(ctx context.Context, rd *authority.Reader, r core.Rules, l core.Link) (Decision, error) {
	element := l.Name().Element()
	body, err := rd.Object(ctx, string(core.KindEntry), element, core.MaxEntry)
	if err != nil {
		return Decision{}, err
	}
	key := rd.Key(string(core.KindEntry), element)
	if body == nil {
		return Decision{}, store.Errorf(store.ErrNotFound, "", "read", key, "the entry of key %d is not there", l.Key)
	}
	if core.DigestOf(core.EntryDomain, body) != l.Digest {
		return Decision{}, store.Errorf(store.ErrCorrupt, "", "read", key, "the entry's bytes are not the linked ones")
	}
	var e core.Entry
	if err := record.Decode(key, body, &e); err != nil {
		return Decision{}, err
	}
	blob, err := blobOf(ctx, rd, &e)
	if err != nil {
		return Decision{}, err
	}
	it, err := core.Verify(r, key, &e, blob)
	if err != nil {
		return Decision{}, err
	}
	return Decision{Item: it, Entry: &e, Proof: tenure.Proof(e.Proof)}, nil
}

func blobOf(ctx context.Context, rd *authority.Reader, e *core.Entry) ([]byte, error) {
	n, ok := e.BlobName()
	if !ok {
		return nil, nil
	}
	blob, err := rd.Object(ctx, string(n.Kind), n.Element(), core.MaxBlob)
	if err == nil && blob == nil {
		err = store.Errorf(store.ErrNotFound, "", "read", rd.Key(string(n.Kind), n.Element()), "the blob of the entry of key %d is not there", e.Key)
	}
	return blob, err
}

// Reread reads the head and calls f with it, again if what f read was given up while the
// chain moved on. What is missing at an unchanged chain that has entries is ErrCorrupt:
// something that was decided names it.
func Reread(ctx context.Context, rd *authority.Reader, chain string, f func(s authority.Snapshot) error) error {
	var err error
	for range Walks {
		var s authority.Snapshot
		if s, err = rd.Snapshot(ctx); err != nil {
			return err
		}
		if err = f(s); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if s.Validate(ctx, authority.Part(chain)) == nil {
			if _, decided := s.Chain(chain); decided {
				err = store.Errorf(store.ErrCorrupt, "", "read", rd.Name(), "chain %s: %v", chain, err)
			}
			return err
		}
	}
	return err
}

// Walker walks one chain of one authority again and again. Entries that it verified
// once are not read again. It is safe for concurrent use.
type Walker struct {
	Reader *authority.Reader
	Chain  string

	last atomic.Pointer[core.Trail]
}

// Walk reads the head and walks the chain to its end. A chain that changed meanwhile is
// walked again; a break at an unchanged head is a *authority.BrokenError.
func (w *Walker) Walk(ctx context.Context) (authority.Snapshot, *core.Trail, error) {
	var s authority.Snapshot
	var err error
	for range Walks {
		if s, err = w.Reader.Snapshot(ctx); err != nil {
			return s, nil, err
		}
		var t *core.Trail
		if t, err = w.Reader.Walk(ctx, s, w.Chain, w.last.Load()); err == nil {
			w.last.Store(t)
			return s, t, nil
		}
		if !errors.As(err, new(*authority.BrokenError)) {
			return s, nil, err
		}
		if s.Validate(ctx, authority.Part(w.Chain)) == nil {
			return s, nil, err
		}
	}
	return s, nil, err
}

// Create makes the object at key, which is created once and never changed. It
// returns the bytes that stand there then, and whether they are body: what stood
// there before, or came first, wins. limit bounds what is read back.
func Create(ctx context.Context, c *kit.Client, key string, body []byte, limit int) (stands []byte, ours bool, err error) {
	w := settle.Write{Key: key, Body: body, Limit: limit, Mine: func(found []byte) bool { return bytes.Equal(found, body) }}
	_, err = settle.Do(ctx, c.Store, w, c.Pace(c.Timing))
	if err == nil {
		return body, true, nil
	}
	if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrConflict) {
		return nil, false, err
	}
	o, err := c.Store.Get(ctx, key, limit)
	if err != nil {
		return nil, false, err
	}
	return o.Body, bytes.Equal(o.Body, body), nil
}

// Standing is Decode for a link that nothing may have taken away: one that is not
// there is ErrCorrupt.
func Standing(ctx context.Context, rd *authority.Reader, r core.Rules, l core.Link) (Decision, error) {
	d, err := Decode(ctx, rd, r, l)
	if errors.Is(err, store.ErrNotFound) {
		err = store.Wrap(store.ErrCorrupt, "", "read", r.Chain(), err)
	}
	return d, err
}
