package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/storage"

	"github.com/tenure-project/tenure/store"
)

// Each operation is one request: conditional, whole, and with nothing that lets
// somebody on the way change it.
//
// SPEC ST1 ST2 ST9
func TestRequests(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	s := cl.open(t, "pre/fix")
	sent := func(want ...string) {
		t.Helper()
		if got := cl.requests(); !slices.Equal(got, want) {
			t.Errorf("the requests were %q, want %q", got, want)
		}
		cl.mu.Lock()
		defer cl.mu.Unlock()
		for _, r := range cl.seen {
			if e := r.Header.Get("Accept-Encoding"); e != "identity" {
				t.Errorf("%s %s has Accept-Encoding %q", r.Method, r.URL, e)
			}
			if q := r.URL.Query(); kindOf(r) == "upload" && (q.Get("ifGenerationMatch") == "" || q.Get("uploadType") != "multipart" || q.Get("name") == "") {
				t.Errorf("the upload %s has no condition or is not whole", r.URL)
			}
		}
		cl.seen = nil
	}
	ctx := t.Context()
	v, err := s.Create(ctx, testKey, []byte("1"))
	is(t, err, nil)
	sent("upload")
	if o := cl.buckets[testBucket]["pre/fix/"+testKey]; o.CacheControl != cacheControl || o.ContentEncoding != "" {
		t.Errorf("the object has cache control %q and encoding %q", o.CacheControl, o.ContentEncoding)
	}
	_, err = s.Get(ctx, testKey, 10)
	is(t, err, nil)
	sent("download")
	w, err := s.Replace(ctx, testKey, []byte("2"), v)
	is(t, err, nil)
	sent("upload")
	_, err = s.Create(ctx, testKey, []byte("3"))
	is(t, err, store.ErrExists)
	sent("upload")
	_, err = s.Replace(ctx, testKey, []byte("3"), v)
	is(t, err, store.ErrConflict)
	sent("upload", "look")
	_, err = s.Replace(ctx, testKey, []byte("3"), "0") // must not become "does not exist"
	is(t, err, store.ErrConflict)
	sent("look")
	_, err = s.Replace(ctx, testKey+"-not", []byte("3"), w)
	is(t, err, store.ErrNotFound)
	sent("upload", "look")
	_, err = s.Get(ctx, testKey+"-not", 10)
	is(t, err, store.ErrNotFound)
	sent("download")
	is(t, s.DeleteIf(ctx, testKey, v), store.ErrConflict)
	sent("delete", "look")
	is(t, s.DeleteIf(ctx, testKey, w), nil)
	sent("delete")
	is(t, s.Delete(ctx, testKey), nil)
	sent("delete")
}

// A write whose reply is lost is unknown, was sent once, and is there.
//
// SPEC ST9
// CASE B02 B24
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		if !op.write {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			var cl *cloud
			cl = newCloud(t, func(w http.ResponseWriter, r *http.Request) bool {
				cl.answer(httptest.NewRecorder(), r)
				raw("")(w, r)
				return true
			})
			cl.put(testKey, present)
			s := cl.open(t, "")
			is(t, op.call(t.Context(), s, version(cl.last)), store.ErrUnknown)
			if got := cl.requests(); !slices.Equal(got, []string{op.what}) {
				t.Errorf("the requests were %q, want one %q", got, op.what)
			}
			old, there := cl.body(testKey)
			created, _ := cl.body(testKey + "-new")
			if done := map[string]bool{"create": created == "new", "replace": old == "replaced", "delete": !there, "delete-if": !there}; !done[op.name] {
				t.Errorf("the write is not there: %q (%v), %q", old, there, created)
			}
		})
	}
}

// The library's repeats are off, and where they are on, the wire refuses them.
//
// SPEC ST9
func TestNoRepeats(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		for _, repeats := range []bool{false, true} {
			t.Run(fmt.Sprint(op.name, repeats), func(t *testing.T) {
				t.Parallel()
				cl := newCloud(t, func(w http.ResponseWriter, _ *http.Request) bool {
					refuse(w, 503, "backendError", "Backend error")
					return true
				})
				s := cl.open(t, "")
				want, says := store.ErrUnavailable, "503"
				if op.write {
					want = store.ErrUnknown
				}
				if repeats {
					s.bucket, says = s.bucket.Retryer(storage.WithPolicy(storage.RetryAlways)), "was refused"
					switch op.what {
					case "list":
						says = "twice"
					case "upload": // a body that streams is not repeated in any case
						says = "503"
					}
				}
				err := op.call(t.Context(), s, "7")
				is(t, err, want)
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("the message does not say %q: %v", says, err)
				}
				if n := len(cl.requests()); n != 1 {
					t.Errorf("%d requests reached the server", n)
				}
			})
		}
	}
}

// A success of a write is one only if the reply describes what was written.
//
// SPEC ST9
func TestUploadReplies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reply string
		want  error
	}{
		"right":         {`{"name":"n/lease/k-new","bucket":"leases","generation":"7","size":"3"}`, nil},
		"no generation": {`{"name":"n/lease/k-new","bucket":"leases","size":"3"}`, store.ErrUnknown},
		"generation 0":  {`{"name":"n/lease/k-new","bucket":"leases","generation":"0","size":"3"}`, store.ErrUnknown},
		"negative":      {`{"name":"n/lease/k-new","bucket":"leases","generation":"-7","size":"3"}`, store.ErrUnknown},
		"other name":    {`{"name":"n/lease/k","bucket":"leases","generation":"7","size":"3"}`, store.ErrUnknown},
		"other size":    {`{"name":"n/lease/k-new","bucket":"leases","generation":"7","size":"2"}`, store.ErrUnknown},
		"more after it": {`{"name":"n/lease/k-new","bucket":"leases","generation":"7","size":"3"}` + strings.Repeat(" ", maxReply), store.ErrUnknown},
	} {
		cl := newCloud(t, func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, c.reply)
			return true
		})
		v, err := cl.open(t, "").Create(t.Context(), testKey+"-new", []byte("new"))
		if is(t, err, c.want); t.Failed() {
			t.Fatalf("the reply was %s", name)
		}
		if err == nil && v != "7" {
			t.Errorf("the version is %q", v)
		}
	}
}

// A request that could not be sent has done nothing; one that was cut off may
// have.
//
// SPEC ST8 ST9
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := l.Addr().String()
	_ = l.Close()
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closing.Close() }()
	go func() { // accepts and hangs up
		for {
			c, err := closing.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	for _, c := range []struct {
		endpoint      string
		reads, writes error
	}{
		{"http://" + refused, store.ErrUnavailable, store.ErrUnavailable},
		{"https://" + closing.Addr().String(), store.ErrUnavailable, store.ErrUnavailable}, // before TLS stands
		{"http://" + closing.Addr().String(), store.ErrUnavailable, store.ErrUnknown},
	} {
		s := openStore(t, Config{Bucket: testBucket, Endpoint: c.endpoint, Anonymous: true})
		for _, op := range operations {
			want := c.reads
			if op.write {
				want = c.writes
			}
			is(t, op.call(t.Context(), s, "7"), want)
		}
	}
}

// A transport of the caller's does not say what it sent, so no failure of it is
// taken for harmless.
//
// SPEC ST9
func TestForeignClient(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	var broken atomic.Bool
	hc := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if broken.Load() {
			return nil, errors.New("it went wrong")
		}
		return own.RoundTrip(r)
	})}
	s := openStore(t, Config{Bucket: testBucket, Endpoint: cl.URL, HTTPClient: hc})
	v, err := s.Create(t.Context(), testKey, []byte(present))
	is(t, err, nil)
	broken.Store(true)
	for _, op := range operations {
		want := store.ErrUnavailable
		if op.write {
			want = store.ErrUnknown
		}
		is(t, op.call(t.Context(), s, v), want)
	}
}

// A body that was changed on its way is none, even if it was changed back.
//
// SPEC ST3
func TestForeignClientDecompresses(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	cl.put(testKey, present)
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	hc := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		res, err := own.RoundTrip(r)
		if err == nil {
			res.Uncompressed = true
		}
		return res, err
	})}
	_, err := openStore(t, Config{Bucket: testBucket, Endpoint: cl.URL, HTTPClient: hc}).Get(t.Context(), testKey, 100)
	is(t, err, store.ErrUnavailable)
}

// A client that was brought signs its requests itself; its token stays as secret
// as one of ours.
func TestForeignTokenStaysSecret(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, func(w http.ResponseWriter, r *http.Request) bool {
		refuse(w, 403, "echo", fmt.Sprint(r.Header))
		return true
	})
	own := &http.Transport{}
	defer own.CloseIdleConnections()
	hc := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+secret)
		return own.RoundTrip(r)
	})}
	s := openStore(t, Config{Bucket: testBucket, Endpoint: cl.URL, HTTPClient: hc})
	for _, op := range operations {
		err := op.call(t.Context(), s, "7")
		is(t, err, store.ErrDenied)
		if err == nil || shows(err, secret) || !strings.Contains(err.Error(), "[hidden]") {
			t.Errorf("%s: the message is %v", op.name, err)
		}
	}
}

// A proxy's address may hold a password.
func TestProxyStaysSecret(t *testing.T) {
	t.Parallel()
	bad := "http://user:" + secret + "@[" // no URL
	_, err := proxyOf(func(*http.Request) (*url.URL, error) { return url.Parse(bad) })(nil)
	if err == nil || shows(err, secret) {
		t.Errorf("the error is %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that hangs holds no call beyond its context, nor beyond Close.
//
// SPEC ST13
// CASE B05 B73
func TestHungServer(t *testing.T) {
	t.Parallel()
	for _, op := range operations {
		for _, closes := range []bool{false, true} {
			arrived, free := make(chan struct{}, 1), make(chan struct{})
			cl := newCloud(t, func(http.ResponseWriter, *http.Request) bool {
				arrived <- struct{}{}
				<-free
				return true
			})
			t.Cleanup(func() { close(free) })
			s := cl.open(t, "")
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("nobody waits")
			go func() {
				<-arrived
				if closes {
					_ = s.Close()
				} else {
					cancel(why)
				}
			}()
			start := time.Now()
			err := op.call(ctx, s, "7")
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%s took %v", op.name, took)
			}
			want := store.ErrUnavailable
			if op.write {
				want = store.ErrUnknown
			}
			is(t, err, want)
			if !closes && !errors.Is(err, why) {
				t.Errorf("%s gave %v, which does not say why", op.name, err)
			}
			cancel(nil)
		}
	}
}

// A body above the limit is refused by its announced size, before it comes.
//
// SPEC ST7
func TestLargeBodyIsNotLoaded(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	cl := newCloud(t, func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "1099511627776")
		w.Header().Set("X-Goog-Generation", "7")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-free // the body never comes
		return true
	})
	t.Cleanup(func() { close(free) })
	_, err := cl.open(t, "").Get(t.Context(), testKey, 1000)
	is(t, err, store.ErrCorrupt)
}

// What a look after a refusal finds is the answer, and a look that fails makes
// no claim about the object.
//
// SPEC ST2 ST3
func TestLookAfterRefusal(t *testing.T) {
	t.Parallel()
	var cl *cloud
	var look func(w http.ResponseWriter, r *http.Request) bool
	cl = newCloud(t, func(w http.ResponseWriter, r *http.Request) bool { return kindOf(r) == "look" && look(w, r) })
	s := cl.open(t, "")
	cl.put(testKey, present)
	replace := func(ctx context.Context) error {
		_, err := s.Replace(ctx, testKey, []byte("x"), "7")
		return err
	}
	look = func(http.ResponseWriter, *http.Request) bool { return false }
	is(t, replace(t.Context()), store.ErrConflict)
	look = func(http.ResponseWriter, *http.Request) bool { // it goes in between
		cl.mu.Lock()
		defer cl.mu.Unlock()
		delete(cl.buckets[testBucket], testKey)
		return false
	}
	is(t, replace(t.Context()), store.ErrNotFound)
	look = func(w http.ResponseWriter, r *http.Request) bool { refuse(w, 403, "forbidden", "no"); return true }
	err := replace(t.Context())
	is(t, err, store.ErrDenied)
	if !strings.Contains(err.Error(), "storage.objects.get") {
		t.Errorf("the message does not name the right that is missing: %v", err)
	}
	look = func(w http.ResponseWriter, r *http.Request) bool { refuse(w, 503, "backendError", "no"); return true }
	is(t, replace(t.Context()), store.ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	look = func(w http.ResponseWriter, r *http.Request) bool { cancel(); <-r.Context().Done(); return true }
	is(t, replace(ctx), store.ErrUnavailable)
}

// A missing bucket is never an absent key, and deleting from it never succeeds.
//
// SPEC ST3 ST5
func TestMissingBucket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script func(w http.ResponseWriter, r *http.Request) bool
		want   error
	}{
		"said":   {nil, store.ErrInvalid},
		"unsaid": {func(w http.ResponseWriter, r *http.Request) bool { text(404)(w, r); return true }, store.ErrUnavailable},
	} {
		cl := newCloud(t, c.script)
		s := openStore(t, Config{Bucket: "no-such-bucket", Endpoint: cl.URL})
		for _, op := range operations {
			if err := op.call(t.Context(), s, "7"); store.KindOf(err) != c.want {
				t.Errorf("%s, bucket missing and %s: %v, want the kind %v", op.name, name, err, c.want)
			}
		}
	}
}
