package sim

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-project/tenure/store"
)

// linearOp is one call of a register, as the model sees it.
type linearOp struct {
	kind string // get, create, replace, delete, delete-if; end closes a history
	key  string
	body string
	from store.Version
}

// linearAnswer is what the caller learnt. kind is the error's kind, nil for a
// success; body and version are what a read or write gave.
type linearAnswer struct {
	kind    error
	body    string
	version store.Version
}

// linearState is one state of one register.
type linearState struct {
	present bool
	body    string
	version store.Version
	ended   bool
}

// linearModel is a register with create-if-absent and writes by version. A
// write whose outcome is unknown takes effect at one instant after its call, or
// never: until the end of the history it may step only where it takes effect,
// and after it nowhere else.
var linearModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(linearOp).key
			by[k] = append(by[k], o)
		}
		out := [][]porcupine.Operation{}
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return linearState{} },
	Step: func(state, input, output any) (bool, any) {
		return linearStep(state.(linearState), input.(linearOp), output.(linearAnswer))
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// linearStep says whether op can give out in state s, and which state follows.
func linearStep(s linearState, op linearOp, out linearAnswer) (bool, linearState) {
	next := linearState{present: true, body: op.body, version: out.version}
	refusal := error(nil)
	switch op.kind {
	case "end":
		s.ended = true
		return true, s
	case "get":
		if out.kind != nil {
			return errors.Is(out.kind, store.ErrNotFound) && !s.present, s
		}
		return s.present && s.body == out.body && s.version == out.version, s
	case "create":
		if s.present {
			refusal = store.ErrExists
		}
	case "delete":
		next = linearState{}
	case "delete-if":
		next = linearState{}
		fallthrough
	case "replace":
		if !s.present {
			refusal = store.ErrNotFound
		} else if s.version != op.from {
			refusal = store.ErrConflict
		}
	}
	switch {
	case errors.Is(out.kind, store.ErrUnknown) && s.ended:
		return true, s
	case errors.Is(out.kind, store.ErrUnknown):
		return refusal == nil && (s.present || next.present), next
	case refusal != nil:
		return out.kind == refusal, s
	}
	return out.kind == nil, next
}

// linearHistory records calls as they happen. It is safe for concurrent use.
type linearHistory struct {
	clock atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
	keys  map[string]bool
}

// call runs do and records it, unless it certainly had no effect and gave no
// answer.
func (h *linearHistory) call(client int, op linearOp, do func() (body string, v store.Version, err error)) error {
	began := h.clock.Add(1)
	body, v, err := do()
	ended := h.clock.Add(1)
	kind := store.KindOf(err)
	if kind == store.ErrUnavailable {
		return err
	}
	if kind == store.ErrUnknown {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys[op.key] = true
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: op, Call: began, Output: linearAnswer{kind, body, v}, Return: ended,
	})
	return err
}

// check judges the whole history, which must be over.
func (h *linearHistory) check(limit time.Duration) porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := append([]porcupine.Operation{}, h.ops...)
	// Bodies are unique, so reads tell which version an unknown write made.
	made := map[string]store.Version{}
	for _, o := range ops {
		if out := o.Output.(linearAnswer); out.kind == nil && out.version != "" && o.Input.(linearOp).kind == "get" {
			made[out.body] = out.version
		}
	}
	for i, o := range ops {
		in, out := o.Input.(linearOp), o.Output.(linearAnswer)
		if errors.Is(out.kind, store.ErrUnknown) && (in.kind == "create" || in.kind == "replace") {
			out.version = made[in.body]
			if out.version == "" {
				out.version = store.Version("unread: " + in.body)
			}
			ops[i].Output = out
		}
	}
	last := h.clock.Add(1)
	for k := range h.keys {
		ops = append(ops, porcupine.Operation{Input: linearOp{kind: "end", key: k}, Call: last, Output: linearAnswer{}, Return: last + 1})
	}
	return porcupine.CheckOperationsTimeout(linearModel, ops, limit)
}
