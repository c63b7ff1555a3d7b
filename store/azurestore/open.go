package azurestore

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

// open makes the store that c describes. Nothing is sent.
func (c *config) open() (*Store, error) {
	switch {
	case c.key != "":
		return c.openWithKey()
	case c.sas != "" || c.sasFile != "":
		sig, err := newSignature(c.sas, c.sasFile)
		if err != nil {
			return nil, err
		}
		return c.openWith(sig)
	}
	identity := &http.Client{Transport: newTransport()}
	cred, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: azcore.ClientOptions{Transport: identity},
	})
	if err != nil {
		return nil, invalid("no credentials: %s", brief(err))
	}
	s, err := c.openWith(newTokens(cred))
	if err != nil {
		return nil, err
	}
	s.idle = append(s.idle, identity)
	return s, nil
}

// openWithKey makes a store that signs with the account's key.
func (c *config) openWithKey() (*Store, error) {
	cred, err := blob.NewSharedKeyCredential(c.account, c.key)
	if err != nil {
		return nil, invalid("the account key is no base64 text") // the error might quote it
	}
	t := newTransport()
	o := options(t, nil)
	cc, err := container.NewClientWithSharedKeyCredential(c.url(), cred, &container.ClientOptions{ClientOptions: o, ExpectContinueBehavior: noWaiting})
	if err != nil {
		return nil, invalid("the endpoint makes no client")
	}
	sc, err := service.NewClientWithSharedKeyCredential(c.endpoint.String(), cred, &service.ClientOptions{ClientOptions: o})
	if err != nil {
		return nil, invalid("the endpoint makes no client")
	}
	return c.finish(cc, sc, t, nil)
}

// openWith makes a store whose requests auth authorizes.
func (c *config) openWith(auth authorizer) (*Store, error) {
	t := newTransport()
	o := options(t, auth)
	cc, err := container.NewClientWithNoCredential(c.url(), &container.ClientOptions{ClientOptions: o, ExpectContinueBehavior: noWaiting})
	if err != nil {
		return nil, invalid("the endpoint makes no client")
	}
	sc, err := service.NewClientWithNoCredential(c.endpoint.String(), &service.ClientOptions{ClientOptions: o})
	if err != nil {
		return nil, invalid("the endpoint makes no client")
	}
	return c.finish(cc, sc, t, auth)
}

func (c *config) finish(cc *container.Client, sc *service.Client, t *http.Transport, auth authorizer) (*Store, error) {
	s, err := New(cc, c.prefix)
	if err != nil {
		return nil, err
	}
	s.service, s.own, s.auth = sc, true, auth
	s.idle = []*http.Client{{Transport: t}}
	return s, nil
}

// url is the container's.
func (c *config) url() string { return c.endpoint.String() + "/" + c.container }

// noWaiting keeps the SDK from asking for leave before a body after a throttle:
// that would double the time that a renewal takes when time is short.
var noWaiting = blob.ExpectContinueOptions{Mode: blob.ExpectContinueModeOff}

// options are those of every client of ours: one attempt, a pool of its own,
// and auth, if it is not nil, as the last thing before the wire.
func options(t *http.Transport, auth authorizer) azcore.ClientOptions {
	o := azcore.ClientOptions{
		Transport: direct{t},
		Retry:     policy.RetryOptions{MaxRetries: -1},
		Telemetry: policy.TelemetryOptions{ApplicationID: "tenure"},
	}
	if auth != nil {
		o.PerRetryPolicies = []policy.Policy{authPolicy{auth}}
	}
	return o
}
