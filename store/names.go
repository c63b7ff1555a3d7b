package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest name in bytes that a user may give (ST11).
const MaxName = 128

// maxPlain is the longest encoded element that is written out in full; a
// longer one ends in a digest. 160 leaves room for a driver's own suffix in a
// file name of 255 bytes.
const maxPlain = 160

// CheckName returns ErrInvalid unless name is 1 to 128 bytes of valid UTF-8
// without control characters and without white space at either end (ST11).
// what names the thing in the message: "lease name", "namespace".
func CheckName(what, name string) error {
	bad := func(format string, args ...any) error {
		return Errorf(ErrInvalid, "", "check name", "", "%s "+format, append([]any{what}, args...)...)
	}
	switch {
	case name == "":
		return bad("is empty; give 1 to %d bytes", MaxName)
	case len(name) > MaxName:
		return bad("has %d bytes; at most %d are allowed", len(name), MaxName)
	case !utf8.ValidString(name):
		return bad("%q is not valid UTF-8", name)
	}
	for _, r := range name {
		if unicode.IsControl(r) {
			return bad("%q holds the control character %U", name, r)
		}
	}
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return bad("%q begins or ends with white space", name)
	}
	return nil
}

// EncodeName turns any name into a key element of the characters [a-z0-9=_-],
// such that different names never give the same element on any backend,
// whether or not it folds case or Unicode forms. Lower-case ASCII letters,
// digits, '-' and '_' stand for themselves; every other byte is "=" and two
// hex digits. A long name keeps its beginning, followed by "=h" and its
// SHA-256, so its record must carry the name.
func EncodeName(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if plainByte(c) && (i > 0 || !reserved(name)) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteString(hex.EncodeToString([]byte{c}))
	}
	plain := b.String()
	if len(plain) <= maxPlain {
		return plain
	}
	sum := sha256.Sum256([]byte(name))
	cut := maxPlain - 2 - 2*sha256.Size
	for cut > 0 && (plain[cut-1] == '=' || cut > 1 && plain[cut-2] == '=') {
		cut--
	}
	return plain[:cut] + "=h" + hex.EncodeToString(sum[:])
}

// DecodeName is EncodeName's inverse. exact is false where the element holds
// only a digest of the name; the record then says the rest. An element that
// EncodeName cannot have made is ErrCorrupt.
func DecodeName(element string) (name string, exact bool, err error) {
	if i := strings.LastIndex(element, "=h"); i >= 0 {
		return "", false, checkDigest(element, i)
	}
	name, err = decodePlain(element, element)
	return name, err == nil, err
}

// checkDigest returns ErrCorrupt unless element is the beginning of a name's
// encoding up to i, as much of it as fits, and then a digest.
func checkDigest(element string, i int) error {
	bad := Errorf(ErrCorrupt, "", "decode name", element, "it is not the short form of a long name")
	digest := element[i+2:]
	if _, err := hex.DecodeString(digest); err != nil || len(digest) != 2*sha256.Size || strings.ToLower(digest) != digest {
		return bad
	}
	// An escape that did not fit took up to two places with it.
	if i > maxPlain-2-2*sha256.Size || i < maxPlain-2-2*sha256.Size-2 {
		return bad
	}
	_, err := decodePlain(element[:i], element)
	return err
}

// decodePlain undoes EncodeName for text, which is element or its beginning.
func decodePlain(text, element string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '=' {
			b.WriteByte(text[i])
			continue
		}
		if i+3 > len(text) {
			return "", Errorf(ErrCorrupt, "", "decode name", element, "an escape is cut off")
		}
		c, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", Wrap(ErrCorrupt, "", "decode name", element, err)
		}
		b.Write(c)
		i += 2
	}
	if EncodeName(b.String()) != text {
		return "", Errorf(ErrCorrupt, "", "decode name", element, "it is not the canonical form of a name")
	}
	return b.String(), nil
}

func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// reserved are the device names of Windows, which no file there may have, with
// whatever suffix.
func reserved(name string) bool {
	switch name {
	case "con", "prn", "aux", "nul":
		return true
	}
	return len(name) == 4 && (name[:3] == "com" || name[:3] == "lpt") && name[3] >= '0' && name[3] <= '9'
}

// Key joins a namespace, a kind of record and a name into a key. The
// namespace comes first (SPEC 0), so that rights can be given by prefix.
func Key(namespace, kind, name string) string {
	return Prefix(namespace, kind) + EncodeName(name)
}

// Prefix is what every key of one kind in one namespace starts with.
func Prefix(namespace, kind string) string {
	return EncodeName(namespace) + "/" + kind + "/"
}

// CheckKey returns ErrInvalid unless key is made of non-empty elements of
// [a-z0-9=_-], none longer than 200 bytes, 800 in all. Drivers call it first.
func CheckKey(key string) error {
	if key == "" || len(key) > 800 {
		return Errorf(ErrInvalid, "", "check key", key, "a key has 1 to 800 bytes, this one %d", len(key))
	}
	for element := range strings.SplitSeq(key, "/") {
		if element == "" || len(element) > 200 {
			return Errorf(ErrInvalid, "", "check key", key, "an element has 1 to 200 bytes, one has %d", len(element))
		}
		for i := 0; i < len(element); i++ {
			if c := element[i]; !plainByte(c) && c != '=' {
				return Errorf(ErrInvalid, "", "check key", key, "the character %q is not allowed", c)
			}
		}
	}
	return nil
}
