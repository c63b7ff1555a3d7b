package s3store

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenure-project/tenure/store"
)

var everyOp = []string{opGet, opCreate, opReplace, opDelete, opDeleteIf, opList}

func wantKinds(t *testing.T, s *Store, want kinds, says string) {
	t.Helper()
	for _, op := range everyOp {
		checkAnswer(t, op, run(t.Context(), s, op), want[op], says)
	}
}

// dialing is a client of endpoint whose connections are made by dial.
func dialing(t testing.TB, endpoint string, dial dialer) *Store {
	t.Helper()
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(endpoint), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(testKey, testSecret, testSession),
		HTTPClient:  &http.Client{Transport: &http.Transport{DialContext: dial}},
	})
	s, err := New(client, Config{Bucket: "bucket", Prefix: "p", ConditionalDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// What could not even connect did nothing.
//
// SPEC ST8 ST9
func TestNoConnectionIsUnavailable(t *testing.T) {
	t.Parallel()
	srv := serve(t, newModel())
	gone := srv.URL
	srv.Close()
	still := all(unavailable, unavailable)
	wantKinds(t, at(t, gone), still, "refused")
	wantKinds(t, dialing(t, "http://s3.invalid", func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "s3.invalid", IsNotFound: true}
	}), still, "no such host")
	wantKinds(t, at(t, serveTLS(t, newModel()).URL), still, "certificate")
}

// A connection that broke after it was made may have carried the write.
//
// SPEC ST9
// CASE B02
func TestBrokenConnectionIsUnknown(t *testing.T) {
	t.Parallel()
	srv := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	wantKinds(t, at(t, srv.URL), all(unavailable, unknown), "")
}

// lossy forwards each write to the model, counts it, and drops the reply.
func lossy(m http.Handler, writes *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			m.ServeHTTP(w, r)
			return
		}
		writes.Add(1)
		m.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
}

// The reply is lost after the write took effect: the driver sends it once, says
// that it does not know, and the write is there. It is so also for a client
// whose owner wants retries.
//
// SPEC ST9
// CASE B02
func TestLostReply(t *testing.T) {
	t.Parallel()
	m, writes := newModel(), new(atomic.Int64)
	srv := serve(t, lossy(m, writes))
	o := rawClient(srv.URL, testKey, testSecret).Options()
	o.RetryMaxAttempts = 5
	o.Retryer = nil
	s, err := New(s3.New(o), Config{Bucket: "bucket", Prefix: "p"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	sendsOnce(t, s, m, writes)
}

func sendsOnce(t *testing.T, s *Store, m *model, writes *atomic.Int64) {
	t.Helper()
	_, err := s.Create(t.Context(), "k", []byte("first"))
	checkAnswer(t, "create", err, unknown, "")
	if n, body := writes.Load(), m.body("p/k!"); n != 1 || body != "first" {
		t.Errorf("create: sent %d times, the object holds %q", n, body)
	}
	o, err := s.Get(t.Context(), "k", 100)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Replace(t.Context(), "k", []byte("second"), o.Version)
	checkAnswer(t, "replace", err, unknown, "")
	if n, body := writes.Load(), m.body("p/k!"); n != 2 || body != "second" {
		t.Errorf("replace: sent %d times in all, the object holds %q", n, body)
	}
	checkAnswer(t, "delete", s.Delete(t.Context(), "k"), unknown, "")
	if n, body := writes.Load(), m.body("p/k!"); n != 3 || body != "" {
		t.Errorf("delete: sent %d times in all, the object holds %q", n, body)
	}
}

// hanging answers nothing until it is let go; arrived says that a request came.
func hanging(t testing.TB) (url string, arrived chan struct{}) {
	arrived = make(chan struct{}, 100)
	release := make(chan struct{})
	srv := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(func() { close(release) })
	return srv.URL, arrived
}

// A server that does not answer holds nobody up past the context's end.
//
// SPEC ST13
// CASE B05
func TestHungServer(t *testing.T) {
	t.Parallel()
	url, arrived := hanging(t)
	s := at(t, url)
	for op, want := range all(unavailable, unknown) {
		ctx, cancel := context.WithCancelCause(t.Context())
		patience := errors.New("nobody waits any more")
		go func() {
			<-arrived
			cancel(patience)
		}()
		began := time.Now()
		err := run(ctx, s, op)
		checkAnswer(t, op, err, want, "")
		if !errors.Is(err, patience) {
			t.Errorf("%s: %v does not say why it ended", op, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", op, took)
		}
	}
}

// A body that stops in the middle holds nobody up either.
//
// SPEC ST13
func TestHungBody(t *testing.T) {
	t.Parallel()
	stop, begun := make(chan struct{}), make(chan struct{})
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", goodTag)
		w.Header().Set("Content-Length", "50")
		_, _ = w.Write([]byte("bo"))
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-stop
	}))
	t.Cleanup(func() { close(stop) })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	err := run(ctx, at(t, srv.URL), opGet)
	checkAnswer(t, opGet, err, unavailable, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not say that it was cancelled", err)
	}
}

// Close ends the calls in flight.
//
// SPEC ST13
// CASE B73
func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	url, arrived := hanging(t)
	s := at(t, url)
	done := make(chan error, 1)
	go func() {
		_, err := s.Create(context.WithoutCancel(t.Context()), "k", []byte("x"))
		done <- err
	}()
	<-arrived
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	err := <-done
	checkAnswer(t, opCreate, err, unknown, "closed")
	for _, op := range everyOp {
		checkAnswer(t, op, run(t.Context(), s, op), store.ErrUnavailable, "closed")
	}
}
