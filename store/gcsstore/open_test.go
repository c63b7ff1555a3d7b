package gcsstore

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

func parse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A URL names bucket, prefix and server, and opening it sends nothing.
//
// SPEC UI4 ST14
func TestOpenByURL(t *testing.T) {
	t.Parallel()
	d := Driver()
	if d.Scheme != "gs" {
		t.Errorf("the scheme is %q", d.Scheme)
	}
	cl := newCloud(t, nil)
	for raw, want := range map[string]string{
		"gs://leases?endpoint=" + cl.URL:                      "gs://leases?endpoint=" + cl.URL,
		"gs://leases/?endpoint=" + cl.URL + "/":               "gs://leases?endpoint=" + cl.URL,
		"gs://leases/a/b/?endpoint=" + cl.URL + "/storage/v1": "gs://leases/a/b?endpoint=" + cl.URL,
		"gs://leases/a%20b?anonymous=yes&user_project=payer&endpoint=https://storage.europe-west3.rep.googleapis.com": "gs://leases/a b",
		"gs://leases?anonymous=yes&endpoint=https://STORAGE.example.com:8443":                                         "gs://leases?endpoint=https://storage.example.com:8443",
	} {
		s, err := d.Open(t.Context(), parse(t, raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		i := s.Info()
		if i.Identity != want || i.Scheme != "gs" || i.WritesPerSecond != 1 || i.Can != store.CanDeleteIf || i.ContentVersions || i.SingleHost {
			t.Errorf("%s: Info is %+v, want the identity %q", raw, i, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := cl.requests(); len(got) != 0 {
		t.Errorf("opening sent %q", got)
	}
}

// Bad input is refused before anything happens, and without repeating what may
// be secret.
//
// SPEC ST8
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for raw, says := range map[string]string{
		"gs://":                   "bucket name",
		"gs:leases":               "gs://bucket/prefix",
		"gs://Leases":             "bucket name",
		"gs://ab":                 "bucket name",
		"gs://-leases":            "bucket name",
		"gs://s3cret@leases":      "credentials through the environment",
		"gs://user:s3cret@leases": "credentials through the environment",
		"gs://leases#s3cret":      "fragment",
		"gs://leases/a//b":        "element",
		"gs://leases/a/../b":      "element",
		"gs://leases/a%00b":       "control character",
		"gs://leases/%ff":         "UTF-8",
		"gs://leases/" + strings.Repeat("a", 201):              "200",
		"gs://leases?key=s3cret":                               "unknown parameter",
		"gs://leases?endpoint=http://a&endpoint=http://b":      "2 times",
		"gs://leases?anonymous=maybe":                          "yes or no",
		"gs://leases?endpoint=ftp://host":                      "http or https",
		"gs://leases?endpoint=host:123":                        "http or https",
		"gs://leases?endpoint=http://":                         "http or https",
		"gs://leases?endpoint=http://user:s3cret@host":         "user, query or fragment",
		"gs://leases?endpoint=http://host/?key=s3cret":         "user, query or fragment",
		"gs://leases?endpoint=http://host/elsewhere":           "has a path",
		"gs://leases?endpoint=http://user:s3cret%25zz@ho%20st": "no URL",
	} {
		s, err := Driver().Open(t.Context(), parse(t, raw))
		if s != nil {
			_ = s.Close()
		}
		is(t, err, store.ErrInvalid)
		if err != nil && (!strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: the message is %q, want it to say %q and no secret", raw, err, says)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("nobody waits")
	cancel(why)
	_, err := Open(ctx, Config{Bucket: testBucket, Anonymous: true, Endpoint: "http://127.0.0.1:1"})
	is(t, err, store.ErrUnavailable)
	if !errors.Is(err, why) {
		t.Errorf("Open with an ended context gave %v", err)
	}
}

// A variable of the environment does not move leases to another server.
func TestEmulatorVariable(t *testing.T) {
	t.Setenv(emulatorVar, "127.0.0.1:1")
	_, err := Open(t.Context(), Config{Bucket: testBucket, Anonymous: true})
	is(t, err, store.ErrInvalid)
	cl := newCloud(t, nil)
	_, err = cl.open(t, "").Create(t.Context(), testKey, nil) // a URL that says where is heeded
	is(t, err, nil)
	if n := len(cl.requests()); n != 1 {
		t.Errorf("%d requests reached the server of the URL", n)
	}
}

// Without an endpoint, it is Google's, over TLS, whatever the client library's
// defaults are.
func TestDefaultEndpoint(t *testing.T) {
	t.Parallel()
	if os.Getenv(emulatorVar) != "" {
		t.Fatalf("%s is set", emulatorVar)
	}
	u, err := Config{Bucket: testBucket}.endpoint()
	if err != nil || u.String() != "https://storage.googleapis.com" {
		t.Errorf("the endpoint is %v, %v", u, err)
	}
}
