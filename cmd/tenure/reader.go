package main

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/tenure-project/tenure"
)

// withReader runs f for a command that only looks: it leaves no trace in the
// store, and a namespace that does not exist reads as empty. So does the default
// store; another store that does not exist was misspelt, perhaps, and is refused.
func (a *app) withReader(ctx context.Context, f func(c *tenure.Client) error) error {
	t, err := a.target()
	if err != nil {
		return err
	}
	switch err := t.exists(); {
	case err != nil && t.folder != "":
		opts := []tenure.Option{tenure.WithNamespace(t.namespace), tenure.WithClock(a.clk), tenure.WithoutCreate()}
		c, err := tenure.Open(ctx, "mem:", opts...) // as empty as the store that is not there
		if err != nil {
			return err
		}
		return errors.Join(f(c), c.Close())
	case err != nil:
		return err
	}
	return a.withStoreOf(ctx, t, f)
}

// withExisting is withReader for a command that needs a store that is there,
// also where it is the default one.
func (a *app) withExisting(ctx context.Context, f func(c *tenure.Client) error) error {
	t, err := a.target()
	if err == nil {
		err = t.exists()
	}
	if err != nil {
		return err
	}
	return a.withStoreOf(ctx, t, f)
}

func (a *app) withStoreOf(ctx context.Context, t target, f func(c *tenure.Client) error) error {
	c, err := tenure.Open(ctx, t.withoutMaking(), append(a.options(t), tenure.WithoutCreate())...)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}

// exists is an error if the store is of local files, and they are not there.
func (t target) exists() error {
	path := storePath(t.url)
	u, err := url.Parse(t.url)
	if err != nil || path == "" || u.Host != "" || u.User != nil || u.Fragment != "" {
		return nil // a URL that is wrong is refused by the driver, in its words
	}
	for name := range u.Query() {
		if name != "namespace" && name != "create" {
			return nil
		}
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return invalid("there is no store at %s: check the path; `tenure store init` and `tenure run` make one", path)
	}
	return nil // whatever else is wrong, opening it will show
}

// withoutMaking is the store's URL, with the driver told to make nothing.
func (t target) withoutMaking() string {
	u, err := url.Parse(t.url)
	if err != nil || storePath(t.url) == "" || u.Query().Has("create") {
		return t.url
	}
	q := u.Query()
	q.Set("create", "no")
	u.RawQuery = q.Encode()
	return u.String()
}

// storePath is the folder or file of a store of local files, "" for others.
func storePath(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "file" && u.Scheme != "sqlite" {
		return ""
	}
	path := u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return ""
		}
	}
	return filepath.FromSlash(path)
}
