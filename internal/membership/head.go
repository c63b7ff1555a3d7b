package membership

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Head is one linearizable look at a node's record.
type Head struct {
	// Node is the name.
	Node string
	// Record is nil where there is none.
	Record *identity.Record
	// Version is the state's.
	Version store.Version
	// Body are the record's bytes.
	Body []byte
	// At is the boot clock after the response.
	At time.Duration
	// Modified is when it was written, by the store's clock; zero where it keeps
	// no such time.
	Modified time.Time
}

// Read looks at node's record once. With an error of Config.Seen it returns what
// it found as well.
func (i *Identities) Read(ctx context.Context, node string) (Head, error) {
	h := Head{Node: node}
	if err := store.CheckName("node name", node); err != nil {
		return h, err
	}
	key := i.recordKey(node)
	// What is seen by others while the read is under way says nothing of it.
	seen := i.cfg.Seen(node)
	call, cancel := i.limit(ctx)
	defer cancel()
	o, err := i.cfg.Store.Get(call, key, identity.MaxBody)
	h.Version, h.Body, h.Modified, h.At = o.Version, o.Body, o.Modified, i.cfg.Clock.Boot()
	if errors.Is(err, store.ErrNotFound) {
		return h, seen(0)
	}
	if err != nil {
		return h, err
	}
	if h.Record, err = identity.Decode(key, node, o.Body); err != nil {
		return h, err
	}
	return h, seen(h.Record.Counter)
}

// Certificate reads what is sealed under name (PL3); nil if nothing is.
func (i *Identities) Certificate(ctx context.Context, node, name string) (*identity.Certificate, error) {
	key := i.certificates(node) + name
	if err := errors.Join(store.CheckName("node name", node), store.CheckKey(key)); err != nil {
		return nil, err
	}
	call, cancel := i.limit(ctx)
	defer cancel()
	o, err := i.cfg.Store.Get(call, key, identity.MaxCertificate)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return identity.DecodeCertificate(key, node, name, o.Body)
}

// keys yields the keys under prefix after one. It ends with an error if the store
// does not come up with the next one within an attempt limit.
func (i *Identities) keys(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return settle.Keys(ctx, i.cfg.Store, i.cfg.Clock, i.cfg.Timing.Attempt, prefix, after)
}

// List yields the head of every node in the order of their keys. A record that
// cannot be read is yielded with its error, and the others follow; a listing that
// fails is the end.
func (i *Identities) List(ctx context.Context) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		for key, err := range i.keys(ctx, store.Prefix(i.cfg.Namespace, "identity"), "") {
			if err != nil {
				yield(Head{}, err)
				return
			}
			h, err := i.readKey(ctx, key)
			if !yield(h, err) {
				return
			}
		}
	}
}

// readKey reads the head at key, whose last element may hold only the digest of a
// long name; the record says the rest.
func (i *Identities) readKey(ctx context.Context, key string) (Head, error) {
	node, exact, err := store.DecodeName(key[strings.LastIndexByte(key, '/')+1:])
	if err != nil {
		return Head{}, err
	}
	if !exact {
		if node, err = i.nodeAt(ctx, key); err != nil {
			return Head{}, err
		}
	}
	h, err := i.Read(ctx, node)
	if err == nil && h.Record == nil {
		err = store.Errorf(store.ErrCorrupt, i.identityOfStore(), "list", key, "the record vanished: nothing removes an identity")
	}
	return h, err
}

func (i *Identities) nodeAt(ctx context.Context, key string) (string, error) {
	call, cancel := i.limit(ctx)
	defer cancel()
	o, err := i.cfg.Store.Get(call, key, identity.MaxBody)
	if err != nil {
		return "", err
	}
	var r identity.Record
	if err := record.Decode(key, o.Body, &r); err != nil {
		return "", err
	}
	if want := i.recordKey(r.Node); want != key {
		return "", store.Errorf(store.ErrCorrupt, i.identityOfStore(), "list", key, "the record says it belongs to %q, whose key is %q", r.Node, want)
	}
	return r.Node, nil
}

// History returns node's certificates that are left, by term, each once: the
// sealed ones and the one that the head carries. The last sealed may be missing
// while its sealing is under way.
func (i *Identities) History(ctx context.Context, node string) ([]*identity.Certificate, error) {
	h, err := i.Read(ctx, node)
	if err != nil {
		return nil, err
	}
	var all []*identity.Certificate
	if h.Record != nil && h.Record.Certificate != nil {
		all = append(all, h.Record.Certificate)
	}
	prefix := i.certificates(node)
	for key, err := range i.keys(ctx, prefix+"predecessor-", "") {
		if err != nil {
			return nil, err
		}
		c, err := i.Certificate(ctx, node, strings.TrimPrefix(key, prefix))
		if err != nil {
			return nil, err
		}
		if c != nil && (len(all) == 0 || !c.Equal(all[0])) { // nil: folded since it was listed
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *identity.Certificate) int { return cmp.Compare(a.Successor.Term, b.Successor.Term) })
	return all, nil
}
