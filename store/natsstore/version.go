package natsstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// version makes the version of a message: when its stream was made, and its
// sequence there. A stream that is deleted and made again begins at a later
// sequence if Tenure made it, and has another birth in any case (ST4).
func (p place) version(seq uint64) store.Version {
	return store.Version(p.birth() + "-" + strconv.FormatUint(seq, 36))
}

// birth names the life of the stream.
func (p place) birth() string { return strconv.FormatInt(p.created.UnixNano(), 36) }

// sequence undoes version. ok is false for a version of another stream and for
// one that no driver made: such a version is never the present one.
func (p place) sequence(v store.Version) (seq uint64, ok bool) {
	birth, number, found := strings.Cut(string(v), "-")
	if !found || birth != p.birth() {
		return 0, false
	}
	seq, err := strconv.ParseUint(number, 36, 64)
	return seq, err == nil && seq > 0 && p.version(seq) == v
}

// firstSequence is where a new stream begins to count: at the microseconds of
// its creation. It takes fewer than one message per microsecond for ever, so
// that no later stream of the same name gives a sequence that this one gave,
// and stays below 2^53 until the year 2255.
func firstSequence(now time.Time) uint64 { return uint64(now.UnixMicro()) }
