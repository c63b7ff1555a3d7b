package s3store

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// reply is a scripted answer.
type reply struct {
	status  int
	header  map[string]string
	body    string
	code    string // makes the body an error document
	cut     bool   // the connection breaks in mid-body
	noLimit bool   // no Content-Length
}

func (r reply) send(w http.ResponseWriter) {
	body := r.body
	if r.code != "" {
		body = errorBody(r.code)
	}
	for k, v := range r.header {
		w.Header().Set(k, v)
	}
	if r.cut {
		w.Header().Set("Content-Length", "90")
	}
	w.WriteHeader(r.status)
	if r.noLimit {
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, body)
	if r.cut {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

const goodTag = `"0123456789abcdef0123456789abcdef"`

// scripted answers the first request as told; the reads that may follow a
// refusal find a record.
func scripted(r reply) (http.Handler, *atomic.Int64) {
	n := new(atomic.Int64)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		if n.Add(1) > 1 && req.Method == http.MethodGet {
			n.Add(-1)
			r := reply{status: 200, header: map[string]string{"ETag": goodTag}, body: "x"}
			r.send(w)
			return
		}
		r.send(w)
	}), n
}

// run makes one call of a store with the key "k".
func run(ctx context.Context, s *Store, op string) error {
	var err error
	switch op {
	case opGet:
		_, err = s.Get(ctx, "k", 100)
	case opCreate:
		_, err = s.Create(ctx, "k", []byte("x"))
	case opReplace:
		_, err = s.Replace(ctx, "k", []byte("x"), goodTag)
	case opDelete:
		err = s.Delete(ctx, "k")
	case opDeleteIf:
		err = s.DeleteIf(ctx, "k", goodTag)
	case opList:
		for _, err = range s.List(ctx, "", "") {
			if err != nil {
				break
			}
		}
	}
	return err
}

type kinds map[string]error

var (
	none        error
	notFound    = store.ErrNotFound
	exists      = store.ErrExists
	conflict    = store.ErrConflict
	unavailable = store.ErrUnavailable
	unknown     = store.ErrUnknown
	denied      = store.ErrDenied
	corrupt     = store.ErrCorrupt
	bad         = store.ErrInvalid
)

// all is one kind for reads and one for writes.
func all(read, write error) kinds {
	return kinds{opGet: read, opList: read, opCreate: write, opReplace: write, opDelete: write, opDeleteIf: write}
}

// but is k with other kinds for some operations.
func (k kinds) but(op string, kind error) kinds {
	out := kinds{op: kind}
	for o, kind := range k {
		if o != op {
			out[o] = kind
		}
	}
	return out
}

type answer struct {
	name  string
	reply reply
	want  kinds
	says  string // in every message
}

func tagged(r reply, tag string) reply {
	r.header = map[string]string{"ETag": tag}
	return r
}

func refusals() []answer {
	open := all(unavailable, unknown)
	still := all(unavailable, unavailable)
	no := all(denied, denied)
	never := all(bad, bad)
	return []answer{
		{"403 AccessDenied", reply{status: 403, code: "AccessDenied"}, no, "s3:"},
		{"403 InvalidAccessKeyId", reply{status: 403, code: "InvalidAccessKeyId"}, no, "not known"},
		{"403 SignatureDoesNotMatch", reply{status: 403, code: "SignatureDoesNotMatch"}, no, "secret key"},
		{"403 RequestTimeTooSkewed", reply{status: 403, code: "RequestTimeTooSkewed"}, no, "clock"},
		{"400 ExpiredToken", reply{status: 400, code: "ExpiredToken"}, no, "expired"},
		{"403 ExpiredToken", reply{status: 403, code: "ExpiredToken"}, no, "expired"},
		{"400 InvalidToken", reply{status: 400, code: "InvalidToken"}, no, "expired or been withdrawn"},
		{"401 without a body", reply{status: 401}, no, "s3:"},
		{"403 without a body", reply{status: 403}, no, "s3:"},
		{"400 KMS.DisabledException", reply{status: 400, code: "KMS.DisabledException"}, no, "kms:"},
		{"400 KMS.ThrottlingException", reply{status: 400, code: "KMS.ThrottlingException"}, still, "load"},
		{"403 InvalidObjectState", reply{status: 403, code: "InvalidObjectState"}, no, "archive"},
		{"404 NoSuchKey", reply{status: 404, code: "NoSuchKey"},
			kinds{opGet: notFound, opReplace: notFound, opDeleteIf: notFound, opDelete: none, opCreate: unknown, opList: unavailable}, ""},
		{"404 NoSuchKey behind a delete marker", reply{status: 404, code: "NoSuchKey", header: map[string]string{"X-Amz-Delete-Marker": "true"}},
			kinds{opGet: notFound, opReplace: notFound}, ""},
		{"404 NoSuchBucket", reply{status: 404, code: "NoSuchBucket"}, never, `"bucket" does not exist`},
		{"404 without a body", reply{status: 404}, open, "proxy"},
		{"404 of a web server", reply{status: 404, body: "<html>not found</html>"}, open, "proxy"},
		{"409 ConditionalRequestConflict", reply{status: 409, code: "ConditionalRequestConflict"}, still, ""},
		{"409 OperationAborted", reply{status: 409, code: "OperationAborted"}, still, ""},
		{"409 of another kind", reply{status: 409, code: "InvalidBucketState"}, open, ""},
		{"412 PreconditionFailed", reply{status: 412, code: "PreconditionFailed"},
			kinds{opCreate: exists, opReplace: conflict, opDeleteIf: conflict, opDelete: unknown, opGet: unavailable, opList: unavailable}, ""},
		{"412 without a body", reply{status: 412}, kinds{opCreate: exists, opReplace: conflict, opDeleteIf: conflict}, ""},
		{"412 cut off", reply{status: 412, body: "<Error><Code>Precond", cut: true}, kinds{opCreate: exists, opReplace: conflict}, ""},
		{"429", reply{status: 429}, still, "load"},
		{"429 TooManyRequests", reply{status: 429, code: "TooManyRequests"}, still, "load"},
		{"503 SlowDown", reply{status: 503, code: "SlowDown"}, still, "load"},
		{"503 SlowDownWrite, of which a part may be done", reply{status: 503, code: "SlowDownWrite"}, open, ""},
		{"503 ServiceUnavailable", reply{status: 503, code: "ServiceUnavailable"}, open, ""},
		{"503 without a body", reply{status: 503}, open, "503"},
		{"500 InternalError", reply{status: 500, code: "InternalError"}, open, "InternalError"},
		{"500 without a body", reply{status: 500}, open, ""},
		{"502 of a proxy", reply{status: 502, body: "<html><body>bad gateway"}, open, ""},
		{"504", reply{status: 504}, open, ""},
		{"408", reply{status: 408}, open, ""},
		{"400 RequestTimeout", reply{status: 400, code: "RequestTimeout"}, still, ""},
		{"400 IncompleteBody", reply{status: 400, code: "IncompleteBody"}, still, ""},
		{"400 without a code", reply{status: 400}, open, ""},
		{"400 InvalidRequest", reply{status: 400, code: "InvalidRequest"}, never, ""},
		{"501 NotImplemented", reply{status: 501, code: "NotImplemented"}, never, "conditional"},
		{"501 without a code", reply{status: 501}, open, ""},
		{"301 PermanentRedirect", reply{status: 301, code: "PermanentRedirect", header: map[string]string{"X-Amz-Bucket-Region": "eu-west-1", "Location": "/elsewhere"}}, never, "region=eu-west-1"},
		{"400 AuthorizationHeaderMalformed", reply{status: 400, body: "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-2</Region></Error>"}, never, "region=eu-west-2"},
		{"307 TemporaryRedirect", reply{status: 307, code: "TemporaryRedirect", header: map[string]string{"Location": "/elsewhere"}}, still, "not followed"},
		{"307 of a proxy", reply{status: 307, header: map[string]string{"Location": "/elsewhere"}}, open, "not followed"},
		{"302 of a login page", reply{status: 302, header: map[string]string{"Location": "/login"}}, open, "not followed"},
		{"304 that nobody asked for", reply{status: 304}, open, "304"},
	}
}

func oddities() []answer {
	ok := reply{status: 200, body: "body"}
	empty := reply{status: 200}
	writes := func(kind error) kinds { return kinds{opCreate: kind, opReplace: kind} }
	packed := tagged(reply{status: 200, body: zipped("body")}, goodTag)
	packed.header["Content-Encoding"] = "gzip"
	packedError := reply{status: 412, body: zipped(errorBody("PreconditionFailed")), header: map[string]string{"Content-Encoding": "gzip"}}
	listing := func(inner string) reply { return reply{status: 200, body: xmlHead + "<ListBucketResult>" + inner} }
	return []answer{
		{"a good object", tagged(ok, goodTag), kinds{opGet: none}, ""},
		{"a good write", tagged(empty, goodTag), writes(none), ""},
		{"an ETag without quotes", tagged(ok, "0123abcd"), kinds{opGet: none}, ""},
		{"a write with an ETag without quotes", tagged(empty, "0123abcd"), writes(none), ""},
		{"a weak ETag", tagged(ok, "W/"+goodTag), kinds{opGet: corrupt}, "proxy"},
		{"a write with a weak ETag", tagged(empty, "W/"+goodTag), writes(unknown), "proxy"},
		{"no ETag", ok, kinds{opGet: corrupt}, "proxy"},
		{"a write without an ETag", empty, writes(unknown), "proxy"},
		{"an ETag that matches everything", tagged(ok, "*"), kinds{opGet: corrupt}, ""},
		{"two ETags in one", tagged(ok, `"a", "b"`), kinds{opGet: corrupt}, ""},
		{"200 with an error", tagged(reply{status: 200, code: "InternalError"}, goodTag),
			kinds{opCreate: unknown, opReplace: unknown, opDelete: unknown, opDeleteIf: unknown, opList: unavailable}, "InternalError"},
		{"200 with a page of a proxy", tagged(reply{status: 200, body: "<html>hello</html>"}, goodTag), writes(unknown).but(opList, unavailable), ""},
		{"a write that is 201", tagged(reply{status: 201}, goodTag), writes(unknown), ""},
		{"a delete that is 202", reply{status: 202}, kinds{opDelete: unknown, opDeleteIf: unknown}, ""},
		{"a delete that is 200", empty, kinds{opDelete: none, opDeleteIf: none}, ""},
		{"a part of an object", tagged(reply{status: 206, body: "bo"}, goodTag), kinds{opGet: unavailable}, ""},
		{"a body that breaks off", tagged(reply{status: 200, body: "bo", cut: true}, goodTag), kinds{opGet: unavailable}, "after 2 bytes"},
		{"a write whose answer breaks off", tagged(reply{status: 200, cut: true}, goodTag), writes(unknown), ""},
		{"an object above the limit", tagged(reply{status: 200, body: strings.Repeat("x", 101)}, goodTag), kinds{opGet: corrupt}, "101"},
		{"an object above the limit, of a length untold", tagged(reply{status: 200, body: strings.Repeat("x", 101), noLimit: true}, goodTag), kinds{opGet: corrupt}, "100"},
		{"an object at the limit, of a length untold", tagged(reply{status: 200, body: strings.Repeat("x", 100), noLimit: true}, goodTag), kinds{opGet: none}, ""},
		{"an object that a proxy packed", packed, kinds{opGet: corrupt}, "gzip"},
		{"a refusal that a proxy packed", packedError, kinds{opCreate: exists, opReplace: conflict}, ""},
		{"a listing cut off", listing("<IsTruncated>false</IsTruncated>"), kinds{opList: unavailable}, "complete"},
		{"a listing of nothing", reply{status: 200}, kinds{opList: unavailable}, "complete"},
		{"a listing that never ends", listing("<IsTruncated>true</IsTruncated></ListBucketResult>"), kinds{opList: corrupt}, "where"},
		{"a listing out of order", listing("<Contents><Key>p/b!</Key></Contents><Contents><Key>p/a!</Key></Contents></ListBucketResult>"), kinds{opList: corrupt}, "order"},
		{"a listing with a bad escape", listing("<EncodingType>url</EncodingType><Contents><Key>p/%zz!</Key></Contents></ListBucketResult>"), kinds{opList: corrupt}, "encoded"},
		{"an endless error", reply{status: 500, body: strings.Repeat("x", 1<<20)}, all(unavailable, unknown), "500"},
	}
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, s)
	_ = z.Close()
	return b.String()
}

// SPEC ST3 ST7 ST8 ST9
// CASE B20 B65
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range append(refusals(), oddities()...) {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for op, want := range row.want {
				h, sent := scripted(row.reply)
				s := at(t, serve(t, h).URL)
				checkAnswer(t, op, run(t.Context(), s, op), want, row.says)
				if n := sent.Load(); n != 1 {
					t.Errorf("%s: %d requests, want 1", op, n)
				}
			}
		})
	}
}

func checkAnswer(t *testing.T, op string, err, want error, says string) {
	t.Helper()
	if want == nil {
		if err != nil {
			t.Errorf("%s: %v, want no error", op, err)
		}
		return
	}
	if err == nil {
		t.Errorf("%s succeeded, want the kind %q", op, want)
		return
	}
	for _, k := range store.Kinds() {
		if errors.Is(err, k) != (k == want) {
			t.Errorf("%s: %v is of the kind %q, want %q only", op, err, store.KindOf(err), want)
			return
		}
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %q does not say %q", op, err, says)
	}
}

// A denial names the right that is missing, and what else 403 may mean.
//
// SPEC ST8
func TestDenialsNameTheRight(t *testing.T) {
	t.Parallel()
	for op, right := range map[string][]string{
		opGet: {"s3:GetObject", "s3:ListBucket"}, opCreate: {"s3:PutObject"}, opReplace: {"s3:PutObject", "s3:GetObject"},
		opDelete: {"s3:DeleteObject"}, opDeleteIf: {"s3:DeleteObject"}, opList: {"s3:ListBucket"},
	} {
		h, _ := scripted(reply{status: 403, code: "AccessDenied"})
		err := run(t.Context(), at(t, serve(t, h).URL), op)
		for _, r := range right {
			checkAnswer(t, op, err, denied, r)
		}
	}
}
