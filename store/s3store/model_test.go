package s3store

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// model is a bucket server that does what Amazon's documentation says of plain
// buckets, conditional deletes included. It checks no signatures.
type model struct {
	bucket string
	unique bool // every write gets an ETag of its own, as under an encryption key
	writes int
	mu     sync.Mutex
	kept   map[string]kept
}

type kept struct {
	body     []byte
	tag      string
	modified time.Time
}

func newModel() *model { return &model{bucket: "bucket", kept: map[string]kept{}} }

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender went away; nothing is stored
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case bucket != m.bucket:
		answerError(w, 404, "NoSuchBucket")
	case name == "":
		m.list(w, r.URL.Query())
	case r.Method == http.MethodGet:
		m.get(w, name)
	default:
		m.write(w, r, name, body)
	}
}

func (m *model) get(w http.ResponseWriter, name string) {
	k, ok := m.kept[name]
	if !ok {
		answerError(w, 404, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", k.tag)
	w.Header().Set("Last-Modified", k.modified.UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Length", strconv.Itoa(len(k.body)))
	_, _ = w.Write(k.body)
}

func (m *model) write(w http.ResponseWriter, r *http.Request, name string, body []byte) {
	k, ok := m.kept[name]
	match, none := r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case r.Method == http.MethodPut && (match == "") == (none == ""):
		answerError(w, 400, "InvalidArgument") // the driver must send one condition
	case none != "" && none != "*":
		answerError(w, 501, "NotImplemented")
	case match != "" && !ok:
		answerError(w, 404, "NoSuchKey")
	case none != "" && ok, match != "" && strings.Trim(match, `"`) != strings.Trim(k.tag, `"`):
		answerError(w, 412, "PreconditionFailed")
	case r.Method == http.MethodDelete:
		delete(m.kept, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		m.writes++
		sum := md5.Sum(body)
		if m.unique {
			sum = md5.Sum(fmt.Append(body, m.writes))
		}
		k = kept{body, `"` + hex.EncodeToString(sum[:]) + `"`, time.Now()}
		m.kept[name] = k
		w.Header().Set("ETag", k.tag)
	}
}

func (m *model) list(w http.ResponseWriter, q url.Values) {
	after := q.Get("start-after")
	if token := q.Get("continuation-token"); token != "" {
		after = strings.TrimPrefix(token, "after:")
	}
	var names []string
	for name := range m.kept {
		if strings.HasPrefix(name, q.Get("prefix")) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	more := len(names) > 1000
	names = names[:min(len(names), 1000)]
	fmt.Fprint(w, xmlHead+`<ListBucketResult><EncodingType>url</EncodingType>`)
	for _, name := range names {
		fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", url.QueryEscape(name))
	}
	fmt.Fprintf(w, "<IsTruncated>%v</IsTruncated>", more)
	if more {
		fmt.Fprintf(w, "<NextContinuationToken>after:%s</NextContinuationToken>", names[len(names)-1])
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

// body is what an object holds, "" if it is absent.
func (m *model) body(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(m.kept[name].body)
}

const xmlHead = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"

func errorBody(code string) string {
	return xmlHead + "<Error><Code>" + code + "</Code><Message>message of " + code + "</Message><RequestId>r1</RequestId></Error>"
}

func answerError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("X-Amz-Request-Id", "r1")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, errorBody(code))
}

// The model itself refuses what Amazon refuses.
func TestModelRefusesUnconditionalWrites(t *testing.T) {
	t.Parallel()
	srv := serve(t, newModel())
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL+"/bucket/x", strings.NewReader("x"))
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("an unconditional PUT got %d", resp.StatusCode)
	}
}
