package s3store

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// refresher gives credentials that can be read anew. Sessions end in the middle
// of a hold, and the newer keys are then in the same file, variable or service
// (CASE B65).
type refresher interface {
	aws.CredentialsProvider
	refresh()
}

// refused reports whether the server said that the credentials are no good any
// more.
func (f *flight) refused() bool { return f.status >= 400 && slices.Contains(stale, f.fault.Code) }

// asRefresher is p as a refresher, nil if it cannot be one.
func asRefresher(p aws.CredentialsProvider) refresher {
	switch p := p.(type) {
	case *chain:
		return p
	case *aws.CredentialsCache:
		return cached{p}
	}
	return nil
}

// cached asks the provider of a client that a program configured itself again.
type cached struct{ *aws.CredentialsCache }

func (c cached) refresh() { c.Invalidate() }

// chain finds credentials as the environment and the configuration files say,
// and reads these again after refresh.
type chain struct {
	load func(context.Context) (aws.Config, error)

	mu      sync.Mutex
	current aws.CredentialsProvider // nil: to be loaded
}

func newChain(first aws.CredentialsProvider, load func(context.Context) (aws.Config, error)) *chain {
	return &chain{load: load, current: first}
}

// Retrieve returns credentials. It is called by the SDK for each request.
func (c *chain) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c.mu.Lock()
	p := c.current
	c.mu.Unlock()
	if p == nil {
		cfg, err := c.load(ctx)
		if err != nil {
			return aws.Credentials{}, err
		}
		if p = cfg.Credentials; p == nil {
			return aws.Credentials{}, errors.New("the AWS configuration names no credentials")
		}
		c.mu.Lock()
		c.current = p
		c.mu.Unlock()
	}
	return p.Retrieve(ctx)
}

func (c *chain) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
}
