package lease

import (
	"fmt"
	"time"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// MaxNamespaceBody bounds a namespace's record.
const MaxNamespaceBody = 4 << 10

// MinRetention is the shortest retention: above every TTL (LS15).
const MinRetention = 48 * time.Hour

// maxRetentionMS is a hundred years.
const maxRetentionMS = 100 * 366 * 24 * 3600 * 1000

// Namespace is the one settings record of a namespace. Retention is fixed when
// it is made; the level is raised only by an upgrade (ST15, LS15); the floor
// only rises.
type Namespace struct {
	V             int    `json:"v"`
	Name          string `json:"namespace"`
	Level         int    `json:"level"`
	RetentionMS   int64  `json:"retention_ms,omitempty"` // 0: nothing is ever removed
	Floor         uint64 `json:"floor"`
	WriterAttempt string `json:"writer_attempt"`
	Created       int64  `json:"created_ms"`
	StoreClock    bool   `json:"store_clock,omitempty"` // LS3, enabled by an operator
}

// Valid checks the bounds.
func (n *Namespace) Valid() error {
	switch {
	case n.V < 1 || n.V > record.Level || n.Level < n.V || n.Level > record.MaxNumber:
		return fmt.Errorf("format level %d of a namespace at level %d", n.V, n.Level)
	case n.RetentionMS != 0 && n.RetentionMS < MinRetention.Milliseconds(), n.RetentionMS > maxRetentionMS:
		return fmt.Errorf("retention of %d ms", n.RetentionMS)
	case n.Floor > record.MaxNumber:
		return fmt.Errorf("floor %d", n.Floor)
	case !record.IsID(n.WriterAttempt):
		return fmt.Errorf("writer attempt %q is not an id", n.WriterAttempt)
	case n.Created < 0 || n.Created > record.MaxNumber:
		return fmt.Errorf("created %d", n.Created)
	}
	return store.CheckName("namespace", n.Name)
}

// Retention is how long a released record stays at least; 0 means for ever.
func (n *Namespace) Retention() time.Duration { return time.Duration(n.RetentionMS) * time.Millisecond }

// DecodeNamespace reads a namespace's record strictly. A namespace that was
// upgraded past this program is ErrNewer.
func DecodeNamespace(key, name string, body []byte) (*Namespace, error) {
	var n Namespace
	if err := record.Decode(key, body, &n); err != nil {
		return nil, err
	}
	if n.Name != name {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the record belongs to namespace %q, not to %q", n.Name, name)
	}
	if n.Level > record.Level {
		return nil, store.Errorf(store.ErrNewer, "", "decode", key,
			"the namespace was upgraded to format level %d, this program knows %d: use a newer tenure", n.Level, record.Level)
	}
	return &n, nil
}

// Archive is an immutable object of past tenures that left their record
// (LS13).
type Archive struct {
	V        int      `json:"v"`
	Resource string   `json:"resource"`
	Attempt  string   `json:"attempt"`
	Tenures  []Tenure `json:"tenures"`
}

// Valid checks the bounds and the order.
func (a *Archive) Valid() error {
	if a.V < 1 || a.V > record.Level {
		return fmt.Errorf("format level %d", a.V)
	}
	if len(a.Tenures) < 1 || len(a.Tenures) > RecentMost {
		return fmt.Errorf("an archive of %d tenures", len(a.Tenures))
	}
	if !record.IsID(a.Attempt) {
		return fmt.Errorf("attempt %q is not an id", a.Attempt)
	}
	last := uint64(0)
	for _, t := range a.Tenures {
		if err := t.Valid(); err != nil {
			return err
		}
		if t.Token <= last {
			return fmt.Errorf("the past token %d is out of order", t.Token)
		}
		last = t.Token
	}
	return store.CheckName("resource", a.Resource)
}

// DecodeArchive reads an archive strictly and checks that it is name's.
func DecodeArchive(key, name string, body []byte) (*Archive, error) {
	a, err := DecodeAnyArchive(key, body)
	if err == nil && a.Resource != name {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the archive belongs to %q, not to %q", a.Resource, name)
	}
	return a, err
}

// DecodeAnyArchive reads an archive strictly, whosever it is.
func DecodeAnyArchive(key string, body []byte) (*Archive, error) {
	var a Archive
	if err := record.Decode(key, body, &a); err != nil {
		return nil, err
	}
	return &a, nil
}
