package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
)

// content is what a shard's file holds: everything, replaced as one step.
type content struct {
	// Range is the shard's, Epoch the one that the file was written under.
	Range  slots.Range       `json:"range"`
	Epoch  uint64            `json:"epoch"`
	Values map[string]string `json:"values"`
}

// shard is one range of slots while this process serves it under one epoch.
type shard struct {
	grant *slots.Grant
	host  *slots.Host
	path  string
	file  *fileguard.Guard
	write writer
	turn  chan struct{} // held by the one who writes

	// values is what the file holds, or held until a write that is under way. A map is
	// never changed once it is here.
	values atomic.Pointer[map[string]string]
}

// writer replaces a shard's file. It is [guarded] but in tests.
type writer func(ctx context.Context, s *shard, data []byte) error

// guarded lets the guard decide: it refuses an epoch that is older than one it has seen.
func guarded(ctx context.Context, s *shard, data []byte) error {
	return s.file.Write(ctx, s.grant.Epoch(), data)
}

// shardPath is where the shard of r is.
func shardPath(dir string, r slots.Range) string {
	return filepath.Join(dir, fmt.Sprintf("slots-%05d-%05d.json", r.A, r.B))
}

// openShard makes the guard refuse every older epoch, and then reads. The order is the
// whole point: what an older owner was told to be written is in the file by now, and
// nothing of it comes after.
func openShard(dir, namespace, table string, g *slots.Grant, w writer) (*shard, error) {
	path := shardPath(dir, g.Range())
	file, err := fileguard.Open(path, namespace, table)
	if err != nil {
		return nil, err
	}
	if err := file.Raise(g.Context(), g.Epoch()); err != nil {
		return nil, err
	}
	values, err := readShard(path, g.Range(), g.Epoch())
	if err != nil {
		return nil, err
	}
	s := &shard{grant: g, path: path, file: file, write: w, turn: make(chan struct{}, 1)}
	s.values.Store(&values)
	return s, nil
}

// readShard reads the file of the shard r for who has it under epoch; one that was never
// written is empty.
func readShard(path string, r slots.Range, epoch uint64) (map[string]string, error) {
	body, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, store.Wrap(store.ErrUnavailable, "", "read shard", path, err)
	}
	var c content
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return nil, store.Wrap(store.ErrCorrupt, "", "read shard", path, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, store.Errorf(store.ErrCorrupt, "", "read shard", path, "it goes on after its end")
	}
	if c.Range != r || c.Epoch > epoch || c.Values == nil {
		return nil, store.Errorf(store.ErrCorrupt, "", "read shard", path, "it is of slots %v and epoch %d, which cannot be for slots %v under epoch %d", c.Range, c.Epoch, r, epoch)
	}
	return c.Values, nil
}

// get returns the value that the shard has for key. Whether this process may still say
// so is to be asked after it: see [node.get].
func (s *shard) get(key string) (value string, ok bool) {
	value, ok = (*s.values.Load())[key]
	return value, ok
}

// confirm asks the guard whether somebody else may have served the shard before this
// instant: no clock is needed for that.
func (s *shard) confirm() error {
	highest, err := s.file.Highest()
	if err == nil && highest > s.grant.Epoch() {
		err = &guard.FencedError{Resource: s.grant.String(), Token: s.grant.Epoch(), Highest: highest}
	}
	return err
}

// set gives key a value, or none if value is nil, and returns once that is durable.
// store.ErrUnknown means that it may be; any other error that nothing was done.
func (s *shard) set(ctx context.Context, key string, value *string) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return store.CtxErr(ctx, "", "write", key)
	}
	defer func() { <-s.turn }()
	next := maps.Clone(*s.values.Load())
	if value == nil {
		delete(next, key)
	} else {
		next[key] = *value
	}
	data, err := json.Marshal(content{Range: s.grant.Range(), Epoch: s.grant.Epoch(), Values: next})
	if err != nil {
		return store.Wrap(store.ErrInvalid, "", "write", key, err)
	}
	if err := s.write(ctx, s, append(data, '\n')); err != nil {
		return err // also of an unknown outcome: the next write replaces the whole file
	}
	s.values.Store(&next)
	return nil
}
