package authority

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of entries and blobs in format level 1 (LA4).
const (
	MaxInline = 64 << 10 // bytes of a body inside its entry
	MaxEntry  = 80 << 10 // bytes of an encoded entry
	MaxBlob   = 8 << 20  // bytes of a blob
)

// What a digest is of. The domain keeps bytes of one kind from passing for
// another's.
const (
	EntryDomain = "entry"
	BodyDomain  = "body"
)

// DigestOf is the SHA-256 of body within a domain, in lower-case hex.
func DigestOf(domain string, body []byte) string {
	h := sha256.New()
	h.Write([]byte("tenure authority " + domain + " 1\n"))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// IsDigest reports whether s can be what DigestOf returns.
func IsDigest(s string) bool {
	if len(s) != 2*sha256.Size {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// Blob refers to bytes in an object of their own. The object is named by the
// token of the entry that refers to it and by Attempt, so that a later leader
// writes it again (LA8).
type Blob struct {
	Attempt string `json:"attempt"`
	// Digest is DigestOf(BodyDomain, bytes).
	Digest string `json:"digest"`
	Length uint64 `json:"length"`
}

// NewBlob refers to body, to be written under attempt.
func NewBlob(attempt string, body []byte) Blob {
	return Blob{Attempt: attempt, Digest: DigestOf(BodyDomain, body), Length: uint64(len(body))}
}

// Valid checks the bounds.
func (b Blob) Valid() error {
	switch {
	case !record.IsID(b.Attempt):
		return fmt.Errorf("a blob's attempt %q is not an id", b.Attempt)
	case !IsDigest(b.Digest):
		return fmt.Errorf("a blob's digest %q is not one", b.Digest)
	case b.Length < 1 || b.Length > MaxBlob:
		return fmt.Errorf("a blob of %d bytes", b.Length)
	}
	return nil
}

// Verify returns ErrCorrupt unless body is what b refers to (LA4).
func (b Blob) Verify(key string, body []byte) error {
	if why, bad := spoilt(body); bad {
		return store.Errorf(store.ErrCorrupt, "", "read", key, "the store cannot read the blob: %s", why)
	}
	if uint64(len(body)) != b.Length || DigestOf(BodyDomain, body) != b.Digest {
		return store.Errorf(store.ErrCorrupt, "", "read", key, "the blob's %d bytes are not the %d bytes that were admitted", len(body), b.Length)
	}
	return nil
}

// spoiltMark begins the bytes that Spoilt makes. Nothing rests on it: no digest is of
// such bytes, wherever they come from.
const spoiltMark = "\x00spoilt: "

// Spoilt stands for the bytes of an object that the store itself found damaged: they
// pass for nothing, and whoever judges them says why.
func Spoilt(err error) []byte { return []byte(spoiltMark + err.Error()) }

func spoilt(body []byte) (why string, bad bool) {
	return strings.CutPrefix(string(body[:min(len(body), 4<<10)]), spoiltMark)
}

// Entry is one decision, an immutable object that its leader writes before the
// head that admits it (LA4, LA5). Invariants, checked by Valid:
//
//  1. v, authority, chain, proof and attempt are set and within bounds;
//  2. sequence, key >= 1; previous and mark stand before it;
//  3. the mark is the previous entry or stands before it;
//  4. exactly one of body and blob is there; a body has at most 64 KiB.
type Entry struct {
	V         int    `json:"v"`
	Authority string `json:"authority"`
	Chain     string `json:"chain"`
	// Sequence is the head's at which the entry is admitted, or never.
	Sequence uint64 `json:"sequence"`
	Proof    Proof  `json:"proof"`
	// Attempt and the proof's token name the object.
	Attempt string `json:"attempt"`
	Key     uint64 `json:"key"`
	ID      uint64 `json:"id,omitempty"`
	Marked  bool   `json:"marked,omitempty"`
	At      int64  `json:"at_ms"`
	// Previous is the chain's entry before this one, Mark the newest marked one.
	Previous *Link           `json:"previous,omitempty"`
	Mark     *Link           `json:"mark,omitempty"`
	Blob     *Blob           `json:"blob,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
}

// Valid checks the invariants.
func (e *Entry) Valid() error {
	var h Head
	switch {
	case e.V < 1 || e.V > record.Level:
		return fmt.Errorf("format level %d", e.V)
	case h.chain(e.Chain) == nil:
		return fmt.Errorf("unknown chain %q", e.Chain)
	case !record.IsID(e.Attempt):
		return fmt.Errorf("attempt %q is not an id", e.Attempt)
	case !isCount(e.Sequence) || !isCount(e.Key) || e.ID > record.MaxNumber || !isTime(e.At):
		return errors.New("a number is out of bounds")
	case (e.Blob != nil) == (len(e.Body) != 0) || len(e.Body) > MaxInline:
		return errors.New("an entry has either a body of at most 64 KiB or a blob")
	}
	if e.Blob != nil {
		if err := e.Blob.Valid(); err != nil {
			return err
		}
	}
	if err := store.CheckName("authority name", e.Authority); err != nil {
		return err
	}
	return errors.Join(e.Proof.Valid(), e.validLinks())
}

func (e *Entry) validLinks() error {
	me := Link{Sequence: e.Sequence, Token: e.Proof.Token, Key: e.Key, ID: e.ID}
	for _, l := range []*Link{e.Previous, e.Mark} {
		if l == nil {
			continue
		}
		if err := l.valid(); err != nil {
			return err
		}
		if !l.before(me) {
			return errors.New("an entry links one that does not stand before it")
		}
	}
	if m := e.Mark; m != nil && (e.Previous == nil || *m != *e.Previous && !m.before(*e.Previous)) {
		return errors.New("the mark does not stand before the previous entry")
	}
	return nil
}

// Name is the object of the entry.
func (e *Entry) Name() Name { return Name{Kind: KindEntry, Token: e.Proof.Token, Attempt: e.Attempt} }

// BlobName is the object of the entry's blob; false if it has none.
func (e *Entry) BlobName() (Name, bool) {
	if e.Blob == nil {
		return Name{}, false
	}
	return Name{Kind: KindBlob, Token: e.Proof.Token, Attempt: e.Blob.Attempt}, true
}

// Encode returns the entry's canonical bytes, which its link pins.
func (e *Entry) Encode() ([]byte, error) { return record.Encode(e, MaxEntry) }

// link is the link to e, whose canonical bytes are body.
func (e *Entry) link(body []byte) Link {
	return Link{Sequence: e.Sequence, Token: e.Proof.Token, Attempt: e.Attempt, Key: e.Key, ID: e.ID, Digest: DigestOf(EntryDomain, body)}
}

// Payload returns the decision's bytes, verified: the body, or what was read of
// the blob (LA4). blob is not looked at where the entry has none.
func (e *Entry) Payload(key string, blob []byte) ([]byte, error) {
	if e.Blob == nil {
		return e.Body, nil
	}
	return blob, e.Blob.Verify(key, blob)
}

// bodyDigest is the digest of the decision's bytes, wherever they are.
func (e *Entry) bodyDigest() string {
	if e.Blob != nil {
		return e.Blob.Digest
	}
	return DigestOf(BodyDomain, e.Body)
}

// Kind says what an object of the log is.
type Kind string

// The kinds of objects.
const (
	KindEntry Kind = "entry"
	KindBlob  Kind = "blob"
)

// Name names one object of the log by the token that wrote it and an attempt that
// no other object has (LA8).
type Name struct {
	Kind    Kind
	Token   uint64
	Attempt string
}

// Element is the last element of the object's key.
func (n Name) Element() string { return fmt.Sprintf("%016d-%s", n.Token, n.Attempt) }

// ParseName reads an object's last key element strictly. Anything else is
// ErrCorrupt.
func ParseName(kind Kind, element string) (Name, error) {
	token, attempt, ok := strings.Cut(element, "-")
	n, err := strconv.ParseUint(token, 10, 64)
	name := Name{Kind: kind, Token: n, Attempt: attempt}
	if !ok || err != nil || !isCount(n) || !record.IsID(attempt) || name.Element() != element {
		return Name{}, store.Errorf(store.ErrCorrupt, "", "parse name", element, "no object of the log is named so")
	}
	return name, nil
}
