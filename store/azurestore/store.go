package azurestore

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/tenure-project/tenure/store"
)

const (
	scheme = "azblob"

	// MaxBody is the largest body in bytes that the store accepts. Azure takes
	// more in one request, but no record comes near it.
	MaxBody = 4 << 20

	// closeLimit is how long Close waits for calls that it has ended.
	closeLimit = 5 * time.Second
)

// Store is a store in one container. All methods are safe for concurrent use.
// It implements store.Store and store.ConditionalDeleter.
type Store struct {
	container *container.Client
	service   *service.Client // for Inspect; nil if the program gave the client
	prefix    string          // "" or ends with "/"
	identity  string
	auth      authorizer      // nil if the client's own pipeline authorizes
	idle      []*http.Client  // whose idle connections Close drops
	own       bool            // the client's transport is ours, so its traces can be trusted
	pageSize  *int32          // of listings; nil is what Azure takes, 5,000
	versioned atomic.Bool     // a reply showed that the account keeps old versions
	life      context.Context // ends when Close begins
	end       context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

var (
	_ store.Store              = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
)

var errClosed = errors.New("the store was closed")

// New makes a store in the container of client, which the program has set up
// with its credentials, below prefix ("" for none). It does no I/O.
//
// Retries of the client are switched off for each request of the store, since a
// repeated conditional write can meet its own success (ST9). The client's
// connections are the program's: give the leases a transport of their own, one
// that follows no redirects. If its URL holds a SAS token, the SDK's own log,
// once turned on, may show that token when a connection breaks; stores that
// [Driver] opens have no such URL. A client for a secondary or a Data Lake
// endpoint is ErrInvalid: the first lags behind, the second speaks another
// protocol.
func New(client *container.Client, prefix string) (*Store, error) {
	if client == nil {
		return nil, invalid("the container client is nil")
	}
	u, err := url.Parse(client.URL())
	if err != nil {
		return nil, invalid("the container client has no valid URL") // it may hold a secret
	}
	if err := checkHost(u); err != nil {
		return nil, err
	}
	if prefix, err = checkPrefix(prefix); err != nil {
		return nil, err
	}
	s := &Store{container: client, prefix: prefix, identity: identity(u, prefix)}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s, nil
}

// identity names the place without query and user information.
func identity(container *url.URL, prefix string) string {
	host := strings.ToLower(container.Hostname())
	if p := container.Port(); p != "" && !(p == "443" && container.Scheme == "https") && !(p == "80" && container.Scheme == "http") {
		host += ":" + p
	}
	return scheme + "://" + host + strings.TrimSuffix(container.Path, "/") + "/" + prefix
}

// Info describes the store (ST14). Azure's documented target of 500 requests
// per second for one blob is above what Info.WritesPerSecond is for.
func (s *Store) Info() store.Info {
	return store.Info{
		Scheme:   scheme,
		Identity: s.identity,
		Driver:   "azurestore/1",
		Can:      store.CanDeleteIf,
		MaxBody:  MaxBody,
	}
}

// Close ends the calls in flight and drops the store's own connections. It may
// be called again. It does not touch the connections of a client given to New.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end(errClosed)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		if s.auth != nil {
			s.auth.close()
		}
		for _, c := range s.idle {
			c.CloseIdleConnections()
		}
		close(done)
	}()
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-done:
		return nil
	case <-limit.C:
		return store.Errorf(store.ErrUnavailable, s.identity, "close", "", "a call did not end within %v", closeLimit)
	}
}

// enter counts a call or a background task in, unless the store is closed.
func (s *Store) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// blob is the client of one key.
func (s *Store) blob(key string) *blockblob.Client {
	return s.container.NewBlockBlobClient(s.prefix + key)
}
