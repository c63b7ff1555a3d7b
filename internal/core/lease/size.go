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

// What a record, and a past tenure in it, take besides their texts, at most: names
// of fields, numbers, ids. TestMayBeTooLong holds both to it.
const (
	frameOfRecord = 1500
	frameOfTenure = 350
)

// mayBeTooLong is false only for a record whose encoding is within MaxBody. It counts
// every byte of a text as the most that JSON makes of one, which is cheaper than to
// encode it, and enough for almost all records.
func (r *Record) mayBeTooLong() bool {
	texts := len(r.Resource) + len(r.Note) + len(r.Successor) + len(r.ClockInstance) + len(r.Evidence) + len(r.SecretHash) + len(r.MAC)
	if r.Owner != nil {
		texts += len(r.Owner.Node)
	}
	if r.Lock != nil {
		texts += len(r.Lock.Boot) + len(r.Lock.Tree) + len(r.Lock.Cgroup)
	}
	if r.Ended != nil {
		texts += len(r.Ended.Why) + len(r.Ended.By)
	}
	for _, t := range r.Recent {
		texts += len(t.Owner.Node) + len(t.Why) + len(t.By)
	}
	return frameOfRecord+len(r.Recent)*frameOfTenure+6*texts > MaxBody
}
