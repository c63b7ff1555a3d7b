package numbered

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// kind says what an object is.
type kind string

const (
	record    kind = "record"
	tombstone kind = "tombstone"
	boundary  kind = "boundary"
)

// level is the format level of the objects.
const level = 1

// header is the first line of an object. Invariants:
//
//	H1  number is that of the object's name, key that of its place;
//	H2  nonces[i] is the nonce of state number-i; there is at least one, and at
//	    most maxNonces and number;
//	H3  the line is the one spelling of its fields.
type header struct {
	kind   kind
	number uint64
	nonces []string
	key    string
}

const (
	nonceBytes = 8
	maxNonces  = 64
	// maxHeader is more than the longest header: 64 nonces and a key of 800 bytes.
	maxHeader = 2048
)

// newNonce tells one try to make a state from all others.
func newNonce() string {
	b := make([]byte, nonceBytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (h header) line() string {
	return fmt.Sprintf("tenure-numbered/%d %s %d %s %s\n", level, h.kind, h.number, strings.Join(h.nonces, ","), h.key)
}

func (h header) encode(body []byte) []byte { return append([]byte(h.line()), body...) }

// nonce is that of state n, if h knows it.
func (h header) nonce(n uint64) (string, bool) {
	if n > h.number || h.number-n >= uint64(len(h.nonces)) {
		return "", false
	}
	return h.nonces[h.number-n], true
}

// decode parses an object of a key with a number. The body is a part of data.
func decode(key string, n uint64, data []byte) (header, []byte, error) {
	object := stateKey(key, n)
	bad := func(why string) (header, []byte, error) {
		return header{}, nil, store.Errorf(store.ErrCorrupt, "", "decode", object, "%s", why)
	}
	first, body, found := bytes.Cut(data, []byte("\n"))
	f := strings.Split(string(first), " ")
	l, isOurs := strings.CutPrefix(f[0], "tenure-numbered/")
	if !found || !isOurs {
		return bad("it has no header of a numbered register")
	}
	if lv, err := strconv.Atoi(l); err == nil && lv > level {
		return header{}, nil, store.Errorf(store.ErrNewer, "", "decode", object, "it has format level %d, this program knows %d: use a newer tenure", lv, level)
	}
	if len(f) != 5 {
		return bad("its header has not five fields")
	}
	h := header{kind: kind(f[1]), nonces: strings.Split(f[3], ","), key: f[4]}
	h.number, _ = strconv.ParseUint(f[2], 10, 64)
	switch {
	case h.line() != string(first)+"\n":
		return bad("its header is not spelt as this program spells it")
	case h.kind != record && h.kind != tombstone && h.kind != boundary:
		return bad("its kind is unknown")
	case h.number != n || h.key != key:
		return bad(fmt.Sprintf("it says that it is number %d of %q", h.number, h.key))
	case len(h.nonces) > maxNonces || uint64(len(h.nonces)) > n || slices.ContainsFunc(h.nonces, badNonce):
		return bad("its nonces are damaged")
	}
	return h, body, nil
}

func badNonce(s string) bool {
	b, err := hex.DecodeString(s)
	return err != nil || len(b) != nonceBytes || hex.EncodeToString(b) != s
}

// version marks state number n with its nonce.
func version(n uint64, nonce string) store.Version {
	return store.Version(strconv.FormatUint(n, 10) + "-" + nonce)
}
