//go:build !linux && !darwin

package filestore

import (
	"runtime"

	"github.com/tenure-project/tenure/store"
)

// Store is never made on this system; see Open.
type Store struct {
	store.Store
}

// FileSystem names the file system that holds the store.
func (s *Store) FileSystem() string { return "" }

// Durable reports whether acknowledged writes outlive a power cut.
func (s *Store) Durable() bool { return false }

// Health says which calls hang.
func (s *Store) Health() error { return nil }

// Open refuses with store.ErrInvalid: this system has no way to work relative
// to an open directory and no rename of a directory that is exclusive, which is
// what the driver's safety rests on.
func Open(path string, opts ...Option) (*Store, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	var cfg config
	for _, o := range opts {
		o(&cfg)
	}
	return nil, store.Errorf(store.ErrInvalid, scheme, "open", "",
		"the file store is not available on %s; use sqlite: or a store on the network", runtime.GOOS)
}
