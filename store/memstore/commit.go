package memstore

import (
	"context"
	"slices"

	"github.com/tenure-project/tenure/store"
)

// Commit makes all changes if each condition holds, and none otherwise (SL4).
func (s *Store) Commit(ctx context.Context, changes []store.Change) ([]store.Version, error) {
	const op = "commit"
	if err := store.CheckChanges(changes, MaxBody); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.place.identity, op, "", err)
	}
	if err := s.alive(ctx, op, changes[0].Key); err != nil {
		return nil, err
	}
	changes = slices.Clone(changes)
	for i := range changes {
		changes[i].Body = slices.Clone(changes[i].Body)
	}
	p := s.place
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range changes {
		if there := p.entries[c.Key].version; there != c.Over {
			return nil, store.Errorf(store.ErrConflict, p.identity, op, c.Key, "it is at version %q, not %q", there, c.Over)
		}
	}
	made := make([]store.Version, len(changes))
	for i, c := range changes {
		switch c.Do {
		case store.Put:
			if c.Over == "" {
				p.keys.insert(c.Key)
			}
			made[i] = p.put(c.Key, c.Body)
		case store.Remove:
			p.remove(c.Key)
		}
	}
	return made, nil
}

// Scan returns the objects in r from one snapshot, in the order of r.
func (s *Store) Scan(ctx context.Context, r store.ScanRange) ([]store.Keyed, error) {
	const op = "scan"
	if err := store.CheckScan(r); err != nil {
		return nil, store.Wrap(store.ErrInvalid, s.place.identity, op, "", err)
	}
	if err := s.alive(ctx, op, ""); err != nil {
		return nil, err
	}
	p := s.place
	found := p.scan(r)
	for i, k := range found {
		if len(k.Body) > r.Limit {
			return nil, store.Errorf(store.ErrCorrupt, p.identity, op, k.Key,
				"the body has %d bytes, the caller accepts %d", len(k.Body), r.Limit)
		}
		// An entry's body is never changed in place, so it can be copied unlocked.
		found[i].Body = slices.Clone(k.Body)
	}
	return found, nil
}

// scan collects the objects in r, whose bodies are still the entries' own.
func (p *place) scan(r store.ScanRange) []store.Keyed {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := p.keys.span(r.From, r.To, r.Backwards, r.Most)
	found := make([]store.Keyed, len(keys))
	for i, key := range keys {
		e := p.entries[key]
		found[i] = store.Keyed{Key: key, Object: store.Object{Body: e.body, Version: e.version, Modified: e.modified}}
	}
	return found
}
