// Package assignment has the data types and the rules of the assignments of slots
// to processes (AS): each decision moves the assignment from one version to the
// next, and nothing is installed but through its decision. It is pure.
package assignment

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1.
const (
	MaxParticipants = 129
	MaxSlots        = 1 << 16
)

// Participant is one process start that owns slots. A restart is another one.
type Participant struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
}

// Valid checks that the participant is complete.
func (p Participant) Valid() error {
	if !record.IsID(p.Incarnation) {
		return fmt.Errorf("incarnation %q is not an id", p.Incarnation)
	}
	return store.CheckName("node name", p.Node)
}

// CheckParticipants returns an error unless all are complete and sorted by node,
// each node once.
func CheckParticipants(all []Participant) error {
	last := ""
	for _, p := range all {
		if err := p.Valid(); err != nil {
			return err
		}
		if p.Node <= last {
			return fmt.Errorf("participant %q is out of order", p.Node)
		}
		last = p.Node
	}
	return nil
}

// Fence names one assignment exactly: its version, size, map and owners (AS).
// Invariants, checked by Valid:
//
//  1. version and slots are at least 1 and within bounds;
//  2. the digest is a map's;
//  3. 1 to 129 participants, sorted by node, each node once.
type Fence struct {
	Version uint64 `json:"version"`
	Slots   uint64 `json:"slots"`
	// Digest is of the map of slots to owners, not of the version.
	Digest string `json:"digest"`
	// Participants are exactly the owners of slots.
	Participants []Participant `json:"participants"`
}

// Valid checks the invariants.
func (f *Fence) Valid() error {
	switch {
	case f.Version < 1 || f.Version > record.MaxNumber:
		return fmt.Errorf("assignment version %d is out of bounds", f.Version)
	case f.Slots < 1 || f.Slots > MaxSlots:
		return fmt.Errorf("an assignment of %d slots", f.Slots)
	case !authority.IsDigest(f.Digest):
		return fmt.Errorf("the digest %q is not one", f.Digest)
	case len(f.Participants) < 1 || len(f.Participants) > MaxParticipants:
		return fmt.Errorf("an assignment to %d participants", len(f.Participants))
	}
	return CheckParticipants(f.Participants)
}

// Has reports whether p is a participant.
func (f *Fence) Has(p Participant) bool { return slices.Contains(f.Participants, p) }

// At is the same assignment under another version.
func (f *Fence) At(version uint64) *Fence {
	next := *f
	next.Version = version
	return &next
}

// State binds everything that f says: what a decision that follows must build on.
func (f *Fence) State() string {
	var b bytes.Buffer
	b.WriteString("fence\n")
	for _, n := range []uint64{f.Version, f.Slots, uint64(len(f.Participants))} {
		_ = binary.Write(&b, binary.LittleEndian, n)
	}
	b.WriteString(f.Digest)
	for _, p := range f.Participants {
		writeText(&b, p.Node)
		writeText(&b, p.Incarnation)
	}
	return authority.DigestOf("assignment", b.Bytes())
}

// writeText frames s by its length, so that no two lists look alike.
func writeText(b *bytes.Buffer, s string) {
	_ = binary.Write(b, binary.LittleEndian, uint64(len(s)))
	b.WriteString(s)
}

// Map is one whole assignment: which participant owns which slot. It is the content
// of a proposal, and of what is installed. Invariants, checked by Valid:
//
//  1. v is a known level, the version is within bounds;
//  2. participants are sorted, each node once, and each owns a slot;
//  3. every slot names one of them.
type Map struct {
	V            int           `json:"v"`
	Version      uint64        `json:"version"`
	Participants []Participant `json:"participants"`
	// Owners has, for every slot, the index of its owner in Participants.
	Owners []int `json:"owners"`
}

// NewMap makes the assignment of owners, by slot.
func NewMap(version uint64, owners []Participant) (*Map, error) {
	m := &Map{V: record.Level, Version: version}
	m.Participants = slices.Clone(owners)
	slices.SortFunc(m.Participants, byNode)
	m.Participants = slices.Compact(m.Participants)
	for _, p := range owners {
		i, _ := slices.BinarySearchFunc(m.Participants, p, byNode)
		m.Owners = append(m.Owners, i)
	}
	if err := m.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "assign", "", err)
	}
	return m, nil
}

func byNode(p, q Participant) int {
	return cmp.Or(cmp.Compare(p.Node, q.Node), cmp.Compare(p.Incarnation, q.Incarnation))
}

// Valid checks the invariants.
func (m *Map) Valid() error {
	if m.V < 1 || m.V > record.Level {
		return fmt.Errorf("format level %d", m.V)
	}
	owns := map[int]bool{}
	for slot, i := range m.Owners {
		if i < 0 || i >= len(m.Participants) {
			return fmt.Errorf("slot %d names the owner %d of %d", slot, i, len(m.Participants))
		}
		owns[i] = true
	}
	if len(owns) != len(m.Participants) {
		return errors.New("a participant owns no slot")
	}
	return m.Fence().Valid()
}

// Fence names the assignment.
func (m *Map) Fence() *Fence {
	var b bytes.Buffer
	b.WriteString("map\n")
	_ = binary.Write(&b, binary.LittleEndian, uint64(len(m.Owners)))
	for _, i := range m.Owners {
		if i >= 0 && i < len(m.Participants) {
			writeText(&b, m.Participants[i].Node)
			writeText(&b, m.Participants[i].Incarnation)
		}
	}
	return &Fence{Version: m.Version, Slots: uint64(len(m.Owners)), Digest: authority.DigestOf("assignment", b.Bytes()), Participants: m.Participants}
}

// Encode returns the map's canonical bytes.
func (m *Map) Encode() ([]byte, error) { return record.Encode(m, authority.MaxBlob) }

// DecodeMap reads a map strictly (ST7).
func DecodeMap(key string, body []byte) (*Map, error) {
	var m Map
	if err := record.Decode(key, body, &m); err != nil {
		return nil, err
	}
	return &m, nil
}
