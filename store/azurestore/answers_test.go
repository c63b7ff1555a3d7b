package azurestore

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// answersTable says what every answer means. Each row is run for each operation
// in ops; want is the kind for reads and writes alike unless write is set.
var answersTable = []struct {
	name  string
	ops   []string
	reply reply
	want  error
	write error // the kind for writes, if it is another
	says  string
}{
	{"success", []string{opCreate, opReplace}, reply{status: 201, header: map[string]string{"Etag": `"0x2"`}}, nil, nil, ""},
	{"success without quotes", []string{opCreate, opReplace}, reply{status: 201, header: map[string]string{"Etag": "0x2"}}, nil, nil, ""},
	{"success", []string{opDelete, opDeleteIf}, reply{status: 202}, nil, nil, ""},
	{"created without an ETag", []string{opCreate, opReplace}, reply{status: 201}, store.ErrUnknown, nil, "no usable ETag"},
	{"created with a weak ETag", []string{opCreate, opReplace}, reply{status: 201, header: map[string]string{"Etag": `W/"0x2"`}}, store.ErrUnknown, nil, "proxy"},
	{"created with the ETag *", []string{opCreate, opReplace}, reply{status: 201, header: map[string]string{"Etag": `"*"`}}, store.ErrUnknown, nil, "ETag"},
	{"200 instead of 201", []string{opCreate, opReplace}, reply{status: 200, header: map[string]string{"Etag": `"0x2"`}}, store.ErrUnknown, nil, "HTTP 200"},
	{"200 with an error in it", writes, reply{status: 200, body: authFailed("")}, store.ErrUnknown, nil, "HTTP 200"},
	{"204 instead of 202", []string{opDelete, opDeleteIf}, reply{status: 204}, store.ErrUnknown, nil, "HTTP 204"},
	{"304", every, reply{status: 304}, store.ErrUnavailable, store.ErrUnknown, "HTTP 304"},
	{"redirect", every, reply{status: 307, header: map[string]string{"Location": "/elsewhere"}}, store.ErrUnavailable, store.ErrUnknown, "HTTP 307"},

	{"no right", []string{opGet}, reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, nil, "containers/blobs/read (SAS: r)"},
	{"no right", []string{opList}, reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, nil, "SAS: l"},
	{"no right", []string{opCreate}, reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, nil, "blobs/add/action"},
	{"no right", []string{opReplace}, reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, nil, "containers/blobs/write (SAS: w)"},
	{"no right", []string{opDelete, opDeleteIf}, reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, nil, "containers/blobs/delete (SAS: d)"},
	{"expired SAS", every, reply{status: 403, code: "AuthenticationFailed", body: authFailed("Signature not valid in the specified time frame: Start [x] - Expiry [y] - Current [z]")}, store.ErrDenied, nil, "has expired"},
	{"clock skew", every, reply{status: 403, code: "AuthenticationFailed", body: authFailed("Request date header too old: 'Fri, 27 Nov 2026 10:00:00 GMT'")}, store.ErrDenied, nil, "clock of this machine"},
	{"wrong key", every, reply{status: 403, code: "AuthenticationFailed", body: authFailed("The MAC signature found in the HTTP request '" + secretSig + "' is not the same")}, store.ErrDenied, nil, "rotated key"},
	{"code in the body only", every, reply{status: 403, body: authFailed("")}, store.ErrDenied, nil, "AuthenticationFailed"},
	{"firewall", every, reply{status: 403, code: "AuthorizationFailure"}, store.ErrDenied, nil, "network rules"},
	{"overwrite by a create-only SAS", []string{opCreate, opReplace}, reply{status: 403, code: "UnauthorizedBlobOverwrite"}, store.ErrDenied, nil, "SAS"},
	{"keys forbidden", every, reply{status: 403, code: "KeyBasedAuthenticationNotPermitted"}, store.ErrDenied, nil, "Entra"},
	{"unknown 403", every, reply{status: 403, bare: true}, store.ErrDenied, nil, "Microsoft.Storage/"},
	{"401", every, reply{status: 401, code: "InvalidAuthenticationInfo"}, store.ErrDenied, nil, "credentials"},
	{"no public access", every, reply{status: 409, code: "PublicAccessNotPermitted"}, store.ErrDenied, nil, "no credentials"},

	{"no blob", []string{opGet}, reply{status: 404, code: "BlobNotFound"}, store.ErrNotFound, nil, "BlobNotFound"},
	{"no blob", []string{opReplace, opDeleteIf}, reply{status: 404, code: "BlobNotFound"}, store.ErrNotFound, nil, "BlobNotFound"},
	{"no blob", []string{opDelete}, reply{status: 404, code: "BlobNotFound"}, nil, nil, ""},
	{"no container", every, reply{status: 404, code: "ContainerNotFound"}, store.ErrInvalid, nil, "container does not exist"},
	{"nothing for strangers", every, reply{status: 404, code: "ResourceNotFound"}, store.ErrUnavailable, nil, "credentials"},
	{"a 404 of somebody else", every, reply{status: 404, bare: true, body: "<html>not found</html>"}, store.ErrUnavailable, nil, "endpoint"},

	{"exists", []string{opCreate}, reply{status: 409, code: "BlobAlreadyExists"}, store.ErrExists, nil, ""},
	{"exists, said otherwise", []string{opCreate}, reply{status: 412, code: "ConditionNotMet"}, store.ErrExists, nil, ""},
	{"transient conflict", every, reply{status: 409, code: "SystemInUse"}, store.ErrUnavailable, nil, "SystemInUse"},
	{"conflict without a code", writes, reply{status: 409}, store.ErrUnavailable, nil, "HTTP 409"},
	{"container goes", every, reply{status: 409, code: "ContainerBeingDeleted"}, store.ErrUnavailable, nil, "being deleted"},
	{"immutable", writes, reply{status: 409, code: "BlobImmutableDueToPolicy"}, store.ErrDenied, nil, "immutability policy"},
	{"archived", every, reply{status: 409, code: "BlobArchived"}, store.ErrUnavailable, nil, "archive tier"},
	{"leased by somebody", writes, reply{status: 412, code: "LeaseIdMissing"}, store.ErrDenied, nil, "az storage blob lease break"},

	{"throttled", every, reply{status: 503, code: "ServerBusy"}, store.ErrUnavailable, nil, "throttled"},
	{"throttled", every, reply{status: 429, bare: true}, store.ErrUnavailable, nil, "throttled"},
	{"timed out inside", every, reply{status: 500, code: "OperationTimedOut"}, store.ErrUnavailable, store.ErrUnknown, "OperationTimedOut"},
	{"broken inside", every, reply{status: 500, code: "InternalError"}, store.ErrUnavailable, store.ErrUnknown, "InternalError"},
	{"gateway", every, reply{status: 502, bare: true}, store.ErrUnavailable, store.ErrUnknown, "HTTP 502"},
	{"503 of somebody else", every, reply{status: 503, bare: true}, store.ErrUnavailable, store.ErrUnknown, "HTTP 503"},
	{"gateway timeout", every, reply{status: 504, bare: true}, store.ErrUnavailable, store.ErrUnknown, "HTTP 504"},
	{"proxy timeout", every, reply{status: 408, bare: true}, store.ErrUnavailable, store.ErrUnknown, "HTTP 408"},
	{"bad request", every, reply{status: 400, code: "InvalidHeaderValue"}, store.ErrUnavailable, nil, "InvalidHeaderValue"},
	{"an endless refusal", every, reply{status: 403, code: "AuthorizationFailure", body: strings.Repeat("x", 1<<20)}, store.ErrDenied, nil, "AuthorizationFailure"},
	{"a code that is none", every, reply{status: 500, code: "sig=" + secretSig}, store.ErrUnavailable, store.ErrUnknown, "HTTP 500"},

	{"reset", every, reply{do: cut("")}, store.ErrUnavailable, store.ErrUnknown, ""},
	{"end in the headers", every, reply{do: cut("HTTP/1.1 201 Created\r\nEtag:")}, store.ErrUnavailable, store.ErrUnknown, ""},
	{"no HTTP", every, reply{do: cut("SSH-2.0-OpenSSH_9\r\n")}, store.ErrUnavailable, store.ErrUnknown, ""},

	{"record", []string{opGet}, record("body"), nil, nil, ""},
	{"record without quotes", []string{opGet}, record("body").with("Etag", "0x1"), nil, nil, ""},
	{"record without an ETag", []string{opGet}, record("body").with("Etag", ""), store.ErrUnavailable, nil, "ETag"},
	{"record with a weak ETag", []string{opGet}, record("body").with("Etag", `W/"0x1"`), store.ErrUnavailable, nil, "proxy"},
	{"record encoded by a proxy", []string{opGet}, record("body").with("Content-Encoding", "gzip"), store.ErrUnavailable, nil, "gzip"},
	{"record from a cache", []string{opGet}, record("body").with("Age", "3"), store.ErrUnavailable, nil, "cache"},
	{"record from a cache", []string{opList}, page("").with("Age", "3"), store.ErrUnavailable, nil, "cache"},
	{"200 of somebody else", []string{opGet}, reply{status: 200, bare: true, body: "<html>sign in</html>", header: map[string]string{"Etag": `"x"`}}, store.ErrUnavailable, nil, "not come from Azure"},
	{"a page blob", []string{opGet}, record("body").with("X-Ms-Blob-Type", "PageBlob"), store.ErrCorrupt, nil, "PageBlob"},
	{"a directory", []string{opGet}, record("").with("X-Ms-Meta-Hdi_isfolder", "true"), store.ErrInvalid, nil, "hierarchical namespace"},
	{"partial content", []string{opGet}, reply{status: 206, body: "bo", header: record("").header}, store.ErrUnavailable, nil, "HTTP 206"},
	{"damaged body", []string{opGet}, record("body").with("Content-Md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), store.ErrCorrupt, nil, "checksum"},
	{"sound body", []string{opGet}, record("").with("Content-Md5", "1B2M2Y8AsgTpgAmY7PhCfg=="), nil, nil, ""},
	{"large body", []string{opGet}, record(strings.Repeat("x", 101)), store.ErrCorrupt, nil, "101 bytes"},
	{"large body without a length", []string{opGet}, reply{do: chunked(strings.Repeat("x", 101))}, store.ErrCorrupt, nil, "more than the 100"},
	{"truncated body", []string{opGet}, reply{do: cut("HTTP/1.1 200 OK\r\nEtag: \"0x1\"\r\nX-Ms-Blob-Type: BlockBlob\r\nContent-Length: 50\r\n\r\nhalf")}, store.ErrUnavailable, nil, "broke off"},
	{"bad date", []string{opGet}, record("body").with("Last-Modified", "yesterday"), nil, nil, ""},

	{"list", []string{opList}, page("", "p/ns/lease/a", "p/ns/lease/b"), nil, nil, ""},
	{"list of nothing", []string{opList}, page(""), nil, nil, ""},
	{"list with an error in it", []string{opList}, reply{status: 200, body: authFailed("")}, store.ErrUnavailable, nil, "no page of a listing"},
	{"list of somebody else", []string{opList}, reply{status: 200, bare: true, body: "<html>sign in</html>"}, store.ErrUnavailable, nil, "no page of a listing"},
	{"empty list answer", []string{opList}, reply{status: 200}, store.ErrUnavailable, nil, "listing"},
	{"truncated list", []string{opList}, reply{status: 200, body: page("", "p/ns/lease/a").body[:200]}, store.ErrUnavailable, nil, "no whole page"},
	{"list cut off", []string{opList}, reply{do: cut("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + page("", "p/ns/lease/a").body)}, store.ErrUnavailable, nil, "no whole page"},
	{"list out of order", []string{opList}, page("", "p/ns/lease/b", "p/ns/lease/a"), store.ErrUnavailable, nil, "byte order"},
	{"list with a name twice", []string{opList}, page("", "p/ns/lease/a", "p/ns/lease/a"), store.ErrUnavailable, nil, "byte order"},
	{"list that goes round", []string{opList}, page("more"), store.ErrUnavailable, nil, "does not get on"},
	{"list of another prefix", []string{opList}, page("", "q/ns/lease/a"), store.ErrUnavailable, nil, "not asked for"},
	{"list with a directory", []string{opList}, reply{status: 200, body: strings.Replace(page("", "p/ns/lease/a").body, "<Etag>", "<ResourceType>directory</ResourceType><Etag>", 1)}, store.ErrInvalid, nil, "hierarchical namespace"},
	{"list with files of others", []string{opList}, page("", "p/ns/lease/README.md", "p/ns/lease/a"), nil, nil, ""},
}

func chunked(body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range record("").header {
			w.Header().Set(name, value)
		}
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte(body))
	}
}

// Every answer gets its right meaning: a clean refusal, nothing happened, or a
// write that may have happened. Each is asked for once.
//
// SPEC ST7 ST8 ST9
// CASE B20 B24
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, row := range answersTable {
		for _, op := range row.ops {
			t.Run(row.name+"/"+op, func(t *testing.T) {
				t.Parallel()
				method := methods[op]
				srv := newScript(t, map[string]reply{method: row.reply})
				want := row.want
				if row.write != nil && op != opGet && op != opList {
					want = row.write
				}
				err := operations[op](t.Context(), at(t, srv.URL))
				checkError(t, op, err, want, row.says)
				sends := method
				if row.name == "list that goes round" {
					sends = "GET GET"
				}
				if got := srv.requests(); got != sends {
					t.Errorf("%s sent %q, want %q", op, got, sends)
				}
			})
		}
	}
}

// refusals says what a condition that was not met means, by what a read after
// it shows.
var refusals = []struct {
	name string
	head reply
	want error
	says string
}{
	{"another version", reply{status: 200, header: map[string]string{"Etag": `"0x9"`}}, store.ErrConflict, "0x9"},
	{"absent", reply{status: 404, code: "BlobNotFound"}, store.ErrNotFound, ""},
	{"no container", reply{status: 404, code: "ContainerNotFound"}, store.ErrInvalid, "container does not exist"},
	{"no right to read", reply{status: 403, code: "AuthorizationPermissionMismatch"}, store.ErrDenied, "blobs/read"},
	{"throttled", reply{status: 503, code: "ServerBusy"}, store.ErrUnavailable, "throttled"},
	{"broken inside", reply{status: 500, code: "InternalError"}, store.ErrUnavailable, "InternalError"},
	{"reset", reply{do: cut("")}, store.ErrUnavailable, ""},
	{"no ETag", reply{status: 200}, store.ErrUnavailable, "ETag"},
	{"the same version", reply{status: 200, header: map[string]string{"Etag": `"0x1"`}}, store.ErrUnavailable, "just that one"},
	{"a 404 of somebody else", reply{status: 404, bare: true}, store.ErrUnavailable, "endpoint"},
}

// Azure answers 412 to a conditional write of an absent key as of one at
// another version. A read decides; if it cannot, nothing is claimed but that
// nothing happened.
//
// SPEC ST2 ST5 ST8
func TestRefusedConditions(t *testing.T) {
	t.Parallel()
	for _, row := range refusals {
		for _, op := range []string{opReplace, opDeleteIf} {
			t.Run(row.name+"/"+op, func(t *testing.T) {
				t.Parallel()
				srv := newScript(t, map[string]reply{methods[op]: {status: 412, code: "ConditionNotMet"}, "HEAD": row.head})
				checkError(t, op, operations[op](t.Context(), at(t, srv.URL)), row.want, row.says)
				// net/http itself sends a read again when a used connection breaks.
				got := strings.Replace(srv.requests(), "HEAD HEAD", "HEAD", 1)
				if want := methods[op] + " HEAD"; got != want {
					t.Errorf("%s sent %q, want %q", op, got, want)
				}
			})
		}
	}
}

// A version that no blob can have is never sent: as a condition it might always
// hold.
//
// SPEC ST2
func TestOddVersions(t *testing.T) {
	t.Parallel()
	srv := newScript(t, map[string]reply{"HEAD": {status: 200, header: map[string]string{"Etag": `"0x9"`}}})
	s := at(t, srv.URL)
	for _, v := range []store.Version{"", "*", `"*"`, "a, *", `0x1", "0x2`, "W/0x1", "0x1\r\nX-Evil: 1", "é", " ", store.Version(strings.Repeat("0", 300))} {
		_, err := s.Replace(t.Context(), testKey, []byte("x"), v)
		checkError(t, opReplace, err, store.ErrConflict, "")
		checkError(t, opDeleteIf, s.DeleteIf(t.Context(), testKey, v), store.ErrConflict, "")
	}
	if got := srv.requests(); strings.Contains(got, "PUT") || strings.Contains(got, "DELETE") {
		t.Errorf("sent %q", got)
	}
}

// A version is the same with and without quotes around the ETag, and goes out
// with them.
//
// SPEC ST4
func TestQuotes(t *testing.T) {
	t.Parallel()
	srv := newScript(t, map[string]reply{
		"PUT": {status: 201, header: map[string]string{"Etag": "0x8DE"}},
		"GET": record("body").with("Etag", `"0x8DE"`),
	})
	s := at(t, srv.URL)
	v, err := s.Create(t.Context(), testKey, []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Get(t.Context(), testKey, 100)
	if err != nil || o.Version != v || o.Modified.Unix() != 1795773600 {
		t.Errorf("Get gives %+v, %v; Create gave the version %q", o, err, v)
	}
	if _, err := s.Replace(t.Context(), testKey, []byte("body"), v); err != nil {
		t.Fatal(err)
	}
	if h := srv.seen[0].Header; h.Get("If-None-Match") != "*" || h.Get("If-Match") != "" || h.Get("X-Ms-Blob-Cache-Control") != "no-store" {
		t.Errorf("Create sent %v", h)
	}
	if h := srv.seen[2].Header; h.Get("If-Match") != `"0x8DE"` || h.Get("If-None-Match") != "" {
		t.Errorf("Replace sent %v", h)
	}
}

// A server that does not know the start mark gives more than was asked for; the
// caller does not see it. What cannot have keys is not asked for.
//
// SPEC ST6
func TestListAfter(t *testing.T) {
	t.Parallel()
	srv := newScript(t, map[string]reply{"GET": page("", "p/ns/lease/a", "p/ns/lease/b", "p/ns/lease/c")})
	s := at(t, srv.URL)
	list := func(prefix, after string) string {
		t.Helper()
		got := []string{}
		for k, err := range s.List(t.Context(), prefix, after) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, k)
		}
		return strings.Join(got, " ")
	}
	for after, want := range map[string][2]string{
		"":               {"ns/lease/a ns/lease/b ns/lease/c", ""},
		"m":              {"ns/lease/a ns/lease/b ns/lease/c", ""},
		"ns/lease/a":     {"ns/lease/b ns/lease/c", "p/ns/lease/a"},
		"ns/lease/b\x00": {"ns/lease/c", "p/ns/lease/b"},
		"ns/lease/c":     {"", "p/ns/lease/c"},
	} {
		if got := list("ns/lease/", after); got != want[0] {
			t.Errorf("after %q: %q, want %q", after, got, want[0])
		}
		if from := srv.seen[len(srv.seen)-1].URL.Query().Get("startFrom"); from != want[1] {
			t.Errorf("after %q the listing starts from %q, want %q", after, from, want[1])
		}
	}
	sent := srv.requests()
	for _, row := range [][2]string{{"ns/lease/", "ns/leasf"}, {"../", ""}, {"N", ""}, {"a//b", ""}} {
		if got := list(row[0], row[1]); got != "" {
			t.Errorf("List(%q, %q) gives %q", row[0], row[1], got)
		}
	}
	if got := srv.requests(); got != sent {
		t.Errorf("sent %q", strings.TrimPrefix(got, sent))
	}
}
