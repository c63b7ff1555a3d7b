package ledger

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// entryLen is what a settled attempt costs for ever: run id, site, attempt, flags
// (EX7, and at most 40 with its share of the line before).
const (
	entryLen = sha256.Size + 1 + 4 + 1
	orderLen = entryLen - 1 // what entries are ordered by
)

// SiteEpoch is the highest epoch of one site, and the birth of its ledger, if known.
type SiteEpoch struct {
	Site  string `json:"site"`
	Epoch uint64 `json:"epoch"`
	Birth string `json:"birth,omitempty"`
}

func (e SiteEpoch) compare(o SiteEpoch) int {
	return cmp.Or(string3(e.Site, o.Site), string3(e.Birth, o.Birth))
}

// given is an abandonment with its attempt.
type given struct {
	Key
	Abandonment
}

// packLine is the line of JSON before the entries; the SHA-256 of both follows them.
// Invariants, checked by Valid and by Decode, which sees the entries:
//
//  1. agent, leaf, sites and count are within bounds, sites sorted;
//  2. the entries are sorted and distinct, each has a flag, a known site and a run id
//     below the leaf; the sites are exactly those used;
//  3. of the attempts of one run and site only the newest says more than what lasts, and
//     that it failed;
//  4. the abandoned list has exactly the entries with that flag, in their order;
//  5. only a checkpoint, whose leaf is empty, has epochs or open attempts.
type packLine struct {
	V         int         `json:"v"`
	Agent     string      `json:"agent"`
	Leaf      string      `json:"leaf"`
	Sites     []string    `json:"sites,omitempty"`
	Count     int         `json:"count"`
	Abandoned []given     `json:"abandoned,omitempty"`
	Whole     bool        `json:"checkpoint,omitempty"`
	Epochs    []SiteEpoch `json:"epochs,omitempty"`
	Open      []Open      `json:"open,omitempty"`
}

// Valid checks the line by itself.
func (l *packLine) Valid() error {
	switch {
	case l.V < 1 || l.V > record.Level:
		return fmt.Errorf("format level %d", l.V)
	case checkLabel("job name", l.Agent) != nil:
		return checkLabel("job name", l.Agent)
	case !isLeaf(l.Leaf):
		return fmt.Errorf("the leaf %q is not made of bits", l.Leaf)
	case len(l.Sites) > 256 || !slices.IsSorted(l.Sites) || len(slices.Compact(slices.Clone(l.Sites))) != len(l.Sites):
		return errors.New("the sites are too many, not sorted or there twice")
	case l.Count < 0:
		return errors.New("the count of the entries is out of bounds")
	case !l.Whole && (l.Epochs != nil || l.Open != nil), l.Whole && l.Leaf != "":
		return errors.New("a block speaks of epochs or open attempts")
	}
	return errors.Join(validEpochs(l.Epochs), validOpens(l.Open))
}

func validEpochs(all []SiteEpoch) error {
	for i, e := range all {
		if e.Epoch < 1 && e.Birth == "" || e.Epoch > record.MaxNumber || i > 0 && all[i-1].compare(e) >= 0 {
			return fmt.Errorf("the epoch %d of site %q is out of bounds or out of order", e.Epoch, e.Site)
		}
		if e.Birth != "" && !record.IsID(e.Birth) {
			return fmt.Errorf("the birth %q of site %q is not an id", e.Birth, e.Site)
		}
		if err := checkLabel("site", e.Site); err != nil {
			return err
		}
	}
	return nil
}

func validOpens(all []Open) error {
	for i, o := range all {
		if i > 0 && all[i-1].compareKey(o) >= 0 {
			return errors.New("the open attempts are out of order")
		}
		if o.Epoch > record.MaxNumber {
			return fmt.Errorf("epoch %d is out of bounds", o.Epoch)
		}
		if err := errors.Join(o.valid(), o.Detail.valid(), checkText("holder", o.Holder)); err != nil {
			return err
		}
	}
	return nil
}

func (o Open) valid() error { return o.Key.valid() }

func isLeaf(s string) bool {
	for i := range len(s) {
		if s[i] != '0' && s[i] != '1' {
			return false
		}
	}
	return len(s) <= MaxDepth
}

// under reports whether the run's leading bits are leaf.
func (r RunID) under(leaf string) bool {
	for i := range len(leaf) {
		if leaf[i]-'0' != r.bit(i) {
			return false
		}
	}
	return true
}

// pack is a decoded block or checkpoint. Its entries stay packed: an answer is a
// binary search.
type pack struct {
	line    packLine
	entries []byte
}

// encode packs facts, which must be sorted.
func encodePack(line packLine, facts []Fact, limit int) ([]byte, error) {
	line.V, line.Count = record.Level, len(facts)
	seen := map[string]int{}
	for _, f := range facts {
		seen[f.Site] = 0
	}
	for s := range seen {
		line.Sites = append(line.Sites, s)
	}
	slices.Sort(line.Sites)
	if len(line.Sites) > 256 {
		return nil, store.Errorf(store.ErrInvalid, "", "encode", "", "the facts are of %d sites, at most 256 can be packed", len(line.Sites))
	}
	for i, s := range line.Sites {
		seen[s] = i
	}
	entries := make([]byte, 0, len(facts)*entryLen+sha256.Size)
	for _, f := range facts {
		entries = append(entries, f.Run[:]...)
		entries = append(entries, byte(seen[f.Site]))
		entries = binary.BigEndian.AppendUint32(entries, uint32(f.Attempt))
		entries = append(entries, byte(f.flags()))
		if f.Abandoned != nil {
			line.Abandoned = append(line.Abandoned, given{f.Key, *f.Abandoned})
		}
	}
	head, err := record.Encode(&line, MaxCheckpoint)
	if err != nil {
		return nil, err
	}
	body := append(append(head, '\n'), entries...)
	if n := len(body) + sha256.Size; n > limit {
		return nil, &sizeError{n, limit}
	}
	p := pack{line, entries}
	if err := p.check(); err != nil {
		return nil, store.Wrap(store.ErrInvalid, "", "encode", "", err)
	}
	sum := sha256.Sum256(body)
	return append(body, sum[:]...), nil
}

// sizeError says that facts need more room than their block has.
type sizeError struct{ size, limit int }

func (e *sizeError) Error() string {
	return fmt.Sprintf("the facts need %d bytes, at most %d are allowed", e.size, e.limit)
}

// Is makes it an invalid request: nothing happened.
func (e *sizeError) Is(target error) bool { return target == store.ErrInvalid }

// decodePack reads what encodePack wrote, strictly (ST7).
func decodePack(key string, body []byte) (*pack, error) {
	head, rest, _ := bytes.Cut(body, []byte("\n"))
	p := &pack{}
	if err := record.Decode(key, head, &p.line); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body[:max(0, len(body)-sha256.Size)])
	entries, whole := bytes.CutSuffix(rest, sum[:])
	p.entries = entries
	err := p.check()
	if !whole {
		err = errors.New("it does not end in its own SHA-256")
	}
	if err != nil {
		e := store.Wrap(store.ErrCorrupt, "", "decode", key, err)
		e.Detail = "stop and look: a lost fact could become a repeat; see docs/design/0008-ledger.md"
		return nil, e
	}
	return p, nil
}

func (p *pack) check() error {
	if len(p.entries)/entryLen != p.line.Count || len(p.entries)%entryLen != 0 {
		return fmt.Errorf("%d entries were announced, there are %d bytes", p.line.Count, len(p.entries))
	}
	var used [256]bool
	left := p.line.Abandoned
	for i := range p.line.Count {
		e := p.entries[i*entryLen : (i+1)*entryLen]
		if err := p.checkEntry(i, e); err != nil {
			return err
		}
		used[e[sha256.Size]] = true
		if flags(e[orderLen])&abandoned != 0 {
			if len(left) == 0 || left[0].Key != p.key(i) || left[0].valid() != nil {
				return fmt.Errorf("entry %d does not say who abandoned it", i)
			}
			left = left[1:]
		}
	}
	if len(left) > 0 {
		return errors.New("more abandonments are told than there are")
	}
	for i := range p.line.Sites {
		if !used[i] {
			return errors.New("a site is named that has no entry")
		}
	}
	return nil
}

func (g given) valid() error {
	if g.Epoch > record.MaxNumber {
		return fmt.Errorf("epoch %d is out of bounds", g.Epoch)
	}
	return errors.Join(g.Key.valid(), checkText("name", g.By))
}

func (p *pack) checkEntry(i int, e []byte) error {
	f := flags(e[orderLen])
	switch {
	case f == 0 || f > allFlags || int(e[sha256.Size]) >= len(p.line.Sites):
		return fmt.Errorf("entry %d has unknown flags or no site", i)
	case !RunID(e[:sha256.Size]).under(p.line.Leaf):
		return fmt.Errorf("entry %d belongs to another block", i)
	case i == 0:
		return nil
	}
	last := p.entries[(i-1)*entryLen : i*entryLen]
	if bytes.Compare(last[:orderLen], e[:orderLen]) >= 0 {
		return fmt.Errorf("entry %d is out of order", i)
	}
	if bytes.Equal(last[:sha256.Size+1], e[:sha256.Size+1]) && flags(last[orderLen])&^(lasting|failed) != 0 {
		return fmt.Errorf("entry %d follows an attempt that says too much", i)
	}
	return nil
}

func (p *pack) key(i int) Key {
	e := p.entries[i*entryLen:]
	return Key{Run: RunID(e[:sha256.Size]), Site: p.line.Sites[e[sha256.Size]], Attempt: uint64(binary.BigEndian.Uint32(e[sha256.Size+1:]))}
}

func (p *pack) fact(i int) Fact {
	f := flags(p.entries[i*entryLen+orderLen])
	fact := Fact{Key: p.key(i), Committed: f&committed != 0, Failed: f&failed != 0, NotBegun: f&notStarted != 0}
	if f&abandoned != 0 {
		at := sort.Search(len(p.line.Abandoned), func(k int) bool { return p.line.Abandoned[k].Key.compare(fact.Key) >= 0 })
		fact.Abandoned = &p.line.Abandoned[at].Abandonment
	}
	return fact
}

// find are the facts of one run.
func (p *pack) find(run RunID) []Fact {
	at := sort.Search(p.line.Count, func(i int) bool { return bytes.Compare(p.entries[i*entryLen:][:sha256.Size], run[:]) >= 0 })
	var all []Fact
	for ; at < p.line.Count && bytes.Equal(p.entries[at*entryLen:][:sha256.Size], run[:]); at++ {
		all = append(all, p.fact(at))
	}
	return all
}

// load joins everything into t.
func (p *pack) load(t *table) {
	places := make([]uint32, len(p.line.Sites))
	for i, s := range p.line.Sites {
		places[i] = t.place(s)
	}
	fresh := len(t.one) == 0 // then the first attempt of each run has no rival
	for i := range p.line.Count {
		e := p.entries[i*entryLen : (i+1)*entryLen]
		if fresh && (i == 0 || !bytes.Equal(e[:sha256.Size], p.entries[(i-1)*entryLen:][:sha256.Size])) {
			t.one[RunID(e)] = cell{attempt: binary.BigEndian.Uint32(e[sha256.Size+1:]), site: places[e[sha256.Size]], flags: flags(e[orderLen])}
			continue
		}
		t.add(RunID(e), places[e[sha256.Size]], binary.BigEndian.Uint32(e[sha256.Size+1:]), flags(e[orderLen]))
	}
	for _, g := range p.line.Abandoned {
		t.abandon(spot{g.Run, uint32(g.Attempt), t.place(g.Site)}, g.Abandonment)
	}
	for _, o := range p.line.Open {
		t.putOpen(o)
	}
}

// Checkpoint packs the agent for a file (EX7): folding it and any tail is folding
// everything. At most 1 GiB.
func (a *Agent) Checkpoint() ([]byte, error) {
	line := packLine{Agent: a.name, Whole: true, Open: a.Opens(), Epochs: a.sites()}
	if len(line.Open) == 0 {
		line.Open = nil
	}
	return encodePack(line, a.Facts(), MaxCheckpoint)
}

// Load joins a checkpoint into the state (EX7). Anything but a checkpoint is
// ErrCorrupt, and then nothing was joined.
func (s *State) Load(name string, body []byte) error {
	p, err := decodePack(name, body)
	if err != nil {
		return err
	}
	if !p.line.Whole {
		return store.Errorf(store.ErrCorrupt, "", "load", name, "it is a block, not a checkpoint")
	}
	a := s.agents[p.line.Agent]
	if a == nil {
		a = NewAgent(p.line.Agent, p.line.Count)
		s.agents[p.line.Agent] = a
	}
	for _, e := range p.line.Epochs {
		a.know(e)
	}
	p.load(a.t)
	return nil
}

// Block is one leaf's facts (EX7). Two blocks of a leaf may be joined, never cut.
type Block struct{ p *pack }

// DecodeBlock reads the block of agent's leaf strictly.
func DecodeBlock(key, agent, leaf string, body []byte) (*Block, error) {
	p, err := decodePack(key, body)
	if err != nil {
		return nil, err
	}
	if p.line.Whole || p.line.Agent != agent || p.line.Leaf != leaf {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the block says it is leaf %q of %q", p.line.Leaf, p.line.Agent)
	}
	return &Block{p}, nil
}

// Find are the facts of one run, by site and attempt; none if it has none here.
func (b *Block) Find(run RunID) []Fact { return b.p.find(run) }

// Len is how many attempts the block has.
func (b *Block) Len() int { return b.p.line.Count }

// Load joins the block into a.
func (b *Block) Load(a *Agent) { b.p.load(a.t) }
