package slots

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// What is read from an answer either cannot be one, or keeps every promise and survives
// being written and read again.
// SPEC SL9
func FuzzReadRefusal(f *testing.F) {
	f.Add([]byte(`{"error":"x","slot":12,"range":"10-19","owner":"o","address":"o:1","epoch":3,"retry_after_ms":0}`), "12", "o", "o:1", "3")
	f.Add([]byte(`{"slot":16383,"retry_after_ms":1000}`), "", "", "", "")
	f.Add([]byte(``), "5", "", "http://h", "9")
	f.Add([]byte(`{"slot":1,"owner":"\u0000"}`), "65536", "é", "\r\n", "-1")
	f.Fuzz(func(t *testing.T, body []byte, slot, owner, addr, epoch string) {
		h := http.Header{}
		for name, v := range map[string]string{HeaderSlot: slot, HeaderOwner: owner, HeaderOwnerAddress: addr, HeaderEpoch: epoch} {
			if v != "" {
				h.Set(name, v)
			}
		}
		got, err := ReadRefusal(&http.Response{StatusCode: 421, Header: h, Body: io.NopCloser(bytes.NewReader(body))})
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if got.check() != nil {
			t.Fatalf("%+v: %v", got, got.check())
		}
		w := httptest.NewRecorder()
		got.write(w, httptest.NewRequest("GET", "/", nil), 421)
		again, err := ReadRefusal(w.Result())
		if err != nil {
			t.Fatalf("%+v cannot be read back: %v", got, err)
		}
		if (got.Range == nil) != (again.Range == nil) || got.Range != nil && *got.Range != *again.Range {
			t.Fatalf("range %v became %v", got.Range, again.Range)
		}
		got.Range, again.Range = nil, nil
		got.Error, again.Error = "", ""
		if got != again {
			t.Fatalf("%+v became %+v", got, again)
		}
	})
}

// An address that is accepted is one place: scheme and host, and nothing else.
// SPEC SL9
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"h:80", "https://h", "http://u@h", "[::1]:8", "h/../x", "//h", "http:h", "h%2f:1", "http://h\\@x"} {
		f.Add(s, "http")
		f.Add(s, "https")
	}
	f.Fuzz(func(t *testing.T, text, scheme string) {
		got, err := parseAddress(text, scheme)
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if got.scheme != "https" && (got.scheme != "http" || scheme == "https") {
			t.Fatalf("%q for %q became %q", text, scheme, got.address())
		}
		u, err := url.Parse(got.address())
		if err != nil || u.Host != got.host || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
			t.Fatalf("%q became %q, which is %v, %v", text, got.address(), u, err)
		}
		again, err := parseAddress(got.address(), got.scheme)
		if err != nil || again != got {
			t.Fatalf("%q became %+v, then %+v, %v", text, got, again, err)
		}
	})
}
