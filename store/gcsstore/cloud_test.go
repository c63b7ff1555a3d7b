package gcsstore

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// cloud is a small Cloud Storage that keeps its promises: conditions are
// decided atomically, generations never come back, listings are complete. Its
// answers have the form of the JSON API's.
type cloud struct {
	*httptest.Server
	page int // objects on one page of a listing

	// script, if set, may answer a request by itself.
	script func(w http.ResponseWriter, r *http.Request) bool

	mu      sync.Mutex
	buckets map[string]map[string]*stored
	about   map[string]string // by bucket: its metadata
	last    int64             // the last generation given
	seen    []*http.Request
}

type stored struct {
	Name, Bucket, ContentType, CacheControl, ContentEncoding, Crc32c string
	body                                                             []byte
	generation                                                       int64
	updated                                                          time.Time
}

const testBucket = "leases"

func newCloud(t testing.TB, script func(w http.ResponseWriter, r *http.Request) bool) *cloud {
	t.Helper()
	cl := &cloud{page: 300, script: script, last: 1_700_000_000_000_000, buckets: map[string]map[string]*stored{testBucket: {}}, about: map[string]string{}}
	cl.Server = httptest.NewServer(cl)
	t.Cleanup(cl.Close)
	return cl
}

// ServeHTTP answers one request.
func (cl *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cl.mu.Lock()
	cl.seen = append(cl.seen, r)
	cl.mu.Unlock()
	if cl.script != nil && cl.script(w, r) {
		return
	}
	cl.answer(w, r)
}

// requests returns those that came so far, as "METHOD kind".
func (cl *cloud) requests() []string {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	out := []string{}
	for _, r := range cl.seen {
		out = append(out, kindOf(r))
	}
	return out
}

// kindOf names what a request asks for.
func kindOf(r *http.Request) string {
	_, object := target(r)
	switch {
	case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/upload/"):
		return "upload"
	case r.Method == http.MethodDelete:
		return "delete"
	case object != "" && r.URL.Query().Get("alt") == "media":
		return "download"
	case object != "":
		return "look"
	case strings.HasSuffix(r.URL.Path, "/o"):
		return "list"
	}
	return r.Method + " " + r.URL.Path
}

// target is the bucket and object that a request names.
func target(r *http.Request) (bucket, object string) {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/upload"), "/storage/v1/"), "/")
	part := func(i int) string {
		if i >= len(parts) {
			return ""
		}
		s, _ := url.PathUnescape(parts[i])
		return s
	}
	if part(0) != "b" {
		return "", ""
	}
	object = part(3)
	if r.Method == http.MethodPost {
		object = r.URL.Query().Get("name")
	}
	return part(1), object
}

func (cl *cloud) answer(w http.ResponseWriter, r *http.Request) {
	name, object := target(r)
	var up *stored
	if kindOf(r) == "upload" {
		if up = readUpload(r); up == nil {
			refuse(w, 400, "invalid", "Provided CRC32C or body is wrong.")
			return
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if r.Context().Err() != nil {
		return // nobody waits any more
	}
	bucket := cl.buckets[name]
	if bucket == nil {
		refuse(w, 404, "notFound", "The specified bucket does not exist.")
		return
	}
	present := bucket[object]
	if cond := r.URL.Query().Get("ifGenerationMatch"); cond != "" {
		at := int64(0)
		if present != nil {
			at = present.generation
		}
		if want, err := strconv.ParseInt(cond, 10, 64); err != nil || want != at {
			refuse(w, 412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
			return
		}
	}
	switch kind := kindOf(r); {
	case kind == "upload":
		cl.last += 1 + cl.last%7
		up.Bucket, up.generation, up.updated = name, cl.last, time.Now()
		bucket[up.Name] = up
		reply(w, up.describe())
	case kind == "list":
		reply(w, cl.list(bucket, r.URL.Query()))
	case object == "":
		_, _ = io.WriteString(w, cmp.Or(cl.about[name], "{}"))
	case present == nil && kind == "download":
		http.Error(w, "No such object: "+name+"/"+object, 404)
	case present == nil:
		refuse(w, 404, "notFound", "No such object: "+name+"/"+object)
	case kind == "delete":
		delete(bucket, object)
		w.WriteHeader(http.StatusNoContent)
	case kind == "download":
		present.send(w)
	default:
		reply(w, present.describe())
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// refuse answers in the form of the API's errors.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	item := map[string]any{"message": message, "domain": "global", "reason": reason}
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": code, "message": message, "errors": []any{item}}})
}

// readUpload takes a multipart upload apart; nil if it is not whole.
func readUpload(r *http.Request) *stored {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || r.URL.Query().Get("uploadType") != "multipart" {
		return nil
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	meta, err := parts.NextPart()
	if err != nil {
		return nil
	}
	var o stored
	if json.NewDecoder(meta).Decode(&o) != nil || o.Name == "" {
		return nil
	}
	media, err := parts.NextPart()
	if err != nil {
		return nil
	}
	if o.body, err = io.ReadAll(media); err != nil {
		return nil
	}
	if _, err := parts.NextPart(); err != io.EOF {
		return nil
	}
	if want := o.Crc32c; want != checksum(o.body) {
		return nil
	}
	return &o
}

func checksum(body []byte) string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))
	return base64.StdEncoding.EncodeToString(sum)
}

func (o *stored) describe() map[string]any {
	return map[string]any{"kind": "storage#object", "name": o.Name, "bucket": o.Bucket, "generation": strconv.FormatInt(o.generation, 10),
		"metageneration": "1", "size": strconv.Itoa(len(o.body)), "crc32c": o.Crc32c, "updated": o.updated.Format(time.RFC3339Nano)}
}

// send answers a download.
func (o *stored) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", o.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(o.body)))
	h.Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	h.Set("X-Goog-Hash", "crc32c="+checksum(o.body))
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	h.Set("Last-Modified", o.updated.UTC().Format(http.TimeFormat))
	_, _ = w.Write(o.body)
}

func (cl *cloud) list(bucket map[string]*stored, q url.Values) map[string]any {
	items, next := []map[string]string{}, ""
	most := cl.page
	if n, err := strconv.Atoi(q.Get("maxResults")); err == nil && n > 0 {
		most = min(most, n)
	}
	for _, name := range slices.Sorted(maps.Keys(bucket)) {
		if !strings.HasPrefix(name, q.Get("prefix")) || name < q.Get("startOffset") || name < q.Get("pageToken") {
			continue
		}
		if len(items) == most {
			next = name
			break
		}
		items = append(items, map[string]string{"name": name})
	}
	page := map[string]any{}
	if len(items) > 0 {
		page["items"] = items
	}
	if next != "" {
		page["nextPageToken"] = next
	}
	return page
}

// put places an object beside the API.
func (cl *cloud) put(name, body string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.last++
	cl.buckets[testBucket][name] = &stored{Name: name, Bucket: testBucket, body: []byte(body), generation: cl.last, updated: time.Now()}
}

// body returns what an object holds; false if it is absent.
func (cl *cloud) body(name string) (string, bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	o := cl.buckets[testBucket][name]
	if o == nil {
		return "", false
	}
	return string(o.body), true
}

// open opens the store in a prefix of the cloud's bucket.
func (cl *cloud) open(t testing.TB, prefix string) *Store {
	t.Helper()
	return openStore(t, Config{Bucket: testBucket, Prefix: prefix, Endpoint: cl.URL})
}

func openStore(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

var prefixes struct {
	sync.Mutex
	n int
}

// freshPrefix is one that no other test uses.
func freshPrefix() string {
	prefixes.Lock()
	defer prefixes.Unlock()
	prefixes.n++
	return fmt.Sprintf("test/%d", prefixes.n)
}
