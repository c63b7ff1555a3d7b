package s3store

import (
	"context"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "s3"

	// MaxBody is the largest body in bytes that the store accepts.
	MaxBody = 8 << 20

	// mark ends the name of every object. It is less than every character of a
	// key, so that names sort as keys do, and it keeps a key and the beginning of
	// another apart on servers that keep objects as files.
	mark = "!"
)

var errClosed = errors.New("the store is closed")

// Store is a store in a bucket. All methods are safe for concurrent use. It
// implements store.Store and store.ConditionalDeleter.
type Store struct {
	client    *s3.Client
	wire      *wire
	closeIdle func()
	creds     refresher // nil if the credentials cannot be read anew

	bucket, base string // base is what every object's name starts with
	identity     string
	info         store.Info
	// asks: the server may refuse If-Match on an absent key with 412, as
	// HTTP has it, and not with 404, as Amazon does.
	asks bool

	life    context.Context // ends when Close begins
	end     context.CancelFunc
	mu      sync.Mutex // guards closed against the start of a call
	closed  bool
	calling sync.WaitGroup
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
)

// New keeps records in cfg.Bucket under cfg.Prefix through a client's
// configuration: its region, endpoint, credentials and transport. The client's
// retries and checksums are turned off, and its connections are not shared. Only
// Bucket, Prefix and ConditionalDelete of cfg are used; setting another field is
// store.ErrInvalid. New does no I/O.
func New(client *s3.Client, cfg Config) (*Store, error) {
	if client == nil {
		return nil, invalid("the client is nil")
	}
	if cfg.Endpoint != "" || cfg.Region != "" || cfg.Profile != "" || cfg.PathStyle {
		return nil, invalid("endpoint, region, profile and path style belong to the client that is passed to New")
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	o := client.Options()
	host, err := cfg.place(aws.ToString(o.BaseEndpoint))
	if err != nil {
		return nil, err
	}
	s := &Store{bucket: cfg.Bucket, base: cfg.base(), identity: cfg.identity(host, o.Region), asks: !host.amazon()}
	s.life, s.end = context.WithCancel(context.Background())
	s.wire = &wire{tigris: host.tigris()}
	s.wire.next, s.closeIdle = ownPool(o.HTTPClient)
	s.client = s3.New(o, s.configure)
	s.creds = asRefresher(o.Credentials)
	s.info = store.Info{
		Scheme: scheme, Identity: s.identity, Driver: "s3store/1",
		ContentVersions: true, WritesPerSecond: host.writesPerSecond(), MaxBody: MaxBody,
	}
	if cfg.ConditionalDelete {
		s.info.Can |= store.CanDeleteIf
	}
	return s, nil
}

// configure makes a client send each request once and plainly.
func (s *Store) configure(o *s3.Options) {
	o.HTTPClient = s.wire
	o.Retryer = aws.NopRetryer{}
	o.RetryMaxAttempts = 0
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.ContinueHeaderThresholdBytes = -1
	o.UseAccelerate = false
	o.DisableMultiRegionAccessPoints = true
	o.DisableS3ExpressSessionAuth = aws.Bool(true)
	o.ClientLogMode = 0
}

// Info describes the store (ST14).
func (s *Store) Info() store.Info { return s.info }

// Close ends the calls in flight and closes the connections. It may be called
// again.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.calling.Wait()
	s.closeIdle()
	return nil
}

// begin checks and starts a call; the caller ends it with done.
func (s *Store) begin(ctx context.Context, op, key string) (*call, error) {
	if err := store.CtxErr(ctx, s.identity, op, key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, store.Wrap(store.ErrUnavailable, s.identity, op, key, errClosed)
	}
	s.calling.Add(1)
	c := &call{s: s, op: op, key: key, caller: ctx}
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	c.ctx = withFlight(inner, &c.flight)
	c.done = func() {
		stop()
		cancel()
		s.calling.Done()
	}
	return c, nil
}

// beginKey is begin for an operation on a key. body is nil for one that writes
// none.
func (s *Store) beginKey(ctx context.Context, op, key string, body []byte) (*call, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.identity, op, key, err)
	}
	if len(body) > MaxBody {
		return nil, store.Errorf(store.ErrInvalid, s.identity, op, key, "the body has %d bytes, at most %d are accepted", len(body), MaxBody)
	}
	return s.begin(ctx, op, key)
}

// object is the name of the object that holds key.
func (s *Store) object(key string) *string { return aws.String(s.base + key + mark) }
