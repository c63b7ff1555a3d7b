package azurestore

import (
	"net/http"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// versionOf is the version that an answer names, "" if it names none that a
// condition can rest on. Azure quotes its ETags, some servers and old protocol
// versions do not; both forms name the same state. A weak ETag is made by a
// proxy that changed the answer.
func versionOf(h http.Header) store.Version {
	v := h.Get("Etag")
	if n := len(v); n >= 2 && v[0] == '"' && v[n-1] == '"' {
		v = v[1 : n-1]
	}
	if !sendable(store.Version(v)) {
		return ""
	}
	return store.Version(v)
}

// sendable reports whether v can be an ETag. Others never leave the process: an
// empty one would be no condition, and "*" one that always holds.
func sendable(v store.Version) bool {
	if v == "" || len(v) > 200 || strings.HasPrefix(string(v), "W/") {
		return false
	}
	for i := range len(v) {
		if c := v[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"*,\`, c) >= 0 {
			return false
		}
	}
	return true
}

// quoted is v as a condition.
func quoted(v store.Version) string { return `"` + string(v) + `"` }
