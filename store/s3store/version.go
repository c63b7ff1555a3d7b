package s3store

import "strings"

// strong reports whether tag is one strong entity tag, with its quotes or, as
// some relatives send it, without. Only such a tag is a version. A weak tag says
// that several states may share it: S3 never sends one, so a proxy on the way
// changed the answer. "*" and lists match more than one state, and must never
// become a condition.
func strong(tag string) bool {
	inner := tag
	if n := len(tag); n >= 2 && tag[0] == '"' && tag[n-1] == '"' {
		inner = tag[1 : n-1]
	}
	if inner == "" || inner == "*" || strings.HasPrefix(tag, "W/") {
		return false
	}
	for i := 0; i < len(inner); i++ {
		if c := inner[i]; c <= ' ' || c >= 0x7f || c == '"' || c == ',' {
			return false
		}
	}
	return true
}
