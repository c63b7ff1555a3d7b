package filestore

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// scheme is the URL scheme of the driver.
const scheme = "file"

// driverName changes whenever a probe should look at the store again.
const driverName = "filestore/1"

// Option changes how Open opens a directory.
type Option func(*config)

// config is what options set.
type config struct {
	network bool
	// mustExist: nothing is made that is not a store yet.
	mustExist bool
	grace     graces
	tracer    tracer // tests only
	// remote tells a network file system; tests replace it.
	remote func(path string) (name string, remote bool, err error)
}

// graces are how long a store waits for others before it goes on without them.
type graces struct {
	// clear is how long those who clear away after others wait for them: for a
	// delete to clear its own life away, and for a writer to see that it won.
	clear time.Duration
	// close is how long Close waits for system calls to return.
	close time.Duration
}

var defaultGraces = graces{clear: 25 * time.Millisecond, close: 2 * time.Second}

// WithNetworkFS allows a directory on a network file system or one that a user
// program serves (FUSE). Its processes must all be on one machine even then,
// because such a file system may show another machine's writes late. The store
// has neither a waiting line nor proof of death there, and its watches poll.
func WithNetworkFS() Option { return func(c *config) { c.network = true } }

// MustExist makes it an error that there is no store in the directory yet, so
// that a misspelt path does not become a second, empty world. Open then writes
// nothing and answers store.ErrInvalid.
func MustExist() Option { return func(c *config) { c.mustExist = true } }

// Driver opens `file:` URLs: file:///absolute/path, file:/absolute/path or
// file:relative/path. The parameter network=allow is [WithNetworkFS],
// and create=no is [MustExist] (UI4). A leading ~ is refused, because only a
// shell expands it.
func Driver() store.Driver {
	return store.Driver{Scheme: scheme, Open: openURL}
}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	path, opts, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	if err := store.CtxErr(ctx, scheme, "open", ""); err != nil {
		return nil, err
	}
	type answer struct {
		s   *Store
		err error
	}
	done := make(chan answer, 1)
	go func() {
		s, err := Open(path, opts...)
		done <- answer{s, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return nil, a.err
		}
		return a.s, nil
	case <-ctx.Done(): // a disk that does not answer; what is opened late is closed
		go func() {
			if a := <-done; a.err == nil {
				_ = a.s.Close()
			}
		}()
		return nil, store.CtxErr(ctx, scheme, "open", "")
	}
}

// parseURL checks everything in u before anything is touched.
func parseURL(u *url.URL) (path string, opts []Option, err error) {
	bad := func(format string, args ...any) (string, []Option, error) {
		return "", nil, store.Errorf(store.ErrInvalid, scheme, "open", "", format, args...)
	}
	if err := store.CheckParams(u, "network", "create"); err != nil {
		return "", nil, err
	}
	switch network := u.Query().Get("network"); {
	case network == "allow":
		opts = append(opts, WithNetworkFS())
	case u.Query().Has("network"):
		return bad("the parameter network has the value %q; the only one is \"allow\"", network)
	}
	switch create := u.Query().Get("create"); create {
	case "", "yes":
	case "no":
		opts = append(opts, MustExist())
	default:
		return bad("create=%q: say yes or no", create)
	}
	switch {
	case u.Host != "" && u.Host != "localhost", u.User != nil:
		return bad("the URL names the host %q; write file:///absolute/path or file:relative/path", u.Host)
	case u.Fragment != "":
		return bad("the URL has a fragment %q; write %%23 for a # in the path", u.Fragment)
	}
	path = u.Path
	if u.Opaque != "" {
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return bad("the path %q is not well escaped: %v", u.Opaque, err)
		}
	}
	if err := checkPath(path); err != nil {
		return "", nil, err
	}
	return path, opts, nil
}

// checkPath refuses what cannot be meant as a directory.
func checkPath(path string) error {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, scheme, "open", "", format, args...)
	}
	switch {
	case path == "":
		return bad("the path is empty; name the directory of the store")
	case path == "~" || strings.HasPrefix(path, "~/"):
		return bad("the path %q begins with ~, which only a shell expands; give the whole path", path)
	case strings.ContainsRune(path, 0):
		return bad("the path %q holds a NUL byte", path)
	}
	return nil
}
