package membership

import (
	"bytes"
	"context"
	"errors"

	"github.com/tenure-project/tenure/internal/core/identity"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Seal makes c stand under both of its names, create-only and in order, and
// reads back what stood there before (PL3). c must come from a record that was
// read, or whose write is known to be applied. Other bytes under one of the names
// are ErrCorrupt. It rides out a store that is unavailable until ctx ends.
func (i *Identities) Seal(ctx context.Context, c *identity.Certificate) (identity.Sealed, error) {
	return i.seal(ctx, c, i.pace())
}

func (i *Identities) seal(ctx context.Context, c *identity.Certificate, p settle.Pace) (identity.Sealed, error) {
	want, err := c.Encode()
	if err != nil {
		return identity.Sealed{}, err
	}
	var stand [2][]byte
	for n, name := range c.Names() {
		if stand[n], err = i.sealUnder(ctx, i.certificates(c.Node)+name, want, p); err != nil {
			return identity.Sealed{}, err
		}
	}
	return identity.Seal(c, stand)
}

// sealUnder creates want at key and returns what stands there then.
func (i *Identities) sealUnder(ctx context.Context, key string, want []byte, p settle.Pace) ([]byte, error) {
	for {
		_, err := settle.Do(ctx, i.cfg.Store, settle.Write{
			Key: key, Body: want, Limit: identity.MaxCertificate,
			Mine: func(b []byte) bool { return bytes.Equal(b, want) }, // whoever wrote them
		}, p)
		if err == nil {
			return want, nil
		}
		if !errors.Is(err, store.ErrExists) {
			return nil, err
		}
		switch stands, err := i.body(ctx, key, p); {
		case err == nil:
			return stands, nil
		case !errors.Is(err, store.ErrNotFound): // removed in between: create it again
			return nil, err
		}
	}
}

// body reads key until the store answers, or ctx ends.
func (i *Identities) body(ctx context.Context, key string, p settle.Pace) ([]byte, error) {
	for wait := p.Backoff; ; wait = min(2*wait, 16*p.Backoff) {
		call, cancel := settle.Limit(ctx, p.Clock, p.Attempt)
		o, err := i.cfg.Store.Get(call, key, identity.MaxCertificate)
		cancel()
		if store.KindOf(err) != store.ErrUnavailable || !i.pause(ctx, wait) {
			return o.Body, err
		}
	}
}

// sealOf seals the certificate that r carries, if it carries one (PL4).
func (i *Identities) sealOf(ctx context.Context, r *identity.Record, p settle.Pace) (identity.Sealed, error) {
	if r.Certificate == nil {
		return identity.Sealed{}, nil
	}
	return i.seal(ctx, r.Certificate, p)
}
