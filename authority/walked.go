package authority

import (
	"maps"
	"sync"

	core "github.com/tenure-project/tenure/internal/core/authority"
)

// maxRecent bounds how many own entries of a chain are kept between two walks.
const maxRecent = 128

// walked is what this process knows of the chains without reading: walks that came
// to their end, and the entries that it appended since. It is safe for concurrent
// use.
type walked struct {
	mu     sync.Mutex
	trails map[string]*core.Trail       // not changed once kept
	recent map[string]map[string][]byte // by chain and digest
}

// trail begins a walk of the chain as h has it, and takes whatever is known.
func (w *walked) trail(h *core.Head, chain string) *core.Trail {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := core.Follow(h, chain, w.trails[chain])
	for {
		l, more := t.Next()
		body := w.recent[chain][l.Digest]
		if !more || body == nil || t.Take(body) != nil {
			return t
		}
	}
}

// all are the walks that came to their end.
func (w *walked) all() map[string]*core.Trail {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.trails)
}

// keep keeps a walk that came to its end.
func (w *walked) keep(chain string, t *core.Trail) {
	if !t.Done() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trails == nil {
		w.trails = map[string]*core.Trail{}
	}
	w.trails[chain] = t
	delete(w.recent, chain)
}

// add notes an entry that this process appended.
func (w *walked) add(p core.Plan) {
	w.mu.Lock()
	defer w.mu.Unlock()
	chain := p.Entry.Chain
	if w.recent == nil {
		w.recent = map[string]map[string][]byte{}
	}
	if w.recent[chain] == nil || len(w.recent[chain]) >= maxRecent { // what is missing is read
		w.recent[chain] = map[string][]byte{}
	}
	w.recent[chain][p.Link.Digest] = p.Body
}
