package s3store

import (
	"context"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/tenure-project/tenure/store"
)

// Config names a bucket and how to reach it.
type Config struct {
	// Bucket is the bucket's name. Access points, directory buckets (S3 Express)
	// and the like are refused: leases need a plain bucket.
	Bucket string
	// Prefix is the folder in the bucket, such as "teams/a", without a slash at
	// either end; "" is the whole bucket. Its elements have the characters
	// [A-Za-z0-9._=-], and it has 200 bytes at most.
	Prefix string
	// Endpoint is the URL of another S3 server, such as
	// "https://s3.example.com:9000"; "" is Amazon, or what AWS_ENDPOINT_URL_S3
	// and the profile say. Only an endpoint that says http:// is used without TLS.
	Endpoint string
	// Region is the bucket's region; "" is what the environment and the profile
	// say, and "us-east-1" at another server where they say nothing.
	Region string
	// Profile is the profile of the shared configuration files; "" is what
	// AWS_PROFILE says.
	Profile string
	// PathStyle puts the bucket's name into the path and not into the host name.
	PathStyle bool
	// ConditionalDelete declares the power of store.ConditionalDeleter, which
	// retention takes (LS15). Set it only where a DELETE with If-Match is atomic
	// against a PUT: Amazon says that it is; several relatives ignore the
	// condition, or check it and delete in two steps. store.Probe races the two.
	ConditionalDelete bool
}

// Driver opens URLs "s3://bucket/prefix" with the parameters endpoint, region,
// profile, path_style and conditional_delete (UI4). The last two are 0 or 1.
func Driver() store.Driver { return store.Driver{Scheme: scheme, Open: openURL} }

func openURL(ctx context.Context, u *url.URL) (store.Store, error) {
	if u.User != nil || u.Fragment != "" || u.Opaque != "" {
		// The URL is not repeated: it may hold a secret.
		return nil, invalid("the URL has a user, a fragment or no //; write s3://bucket/prefix and leave keys to the environment or a profile")
	}
	if err := store.CheckParams(u, "endpoint", "region", "profile", "path_style", "conditional_delete"); err != nil {
		return nil, err
	}
	q := u.Query()
	cfg := Config{Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"), Endpoint: q.Get("endpoint"), Region: q.Get("region"), Profile: q.Get("profile")}
	for name, to := range map[string]*bool{"path_style": &cfg.PathStyle, "conditional_delete": &cfg.ConditionalDelete} {
		switch v := q.Get(name); v {
		case "", "0":
		case "1":
			*to = true
		default:
			return nil, invalid("%s=%q: say 0 or 1", name, v)
		}
	}
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err // not a typed nil in the interface
	}
	return s, nil
}

// Open opens a bucket with what the environment and the shared configuration
// files say (AWS_... variables, profiles, web identities, roles of the machine).
// Bad input is store.ErrInvalid. It reads files, and asks no server.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := store.CtxErr(ctx, scheme, opOpen, ""); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Endpoint != "" {
		if _, err := cfg.place(cfg.Endpoint); err != nil {
			return nil, err
		}
	}
	load := func(ctx context.Context) (aws.Config, error) {
		// What the SDK has to say, it says in its errors; a library prints nothing.
		opts := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
		if cfg.Region != "" {
			opts = append(opts, config.WithRegion(cfg.Region))
		}
		if cfg.Profile != "" {
			opts = append(opts, config.WithSharedConfigProfile(cfg.Profile))
		}
		// No HTTP client: the bundle that AWS_CA_BUNDLE names goes into the default
		// one, whose transport is then copied.
		return config.LoadDefaultConfig(ctx, opts...)
	}
	found, err := load(ctx)
	if err != nil {
		e := store.Wrap(store.ErrInvalid, scheme, opOpen, "", err)
		e.Detail = "the AWS configuration cannot be loaded"
		return nil, e
	}
	found.Credentials = newChain(found.Credentials, load)
	client := s3.NewFromConfig(found, func(o *s3.Options) {
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
		if o.Region == "" && o.BaseEndpoint != nil {
			o.Region = "us-east-1"
		}
		o.UsePathStyle = o.UsePathStyle || cfg.PathStyle
	})
	if client.Options().Region == "" {
		return nil, invalid("no region is known: add region=... to the URL, or set AWS_REGION")
	}
	return New(client, Config{Bucket: cfg.Bucket, Prefix: cfg.Prefix, ConditionalDelete: cfg.ConditionalDelete})
}

func invalid(format string, args ...any) error {
	return store.Errorf(store.ErrInvalid, scheme, opOpen, "", format, args...)
}

var (
	bucketForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	regionForm = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	prefixForm = regexp.MustCompile(`^[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*$`)
)

// otherKinds are the endings of names that are no plain bucket.
var otherKinds = map[string]string{
	"--x-s3":     "a directory bucket (S3 Express), whose listings are not in order",
	"--table-s3": "a table bucket",
	"--ol-s3":    "an Object Lambda access point, which changes what is read",
	".mrap":      "a multi-region access point, which reads from whichever copy is near: two holders could be granted one lease",
}

// check is an error if the bucket, the region or the prefix cannot be used.
func (cfg Config) check() error {
	if cfg.Region != "" && !regionForm.MatchString(cfg.Region) {
		return invalid("the region %q is no region's name, such as eu-west-1", cfg.Region)
	}
	if !bucketForm.MatchString(cfg.Bucket) || net.ParseIP(cfg.Bucket) != nil || strings.Contains(cfg.Bucket, "..") {
		return invalid("the bucket %q is no bucket's name: 3 to 63 of a-z, 0-9, '-' and '.'; write s3://bucket/prefix", cfg.Bucket)
	}
	for ending, what := range otherKinds {
		if strings.HasSuffix(cfg.Bucket, ending) {
			return invalid("%q is %s; leases need a general purpose bucket", cfg.Bucket, what)
		}
	}
	if cfg.Prefix == "" {
		return nil
	}
	if len(cfg.Prefix) > 200 || !prefixForm.MatchString(cfg.Prefix) {
		return invalid("the prefix %q has more than 200 bytes, an empty element or other characters than [A-Za-z0-9._=-/]", cfg.Prefix)
	}
	for element := range strings.SplitSeq(cfg.Prefix, "/") {
		if strings.Trim(element, ".") == "" {
			return invalid("the prefix %q has the element %q, which proxies resolve", cfg.Prefix, element)
		}
	}
	return nil
}

// base is what the name of every object starts with.
func (cfg Config) base() string {
	if cfg.Prefix == "" {
		return ""
	}
	return cfg.Prefix + "/"
}

// host is the server that an endpoint names, in its shortest form; "" is Amazon
// by its own rules.
type host string

// place checks an endpoint. Its text is not repeated where it may hold a secret.
func (cfg Config) place(endpoint string) (host, error) {
	if endpoint == "" {
		return "", nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", invalid("the endpoint is no URL; write endpoint=https://host or endpoint=https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return "", invalid("the endpoint has a user, a path, a query or a fragment; write endpoint=https://host:port and leave keys to the environment or a profile")
	case u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return "", invalid("the endpoint %q does not start with https:// or http://, or names no host", endpoint)
	}
	name := strings.ToLower(u.Hostname())
	for _, bad := range []string{".cloudfront.net", ".s3-global.amazonaws.com", "s3-accelerate.amazonaws.com"} {
		if strings.HasSuffix(name, bad) {
			return "", invalid("the endpoint %q is a cache or chooses among copies; name the bucket's own region", name)
		}
	}
	if strings.Contains(name, "s3-website") {
		return "", invalid("the endpoint %q is a web site's, which takes no writes", name)
	}
	if port := u.Port(); port != "" && !(port == "443" && u.Scheme == "https") && !(port == "80" && u.Scheme == "http") {
		name = net.JoinHostPort(name, port)
	} else if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return host(u.Scheme + "://" + name), nil
}

func (h host) under(domains ...string) bool {
	name := string(h)
	if u, err := url.Parse(name); err == nil {
		name = u.Hostname()
	}
	for _, d := range domains {
		if name == d || strings.HasSuffix(name, "."+d) {
			return true
		}
	}
	return false
}

func (h host) amazon() bool {
	return h == "" || h.under("amazonaws.com", "amazonaws.com.cn", "api.aws")
}

func (h host) tigris() bool { return h.under("tigris.dev", "tigrisfiles.io", "t3.storage.dev") }

// writesPerSecond is the limit of one key: Cloudflare R2 takes one write a second.
func (h host) writesPerSecond() float64 {
	if h.under("r2.cloudflarestorage.com") {
		return 1
	}
	return 0
}

// partitions are the parts of Amazon beside the common one, by how their regions
// begin. A bucket's name is unique in each of them only.
var partitions = map[string]string{"cn-": "aws-cn", "us-gov-": "aws-us-gov", "us-iso-": "aws-iso", "us-isob-": "aws-iso-b"}

// identity names the place. A bucket's name is unique in a partition of Amazon,
// so its many endpoints are left out.
func (cfg Config) identity(h host, region string) string {
	id := scheme + "://" + cfg.Bucket
	if cfg.Prefix != "" {
		id += "/" + cfg.Prefix
	}
	if !h.amazon() {
		return id + "?endpoint=" + string(h)
	}
	for start, name := range partitions {
		if strings.HasPrefix(region, start) {
			return id + "?partition=" + name
		}
	}
	return id
}
