package authority

import (
	"context"
	"errors"
	"fmt"
	"iter"

	tenure "github.com/tenure-project/tenure"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/kit"
	"github.com/tenure-project/tenure/internal/settle"
	"github.com/tenure-project/tenure/store"
)

// Kit is what the chains below this package need of an Authority, and no program
// needs: its types are internal, and so is its meaning.
type Kit struct{ a *Authority }

// Kit is for the packages of this module.
func (a *Authority) Kit() Kit { return Kit{a} }

// Session is the session's part.
func (k Kit) Session() *kit.Session { return k.a.session }

// Key is the key of an object of this authority of the given kind (one lower-case
// word): authority-log/<name>/<kind>/<element>.
func (k Kit) Key(kind, element string) string { return k.a.key(kind, element) }

// Write creates the immutable object n at Key(n.Kind, ...) with body, verified and
// settled: it is noted as on its way first (LA8), so that no prune of this process
// removes it. digest pins the bytes. An object that stands there with the same
// bytes is fine; with others it is ErrConflict. After the decision that links n has
// its final answer, Landed is due; Draft.Objects has Append do that.
func (k Kit) Write(ctx context.Context, n core.Name, element, digest string, body []byte) error {
	k.a.mu.Lock()
	err := k.a.cand.Writing(n, digest)
	k.a.mu.Unlock()
	if err != nil {
		return err
	}
	return k.a.put(ctx, k.a.key(string(n.Kind), element), body, max(len(body), core.MaxBlob))
}

// Landed notes that no decision that links these is on its way or will be sent.
func (k Kit) Landed(names ...core.Name) {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	for _, n := range names {
		k.a.cand.Landed(n)
	}
}

// Flight is what is on its way now (LA8): take it after listing, before reading the
// head.
func (k Kit) Flight() core.Flight {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	return k.a.cand.Flight()
}

// Delete removes the object n at Key(n.Kind, element), after noting that its name is
// never used again (LA8).
func (k Kit) Delete(ctx context.Context, n core.Name, element string) error {
	k.a.mu.Lock()
	k.a.cand.Deleting(n)
	k.a.mu.Unlock()
	return k.a.remove(ctx, k.a.key(string(n.Kind), element))
}

// Draft is a decision with what it links.
type Draft struct {
	// Body are its canonical bytes.
	Body []byte
	// Objects were written by Write and are linked by Body: they have landed when the
	// decision has its final answer.
	Objects []core.Name
}

// Append is Authority.Append of a draft.
func (k Kit) Append(ctx context.Context, p tenure.Proof, r Rules, d Draft) (Result, error) {
	return k.a.append(ctx, p, r, d)
}

// Change writes what f makes of the head as p's leader, and settles it. f may be
// called more than once, each time with a newly read or written head and a fresh
// attempt id; nil means that nothing is to change. f holds up the keeper: it does no
// I/O. ErrFenced if p does not lead. It returns the head that stands then.
func (k Kit) Change(ctx context.Context, p tenure.Proof, f func(h *core.Head, attempt string) (*core.Head, error)) (Snapshot, error) {
	return k.a.change(ctx, p, f)
}

func (a *Authority) change(ctx context.Context, p tenure.Proof, f func(h *core.Head, attempt string) (*core.Head, error)) (Snapshot, error) {
	pace := a.c.Pace(a.cfg.timing)
	for wait := pace.Backoff; ; wait = min(2*wait, 16*pace.Backoff) {
		s, err := a.changeOnce(ctx, p, f)
		var refused *refusal
		switch {
		case err == nil:
			return s, nil
		case errors.As(err, &refused):
			return Snapshot{}, refused.err
		case errors.Is(err, errMoved):
			wait = pace.Backoff
			continue
		case ctx.Err() != nil || !retryable(err) || errors.Is(err, store.ErrUnknown):
			return Snapshot{}, err
		}
		a.pause(ctx, wait)
	}
}

// errMoved: another write came first, so plan anew.
var errMoved = errors.New("another write came first")

// refusal is an error of the change itself.
type refusal struct{ err error }

// Error is the refusal's.
func (r *refusal) Error() string { return r.err.Error() }

func (a *Authority) changeOnce(ctx context.Context, p tenure.Proof, f func(h *core.Head, attempt string) (*core.Head, error)) (Snapshot, error) {
	turn, err := a.take(ctx, a.turn)
	if err != nil {
		return Snapshot{}, err
	}
	defer turn()
	free, err := a.take(ctx, a.lock)
	if err != nil {
		return Snapshot{}, err
	}
	defer free()
	l := a.leader.Load()
	if l == nil || !l.Leads(p) {
		return Snapshot{}, &refusal{fmt.Errorf("authority %q: %w: token %d of incarnation %s does not lead in this process", a.name, ErrFenced, p.Token, p.Incarnation)}
	}
	ctx, cancel := l.while(ctx)
	defer cancel()
	h, err := l.current(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	next, err := f(h, a.c.NewID())
	if err != nil {
		return Snapshot{}, &refusal{err}
	}
	if next == nil {
		return Snapshot{head: h, ver: a.ver, f: a.files}, nil
	}
	res, err := a.write(ctx, next, l.hurry)
	switch {
	case err == nil:
		l.renewed(res)
		return Snapshot{head: a.head, ver: a.ver, f: a.files}, nil
	case res.Outcome == settle.Unknown:
		a.settleLater()
		return Snapshot{}, err
	case settle.LostRace(err):
		return Snapshot{}, errMoved
	}
	return Snapshot{}, err
}

// Walk walks the named chain of the snapshot to its end. A chain that a compaction
// changed meanwhile is a *[BrokenError] like any other: take a new snapshot, and
// walk that. before may be an earlier walk, whose entries are not read again.
func (r *Reader) Walk(ctx context.Context, s Snapshot, chain string, before *core.Trail) (*core.Trail, error) {
	t, err := r.walk(ctx, s.head, chain, before, nil)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Kit is for the packages of this module.
func (r *Reader) Kit() *kit.Client { return r.c }

// Key is as Kit.Key.
func (r *Reader) Key(kind, element string) string { return r.key(kind, element) }

// Object reads the object at Key(kind, element), at most limit bytes; nil if there
// is none.
func (r *Reader) Object(ctx context.Context, kind, element string, limit int) ([]byte, error) {
	return r.get(ctx, r.key(kind, element), limit)
}

// Elements yields the last elements of the keys of kind, in order, after one.
func (r *Reader) Elements(ctx context.Context, kind, after string) iter.Seq2[string, error] {
	return r.elements(ctx, r.key(kind, ""), after)
}
