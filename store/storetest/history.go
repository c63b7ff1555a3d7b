package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tenure-project/tenure/store"
)

// history records what callers of one key saw, and checks that it could have
// come from one register. Versions never repeat, so the states form a chain and
// every operation has a position on it; real time must agree with positions.
// That makes the check exact and linear in the number of operations.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []*seenOp
}

// seenOp is one call: the logical instants between which it ran, and what it
// learnt.
type seenOp struct {
	h          *history
	start, end int64
	kind       opKind
	from, at   store.Version
}

type opKind int

const (
	opRead opKind = iota
	opWrite
	opConflict
)

func newHistory() *history { return &history{} }

// begin marks the start of a call.
func (h *history) begin() *seenOp { return &seenOp{h: h, start: h.clock.Add(1)} }

func (o *seenOp) done(kind opKind, from, at store.Version) {
	o.kind, o.from, o.at = kind, from, at
	o.h.mu.Lock()
	defer o.h.mu.Unlock()
	o.end = o.h.clock.Add(1)
	o.h.ops = append(o.h.ops, o)
}

// wrote: the call replaced from (zero: nothing) by at.
func (o *seenOp) wrote(from, at store.Version) { o.done(opWrite, from, at) }

// read: the call found the key at version at.
func (o *seenOp) read(at store.Version) { o.done(opRead, "", at) }

// conflicted: the call was refused because the key was not at from.
func (o *seenOp) conflicted(from store.Version) { o.done(opConflict, from, "") }

// flaw explains why the history cannot be that of one register; "" if it can.
func (h *history) flaw() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[store.Version]*seenOp{}
	for _, o := range h.ops {
		if o.kind != opWrite {
			continue
		}
		if p := next[o.from]; p != nil {
			return fmt.Sprintf("version %q was replaced twice, by %q and by %q: both writers were told that they won", o.from, p.at, o.at)
		}
		next[o.from] = o
	}
	position, seen := map[store.Version]int{}, 0
	for v := store.Version(""); next[v] != nil; seen++ {
		v = next[v].at
		if _, twice := position[v]; twice {
			return fmt.Sprintf("version %q came back", v)
		}
		position[v] = seen
	}
	if seen != len(next) {
		return fmt.Sprintf("%d writes succeeded, but only %d of them follow one another", len(next), seen)
	}
	return h.flawInTime(next, position)
}

// flawInTime checks each call against those that had ended before it began. A
// refusal must have a cause: somebody began to replace that version before the
// refusal came.
func (h *history) flawInTime(next map[store.Version]*seenOp, position map[store.Version]int) string {
	reached := make([]int, h.clock.Load()+1) // by instant: the highest position known when it passed
	for i := range reached {
		reached[i] = -1
	}
	for _, o := range h.ops {
		if o.kind == opConflict {
			if n := next[o.from]; n == nil || n.start > o.end {
				return fmt.Sprintf("a Replace from version %q was refused while the key was at that version", o.from)
			}
			continue
		}
		p, known := position[o.at]
		if !known {
			return fmt.Sprintf("a read gave version %q, which no acknowledged write made", o.at)
		}
		reached[o.end] = max(reached[o.end], p)
	}
	for i := 1; i < len(reached); i++ {
		reached[i] = max(reached[i], reached[i-1])
	}
	for _, o := range h.ops {
		if o.kind == opConflict {
			continue
		}
		p := position[o.at]
		if before := reached[o.start]; p < before || p == before && o.kind == opWrite {
			return fmt.Sprintf("a call that saw state number %d (version %q) began after state number %d was acknowledged", p, o.at, before)
		}
	}
	return ""
}

// increment adds 1 to the number at k n times, by Get and Replace, and records
// each call in h.
func increment(ctx context.Context, s store.Store, k string, n int, h *history) error {
	for done := 0; done < n; {
		op := h.begin()
		o, err := s.Get(ctx, k, readLimit)
		if err != nil {
			return err
		}
		op.read(o.Version)
		count, err := strconv.Atoi(string(o.Body))
		if err != nil {
			return fmt.Errorf("the counter's body is not a number: %w", err)
		}
		op = h.begin()
		v, err := again(ctx, func() (store.Version, error) {
			return s.Replace(ctx, k, []byte(strconv.Itoa(count+1)), o.Version)
		})
		switch {
		case err == nil:
			op.wrote(o.Version, v)
			done++
		case errors.Is(err, store.ErrConflict):
			op.conflicted(o.Version)
		default:
			return err
		}
	}
	return nil
}
