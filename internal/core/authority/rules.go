package authority

import (
	"fmt"

	"github.com/tenure-project/tenure/store"
)

// Item is what the rules of a chain make of one decision's bytes.
type Item struct {
	// Key is what the decision is unique by; it rises along the chain. At least 1.
	Key uint64
	// ID is a second number that rises with the key; 0 in chains that have none.
	ID uint64
	// Marked entries form a chain of their own inside the chain.
	Marked bool
	// Binding must be the same in every entry; empty where the chain has none.
	Binding string
	// Base is the State that the decision builds on, State what it leaves behind;
	// both empty where the chain has none.
	Base, State string
	// Value is the decoded decision.
	Value any
}

// Policy says how a chain is kept.
type Policy struct {
	// AnyProof: whoever decides the same decides identically (CT). Otherwise the
	// proof is part of the decision.
	AnyProof bool
	// CompactAt live entries are compacted to Keep with the next append; 0: never.
	CompactAt, Keep uint64
}

// Rules are what one chain adds to the log. They are pure.
type Rules interface {
	// Chain is the chain's name.
	Chain() string
	// Policy says how the chain is kept.
	Policy() Policy
	// Item reads a decision's bytes strictly and checks whatever they alone can show,
	// with the proof of who decides.
	Item(key string, p Proof, body []byte) (Item, error)
	// Admit returns an error that says why the decision may not stand after h, beyond
	// the order of keys, which the log checks itself. p leads h.
	Admit(h *Head, p Proof, it Item) error
	// Apply makes the decision's other changes to next, which admits it.
	Apply(next *Head, it Item)
}

// Object is an object beside entries and blobs that decisions name.
type Object struct {
	// Kind and Element end its key.
	Kind    Kind
	Element string
	// Limit is the largest body that is accepted.
	Limit int
	// Verify returns ErrCorrupt unless body is what the decision names.
	Verify func(key string, body []byte) error
}

// Need is what must be there for a decision to be of use: the first of its objects
// that is there, which must be sound.
type Need struct {
	Chain string
	Link  Link
	Any   []Object
}

// Decided is a decision that was walked and read.
type Decided struct {
	Step
	Item
}

// Refers are rules of decisions that name objects of their own.
type Refers interface {
	Rules
	// Needs lists what must be there of what all names, which is everything that the
	// head reaches of the chain c, newest first.
	Needs(c *Chain, all []Decided) []Need
}

// Verify reads the decision of e: blob is what was read of its blob, if it has
// one. The bytes, their strict form and what the entry says of them must agree
// (LA4); anything else is ErrCorrupt.
func Verify(r Rules, key string, e *Entry, blob []byte) (Item, error) {
	body, err := e.Payload(key, blob)
	if err != nil {
		return Item{}, err
	}
	it, err := r.Item(key, e.Proof, body)
	if err != nil {
		return Item{}, err
	}
	if e.Chain != r.Chain() || it.Key != e.Key || it.ID != e.ID || it.Marked != e.Marked {
		return Item{}, store.Errorf(store.ErrCorrupt, "", "verify", key, "the entry of key %d does not say what its body says", e.Key)
	}
	return it, nil
}

// identical reports whether e is the decision of body by p: the same bytes and,
// unless the chain does not mind, the same proof (LA4).
func identical(r Rules, e *Entry, p Proof, bodyDigest string) bool {
	return e.bodyDigest() == bodyDigest && (r.Policy().AnyProof || e.Proof == p)
}

// Flaw says what is wrong with a link.
type Flaw string

// The flaws that a walk finds (LA5).
const (
	Missing      Flaw = "missing"       // no object has the linked name
	Altered      Flaw = "altered"       // its bytes are not the linked ones
	NotCanonical Flaw = "not canonical" // the linked bytes are no valid entry or decision
	Reordered    Flaw = "reordered"     // it does not stand where its link says
	ForeignChain Flaw = "foreign chain" // it belongs to another chain or authority
	ForeignProof Flaw = "foreign proof" // it was decided by nobody who led then
	Gap          Flaw = "gap"           // the chain ends, or counts, before its bound
	UnderFloor   Flaw = "below floor"   // the chain passes its floor beside the anchor
)

// Break is the first broken link of a chain. It is ErrCorrupt.
type Break struct {
	Chain  string
	Link   Link
	Flaw   Flaw
	Detail string
	// Object is what is broken, as KIND/ELEMENT, where it is not the linked entry itself:
	// its blob, or what it names.
	Object string
}

// Where ends the key of the object that is broken, and that is to be put back: after
// it nobody reads on.
func (b *Break) Where() string {
	if b.Object != "" {
		return b.Object
	}
	return where(b.Link.Name().Kind, b.Link.Name().Element())
}

func where(kind Kind, element string) string { return string(kind) + "/" + element }

// Error names the link and what is wrong with it.
func (b *Break) Error() string {
	return fmt.Sprintf("chain %s, sequence %d, key %d, object %s: %s: %s", b.Chain, b.Link.Sequence, b.Link.Key, b.Link.Name().Element(), b.Flaw, b.Detail)
}

// Is reports whether target is store.ErrCorrupt.
func (b *Break) Is(target error) bool { return target == store.ErrCorrupt }
