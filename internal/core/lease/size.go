package lease

import "unicode/utf8"

// encodedLen is the number of bytes that s takes as a JSON string, quotes not
// counted, in the canonical encoding: control characters, quotes, backslashes
// and the two separators that JavaScript dislikes take more than their own
// length. A text is bounded by it, so that no field can grow a record beyond
// its bound (ST11).
func encodedLen(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '\n' || r == '\r' || r == '\t' || r == '\b' || r == '\f':
			n += 2
		case r < 0x20 || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			n += 6
		default:
			n += utf8.RuneLen(r)
		}
	}
	return n
}
