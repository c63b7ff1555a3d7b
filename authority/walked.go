package authority

import (
	"context"
	"maps"
	"sync"

	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
)

// maxRecent bounds how many own entries of a chain are kept between two walks.
const maxRecent = 128

// walked is what this process knows of the chains without reading: walks, as far as
// they came, and the entries that it appended since. It is safe for concurrent use.
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

// all are the walks.
func (w *walked) all() map[string]*core.Trail {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.trails)
}

// keep keeps a walk that did not break: one that came to its end, or farther than the
// one that is kept. t is not walked on.
func (w *walked) keep(chain string, t *core.Trail) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if had := w.trails[chain]; !t.Done() && had != nil && len(had.Steps()) >= len(t.Steps()) {
		return
	}
	if w.trails == nil {
		w.trails = map[string]*core.Trail{}
	}
	w.trails[chain] = t
	for _, s := range t.Steps() {
		delete(w.recent[chain], s.Link.Digest)
	}
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

// walkLater walks a chain of h to its end beside the keeper and in nobody's way, one
// walk of a chain at a time, so that a decision to come compacts it (CK). After a walk
// that failed the next one waits a TTL.
func (l *Leader) walkLater(h *core.Head, chain string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.walking[chain] {
		return
	}
	l.walking[chain] = true
	a := l.a
	a.c.Background(func(context.Context) {
		defer l.caught("walk")
		t := a.walked.trail(h, chain)
		_, err := a.walkOn(l.keeping, t, nil)
		if t.Broken() == nil {
			a.walked.keep(chain, t)
		}
		if l.keeping.Err() != nil {
			return
		}
		a.note(func(h *Health) { h.CompactErr = err })
		if err != nil {
			a.c.Log.Warn("authority: a chain cannot be walked, and is not compacted", "authority", a.name, "chain", chain, "error", err)
			clock.Sleep(a.c.Clock, a.cfg.timing.TTL, l.keeping.Done())
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.walking, chain)
	})
}
