package pgstore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// Create stores body only if key is absent (ST1).
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	r := request{op: "create", key: key, write: true}
	if err := s.check(ctx, r.op, key, body); err != nil {
		return "", err
	}
	rows, err := s.exec(ctx, r, s.sql.create, s.writeArgs(key, bytesArg(body))...)
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", store.Errorf(store.ErrExists, s.label, r.op, key, "")
	}
	got, err := s.first(r, rows, 3)
	if err != nil {
		return "", err
	}
	return got.version(0), nil
}

// Replace stores body only if key is at exactly version v (ST2).
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	r := request{op: "replace", key: key, write: true}
	if err := s.check(ctx, r.op, key, body); err != nil {
		return "", err
	}
	return s.ifAt(ctx, r, s.sql.replace, v, s.writeArgs(key, versionArg(v), bytesArg(body)))
}

// Delete removes key; an absent key is a success (ST5).
func (s *Store) Delete(ctx context.Context, key string) error {
	r := request{op: "delete", key: key, write: true}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return err
	}
	_, err := s.exec(ctx, r, s.sql.delete, s.writeArgs(key)...)
	return err
}

// DeleteIf removes key if it is at version v (ST5).
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	r := request{op: "delete-if", key: key, write: true}
	if err := s.check(ctx, r.op, key, nil); err != nil {
		return err
	}
	_, err := s.ifAt(ctx, r, s.sql.deleteIf, v, s.writeArgs(key, versionArg(v)))
	return err
}

// writeArgs are the parameters that every write begins with: the key, and whom
// to tell of the change.
func (s *Store) writeArgs(key string, more ...arg) []arg {
	t := s.topicOf(key)
	return append([]arg{textArg(key), intArg(t.lock), textArg(t.channel), textArg(t.payload)}, more...)
}

// ifAt runs a write that is conditional on version v and says why it did not
// happen. The answer holds what was written, and what the statement saw before.
func (s *Store) ifAt(ctx context.Context, r request, sql string, v store.Version, args []arg) (store.Version, error) {
	rows, err := s.exec(ctx, r, sql, args...)
	if err != nil {
		return "", err
	}
	got, err := s.first(r, rows, 4)
	if err != nil {
		return "", err
	}
	made, before := got.version(0), got.version(1)
	if made == "" && before != "" && before == v {
		// It was at v when the statement began, and somebody else's write, which
		// it waited for, came first: what is there now is not in the answer.
		if before, err = s.present(ctx, r); err != nil {
			return "", s.refused(r, err)
		}
		if before == v {
			return "", store.Errorf(store.ErrDenied, s.label, r.op, r.key,
				"the server did not write the row although it is at this version: a row-level security policy or a trigger on %s prevents it", s.sql.records)
		}
	}
	switch {
	case made != "":
		return made, nil
	case before == "":
		return "", store.Errorf(store.ErrNotFound, s.label, r.op, r.key, "")
	}
	return "", store.Errorf(store.ErrConflict, s.label, r.op, r.key, "it is at version %s", before)
}

// refused is the error of a write that certainly did not happen, while it is
// not known why.
func (s *Store) refused(r request, err error) error {
	e := store.Wrap(store.ErrUnavailable, s.label, r.op, r.key, err)
	e.Detail = "the key was at another version or absent; which could not be read"
	return e
}
