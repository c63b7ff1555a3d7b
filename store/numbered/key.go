package numbered

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// Everything the adapter writes but the guards lies below these two elements.
// store.EncodeName gives no element that begins so ('=' is followed by two hex
// digits or by "h" and a digest there), so no namespace of a plain client can
// reach into them.
const (
	root     = "=numbered"
	longRoot = "=numbered-long"
)

// chunk is how many bytes of an escaped key make one element of a path.
const chunk = 160

// maxFlat is the longest escaped key, with the slashes of its chunks, that
// leaves room for the rest of a key of 800 bytes.
const maxFlat = 800 - len(root+"/") - len("/") - len(markSuffix) - digits

const (
	digits     = 16
	markSuffix = "-void"
	// behindMarks sorts behind every object of the number before it.
	behindMarks = "-z"
	// behindAll sorts behind every object of a key.
	behindAll = "z"
)

// maxNumber is the highest number that has its digits.
const maxNumber uint64 = 1<<53 - 1

// escape turns a key into text without '/', such that escaped keys, each ended
// by [end], sort as the keys do: end < escaped '-' < escaped '/' < the rest.
func escape(key string) string {
	return strings.NewReplacer("-", "-0", "/", "-1").Replace(key)
}

const end = "--"

// split puts a '/' after every chunk bytes. The places are the same in all
// texts, so the order stays.
func split(s string) string {
	var b strings.Builder
	for ; len(s) > chunk; s = s[chunk:] {
		b.WriteString(s[:chunk] + "/")
	}
	b.WriteString(s)
	return b.String()
}

// dir is what the objects of a key have in common, without the last '/'. That
// of a key too long to be escaped holds only a digest; its states say the key.
func dir(key string) string {
	if flat := split(escape(key) + end); len(flat) <= maxFlat {
		return root + "/" + flat
	}
	sum := sha256.Sum256([]byte(key))
	return longRoot + "/" + hex.EncodeToString(sum[:])
}

// keyOf is dir's inverse for keys that are escaped in full.
func keyOf(d string) (string, error) {
	bad := store.Errorf(store.ErrCorrupt, "", "decode", d, "no key of a numbered register is kept there")
	flat, ok := strings.CutPrefix(d, root+"/")
	flat, ended := strings.CutSuffix(strings.ReplaceAll(flat, "/", ""), end)
	if !ok || !ended {
		return "", bad
	}
	var b strings.Builder
	for i := 0; i < len(flat); i++ {
		c := flat[i]
		if c == '-' {
			if i++; i == len(flat) || flat[i] != '0' && flat[i] != '1' {
				return "", bad
			}
			c = "-/"[flat[i]-'0']
		}
		b.WriteByte(c)
	}
	if key := b.String(); dir(key) == d {
		return key, nil
	}
	return "", bad
}

func stateName(n uint64) string { return fmt.Sprintf("%0*d", digits, n) }
func markName(n uint64) string  { return stateName(n) + markSuffix }

func stateKey(key string, n uint64) string { return dir(key) + "/" + stateName(n) }
func markKey(key string, n uint64) string  { return dir(key) + "/" + markName(n) }

// before sorts before every object of number n and behind those below.
func before(key string, n uint64) string {
	if n == 0 {
		return ""
	}
	return stateKey(key, n-1) + behindMarks
}

// cut takes an object's key apart.
func cut(object string) (d string, n uint64, mark bool, err error) {
	i := strings.LastIndexByte(object, '/')
	d = object[:max(i, 0)]
	text, mark := strings.CutSuffix(object[i+1:], markSuffix)
	n, parseErr := strconv.ParseUint(text, 10, 64)
	if parseErr != nil || n == 0 || n > maxNumber || stateName(n) != text {
		return "", 0, false, store.Errorf(store.ErrCorrupt, "", "decode", object, "no object of a numbered register is called so")
	}
	return d, n, mark, nil
}

// plain reports how much of s, from its beginning, a key could hold.
func plain(s string) string {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '=' && c != '/' {
			return s[:i]
		}
	}
	return s
}
