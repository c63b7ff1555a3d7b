package s3store

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// A server that repeats what it was sent does not make the driver repeat it.
//
// SPEC ST8
func TestNoSecretsInErrors(t *testing.T) {
	t.Setenv("AWS_SESSION_TOKEN", testSession)
	echo := func(status int, code string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Amz-Request-Id", "id")
			w.WriteHeader(status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>you sent %s and %s</Message></Error>", code,
				r.Header.Get("X-Amz-Security-Token"), r.Header.Get("Authorization"))
		})
	}
	for status, code := range map[int]string{200: "InternalError", 400: "ExpiredToken", 403: "SignatureDoesNotMatch", 404: "NoSuchBucket", 500: "InternalError"} {
		s, err := openText(t, "s3://bucket/p?conditional_delete=1&path_style=1&endpoint="+serve(t, echo(status, code)).URL)
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{fmt.Sprintf("%+v", s.Info())}
		for _, op := range everyOp {
			if err := run(t.Context(), s, op); err != nil {
				texts = append(texts, fmt.Sprintf("%+v", err))
			}
		}
		texts = append(texts, inspected(t, s)...)
		if len(texts) < 5 {
			t.Errorf("only %d texts", len(texts))
		}
		for _, text := range texts {
			for _, secret := range []string{testSecret, testSession, "Signature="} {
				if strings.Contains(text, secret) {
					t.Errorf("%d: a secret is told: %s", status, text)
				}
			}
		}
	}
}

const newKey = "AKIANEWNEWNEWNEWNEWN"

// expiring refuses every key but want's.
func expiring(m *model, want *atomic.Value) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+want.Load().(string)+"/") {
			answerError(w, 400, "ExpiredToken")
			return
		}
		m.ServeHTTP(w, r)
	})
}

func writeKeys(t *testing.T, file, key string) {
	t.Helper()
	text := fmt.Sprintf("[held]\naws_access_key_id = %s\naws_secret_access_key = %s\naws_session_token = %s\n", key, testSecret, testSession)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Credentials that expire in mid-hold are read anew from where they came; until
// newer ones are there, the error says what is wrong.
//
// CASE B65
func TestExpiredCredentialsAreReadAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	writeKeys(t, file, testKey)
	var want atomic.Value
	want.Store(testKey)
	s, err := openText(t, "s3://bucket/p?profile=held&path_style=1&endpoint="+serve(t, expiring(newModel(), &want)).URL)
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.Create(t.Context(), "k", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	want.Store(newKey)
	for range 3 { // nobody has renewed them yet
		_, err := s.Replace(t.Context(), "k", []byte("2"), v)
		checkAnswer(t, "replace", err, denied, "expired")
	}
	writeKeys(t, file, newKey)
	if _, err := s.Replace(t.Context(), "k", []byte("2"), v); err != nil {
		t.Errorf("with newer credentials in the file: %v", err)
	}
}

// The credentials of a client that a program made itself are asked for again.
//
// CASE B65
func TestExpiredCredentialsOfAClientAreAskedForAgain(t *testing.T) {
	t.Parallel()
	var want, have atomic.Value
	want.Store(testKey)
	have.Store(testKey)
	o := rawClient(serve(t, expiring(newModel(), &want)).URL, testKey, testSecret).Options()
	o.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: have.Load().(string), SecretAccessKey: testSecret}, nil
	}))
	s, err := New(s3.New(o), Config{Bucket: "bucket", Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	v, err := s.Create(t.Context(), "k", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	want.Store(newKey)
	have.Store(newKey)
	_, err = s.Replace(t.Context(), "k", []byte("2"), v)
	checkAnswer(t, "replace", err, denied, "expired")
	if _, err = s.Replace(t.Context(), "k", []byte("2"), v); err != nil {
		t.Errorf("with newer credentials: %v", err)
	}
}

// Without credentials nothing is sent, and that is a denial; a service that
// gives credentials but cannot be reached is a matter of time.
//
// SPEC ST8
func TestNoCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(name, "")
	}
	rec := &recorder{next: newModel()}
	at := "s3://bucket/p?conditional_delete=1&path_style=1&endpoint=" + serve(t, rec).URL
	s, err := openText(t, at)
	if err != nil {
		t.Fatal(err)
	}
	wantKinds(t, s, all(denied, denied), "credentials")
	// A role that a service of this machine should give, which is not there.
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-web-identity-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/x")
	t.Setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	if s, err = openText(t, at); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	wantKinds(t, s, all(unavailable, unavailable), "could not be reached")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := len(rec.take()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}
