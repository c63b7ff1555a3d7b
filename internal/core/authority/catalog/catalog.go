// Package catalog has the rules of an authority's catalog: one manifest, sealed
// once (CT). Every later head carries its link. It is pure.
package catalog

import (
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// MaxDefinitions bounds a manifest.
const MaxDefinitions = 4096

// Definition is one named thing of a catalog.
type Definition struct {
	Name string `json:"name"`
	// Text is what defines it; not empty.
	Text string `json:"text"`
}

// Manifest is the whole catalog, in the order that its author gave. Invariants:
//
//  1. v is a known level;
//  2. 1 to 4096 definitions, with different names and a text each.
type Manifest struct {
	V           int          `json:"v"`
	Definitions []Definition `json:"definitions"`
}

// Valid checks the invariants.
func (m *Manifest) Valid() error {
	switch {
	case m.V < 1 || m.V > record.Level:
		return fmt.Errorf("format level %d", m.V)
	case len(m.Definitions) < 1 || len(m.Definitions) > MaxDefinitions:
		return fmt.Errorf("a catalog of %d definitions", len(m.Definitions))
	}
	seen := map[string]bool{}
	for _, d := range m.Definitions {
		if err := store.CheckName("definition", d.Name); err != nil {
			return err
		}
		if seen[d.Name] {
			return fmt.Errorf("%q is defined twice", d.Name)
		}
		if d.Text == "" {
			return errors.New("a definition without a text: " + d.Name)
		}
		seen[d.Name] = true
	}
	return nil
}

// Encode returns the manifest's canonical bytes: the body of its decision.
func (m *Manifest) Encode() ([]byte, error) { return record.Encode(m, authority.MaxBlob) }

// Decode reads a manifest strictly (ST7).
func Decode(key string, body []byte) (*Manifest, error) {
	var m Manifest
	if err := record.Decode(key, body, &m); err != nil {
		return nil, err
	}
	return &m, nil
}

// Rules are the catalog's. The same manifest is the same decision whoever seals it.
type Rules struct{}

var _ authority.Rules = Rules{}

// Chain is the name of the chain.
func (Rules) Chain() string { return authority.Catalog }

// Policy says that whoever seals the same seals identically.
func (Rules) Policy() authority.Policy { return authority.Policy{AnyProof: true} }

// Item reads a manifest. Every one has the same key: one is sealed.
func (Rules) Item(key string, _ authority.Proof, body []byte) (authority.Item, error) {
	m, err := Decode(key, body)
	return authority.Item{Key: 1, Value: m}, err
}

// Admit lets the first manifest in; the log refuses every other one by its key.
func (Rules) Admit(*authority.Head, authority.Proof, authority.Item) error { return nil }

// Apply changes nothing else.
func (Rules) Apply(*authority.Head, authority.Item) {}
