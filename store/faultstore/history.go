package faultstore

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-project/tenure/store"
)

// historyLength is how many states of one key are kept.
const historyLength = 256

// History remembers the states that keys had, so that reads can be stale. It
// knows what went through the handles that share it. It is safe for concurrent
// use.
type History struct {
	mu     sync.Mutex
	number int
	keys   map[string][]state
}

// state is one state of one key, and when it was first known: the instant, and
// the number among all states, since instants can be equal.
type state struct {
	at     time.Time
	number int
	object store.Object
	absent bool
}

// NewHistory makes an empty history, for Options.History.
func NewHistory() *History { return &History{keys: map[string][]state{}} }

// saw notes an object that was read.
func (h *History) saw(key string, o store.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.find(key, o.Version) < 0 {
		h.insert(key, len(h.keys[key]), state{object: copied(o)})
	}
}

// wrote notes a write that took effect. Two of them may be noted in the wrong
// order; the version that one replaced tells its place.
func (h *History) wrote(r *request, v store.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(r.key, r.version, r.op == OpCreate, r.body, v)
}

// committed notes a commit that took effect; made are its new versions.
func (h *History) committed(changes []store.Change, made []store.Version) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, c := range changes {
		if c.Do != store.Keep {
			h.note(c.Key, c.Over, c.Over == "", c.Body, made[i])
		}
	}
}

// note puts the state that a write made where it belongs; v is "" if it removed
// the key. Under mu.
func (h *History) note(key string, over store.Version, created bool, body []byte, v store.Version) {
	st := state{absent: v == ""}
	if v != "" {
		st.object = copied(store.Object{Body: body, Version: v})
	}
	if created && len(h.keys[key]) == 0 {
		h.insert(key, 0, state{absent: true})
	}
	at := len(h.keys[key])
	if i := h.find(key, over); over != "" && i >= 0 {
		at = i + 1
	}
	h.insert(key, at, st)
}

// find is where a version stands; negative if nowhere. Under mu.
func (h *History) find(key string, v store.Version) int {
	return slices.IndexFunc(h.keys[key], func(s state) bool { return !s.absent && s.object.Version == v })
}

// insert puts a state at a place in time. Under mu.
func (h *History) insert(key string, i int, st state) {
	h.number++
	st.at, st.number = time.Now(), h.number
	states := slices.Insert(h.keys[key], i, st)
	h.keys[key] = states[max(len(states)-historyLength, 0):]
}

// back is the state that key had n states ago, or the oldest known.
func (h *History) back(key string, n int) (state, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := h.keys[key]
	if len(states) == 0 {
		return state{}, false
	}
	return states[max(len(states)-1-n, 0)], true
}

// asOf is the state that key had at an instant, or the oldest known.
func (h *History) asOf(key string, at time.Time) (state, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states := h.keys[key]
	if len(states) == 0 {
		return state{}, false
	}
	for _, st := range slices.Backward(states) {
		if !st.at.After(at) {
			return st, true
		}
	}
	return states[0], true
}

// last is the last known state of every key.
func (h *History) last() map[string]state {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]state{}
	for k, states := range h.keys {
		out[k] = states[len(states)-1]
	}
	return out
}

// keysAsOf corrects a listing to what it would have been at an instant, as far
// as that is known.
func (h *History) keysAsOf(keys []string, prefix, after string, at time.Time) []string {
	h.mu.Lock()
	known := []string{}
	for k := range h.keys {
		if strings.HasPrefix(k, prefix) && k > after {
			known = append(known, k)
		}
	}
	h.mu.Unlock()
	for _, k := range known {
		st, _ := h.asOf(k, at)
		i, found := slices.BinarySearch(keys, k)
		switch {
		case st.absent && found:
			keys = slices.Delete(keys, i, i+1)
		case !st.absent && !found:
			keys = slices.Insert(keys, i, k)
		}
	}
	return keys
}

// within is what pick knows of the keys in r.
func (h *History) within(r store.ScanRange, pick func(h *History, key string) (state, bool)) map[string]state {
	h.mu.Lock()
	known := []string{}
	for k := range h.keys {
		if within(k, r) {
			known = append(known, k)
		}
	}
	h.mu.Unlock()
	out := map[string]state{}
	for _, k := range known {
		if st, ok := pick(h, k); ok {
			out[k] = st
		}
	}
	return out
}

// newest is the key among keys whose present life began last; empty if the
// history knows none of them.
func (h *History) newest(keys []string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest, when := "", -1
	for _, k := range keys {
		states := h.keys[k]
		i := len(states)
		for i > 0 && !states[i-1].absent {
			i--
		}
		if i < len(states) && states[i].number > when {
			newest, when = k, states[i].number
		}
	}
	return newest
}

// reply is the answer of a read that finds st.
func (st state) reply(s *Store, r *request) reply {
	if st.absent {
		return reply{err: store.Errorf(store.ErrNotFound, s.info.Identity, string(r.op), r.key, "")}
	}
	if len(st.object.Body) > r.limit {
		return reply{err: store.Errorf(store.ErrCorrupt, s.info.Identity, string(r.op), r.key,
			"the body has %d bytes, the caller accepts %d", len(st.object.Body), r.limit)}
	}
	return reply{object: copied(st.object)}
}
