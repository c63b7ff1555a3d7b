package slots

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Hosts that lie: what they answer is followed at most once, and never to where the
// table does not point.
// SPEC SL9
func TestTransportAndALyingHost(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	var secrets atomic.Value
	var allow atomic.Bool
	var strange string
	k := newRoutedHosts(t, TransportConfig{Allow: func(scheme, host string) bool {
		return allow.Load() && scheme == "http" && host == strange
	}})
	strange = k.server(func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		secrets.Store(r.Header.Get("Authorization") + r.Header.Get("Cookie") + r.Header.Get("Traceparent"))
	})
	known := k.server(func(http.ResponseWriter, *http.Request) {})
	var say atomic.Value // of func(w)
	liar := k.server(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderSlot, "7")
		w.Header().Set(HeaderEpoch, "1000")
		say.Load().(func(http.ResponseWriter))(w)
		w.WriteHeader(http.StatusMisdirectedRequest)
		_, _ = io.Copy(w, endlessBody{}) // until the client hangs up
	})
	k.table.claim(slotRange(0, 99), "liar", liar)
	k.table.claim(slotRange(200, 299), "known", known)
	address := func(a string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set(HeaderOwnerAddress, a) }
	}
	with := func(name, value string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { address(known)(w); w.Header().Set(name, value) }
	}
	for _, c := range []struct {
		name   string
		say    func(http.ResponseWriter)
		allow  bool
		status int
		sends  int64
		beyond int64
	}{
		{"a host that the table does not know", address(strange), false, 421, 1, 0},
		{"the same, by URL", address("http://" + strange), false, 421, 1, 0},
		{"the same, allowed", address(strange), true, 200, 2, 1},
		{"itself", address(liar), false, 421, 1, 0},
		{"itself, by URL, allowed", address("HTTP://" + liar + "/"), true, 421, 1, 0},
		{"a known host", address(known), false, 200, 2, 0},
		{"an address with a path", address("http://" + known + "/steal"), false, 421, 1, 0},
		{"an address with a user", address("http://u:p@" + known), false, 421, 1, 0},
		{"no address", address(""), false, 421, 1, 0},
		{"another slot", with(HeaderSlot, "8"), false, 421, 1, 0},
		{"an older epoch", with(HeaderEpoch, "1"), false, 421, 1, 0},
		{"no epoch", with(HeaderEpoch, ""), false, 421, 1, 0},
		{"an epoch beyond all", with(HeaderEpoch, "99999999999999999999"), false, 421, 1, 0},
	} {
		say.Store(c.say)
		allow.Store(c.allow)
		elsewhere.Store(0)
		status, _, sends, err := k.do("POST", 7, strings.NewReader("x"), func(r *http.Request) {
			r.Header.Set("Authorization", "secret")
			r.Header.Set("Cookie", "secret")
			r.Header.Set("Traceparent", "T")
		})
		if status != c.status || sends != c.sends || elsewhere.Load() != c.beyond || err != nil {
			t.Errorf("%s: status %d after %d sends, %d elsewhere, %v; want %d, %d, %d", c.name, status, sends, elsewhere.Load(), err, c.status, c.sends, c.beyond)
		}
	}
	if got := secrets.Load(); got != "T" {
		t.Errorf("what came elsewhere: %q, want the trace alone", got)
	}
}

type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) { return len(p), nil }

// Two hosts that name each other for ever get a request once each.
// SPEC SL9
func TestTransportNeverLoops(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	var epoch atomic.Uint64
	epoch.Store(100)
	pass := func(to *string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			k.table.claim(slotRange(0, 99), *to, *to) // the table follows them, too
			w.Header().Set(HeaderSlot, "7")
			w.Header().Set(HeaderEpoch, strconv.FormatUint(epoch.Add(1), 10))
			w.Header().Set(HeaderOwnerAddress, *to)
			w.WriteHeader(http.StatusMisdirectedRequest)
		}
	}
	var a, b string
	a = k.server(pass(&b))
	b = k.server(pass(&a))
	k.table.claim(slotRange(0, 99), a, a)
	for range 20 {
		if status, _, sends, err := k.do("POST", 7, strings.NewReader("x")); status != 421 || sends != 2 || err != nil {
			t.Fatalf("status %d after %d sends, %v", status, sends, err)
		}
	}
}

// While the store is away the refusal's own address is followed, and a refusal that
// leads nowhere comes back without a wait for the store.
// SPEC SL9
func TestTransportFollowsWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	b := k.host("b", echoServed("b"))
	a := k.server(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderSlot, "7")
		w.Header().Set(HeaderEpoch, "3")
		w.Header().Set(HeaderOwnerAddress, b)
		w.WriteHeader(http.StatusMisdirectedRequest)
	})
	k.table.claim(slotRange(0, 99), "a", a)
	k.table.claim(slotRange(100, 199), "b", b)
	_ = k.router.Refresh(t.Context())
	k.table.claim(slotRange(0, 99), "b", b)
	k.table.set(func(f *fakeRoutes) { f.away = true })
	// b's own router cannot read either, but it serves what it owns.
	if status, text, sends, err := k.do("PUT", 7, strings.NewReader("x")); status != 200 || sends != 2 || err != nil {
		t.Errorf("status %d, %q after %d sends, %v", status, text, sends, err)
	}
}

// A refusal that is older than the table is not followed, also where the table's own
// owner cannot be reached.
// SPEC SL9
func TestTransportDoesNotFollowOldNews(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	b := k.host("b", echoServed("b"))
	a := k.server(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(HeaderSlot, "7")
		w.Header().Set(HeaderEpoch, "3")
		w.Header().Set(HeaderOwnerAddress, b)
		w.WriteHeader(http.StatusMisdirectedRequest)
	})
	k.table.claim(slotRange(0, 99), "a", a)
	k.table.claim(slotRange(100, 199), "b", b)
	_ = k.router.Refresh(t.Context())
	k.table.claim(slotRange(0, 99), "b", b)
	k.table.claim(slotRange(0, 99), "mute", "")
	if status, _, sends, err := k.do("PUT", 7, strings.NewReader("x")); status != 421 || sends != 1 || err != nil {
		t.Errorf("status %d after %d sends, %v", status, sends, err)
	}
}

// A refresh that was under way when the answer came may know less than the answer: the
// table is read once more, and then the owner is found.
// SPEC SL9
func TestTransportReadsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	b := k.host("b", echoServed("b"))
	refused, began := make(chan struct{}), make(chan struct{})
	a := k.server(func(w http.ResponseWriter, r *http.Request) {
		<-began // the read has its answer from before the move
		k.table.claim(slotRange(0, 99), "b", b)
		w.Header().Set(HeaderSlot, "7")
		w.WriteHeader(http.StatusMisdirectedRequest)
		close(refused)
	})
	k.table.claim(slotRange(0, 99), "a", a)
	_ = k.router.Refresh(t.Context())
	old := make(chan error, 1)
	var once sync.Once
	k.table.set(func(f *fakeRoutes) {
		f.after = func(context.Context) { once.Do(func() { close(began); <-refused }) }
	})
	go func() { old <- k.router.Refresh(context.Background()) }()
	if status, text, sends, err := k.do("PUT", 7, strings.NewReader("x")); status != 200 || sends != 2 || err != nil {
		t.Errorf("status %d, %q after %d sends, %v", status, text, sends, err)
	}
	if err := <-old; err != nil {
		t.Error(err)
	}
}

// Each send tells the epoch that the client knows, unless the caller told one.
// SPEC SL9
func TestTransportTellsTheEpoch(t *testing.T) {
	t.Parallel()
	k := newRoutedHosts(t, TransportConfig{})
	var told []string
	note := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			told = append(told, r.Header.Get(HeaderEpoch)) // one request at a time
			w.WriteHeader(status)
		}
	}
	a, b := k.server(note(421)), k.server(note(200))
	first := k.table.claim(slotRange(0, 99), "a", a)
	_ = k.router.Refresh(t.Context())
	second := k.table.claim(slotRange(0, 99), "b", b)
	var header http.Header
	if status, _, _, err := k.do("GET", 7, nil, func(r *http.Request) { header = r.Header }); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	if _, set := header[HeaderEpoch]; set {
		t.Error("the caller's request was changed")
	}
	_, _, _, _ = k.do("GET", 7, nil, func(r *http.Request) { r.Header.Set(HeaderEpoch, "1") })
	if want := fmt.Sprint([]string{fmt.Sprint(first), fmt.Sprint(second), "1"}); fmt.Sprint(told) != want {
		t.Errorf("told %v, want %v", told, want)
	}
}
