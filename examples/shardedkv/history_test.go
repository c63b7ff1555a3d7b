package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-project/tenure/slots"
)

// kvOp is one request, kvOut what came back.
type kvOp struct {
	kind, key, value string // put, delete, get (confirmed), plainGet
}

// plainGet is a read that rests on its host's deadline.
const plainGet = "get by the deadline"

type kvOut struct {
	found   bool
	value   string
	unknown bool // of a write without an answer
}

// kvModel is a register per key. A write without an answer takes effect at one instant
// after its call; at the end of all, where its return is, that is the same as never.
var kvModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(kvOp).key
			by[key] = append(by[key], o)
		}
		var all [][]porcupine.Operation
		for _, key := range slices.Sorted(maps.Keys(by)) {
			all = append(all, by[key])
		}
		return all
	},
	Init: func() any { return kvOut{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(kvOut), input.(kvOp), output.(kvOut)
		switch in.kind {
		case "put":
			return true, kvOut{found: true, value: in.value}
		case "delete":
			return true, kvOut{}
		}
		return out == now, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// served is one request that was answered, and by whom.
type served struct {
	op         kvOp
	began, end time.Duration
	owner      string
	epoch      uint64
}

// history is what clients saw. It is safe for concurrent use.
type history struct {
	start time.Time

	mu      sync.Mutex
	ops     []porcupine.Operation
	served  []served
	refused int // nothing was done
	unknown int
}

func newHistory() *history { return &history{start: time.Now()} }

// call makes a request and records it.
func (h *history) call(client int, op kvOp, do func() (answer, error)) (answer, error) {
	began := time.Since(h.start)
	a, err := do()
	end := time.Since(h.start)
	h.mu.Lock()
	defer h.mu.Unlock()
	o := porcupine.Operation{ClientId: client, Input: op, Call: int64(began), Output: kvOut{found: a.found, value: a.value}, Return: int64(end)}
	switch {
	case errors.Is(err, errNotDone):
		h.refused++
		return a, err
	case err != nil && (op.kind == "get" || op.kind == plainGet):
		return a, err
	case err != nil:
		h.unknown++
		o.Output, o.Return = kvOut{unknown: true}, math.MaxInt64
	default:
		h.served = append(h.served, served{op, began, end, a.owner, a.epoch})
	}
	h.ops = append(h.ops, o)
	return a, err
}

// linearizable reports whether one register per key could have answered so.
func (h *history) linearizable(only func(kvOp) bool) porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.DeleteFunc(slices.Clone(h.ops), func(o porcupine.Operation) bool { return only != nil && !only(o.Input.(kvOp)) })
	return porcupine.CheckOperationsTimeout(kvModel, ops, time.Minute)
}

// check fails the test unless the history is linearizable, every epoch had one owner, and
// no request was served under an older epoch of its slot once one under a newer was.
func (h *history) check(t *testing.T) {
	t.Helper()
	if got := h.linearizable(nil); got != porcupine.Ok {
		t.Errorf("%d requests are no history of one register per key: %s", len(h.ops), got)
	}
	if err := h.oneHost(); err != nil {
		t.Error(err)
	}
}

// oneHost is an error if two hosts served one slot.
func (h *history) oneHost() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := map[uint64]string{}
	by := map[uint16][]served{}
	for _, s := range h.served {
		if was := owners[s.epoch]; was != "" && was != s.owner || s.owner == "" || s.epoch == 0 {
			return fmt.Errorf("epoch %d is of %q and of %q", s.epoch, was, s.owner)
		}
		owners[s.epoch] = s.owner
		slot := slots.SlotOf(s.op.key)
		by[slot] = append(by[slot], s)
	}
	for slot, all := range by {
		slices.SortFunc(all, func(a, b served) int { return int(a.end - b.end) })
		newest := make([]served, len(all)) // of the newest epoch that had answered by then
		for i, s := range all {
			newest[i] = s
			if i > 0 && newest[i-1].epoch > s.epoch {
				newest[i] = newest[i-1]
			}
		}
		for _, s := range all {
			before, _ := slices.BinarySearchFunc(all, s.began, func(a served, at time.Duration) int { return int(a.end - at) })
			if before > 0 && newest[before-1].epoch > s.epoch {
				return fmt.Errorf("slot %d: %+v was served after %+v", slot, s, newest[before-1])
			}
		}
	}
	return nil
}

// The model refuses what it must, so that a pass means something.
func TestModel(t *testing.T) {
	t.Parallel()
	op := func(kind, value string, call, end int64, out kvOut) porcupine.Operation {
		return porcupine.Operation{Input: kvOp{kind, "k", value}, Call: call, Return: end, Output: out}
	}
	put := func(value string, call, end int64) porcupine.Operation { return op("put", value, call, end, kvOut{}) }
	got := func(value string, call, end int64) porcupine.Operation {
		return op("get", "", call, end, kvOut{found: value != "", value: value})
	}
	for name, c := range map[string]struct {
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		"read back":            {[]porcupine.Operation{put("a", 1, 2), got("a", 3, 4)}, porcupine.Ok},
		"lost":                 {[]porcupine.Operation{put("a", 1, 2), got("", 3, 4)}, porcupine.Illegal},
		"stale":                {[]porcupine.Operation{put("a", 1, 2), put("b", 3, 4), got("a", 5, 6)}, porcupine.Illegal},
		"removed":              {[]porcupine.Operation{put("a", 1, 2), op("delete", "", 3, 4, kvOut{}), got("a", 5, 6)}, porcupine.Illegal},
		"unknown, never":       {[]porcupine.Operation{put("a", 1, math.MaxInt64), got("", 3, 4)}, porcupine.Ok},
		"unknown, late":        {[]porcupine.Operation{put("a", 1, math.MaxInt64), got("", 3, 4), got("a", 5, 6)}, porcupine.Ok},
		"unknown, taken back":  {[]porcupine.Operation{put("a", 1, math.MaxInt64), got("a", 3, 4), got("", 5, 6)}, porcupine.Illegal},
		"nobody wrote it":      {[]porcupine.Operation{got("a", 3, 4)}, porcupine.Illegal},
		"at the same time, ok": {[]porcupine.Operation{put("a", 1, 9), put("b", 1, 9), got("b", 10, 11)}, porcupine.Ok},
	} {
		h := &history{ops: c.ops}
		if got := h.linearizable(nil); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	two := &history{served: []served{{kvOp{"put", "k", "a"}, 1, 2, "a", 7}, {kvOp{"put", "k", "b"}, 1, 2, "b", 7}}}
	late := &history{served: []served{{kvOp{"put", "k", "a"}, 3, 4, "a", 7}, {kvOp{"put", "k", "b"}, 1, 2, "b", 8}}}
	over := &history{served: []served{{kvOp{"put", "k", "a"}, 1, 4, "a", 7}, {kvOp{"put", "k", "b"}, 1, 2, "b", 8}}}
	if two.oneHost() == nil || late.oneHost() == nil || over.oneHost() != nil {
		t.Errorf("two hosts: %v; served late: %v; at the same time: %v", two.oneHost(), late.oneHost(), over.oneHost())
	}
}
