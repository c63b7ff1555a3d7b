package gcsstore

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/store"
)

const (
	testKey = "n/lease/k"
	present = "present"
)

// operations are all that a store does, on one key that is present at v. what
// is the request that each sends first.
var operations = []struct {
	name, what string
	write      bool
	call       func(ctx context.Context, s *Store, v store.Version) error
}{
	{"get", "download", false, func(ctx context.Context, s *Store, _ store.Version) error {
		o, err := s.Get(ctx, testKey, 1000)
		if err == nil && string(o.Body) != present {
			return fmt.Errorf("the body is %q", o.Body)
		}
		return err
	}},
	{"create", "upload", true, func(ctx context.Context, s *Store, _ store.Version) error {
		_, err := s.Create(ctx, testKey+"-new", []byte("new"))
		return err
	}},
	{"replace", "upload", true, func(ctx context.Context, s *Store, v store.Version) error {
		_, err := s.Replace(ctx, testKey, []byte("replaced"), v)
		return err
	}},
	{"delete", "delete", true, func(ctx context.Context, s *Store, _ store.Version) error { return s.Delete(ctx, testKey) }},
	{"delete-if", "delete", true, func(ctx context.Context, s *Store, v store.Version) error { return s.DeleteIf(ctx, testKey, v) }},
	{"list", "list", false, func(ctx context.Context, s *Store, _ store.Version) error {
		for _, err := range s.List(ctx, "", "") {
			if err != nil {
				return err
			}
		}
		return nil
	}},
}

// meaning is what each operation makes of one kind of answer.
type meaning struct {
	reads, writes error            // nil: a success
	but           map[string]error // by operation, where it differs
	looks         map[string]int   // by operation: requests after the first; default 0
	says          string           // part of every message
}

func (m meaning) of(op string, write bool) error {
	if err, ok := m.but[op]; ok {
		return err
	}
	if write {
		return m.writes
	}
	return m.reads
}

type row struct {
	name   string
	answer func(w http.ResponseWriter, r *http.Request)
	meaning
}

// text answers with a page of HTML, as something that is no Cloud Storage does.
func text(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "<html>hello</html>")
	}
}

// says answers as the API does: downloads with bare text, the rest with JSON.
func says(code int, reason, message string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		if kindOf(r) == "download" && code == http.StatusNotFound {
			http.Error(w, message, code)
			return
		}
		refuse(w, code, reason, message)
	}
}

// raw answers with these bytes and closes the connection.
func raw(reply string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, reply)
		_ = conn.Close()
	}
}

func refusals() []row {
	unavailable := func(words string) meaning {
		return meaning{reads: store.ErrUnavailable, writes: store.ErrUnavailable, says: words}
	}
	denied := func(words string) meaning {
		return meaning{reads: store.ErrDenied, writes: store.ErrDenied, says: words}
	}
	unknown := func(words string) meaning {
		return meaning{reads: store.ErrUnavailable, writes: store.ErrUnknown, says: words}
	}
	// At the version that the object has, a refusal makes no sense; a look finds
	// that out.
	contradiction := unavailable("")
	contradiction.looks = map[string]int{"get": 1, "replace": 1, "delete": 1, "delete-if": 1}
	object := meaning{reads: store.ErrUnavailable, writes: store.ErrUnavailable,
		but: map[string]error{"get": store.ErrNotFound, "replace": store.ErrNotFound, "delete": nil, "delete-if": store.ErrNotFound}}
	condition := unavailable("")
	condition.but = map[string]error{"create": store.ErrExists}
	condition.looks = map[string]int{"replace": 1, "delete-if": 1}
	unnamed := unavailable("")
	unnamed.looks = map[string]int{"create": 1, "replace": 1, "delete-if": 1}
	invalid := meaning{reads: store.ErrInvalid, writes: store.ErrInvalid}
	return []row{
		{"304", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(304) }, unknown("304")},
		{"302", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, unknown("redirects are not followed")},
		{"307", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, unknown("redirects are not followed")},
		{"308", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		}, unknown("redirects are not followed")},
		{"400", says(400, "invalid", "Invalid argument."), invalid},
		{"400 checksum", says(400, "invalid", "Provided CRC32C \"x\" doesn't match calculated CRC32C \"y\"."), unavailable("CRC32C")},
		{"401", says(401, "authError", "Invalid Credentials"), denied("expired")},
		{"401 html", text(401), denied("needed is storage.objects.")},
		{"403", says(403, "forbidden", "x does not have access"), denied("needed is storage.objects.")},
		{"403 html", text(403), denied("needed is storage.objects.")},
		{"403 scope", says(403, "insufficientPermissions", "Request had insufficient authentication scopes."), denied("scopes")},
		{"403 billing", says(403, "accountDisabled", "The project is delinquent."), denied("billing")},
		{"403 API off", says(403, "accessNotConfigured", "Cloud Storage JSON API has not been used in project 1 before or it is disabled."), denied("disabled")},
		{"403 retention", says(403, "retentionPolicyNotMet", "Object is subject to bucket's retention policy"), denied("retention policy")},
		{"403 hold", says(403, "objectUnderActiveHold", "Object is under hold"), denied("hold")},
		{"403 rate", says(403, "userRateLimitExceeded", "slow down"), unavailable("too many requests")},
		{"404 object", says(404, "notFound", "No such object: leases/n/lease/k"), object},
		{"404 bucket", says(404, "notFound", "The specified bucket does not exist."), meaning{reads: store.ErrInvalid, writes: store.ErrInvalid, says: "bucket does not exist"}},
		{"404 html", text(404), contradiction},
		{"405", text(405), invalid},
		{"408", text(408), unknown("408")},
		{"409", says(409, "conflict", "conflict"), unknown("409")},
		{"411", text(411), invalid},
		{"412", says(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold."), condition},
		{"412 html", text(412), unnamed},
		{"412 organisation", says(412, "orgPolicyConstraintFailed", "constraints/x"), denied("constraints/x")},
		{"429", says(429, "rateLimitExceeded", "The object exceeded the rate limit for object mutation operations."), unavailable("one write per second")},
		{"429 html", text(429), unavailable("too many")},
		{"500", says(500, "internalError", "We encountered an internal error."), unknown("500")},
		{"501", text(501), unknown("501")},
		{"502", text(502), unknown("502")},
		{"503", says(503, "backendError", "Backend error"), unknown("503")},
		{"504", text(504), unknown("504")},
	}
}

// lies are answers that look like a success.
func lies() []row {
	unknown := meaning{reads: store.ErrUnavailable, writes: store.ErrUnknown}
	onlyFor := func(m meaning, ops ...string) meaning { // the rest are good answers
		m.but = map[string]error{}
		for _, op := range operations {
			if !slices.Contains(ops, op.name) {
				m.but[op.name] = nil
			}
		}
		return m
	}
	header := func(status int, h map[string]string, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range h {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const failure = `{"error":{"code":503,"message":"Backend error","errors":[{"reason":"backendError"}]}}`
	var zip bytes.Buffer
	z := gzip.NewWriter(&zip)
	_, _ = z.Write([]byte(present))
	_ = z.Close()
	corrupt := onlyFor(meaning{reads: store.ErrCorrupt, says: "content encoding"}, "get")
	partial := "HTTP/1.1 200 OK\r\nContent-Length: 500\r\nX-Goog-Generation: 7\r\nContent-Type: application/json\r\n\r\n{\"kind\":\"storage#object\",\"generation\":\"7\""
	write := []string{"create", "replace"}
	return []row{
		{"200 error", header(200, nil, failure), unknown},
		{"200 error with a checksum", header(200, map[string]string{"X-Goog-Hash": "crc32c=AAAAAA=="}, failure), unknown},
		{"200 html", text(200), unknown},
		{"200 truncated", raw(partial), unknown},
		{"200 endless", raw("HTTP/1.0 200 OK\r\nX-Goog-Generation: 7\r\n\r\n" + present), unknown},
		{"201 html", text(201), unknown},
		{"206", header(206, map[string]string{"Content-Range": "bytes 0-6/7", "X-Goog-Generation": "7"}, present), unknown},
		{"reset", raw(""), unknown},
		{"half a header", raw("HTTP/1.1 200 OK\r\nContent-Le"), unknown},
		{"no generation", header(200, nil, `{"kind":"storage#object","name":"`+testKey+`"}`), unknown},
		{"another object", header(200, map[string]string{"X-Goog-Generation": "0"}, `{"kind":"storage#object","name":"n/lease/other","generation":"7"}`), unknown},
		{"204", header(204, nil, ""), onlyFor(unknown, append(write, "get", "list")...)},
		{"200 empty", header(200, nil, ""), onlyFor(unknown, append(write, "get", "list")...)},
		{"200 {}", header(200, nil, "{}"), onlyFor(unknown, append(write, "get")...)},
		{"wrong checksum", header(200, map[string]string{"X-Goog-Generation": "7", "X-Goog-Hash": "crc32c=AAAAAA=="}, present), unknown},
		{"compressed by a proxy", header(200, map[string]string{"X-Goog-Generation": "7", "Content-Encoding": "gzip"}, zip.String()), unknown},
		{"stored compressed", header(200, map[string]string{"X-Goog-Generation": "7", "Content-Encoding": "gzip", "X-Goog-Stored-Content-Encoding": "gzip"}, zip.String()), alsoUnknown(corrupt)},
		{"transcoded", header(200, map[string]string{"X-Goog-Generation": "7", "X-Goog-Stored-Content-Encoding": "gzip", "Warning": "214 UploadServer gunzipped"}, present), alsoUnknown(corrupt)},
	}
}

// alsoUnknown says that what is corrupt for get is no answer at all for others.
func alsoUnknown(m meaning) meaning {
	return meaning{reads: store.ErrUnavailable, writes: store.ErrUnknown, but: map[string]error{"get": m.reads}}
}

// Every answer that the server can give has one meaning for each operation, and
// none makes the driver send its request again.
//
// SPEC ST3 ST8 ST9
// CASE B20 B65
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, r := range append(refusals(), lies()...) {
		for _, op := range operations {
			t.Run(r.name+"/"+op.name, func(t *testing.T) {
				t.Parallel()
				var firsts atomic.Int32
				cl := newCloud(t, func(w http.ResponseWriter, req *http.Request) bool {
					if kindOf(req) != op.what || firsts.Add(1) > 1 {
						return false
					}
					r.answer(w, req)
					return true
				})
				cl.put(testKey, present)
				s := cl.open(t, "")
				err := op.call(t.Context(), s, version(cl.last))
				want := r.of(op.name, op.write)
				is(t, err, want)
				if err != nil && want != store.ErrNotFound && want != store.ErrExists && !strings.Contains(err.Error(), r.says) {
					t.Errorf("the message does not say %q: %v", r.says, err)
				}
				if got := cl.requests(); len(got) != 1+r.looks[op.name] || got[0] != op.what {
					t.Errorf("the requests were %q, want one %q and %d looks", got, op.what, r.looks[op.name])
				}
			})
		}
	}
}

// is checks an error's kind; a nil kind is a success.
func is(t testing.TB, err, kind error) {
	t.Helper()
	if kind == nil {
		if err != nil {
			t.Errorf("the call failed: %v", err)
		}
		return
	}
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == kind) {
			t.Errorf("the error is %v (kind %v), want the kind %v", err, cmp.Or(store.KindOf(err), errors.New("none")), kind)
			return
		}
	}
}
