package s3store

import (
	"encoding/pem"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenure-project/tenure/store"
)

func openText(t *testing.T, text string) (*Store, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Driver().Open(t.Context(), u)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*Store), nil
}

// Bad input is refused before anything happens, and no secret in it is repeated.
//
// SPEC ST8 ST11
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ url, says string }{
		{"s3://AKIAX:topsecret@bucket/p?region=eu-west-1", "environment"},
		{"s3:bucket", "s3://bucket"},
		{"s3://bucket/p#topsecret", "fragment"},
		{"s3:///p", "bucket"},
		{"s3://Bucket/p?region=eu-west-1", "bucket's name"},
		{"s3://b/p?region=eu-west-1", "bucket's name"},
		{"s3://10.0.0.1/p?region=eu-west-1", "bucket's name"},
		{"s3://a..b/p?region=eu-west-1", "bucket's name"},
		{"s3://data--usw2-az1--x-s3?region=us-west-2", "directory bucket"},
		{"s3://mfzwi23gnjvgw.mrap?region=us-west-2", "multi-region"},
		{"s3://my-olap--ol-s3?region=us-west-2", "Object Lambda"},
		{"s3://bucket?region=eu%20west", "region"},
		{"s3://bucket/a//b?region=eu-west-1", "prefix"},
		{"s3://bucket/a/../b?region=eu-west-1", "proxies resolve"},
		{"s3://bucket/a%20b?region=eu-west-1", "prefix"},
		{"s3://bucket/" + strings.Repeat("a", 201) + "?region=eu-west-1", "200 bytes"},
		{"s3://bucket?region=eu-west-1&region=eu-west-2", "2 times"},
		{"s3://bucket?secret_access_key=topsecret", "unknown parameter"},
		{"s3://bucket?region=eu-west-1&path_style=yes", "0 or 1"},
		{"s3://bucket?region=eu-west-1&conditional_delete=on", "0 or 1"},
		{"s3://bucket?endpoint=https://AKIAX:topsecret@host", "environment"},
		{"s3://bucket?endpoint=https://host/%3Fkey=topsecret", "path"},
		{"s3://bucket?endpoint=https://host%3Fkey=topsecret", "query"},
		{"s3://bucket?endpoint=host:9000", "https://"},
		{"s3://bucket?endpoint=ftp://host", "https://"},
		{"s3://bucket?endpoint=https://", "host"},
		{"s3://bucket?endpoint=https://d111.cloudfront.net", "cache"},
		{"s3://bucket?endpoint=https://x.accesspoint.s3-global.amazonaws.com", "copies"},
		{"s3://bucket?endpoint=http://bucket.s3-website-us-east-1.amazonaws.com", "web site"},
		{"s3://bucket?profile=absent-profile", "configuration"},
		{"s3://bucket", "region"},
	} {
		_, err := openText(t, row.url)
		if err == nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want ErrInvalid that says %q", row.url, err, row.says)
		}
		if err != nil && strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: the error repeats the secret: %v", row.url, err)
		}
	}
}

// SPEC ST14
func TestIdentityAndLimits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		url, identity string
		writes        float64
		can           store.Power
	}{
		{"s3://bucket?region=eu-west-1", "s3://bucket", 0, 0},
		{"s3://bucket/a/b/?region=eu-west-1", "s3://bucket/a/b", 0, 0},
		{"s3://bucket?region=cn-north-1", "s3://bucket?partition=aws-cn", 0, 0},
		{"s3://bucket?region=us-gov-west-1", "s3://bucket?partition=aws-us-gov", 0, 0},
		{"s3://bucket?region=us-isob-east-1", "s3://bucket?partition=aws-iso-b", 0, 0},
		{"s3://bucket/a?region=eu-west-1&conditional_delete=1", "s3://bucket/a", 0, store.CanDeleteIf},
		{"s3://bucket/a?region=eu-west-1&endpoint=https://s3.eu-west-1.amazonaws.com", "s3://bucket/a", 0, 0},
		{"s3://bucket/a?endpoint=https://S3.Example.com:443/", "s3://bucket/a?endpoint=https://s3.example.com", 0, 0},
		{"s3://bucket/a?endpoint=http://s3.example.com:9000&path_style=1", "s3://bucket/a?endpoint=http://s3.example.com:9000", 0, 0},
		{"s3://bucket/a?endpoint=http://[::1]", "s3://bucket/a?endpoint=http://[::1]", 0, 0},
		{"s3://bucket/a?region=auto&endpoint=https://0123.eu.r2.cloudflarestorage.com", "s3://bucket/a?endpoint=https://0123.eu.r2.cloudflarestorage.com", 1, 0},
		{"s3://bucket/a?endpoint=https://r2.cloudflarestorage.com.example.org", "s3://bucket/a?endpoint=https://r2.cloudflarestorage.com.example.org", 0, 0},
	} {
		s, err := openText(t, row.url)
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}
		i := s.Info()
		if i.Identity != row.identity || i.WritesPerSecond != row.writes || i.Can != row.can || !i.ContentVersions {
			t.Errorf("%s: %+v", row.url, i)
		}
	}
}

// An endpoint from the environment is a part of the identity, and is checked.
func TestEndpointFromEnvironment(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_S3", "https://minio.example.com")
	s, err := openText(t, "s3://bucket/a")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Info().Identity; got != "s3://bucket/a?endpoint=https://minio.example.com" {
		t.Errorf("identity %s", got)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "https://AKIAX:topsecret@minio.example.com")
	if _, err = openText(t, "s3://bucket/a"); !errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "topsecret") {
		t.Errorf("an endpoint with a secret in the environment: %v", err)
	}
}

func TestNewRefusesWhatTheClientHolds(t *testing.T) {
	t.Parallel()
	client := rawClient("http://127.0.0.1:1", testKey, testSecret)
	for _, cfg := range []Config{
		{Bucket: "bucket", Region: "x"}, {Bucket: "bucket", Endpoint: "http://x"}, {Bucket: "bucket", Profile: "x"},
		{Bucket: "bucket", PathStyle: true}, {Bucket: ""},
	} {
		if _, err := New(client, cfg); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := New(nil, Config{Bucket: "bucket"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

// What the SDK cannot turn into a request is no matter of rights.
func TestBadRegionOfAClient(t *testing.T) {
	t.Parallel()
	s, err := New(s3.New(s3.Options{Region: "eu west", Credentials: aws.AnonymousCredentials{}}), Config{Bucket: "bucket", ConditionalDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wantKinds(t, s, all(bad, bad), "region")
}

// AWS_CA_BUNDLE names the certificates that the connection trusts.
func TestCABundleIsHonoured(t *testing.T) {
	srv := serveTLS(t, newModel())
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(bundle, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	s, err := openText(t, "s3://bucket/a?path_style=1&endpoint="+srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "k", []byte("x")); err != nil {
		t.Errorf("with the bundle: %v", err)
	}
	if err := os.Unsetenv("AWS_CA_BUNDLE"); err != nil {
		t.Fatal(err)
	}
	if s, err = openText(t, "s3://bucket/a?path_style=1&endpoint="+srv.URL); err != nil {
		t.Fatal(err)
	}
	_, err = s.Create(t.Context(), "k", []byte("x"))
	checkAnswer(t, "create without the bundle", err, unavailable, "certificate")
}

// Retries that the environment asks for are not made.
//
// SPEC ST9
func TestRetriesOfTheEnvironmentAreOff(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "5")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	t.Setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported")
	m, writes := newModel(), new(atomic.Int64)
	s, err := openText(t, "s3://bucket/p?path_style=1&endpoint="+serve(t, lossy(m, writes)).URL)
	if err != nil {
		t.Fatal(err)
	}
	sendsOnce(t, s, m, writes)
}
