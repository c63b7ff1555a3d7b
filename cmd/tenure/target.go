package main

import (
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// target is the store and namespace that a command works on.
type target struct {
	url       string
	namespace string
	folder    string // that must exist for the default store; else empty
}

// target finds store and namespace. The command line wins over the environment.
func (a *app) target() (target, error) {
	t := target{url: firstOf(a.flags.store, a.env.get(envStore))}
	if t.url == "" {
		path, err := defaultStore(a.env)
		if err != nil {
			return t, err
		}
		t.url, t.folder = (&url.URL{Scheme: "file", Path: slashed(path)}).String(), filepath.Dir(path)
	}
	var err error
	t.namespace, err = a.namespace()
	return t, err
}

// namespace finds the namespace, and checks what names the store on the way.
func (a *app) namespace() (string, error) {
	inURL := ""
	if raw := firstOf(a.flags.store, a.env.get(envStore)); raw != "" {
		var err error
		if inURL, err = a.checkURL(raw); err != nil {
			return "", err
		}
	}
	name, err := a.chooseNamespace(inURL)
	if err != nil {
		return "", err
	}
	return name, store.CheckName("namespace", name)
}

// chooseNamespace prefers what the command line says to what the environment
// says. Two answers from one of them are an error: acting in the wrong namespace
// would go unnoticed.
func (a *app) chooseNamespace(inURL string) (string, error) {
	flag, env := a.flags.namespace, a.env.get(envNamespace)
	if a.flags.store != "" {
		if flag != "" && inURL != "" && flag != inURL {
			return "", invalid("--store names the namespace %q, --namespace names %q: give one", inURL, flag)
		}
		return firstOf(flag, inURL, env, "default"), nil
	}
	if flag == "" && inURL != "" && env != "" && inURL != env {
		return "", invalid("%s names the namespace %q, %s names %q: give --namespace", envStore, inURL, envNamespace, env)
	}
	return firstOf(flag, inURL, env, "default"), nil
}

// checkURL refuses a scheme that this program has no driver for, and returns
// the namespace that the URL names. Everything else is the driver's to check.
// A URL can hold secrets: no message quotes it.
func (a *app) checkURL(raw string) (namespace string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return "", invalid("the store is not named by a URL: write file:///var/lib/tenure, sqlite:///var/lib/tenure.db, s3://bucket/prefix and so on (docs/cli.md has all)")
	}
	known := []string{"mem", "file"}
	for _, d := range a.drivers {
		known = append(known, d.Scheme)
	}
	if !slices.Contains(known, u.Scheme) {
		return "", invalid("there is no store of the kind %q; this program knows %s", u.Scheme, strings.Join(known, ", "))
	}
	return u.Query().Get("namespace"), nil
}

// prepare makes the folder that the default store lies in.
func (t target) prepare() error {
	if t.folder == "" {
		return nil
	}
	if err := os.MkdirAll(t.folder, 0o700); err != nil {
		return store.Wrap(tenure.ErrInvalid, "", "make the default store's folder (or give --store)", t.folder, err)
	}
	return nil
}

// pairs is the environment that leads a child to the same store and namespace,
// also from another folder. env is this process's own.
func (t target) pairs(env environment) ([]string, error) {
	handed, secret, err := handedStore(t.url)
	if err != nil {
		return nil, err
	}
	if secret && env.get(envStore) == t.url {
		handed = t.url // the child has it anyway
	}
	return []string{envStore, handed, envNamespace, t.namespace}, nil
}

// handedStore is raw as a child under a lease gets it: without a namespace, which
// has a variable of its own, with an absolute path, and without passwords, which
// are not the child's. secret says that there was one.
func handedStore(raw string) (handed string, secret bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false, invalid("the store is not named by a URL")
	}
	if u.Opaque != "" && (u.Scheme == "file" || u.Scheme == "sqlite") {
		path, err := url.PathUnescape(u.Opaque)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", false, invalid("the store's path cannot be made absolute: %v", err)
		}
		u.Opaque, u.Path = "", slashed(path)
	}
	if _, secret = u.User.Password(); secret {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	q.Del("namespace")
	for _, name := range []string{"password", "sslpassword"} {
		secret = secret || q.Has(name)
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	return u.String(), secret, nil
}

// defaultStore is where leases are kept if nobody says otherwise: with the
// user's other state, on a disk that survives a restart.
func defaultStore(env environment) (string, error) {
	dir := env.get("XDG_STATE_HOME")
	switch home := env.get("HOME"); {
	case filepath.IsAbs(dir):
	case runtime.GOOS == "windows":
		dir = env.get("LocalAppData")
	case home == "":
	case runtime.GOOS == "darwin":
		dir = filepath.Join(home, "Library", "Application Support")
	default:
		dir = filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(dir) {
		return "", invalid("there is no home folder to keep leases in: give --store or set %s", envStore)
	}
	return filepath.Join(dir, "tenure"), nil
}

// cacheHome is the user's cache folder, "" if there is none.
func cacheHome(env environment) string {
	dir := env.get("XDG_CACHE_HOME")
	switch home := env.get("HOME"); {
	case filepath.IsAbs(dir):
	case runtime.GOOS == "windows":
		dir = env.get("LocalAppData")
	case home == "":
	case runtime.GOOS == "darwin":
		dir = filepath.Join(home, "Library", "Caches")
	default:
		dir = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(dir) {
		return ""
	}
	return dir
}

// stateDir is the private folder for observations and remembered tokens, "" if
// there is none. A folder that cannot be made is no reason to fail: what is
// forgotten costs time, never safety.
func (a *app) stateDir() string {
	dir, err := a.stateDirOrWhy()
	if err != nil {
		a.warn("observations are not kept for the next command: %v", err)
		return ""
	}
	return dir
}

func (a *app) stateDirOrWhy() (string, error) {
	runtimeDir, cache := a.env.get("XDG_RUNTIME_DIR"), cacheHome(a.env)
	if runtimeDir == "" && cache == "" {
		return "", invalid("neither XDG_RUNTIME_DIR nor HOME is set")
	}
	dir := tenure.DefaultStateDir(runtimeDir, cache)
	return dir, os.MkdirAll(dir, 0o700)
}

// slashed is path as it stands in a URL.
func slashed(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") { // a drive letter
		path = "/" + path
	}
	return path
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// invalid is an error of the caller's input.
func invalid(format string, args ...any) error {
	return &inputError{store.Errorf(store.ErrInvalid, "", "", "", format, args...)}
}

// inputError prints an ErrInvalid that has no store and no operation as just
// its words.
type inputError struct{ err *store.Error }

func (e *inputError) Error() string { return e.err.Detail }

func (e *inputError) Unwrap() error { return e.err }
