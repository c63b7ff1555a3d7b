// Package catalog is an authority's catalog: one manifest of named definitions,
// sealed once (CT). Every later leader and every later head carries it, so that all
// processes that read the authority agree on what is defined.
//
//	res, err := catalog.Seal(ctx, a, leader.Proof(), definitions)
//	m, err := catalog.Read(ctx, a.Reader())
package catalog

import (
	"context"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/internal/chains"
	coreauthority "github.com/tenure-project/tenure/internal/core/authority"
	core "github.com/tenure-project/tenure/internal/core/authority/catalog"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of a manifest.
const (
	// MaxDefinitions is how many definitions a manifest has at most: a reader holds
	// and compares all of them at once.
	MaxDefinitions = core.MaxDefinitions
	// MaxBytes bounds its encoded form: every store takes an object of that size in
	// one write, and a reader within one call's limit.
	MaxBytes = coreauthority.MaxBlob
)

// Definition is one named thing of a catalog: a name of 1 to 128 bytes and a text
// that is not empty.
//
//	Name string
//	Text string // whatever defines it
type Definition = core.Definition

// Manifest is a sealed catalog.
type Manifest struct {
	// Definitions are in the order in which they were sealed.
	Definitions []Definition
	// Proof is the leadership that sealed it.
	Proof tenure.Proof
	// Link pins its bytes: two readers with the same Link.Digest have the same catalog.
	Link authority.Link
}

// Result is what became of a seal.
type Result struct {
	authority.Result
	// Sealed is the manifest that stands: this one for Created and Unchanged, the
	// winner for Conflict, nil for Fenced.
	Sealed *Manifest
}

// Seal makes definitions the authority's catalog, as p's leader (CT). The same
// definitions in the same order are Unchanged, whoever seals them and however often;
// anything else is Conflict, with the catalog that stands. A manifest out of bounds,
// a name that is defined twice or an empty text is store.ErrInvalid, and nothing was
// written. Errors are those of [authority.Authority.Append].
func Seal(ctx context.Context, a *authority.Authority, p tenure.Proof, definitions []Definition) (Result, error) {
	m := &core.Manifest{V: record.Level, Definitions: definitions}
	body, err := m.Encode()
	if err != nil {
		return Result{}, store.Wrap(store.ErrInvalid, "", "seal", a.Name(), err)
	}
	res, err := a.Append(ctx, p, core.Rules{}, body)
	switch {
	case err != nil || !res.Stands() && res.Answer != authority.Conflict:
		return Result{Result: res}, err
	case res.Answer == authority.Created:
		return Result{Result: res, Sealed: &Manifest{Definitions: definitions, Proof: p, Link: res.Winner}}, nil
	}
	sealed, err := read(ctx, a.Reader(), res.Winner)
	return Result{Result: res, Sealed: sealed}, err
}

// Read returns the sealed catalog, verified; store.ErrNotFound before one was
// sealed (CT).
func Read(ctx context.Context, r *authority.Reader) (*Manifest, error) {
	s, err := r.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return At(ctx, r, s)
}

// At returns the catalog that the snapshot s of r's authority carries. It never
// changes: a reader that has it need not read it again.
func At(ctx context.Context, r *authority.Reader, s authority.Snapshot) (*Manifest, error) {
	c, sealed := s.Chain(authority.Catalog)
	if !sealed {
		return nil, store.Errorf(store.ErrNotFound, "", "read", r.Name(), "the authority has no sealed catalog")
	}
	return read(ctx, r, c.Head)
}

// read reads the manifest that l links. A sealed one never goes away, so one that is
// missing is damage.
func read(ctx context.Context, r *authority.Reader, l authority.Link) (*Manifest, error) {
	d, err := chains.Standing(ctx, r, core.Rules{}, l)
	if err != nil {
		return nil, err
	}
	return &Manifest{Definitions: d.Item.Value.(*core.Manifest).Definitions, Proof: d.Proof, Link: l}, nil
}
