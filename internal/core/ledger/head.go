package ledger

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Head is the register of one agent at one site (EX4). It is replaced by
// compare-and-set and never deleted. Invariants, checked by Valid:
//
//  1. v, agent, site and writer attempt are set and within bounds, the sequence is
//     at least 1;
//  2. the epoch is at least 1 exactly if a holder raised it, and no open attempt of
//     this site is above it;
//  3. open attempts and facts are sorted, within bounds, and no attempt is both;
//  4. epochs are of other sites, sorted;
//  5. the leaves are complete;
//  6. the birth is an id, which never changes.
type Head struct {
	V     int    `json:"v"`
	Agent string `json:"agent"`
	Site  string `json:"site"`
	// Birth is this ledger's own: it tells two of one site name apart (EX7).
	Birth         string `json:"birth"`
	WriterAttempt string `json:"writer_attempt"`
	// Sequence rises by 1 with every write: who remembers a higher one meets a store
	// that went back.
	Sequence uint64 `json:"sequence"`
	// Epoch is the highest that any holder raised; nobody of a lower one admits
	// anything any more.
	Epoch uint64 `json:"epoch"`
	// Holder raised it.
	Holder string `json:"holder,omitempty"`
	// Imports counts the merges of other sites, which write to blocks first.
	Imports uint64 `json:"imports,omitempty"`
	// Epochs are the highest of the sites that were merged. They fence those sites'
	// attempts only (EX7).
	Epochs []SiteEpoch `json:"epochs,omitempty"`
	// Open are the attempts that nobody settled.
	Open []Open `json:"open,omitempty"`
	// Facts are those that were not moved to a block yet.
	Facts []Fact `json:"facts,omitempty"`
	// Leaves say which blocks there are.
	Leaves string `json:"leaves,omitempty"`
}

// NewHead is the first head of an agent, which a site begins with. attempt is the
// id of the write, and the ledger's birth.
func NewHead(agent, site, attempt string) (*Head, error) {
	return newHead(agent, site, attempt, attempt)
}

// Continue is the first head of a ledger that goes on with what from knows of its site:
// one that was moved, or lost its store. It has that one's birth, if from tells one.
func Continue(agent, site, attempt string, from *Agent) (*Head, error) {
	birth := attempt
	if b := from.births[site]; len(b) > 0 {
		birth = b[0] // of several Import says that they are
	}
	return newHead(agent, site, attempt, birth)
}

func newHead(agent, site, attempt, birth string) (*Head, error) {
	h := &Head{V: record.Level, Agent: agent, Site: site, Birth: birth, WriterAttempt: attempt, Sequence: 1}
	if err := h.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "new ledger", "", err)
	}
	return h, nil
}

// DecodeHead reads a head strictly and checks that it is agent's (ST7).
func DecodeHead(key, agent string, body []byte) (*Head, error) {
	var h Head
	if err := record.Decode(key, body, &h); err != nil {
		return nil, err
	}
	if h.Agent != agent {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the head says it belongs to %q, not to %q", h.Agent, agent)
	}
	return &h, nil
}

// AgentOf reads a head strictly and says whose it is: of a long name the key holds only
// a digest.
func AgentOf(key string, body []byte) (string, error) {
	var h Head
	if err := record.Decode(key, body, &h); err != nil {
		return "", err
	}
	return h.Agent, nil
}

// Encode returns the head's canonical bytes.
func (h *Head) Encode() ([]byte, error) { return record.Encode(h, MaxHead) }

// Valid checks the invariants.
func (h *Head) Valid() error {
	if h.V < 1 || h.V > record.Level {
		return fmt.Errorf("format level %d", h.V)
	}
	return errors.Join(store.CheckName("job name", h.Agent), store.CheckName("site", h.Site), checkText("holder", h.Holder),
		h.validNumbers(), validEpochs(h.Epochs), validOpens(h.Open), h.validSets())
}

func (h *Head) validNumbers() error {
	switch {
	case !record.IsID(h.WriterAttempt):
		return fmt.Errorf("writer attempt %q is not an id", h.WriterAttempt)
	case !record.IsID(h.Birth):
		return fmt.Errorf("the birth %q is not an id", h.Birth)
	case h.Sequence < 1 || h.Sequence > record.MaxNumber || h.Imports > record.MaxNumber:
		return fmt.Errorf("sequence %d or imports %d is out of bounds", h.Sequence, h.Imports)
	case h.Epoch > record.MaxNumber || (h.Epoch == 0) != (h.Holder == ""):
		return fmt.Errorf("epoch %d is out of bounds or was raised by nobody", h.Epoch)
	case len(h.Epochs) > MaxSites:
		return fmt.Errorf("%d sites were merged, at most %d can be", len(h.Epochs), MaxSites)
	case h.Epochs != nil && len(h.Epochs) == 0, h.Open != nil && len(h.Open) == 0, h.Facts != nil && len(h.Facts) == 0:
		return errors.New("an empty list is written out")
	}
	for i, e := range h.Epochs {
		if e.Site == h.Site {
			return errors.New("the own site is among the merged ones")
		}
		if i > 0 && h.Epochs[i-1].Site == e.Site {
			return fmt.Errorf("the site %q is there twice", e.Site)
		}
	}
	return nil
}

func (h *Head) validSets() error {
	open := map[Key]bool{}
	for _, o := range h.Open {
		open[o.Key] = true
		if o.Site == h.Site && o.Epoch > h.Epoch {
			return fmt.Errorf("an open attempt has epoch %d, above the head's %d", o.Epoch, h.Epoch)
		}
	}
	for i, f := range h.Facts {
		switch {
		case f.flags() == 0 || open[f.Key]:
			return errors.New("a fact says nothing, or its attempt is open")
		case i > 0 && h.Facts[i-1].compare(f.Key) >= 0:
			return errors.New("the facts are out of order")
		}
		if err := f.valid(); err != nil {
			return err
		}
		if a := f.Abandoned; a != nil {
			if err := (given{f.Key, *a}).valid(); err != nil {
				return err
			}
		}
	}
	_, err := unpackLeaves(h.Leaves)
	return err
}

// agent is the head's part of the agent's state.
func (h *Head) agent() *Agent {
	a := NewAgent(h.Agent, len(h.Facts)+len(h.Open))
	h.load(a)
	return a
}

// Load joins the head into a. With all its blocks that is the agent's whole state.
func (h *Head) Load(a *Agent) {
	a.know(SiteEpoch{h.Site, h.Epoch, h.Birth})
	h.load(a)
}

func (h *Head) load(a *Agent) {
	for _, e := range h.Epochs {
		a.know(e)
	}
	for _, f := range h.Facts {
		a.t.put(f)
	}
	for _, o := range h.Open {
		a.t.putOpen(o)
	}
}

// Blocks are the leaves of all blocks, in order: who lists everything reads these.
func (h *Head) Blocks() []string { return h.tree().all() }

// tree is the leaves of a valid head.
func (h *Head) tree() leaves {
	l, err := unpackLeaves(h.Leaves)
	if err != nil {
		return "" // a head that is not valid is never written and never decoded
	}
	return l
}

// BlockOf is the leaf of the only block that may know of run. ok is false if there
// is no block.
func (h *Head) BlockOf(run RunID) (leaf string, ok bool) { return h.tree().of(run) }

// Seed is above what the agent's coordinator must start if it lost its counter
// (EX2). Every epoch that admitted anything was raised here first, and the head
// outlives all blocks.
func (h *Head) Seed() uint64 {
	top := h.Epoch
	for _, e := range h.Epochs {
		top = max(top, e.Epoch)
	}
	return top
}

// next is a copy to change, as the write attempt.
func (h *Head) next(attempt string) *Head {
	n := *h
	n.WriterAttempt = attempt
	n.Sequence++
	return &n
}

// Jump is the head with a sequence of at least above (LS12), for readers that saw it
// before the store was set back; nil if it has that already.
func (h *Head) Jump(above uint64, attempt string) (*Head, error) {
	if above > record.MaxNumber/2 {
		return nil, store.Errorf(store.ErrInvalid, "", "jump", "", "sequence %d leaves no room for what follows: at most %d", above, uint64(record.MaxNumber/2))
	}
	if h.Sequence >= above {
		return nil, nil
	}
	n := h.next(attempt)
	n.Sequence = above
	return n.checked("jump", 0)
}

// set takes over what a knows of attempts.
func (h *Head) set(a *Agent) {
	h.Open, h.Facts = a.Opens(), a.Facts()
	if len(h.Open) == 0 {
		h.Open = nil
	}
	if len(h.Facts) == 0 {
		h.Facts = nil
	}
}

// checked is h if it may be written with room bytes left free.
func (h *Head) checked(op string, room int) (*Head, error) {
	if err := h.Valid(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", op, "", err)
	}
	if n := record.Size(h); n > MaxHead-room {
		return nil, &FullError{Op: op, Size: n, Open: len(h.Open), Facts: len(h.Facts)}
	}
	return h, nil
}

// FullError says that the head has no room for a change: compact it, and if that
// moves nothing, settle open attempts.
type FullError struct {
	Op    string
	Size  int
	Open  int
	Facts int
}

// Error says what to do.
func (e *FullError) Error() string {
	return fmt.Sprintf("%s: the head would have %d bytes, with %d open attempts and %d facts: compact the ledger, or settle what is unknown",
		e.Op, e.Size, e.Open, e.Facts)
}

// Is makes it an invalid request: nothing happened.
func (e *FullError) Is(target error) bool { return target == store.ErrInvalid }

// Has reports whether the write admitted an attempt of run that is open: how a lost
// reply is settled (ST9, EX4).
func (h *Head) Has(run RunID, write string) bool {
	return slices.ContainsFunc(h.Open, func(o Open) bool { return o.Run == run && o.Write == write })
}

// open finds an open attempt.
func (h *Head) open(k Key) *Open {
	for i := range h.Open {
		if h.Open[i].Key == k {
			return &h.Open[i]
		}
	}
	return nil
}
