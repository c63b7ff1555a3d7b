// Package record turns records into bytes and back, strictly.
//
// The one encoding of a value is what [Encode] makes: JSON in the field order
// of its Go type, without white space and without HTML escapes. Decode accepts
// exactly those bytes (ST7), so that a damaged, hand-edited or re-ordered
// record is found, and a record of a newer level is told from a damaged one
// (ST15).
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tenure-project/tenure/store"
)

// Level is the newest format level that this program reads and writes.
const Level = 1

// MaxNumber is the largest number on the wire: what every JSON reader can hold
// exactly (ST11).
const MaxNumber = 1<<53 - 1

// MaxJump is the largest number that a jump may raise anything to: 2^32 writes or
// grants have room above it, also for whoever was given a wrong number.
const MaxJump = MaxNumber - 1<<32

// Value is a record type. Valid checks its numbered invariants and names the
// first one broken; it runs on both sides of the disk.
type Value interface {
	Valid() error
}

// Encode returns v's canonical bytes. A value that breaks its invariants or
// exceeds limit bytes is an error: such a record is never written.
func Encode(v Value, limit int) ([]byte, error) {
	if err := v.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "encode", "", err)
	}
	body, err := marshal(v)
	if err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "encode", "", err)
	}
	if len(body) > limit {
		return nil, store.Errorf(store.ErrInvalid, "", "encode", "", "the record has %d bytes, at most %d are allowed", len(body), limit)
	}
	return body, nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode reads body into v. A newer level is ErrNewer; anything that is not the
// canonical encoding of a valid value is ErrCorrupt. Both name key.
func Decode(key string, body []byte, v Value) error {
	err := strict(body, v)
	if err == nil {
		return nil
	}
	// Why it failed matters more than that it did: a newer program's record is
	// no damage.
	var head struct {
		V json.Number `json:"v"`
	}
	if json.Unmarshal(body, &head) != nil {
		return corrupt(key, err)
	}
	level, notInt := head.V.Int64()
	if notInt != nil || level < 1 || level > MaxNumber {
		return corrupt(key, fmt.Errorf("format level %q is not a positive number", head.V))
	}
	if level > Level {
		return store.Errorf(store.ErrNewer, "", "decode", key,
			"the record has format level %d, this program knows %d: use a newer tenure", level, Level)
	}
	return corrupt(key, err)
}

// known reports whether body begins as every record of a known level does. The
// level is the first field of each, so that no type can forget to check it.
func known(body []byte) bool {
	rest, ok := bytes.CutPrefix(body, []byte(`{"v":`))
	number, _, more := bytes.Cut(rest, []byte(","))
	level, err := strconv.Atoi(string(number))
	return ok && more && err == nil && level >= 1 && level <= Level
}

// strict decodes what is the canonical encoding of a valid value of this level.
func strict(body []byte, v Value) error {
	if !known(body) {
		return errors.New("it does not begin with a known format level")
	}
	// What an unknown or doubled field, white space or trailing bytes would hide is
	// missed by the comparison below: only what is encoded again counts.
	if err := json.Unmarshal(body, v); err != nil {
		return err
	}
	if err := v.Valid(); err != nil {
		return err
	}
	again, err := marshal(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, body) {
		return errors.New("it is not the canonical encoding of its value")
	}
	return nil
}

// Size is the number of bytes of v's encoding; 0 if it has none, which Encode
// then reports.
func Size(v any) int {
	body, err := marshal(v)
	if err != nil {
		return 0
	}
	return len(body)
}

func corrupt(key string, cause error) error {
	e := store.Wrap(store.ErrCorrupt, "", "decode", key, cause)
	e.Detail = "stop and look: restore the record from its history, or see docs/FORMAT.md"
	return e
}

// IsID reports whether s is a UUID in lower case.
func IsID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}
