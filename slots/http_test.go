package slots

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/tenure-project/tenure/internal/core/slots"
	"github.com/tenure-project/tenure/store"
)

// slotHeader names a request's slot in the tests.
const slotHeader = "X-Slot"

func slotOfTest(r *http.Request) (uint16, bool, error) {
	text := r.Header.Get(slotHeader)
	if text == "" {
		return 0, false, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), true, err
}

func mustServe(t testing.TB, c ServeConfig, next http.Handler) *Handler {
	t.Helper()
	c.Slot = slotOfTest
	h, err := Serve(c, next)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func askHandler(h http.Handler, method string, slot, epoch string) *http.Response {
	r := httptest.NewRequest(method, "/x", nil)
	if slot != "" {
		r.Header.Set(slotHeader, slot)
	}
	if epoch != "" {
		r.Header.Set(HeaderEpoch, epoch)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// A host serves what it owns, tells who owns the rest, and says 503 where nobody does
// or where naming the owner would send the client in a circle.
// SPEC SL9
func TestServe(t *testing.T) {
	t.Parallel()
	table := newFakeRoutes()
	mine := table.claim(slotRange(0, 9), "me", "me:80")
	theirs := table.claim(slotRange(10, 19), "other", "other:81")
	router := freshRouter(t, table, RouterConfig{Pause: time.Microsecond})
	table.claim(slotRange(20, 29), "me", "me:80") // the router does not know yet
	table.claim(slotRange(30, 39), "me", "me:80")
	if err := router.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	table.free(slotRange(30, 39)) // the router still thinks that this host owns it
	table.claim(slotRange(40, 49), "me", "me:80")
	var served *Served
	h := mustServe(t, ServeConfig{Host: fakeServer{table, "me"}, Owner: "me", Router: router, RetryAfter: 1500 * time.Millisecond},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s, ok := SlotFrom(r.Context()); ok {
				served = &s
			}
			w.WriteHeader(http.StatusTeapot)
		}))
	epoch := func(e uint64) string { return strconv.FormatUint(e, 10) }
	for _, c := range []struct {
		name, slot, epoch string
		status            int
		owner             string
	}{
		{"its own", "3", "", http.StatusTeapot, ""},
		{"its own, asked for by the epoch it has", "3", epoch(mine), http.StatusTeapot, ""},
		{"its own, asked for by an older epoch", "41", epoch(1), http.StatusTeapot, ""},
		{"its own, asked for by a newer epoch", "3", epoch(mine + 90), http.StatusServiceUnavailable, ""},
		{"its own, unknown to the router", "45", "", http.StatusTeapot, ""},
		{"another's", "12", "", http.StatusMisdirectedRequest, "other"},
		{"another's, asked for by its epoch", "12", epoch(theirs), http.StatusMisdirectedRequest, "other"},
		{"another's, asked for by a newer epoch", "12", epoch(theirs + 90), http.StatusServiceUnavailable, ""},
		{"nobody's", "16383", "", http.StatusServiceUnavailable, ""},
		{"its own by the table, but the grant is over", "33", "", http.StatusServiceUnavailable, ""},
		{"no slot", "", "", http.StatusTeapot, ""},
		{"a slot that cannot be read", "x", "", http.StatusBadRequest, ""},
		{"a slot that is none", "16384", "", http.StatusInternalServerError, ""},
		{"an epoch that is none", "3", "-1", http.StatusBadRequest, ""},
		{"an epoch beyond all", "3", "9007199254740992", http.StatusBadRequest, ""},
	} {
		for _, method := range []string{"GET", "POST", "HEAD"} {
			served = nil
			res := askHandler(h, method, c.slot, c.epoch)
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != c.status || res.Header.Get(HeaderOwner) != c.owner {
				t.Errorf("%s, %s: status %d, owner %q; want %d, %q", c.name, method, res.StatusCode, res.Header.Get(HeaderOwner), c.status, c.owner)
			}
			if (served != nil) != (c.status == http.StatusTeapot && c.slot != "") {
				t.Errorf("%s, %s: served under %v", c.name, method, served)
			}
			if c.status == http.StatusTeapot {
				continue
			}
			if res.Header.Get("Cache-Control") != "no-store" || (len(body) == 0) != (method == "HEAD") {
				t.Errorf("%s, %s: headers %v, body %q", c.name, method, res.Header, body)
			}
		}
	}
}

// A refusal says the same in its headers and in its body, and is read back.
// SPEC SL9
func TestRefusal(t *testing.T) {
	t.Parallel()
	table := newFakeRoutes()
	theirs := table.claim(slotRange(10, 19), "other", "https://other:81")
	h := mustServe(t, ServeConfig{Host: fakeServer{table, "me"}, Owner: "me", Router: freshRouter(t, table, RouterConfig{}), RetryAfter: 1500 * time.Millisecond}, http.NotFoundHandler())
	res := askHandler(h, "PUT", "12", "")
	var body map[string]any
	text, _ := io.ReadAll(res.Body)
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"slot": 12.0, "range": "10-19", "owner": "other", "address": "https://other:81", "epoch": float64(theirs), "retry_after_ms": 0.0,
	} {
		if body[field] != want {
			t.Errorf("body: %s is %v, want %v", field, body[field], want)
		}
	}
	for name, want := range map[string]string{
		HeaderSlot: "12", HeaderOwner: "other", HeaderOwnerAddress: "https://other:81", HeaderEpoch: strconv.FormatUint(theirs, 10), "Retry-After": "",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, method := range []string{"GET", "HEAD"} {
		f, err := ReadRefusal(askHandler(h, method, "12", ""))
		if err != nil || f.Slot != 12 || f.Owner != "other" || f.Address != "https://other:81" || f.Epoch != theirs {
			t.Errorf("%s: %+v, %v", method, f, err)
		}
	}
	f, err := ReadRefusal(askHandler(h, "GET", "500", ""))
	if err != nil || f.Slot != 500 || f.RetryAfterMS != 1500 || f.Owner != "" || f.Error == "" {
		t.Errorf("nobody's: %+v, %v", f, err)
	}
	if got := askHandler(h, "GET", "500", "").Header.Get("Retry-After"); got != "2" {
		t.Errorf("Retry-After %q, want 2: rounded up", got)
	}
}

// What cannot be a refusal is no refusal, however long it is.
// SPEC SL9
func TestReadRefusalOfSomethingElse(t *testing.T) {
	t.Parallel()
	long := strings.NewReader(strings.Repeat(" ", maxRefusalBody*4))
	answer := func(status int, body io.Reader, header ...string) *http.Response {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(body)}
	}
	for name, res := range map[string]*http.Response{
		"another status": answer(200, strings.NewReader(`{"slot":1}`), HeaderSlot, "1"),
		"no slot":        answer(503, strings.NewReader(`{"error":"overloaded"}`)),
		"nothing":        answer(421, strings.NewReader("")),
		"a page":         answer(503, strings.NewReader("<html>")),
		"a slot beyond":  answer(421, strings.NewReader(`{"slot":16384}`)),
		"two objects":    answer(421, strings.NewReader(`{"slot":1}{"slot":2}`)),
		"a far range":    answer(421, strings.NewReader(`{"slot":1,"range":"5-9"}`)),
		"a bad range":    answer(421, strings.NewReader(`{"slot":1,"range":"9-5"}`)),
		"an epoch":       answer(421, strings.NewReader(`{"slot":1,"epoch":9007199254740992}`)),
		"a header slot":  answer(421, strings.NewReader(`{"slot":1}`), HeaderSlot, "70000"),
		"a header epoch": answer(421, strings.NewReader(`{"slot":1}`), HeaderEpoch, "x"),
		"a long wait":    answer(503, strings.NewReader(`{"slot":1,"retry_after_ms":99999999999}`)),
		"an escape":      answer(421, strings.NewReader(`{"slot":1,"owner":"\u001b[2J"}`)),
		"a long name":    answer(421, strings.NewReader(`{"slot":1,"owner":"`+strings.Repeat("x", 1025)+`"}`)),
		"a long body":    answer(421, long, HeaderSlot, "1"),
	} {
		if f, err := ReadRefusal(res); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	if read := maxRefusalBody*4 - long.Len(); read > maxRefusalBody+1024 {
		t.Errorf("%d bytes of a long body were read", read)
	}
}

// A request's context ends with the grant that it is served under, for the same reason.
// SPEC SL9 SL6
func TestRequestEndsWithItsGrant(t *testing.T) {
	t.Parallel()
	table := newFakeRoutes()
	epoch := table.claim(slotRange(0, 9), "me", "me:80")
	host := fakeServer{table, "me"}
	began := make(chan struct{})
	var cause error
	h := mustServe(t, ServeConfig{Host: host, Owner: "me", Grant: host.grant}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, ok := SlotFrom(r.Context()); !ok || s != (Served{5, epoch}) {
			t.Errorf("served under %v, %v", s, ok)
		}
		close(began)
		<-r.Context().Done()
		cause = context.Cause(r.Context())
	}))
	done := make(chan struct{})
	go func() { defer close(done); askHandler(h, "POST", "5", "") }()
	<-began
	table.free(slotRange(0, 9))
	<-done
	if !errors.Is(cause, errMoved) {
		t.Errorf("cause %v", cause)
	}
}

// A drain begins nothing new, waits for what runs, and holds for its epoch only.
// SPEC SL8 SL9
func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := newFakeRoutes()
		epoch := table.claim(slotRange(0, 9), "me", "me:80")
		finish, inside := make(chan struct{}), make(chan struct{}, 10)
		h := mustServe(t, ServeConfig{Host: fakeServer{table, "me"}, Owner: "me"}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside <- struct{}{}
			<-finish
		}))
		for _, slot := range []string{"0", "9", "9"} {
			go askHandler(h, "POST", slot, "")
			<-inside
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Drain(short, slotRange(0, 9), epoch); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("with requests running: %v", err)
		}
		drained := make(chan error, 1)
		go func() { drained <- h.Drain(t.Context(), slotRange(0, 9), epoch) }()
		synctest.Wait()
		if res := askHandler(h, "POST", "4", ""); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("a new request: %d", res.StatusCode)
		}
		for range 3 {
			select {
			case err := <-drained:
				t.Fatalf("drained too early: %v", err)
			default:
			}
			finish <- struct{}{}
			synctest.Wait()
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		close(finish)
		h.Resume(slotRange(0, 4))
		if a, b := askHandler(h, "GET", "4", "").StatusCode, askHandler(h, "GET", "5", "").StatusCode; a != 200 || b != 503 {
			t.Errorf("resumed %d, still drained %d", a, b)
		}
		table.claim(slotRange(0, 9), "me", "me:80")
		if res := askHandler(h, "GET", "5", ""); res.StatusCode != 200 {
			t.Errorf("under a new epoch: %d", res.StatusCode)
		}
	})
}

// A handler without what it needs is refused before it serves anything.
func TestServeConfig(t *testing.T) {
	t.Parallel()
	host := fakeServer{newFakeRoutes(), "me"}
	good := ServeConfig{Host: host, Owner: "me", Slot: slotOfTest}
	for name, spoil := range map[string]func(c *ServeConfig){
		"host": func(c *ServeConfig) { c.Host = nil }, "owner": func(c *ServeConfig) { c.Owner = "" },
		"slot": func(c *ServeConfig) { c.Slot = nil }, "retry": func(c *ServeConfig) { c.RetryAfter = -1 },
	} {
		c := good
		spoil(&c)
		if _, err := Serve(c, http.NotFoundHandler()); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Serve(good, nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("no handler: %v", err)
	}
	h, err := Serve(good, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Drain(t.Context(), core.Range{A: 5, B: 4}, 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a bad range: %v", err)
	}
}

var _ EpochSource = (*Host)(nil)
