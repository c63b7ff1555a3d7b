package filestore

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// MaxBody is the largest body in bytes that the store accepts.
const MaxBody = 8 << 20

const (
	// stateMark begins every state file; a higher level is store.ErrNewer.
	stateMark = "tenure-state/1"
	// maxHeader is more than the longest header line has bytes.
	maxHeader = 1024
	// noPrev stands where there is no state before.
	noPrev = "-"
	// numberDigits is the length of a state file's name: all of a uint64.
	numberDigits = 20
)

// kind says what a state file stands for.
type kind string

const (
	record    kind = "record"
	tombstone kind = "tombstone" // the key is absent, and this life is over
)

// header is the first line of a state file.
type header struct {
	number uint64
	nonce  string // random, so that a version never comes back (ST4)
	prev   string // the nonce of the state that this one replaced
	kind   kind
	length int64 // bytes of the body
	sum    string
	key    string
	size   int64 // bytes of the line itself, set by parseHeader
}

func (h header) version() store.Version {
	return store.Version(strconv.FormatUint(h.number, 10) + "-" + h.nonce)
}

// firstHeader is the header of the first state of a new life.
func firstHeader(key string, body []byte) header {
	return header{key: key}.next(record, body)
}

// next is the header of a state that follows h and never was before.
func (h header) next(k kind, body []byte) header {
	sum := sha256.Sum256(body)
	prev := h.nonce
	if h.number == 0 {
		prev = noPrev
	}
	return header{
		number: h.number + 1, nonce: randomID(), prev: prev, kind: k,
		length: int64(len(body)), sum: hex.EncodeToString(sum[:]), key: h.key,
	}
}

// line is the header as it is stored: fields, and a checksum over them.
func (h header) line() []byte {
	fields := fmt.Sprintf("%s %s %s %s %s %d %s %s",
		stateMark, numberName(h.number), h.nonce, h.prev, h.kind, h.length, h.sum, h.key)
	return fmt.Appendf(nil, "%s %08x\n", fields, checksum([]byte(fields)))
}

// parseHeader reads the line at the beginning of data and holds it against the
// names under which it was found. The error is ErrCorrupt or ErrNewer inside.
func parseHeader(data []byte, key string, number uint64) (header, error) {
	end := bytes.IndexByte(data[:min(len(data), maxHeader)], '\n')
	if end < 0 {
		return header{}, errors.New("the header line is missing or cut off")
	}
	mark, _, _ := strings.Cut(string(data[:end]), " ")
	if mark != stateMark {
		if newer(mark, stateMark) {
			return header{}, fmt.Errorf("%w: the format is %q, this program knows %q", errNewerFormat, mark, stateMark)
		}
		return header{}, fmt.Errorf("it begins with %.40q, not with %q", mark, stateMark)
	}
	f := strings.Split(string(data[:end]), " ")
	if len(f) != 9 {
		return header{}, fmt.Errorf("the header line has %d fields, not 9", len(f))
	}
	length, err := strconv.ParseInt(f[5], 10, 64)
	if err != nil {
		return header{}, fmt.Errorf("the length: %w", err)
	}
	h := header{number: number, nonce: f[2], prev: f[3], kind: kind(f[4]), length: length, sum: f[6], key: f[7], size: int64(end + 1)}
	switch {
	case f[1] != numberName(number):
		return header{}, fmt.Errorf("it says that it is state %q", f[1])
	case !bytes.Equal(h.line(), data[:end+1]):
		// The line that these fields give must be the line found: that holds
		// every field to its one spelling, and to the checksum.
		return header{}, errors.New("the header line does not match its checksum or is not canonical")
	case h.key != key:
		return header{}, fmt.Errorf("it belongs to the key %q", h.key)
	case h.kind != record && h.kind != tombstone:
		return header{}, fmt.Errorf("the kind %q is unknown", h.kind)
	case len(h.nonce) != 2*idBytes || h.length < 0 || h.length > MaxBody || (h.prev == noPrev) != (number == 1):
		return header{}, errors.New("a field of the header is out of bounds")
	}
	return h, nil
}

// errNewerFormat marks what a later program wrote.
var errNewerFormat = errors.New("newer format")

// newer reports whether mark is the same kind of file at a higher level.
func newer(mark, known string) bool {
	name, level, _ := strings.Cut(known, "/")
	n, l, found := strings.Cut(mark, "/")
	a, err := strconv.ParseUint(l, 10, 32)
	b, _ := strconv.ParseUint(level, 10, 32)
	return found && n == name && err == nil && a > b
}

// matches reports whether body is the one that the header was made for.
func (h header) matches(body []byte) bool {
	sum := sha256.Sum256(body)
	return int64(len(body)) == h.length && hex.EncodeToString(sum[:]) == h.sum
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// numberName is the file name of state n; names sort as their numbers do.
func numberName(n uint64) string { return fmt.Sprintf("%0*d", numberDigits, n) }

// numberOf is numberName's inverse.
func numberOf(name string) (uint64, bool) {
	if len(name) != numberDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 64)
	return n, err == nil && n > 0 && numberName(n) == name
}

// idBytes is the length of a random id.
const idBytes = 16

// randomID is 32 hex digits that nobody has had before.
func randomID() string {
	var b [idBytes]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends if there is no randomness
	return hex.EncodeToString(b[:])
}
