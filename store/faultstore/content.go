package faultstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/tenure-project/tenure/store"
)

// contentStore gives equal bodies an equal version, as an MD5 ETag does. It
// translates versions on the way in and out; everything else is the inner
// store's.
type contentStore struct {
	store.Store
}

func digest(body []byte) store.Version {
	sum := sha256.Sum256(body)
	return store.Version(hex.EncodeToString(sum[:8]))
}

// Info takes away the powers that contentStore does not translate.
func (c contentStore) Info() store.Info {
	i := c.Store.Info()
	i.Can &= store.CanDeleteIf | store.CanModTime
	return i
}

func (c contentStore) Get(ctx context.Context, key string, limit int) (store.Object, error) {
	o, err := c.Store.Get(ctx, key, limit)
	if err == nil {
		o.Version = digest(o.Body)
	}
	return o, err
}

func (c contentStore) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	if _, err := c.Store.Create(ctx, key, body); err != nil {
		return "", err
	}
	return digest(body), nil
}

func (c contentStore) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	err := c.at(ctx, key, v, func(real store.Version) error {
		_, err := c.Store.Replace(ctx, key, body, real)
		return err
	})
	if err != nil {
		return "", err
	}
	return digest(body), nil
}

func (c contentStore) DeleteIf(ctx context.Context, key string, v store.Version) error {
	d, _ := store.AsConditionalDeleter(c.Store)
	return c.at(ctx, key, v, func(real store.Version) error { return d.DeleteIf(ctx, key, real) })
}

// at runs write at the inner version while the key holds what v is the digest
// of, whichever state that is.
func (c contentStore) at(ctx context.Context, key string, v store.Version, write func(real store.Version) error) error {
	for {
		o, err := c.Store.Get(ctx, key, c.Store.Info().MaxBody)
		if err != nil {
			return err
		}
		real := o.Version
		if digest(o.Body) != v {
			real = v // certainly another one, so that the inner store refuses in its own words
		}
		err = write(real)
		if !errors.Is(err, store.ErrConflict) || real == v {
			return err
		}
	}
}
