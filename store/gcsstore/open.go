package gcsstore

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/storage"
	"google.golang.org/api/option"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "gs"
	opOpen = "open"

	defaultEndpoint = "https://storage.googleapis.com"
	apiPath         = "/storage/v1/"
	emulatorVar     = "STORAGE_EMULATOR_HOST"

	// MaxBody is the largest body in bytes that the store accepts.
	MaxBody = 8 << 20

	// maxPrefix leaves room for the longest key in the 1024 bytes of an object's
	// name.
	maxPrefix = 200
)

// Config names a place in Cloud Storage and how to reach it. Only Bucket is
// required.
type Config struct {
	// Bucket is the bucket's name. The bucket must exist.
	Bucket string
	// Prefix is what every object's name begins with, such as "prod/leases"; a
	// slash is put after it. Empty is the root of the bucket.
	Prefix string
	// Endpoint is another server than Google's, such as "http://127.0.0.1:4443"
	// for an emulator: scheme and host only. Credentials are never sent over
	// plain http.
	Endpoint string
	// UserProject is the project that pays for requests to a bucket with
	// "requester pays".
	UserProject string
	// Anonymous sends no credentials. It is implied by an http:// endpoint.
	Anonymous bool
	// Credentials, if set, are used instead of the application default
	// credentials. They need the scope devstorage.read_write or a wider one.
	Credentials *auth.Credentials
	// HTTPClient, if set, authenticates and sends the requests; application
	// default credentials are then not looked for. Its transport is used below
	// the store's own checks, its other fields are not. It must neither repeat
	// requests nor share connections with bulk traffic. It stays the caller's:
	// Close leaves it alone.
	HTTPClient *http.Client
}

// Driver opens `gs:` URLs: "gs://bucket/prefix". The parameters are endpoint,
// anonymous ("yes" or "no") and user_project, as in [Config] (UI4).
func Driver() store.Driver {
	return store.Driver{Scheme: scheme, Open: openURL}
}

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	cfg, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return s, nil
}

func parseURL(u *url.URL) (Config, error) {
	if err := store.CheckParams(u, "endpoint", "anonymous", "user_project"); err != nil {
		return Config{}, err
	}
	if u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return Config{}, invalid("the URL has a user, a fragment or no //; write gs://bucket/prefix and give credentials through the environment")
	}
	q := u.Query()
	cfg := Config{
		Bucket:      u.Host,
		Prefix:      strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"),
		Endpoint:    q.Get("endpoint"),
		UserProject: q.Get("user_project"),
	}
	switch q.Get("anonymous") {
	case "", "no":
	case "yes":
		cfg.Anonymous = true
	default:
		return Config{}, invalid("anonymous=%q: say yes or no", q.Get("anonymous"))
	}
	return cfg, nil
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}

// silent keeps the client library's debugging log, which would show access
// tokens, off whatever the environment says.
var silent = slog.New(slog.DiscardHandler)

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)

// check returns ErrInvalid for a configuration that cannot work. It prints no
// part of an endpoint, which may hold a secret by mistake.
func (c Config) check() error {
	switch {
	case !bucketName.MatchString(c.Bucket):
		return invalid("%q is no bucket name: 3 or more lower-case letters, digits, '-', '_' and '.'", c.Bucket)
	case len(c.Prefix) > maxPrefix:
		return invalid("the prefix has %d bytes, at most %d are allowed", len(c.Prefix), maxPrefix)
	case !utf8.ValidString(c.Prefix) || strings.ContainsFunc(c.Prefix, unicode.IsControl):
		return invalid("the prefix %q has a control character or is not valid UTF-8", c.Prefix)
	}
	if c.Prefix != "" {
		for element := range strings.SplitSeq(c.Prefix, "/") {
			if element == "" || element == "." || element == ".." {
				return invalid("the prefix %q has the element %q", c.Prefix, element)
			}
		}
	}
	return nil
}

// endpoint returns the server's scheme and host.
func (c Config) endpoint() (*url.URL, error) {
	if c.Endpoint == "" {
		if os.Getenv(emulatorVar) != "" {
			return nil, invalid("%s is set, but leases do not move to another server on the word of a variable: "+
				"give the endpoint in the store URL (?endpoint=http://host:port), or unset it", emulatorVar)
		}
		return url.Parse(defaultEndpoint)
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, invalid("the endpoint is no URL; write https://host or http://host:port")
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, invalid("the endpoint is no http or https URL; write https://host or http://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, invalid("the endpoint for %s has a user, query or fragment; give scheme and host only", u.Host)
	case u.Path != "" && u.Path != "/" && strings.TrimSuffix(u.Path, "/")+"/" != apiPath:
		return nil, invalid("the endpoint for %s has a path; give scheme and host only", u.Host)
	}
	u.Path = ""
	return u, nil
}

// identity names the place without secrets. Bucket names are global, so all of
// Google's endpoints lead to one place; another server has its own.
func (c Config) identity(endpoint *url.URL) string {
	id := scheme + "://" + c.Bucket
	if c.Prefix != "" {
		id += "/" + c.Prefix
	}
	if host := endpoint.Hostname(); endpoint.Scheme == "https" && (host == "googleapis.com" || strings.HasSuffix(host, ".googleapis.com")) {
		return id
	}
	return id + "?endpoint=" + endpoint.String()
}

// Open opens the store that cfg names. It sends nothing to the bucket; looking
// for credentials may ask the machine's metadata server, which ctx bounds. A
// configuration that cannot work is ErrInvalid, missing credentials ErrDenied.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	endpoint, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	if err := store.CtxErr(ctx, scheme, opOpen, ""); err != nil {
		return nil, err
	}
	s := &Store{identity: cfg.identity(endpoint), name: cfg.Bucket}
	if cfg.Prefix != "" {
		s.prefix = cfg.Prefix + "/"
	}
	s.stop, s.stopNow = context.WithCancel(context.Background())
	hc, err := s.httpClient(ctx, cfg, endpoint)
	if err != nil {
		s.stopNow()
		return nil, err
	}
	s.client, err = storage.NewClient(ctx, option.WithHTTPClient(hc), option.WithoutAuthentication(),
		option.WithEndpoint(endpoint.String()+apiPath), option.WithTelemetryDisabled(), option.WithLogger(silent),
		storage.WithJSONReads(), storage.WithDisabledClientMetrics())
	if err != nil {
		s.stopNow()
		return nil, store.Errorf(store.ErrInvalid, s.identity, opOpen, "", "the client library refuses the configuration: %s", clean(err.Error(), ""))
	}
	s.client.SetRetry(storage.WithPolicy(storage.RetryNever))
	s.bucket = s.client.Bucket(cfg.Bucket)
	if cfg.UserProject != "" {
		s.bucket = s.bucket.UserProject(cfg.UserProject)
	}
	return s, nil
}

// httpClient puts the store's own checks around what sends the requests.
func (s *Store) httpClient(ctx context.Context, cfg Config, endpoint *url.URL) (*http.Client, error) {
	plain := endpoint.Scheme == "http"
	if cfg.Credentials != nil && (plain || cfg.Anonymous || cfg.HTTPClient != nil) {
		return nil, store.Errorf(store.ErrInvalid, s.identity, opOpen, "", "credentials are given, and also a reason not to send them: plain http, anonymous or a client")
	}
	if cfg.HTTPClient != nil && cfg.HTTPClient.Transport != nil {
		return singleShot(&wire{base: cfg.HTTPClient.Transport}), nil
	}
	s.pool = newPool()
	w := &wire{base: s.pool, traced: true}
	if cfg.HTTPClient != nil || cfg.Anonymous || plain {
		return singleShot(w), nil
	}
	creds := cfg.Credentials
	if creds == nil {
		var err error
		if creds, err = detect(ctx, s.identity); err != nil {
			return nil, err
		}
	}
	return singleShot(newSigner(ctx, s.stop, creds, w)), nil
}

// singleShot follows no redirect: the store is where the URL says.
func singleShot(rt http.RoundTripper) *http.Client {
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// newPool makes the connections of one store, which share nothing with other
// traffic. HTTP/1.1: a call that is given up takes its connection with it, so a
// dead connection spoils one attempt and not all that follow.
func newPool() *http.Transport {
	t := &http.Transport{
		Proxy:               proxyOf(http.ProxyFromEnvironment),
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        64,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// proxyOf keeps a proxy's address, which may hold a password, out of errors.
func proxyOf(find func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		u, err := find(r)
		if err != nil {
			return nil, errors.New("the proxy that the environment names is no URL: see HTTPS_PROXY and HTTP_PROXY")
		}
		return u, nil
	}
}
