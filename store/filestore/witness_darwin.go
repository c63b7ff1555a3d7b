package filestore

import (
	"context"

	"github.com/tenure-project/tenure/store"
)

// There is no proof of death here, because a boot has no exact name: Info does
// not declare the power, and these methods say so.

func (s *Store) errNoProof(op string) error {
	return store.Errorf(store.ErrInvalid, s.identity, op, "", "there is no proof of death on this system")
}

// NewWitness is not possible here.
func (s *Store) NewWitness(context.Context) (store.Witness, error) {
	return nil, s.errNoProof("make a witness")
}

// Gone is not possible here.
func (s *Store) Gone(context.Context, store.Mark) (bool, error) {
	return false, s.errNoProof("look for a proof of death")
}

// WatchGone is not possible here.
func (s *Store) WatchGone(context.Context, store.Mark) error {
	return s.errNoProof("look for a proof of death")
}
