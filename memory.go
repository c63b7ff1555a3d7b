package tenure

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tenure-project/tenure/internal/bootid"
	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/store"
)

// memory is what a client remembers of a namespace besides the store: the
// highest counter it saw of every name (LS12), observations of silent holders
// (LS2), and when the store was probed (ST10). With a folder it outlives the
// process; what it forgets costs time, never safety.
type memory struct {
	dir   string // empty: this process only
	scope string // store identity and namespace
	// place remembers the same counters by the way to the store, nil where that is
	// its identity: an identity that is lost with the data is not remembered by.
	place *memory

	mu   sync.Mutex
	seen map[string]uint64

	// failed is told, once, that the folder cannot be written: a short command would
	// then never come to the end of an observation, and nobody would know why.
	failed func(err error)
}

// note is one file of the folder. Any difference between what it says and what
// is found discards it.
type note struct {
	V           int                `json:"v"`
	Scope       string             `json:"scope"`
	Name        string             `json:"name"`
	Seen        uint64             `json:"seen"`
	Boot        string             `json:"boot,omitempty"`
	TimeNS      string             `json:"time_namespace,omitempty"`
	Digest      string             `json:"digest,omitempty"`
	Observation *lease.Observation `json:"observation,omitempty"`
}

// verdict is a probe that a store passed, as the folder keeps it.
type verdict struct {
	Identity string    `json:"identity"`
	Driver   string    `json:"driver"`
	At       time.Time `json:"at"`
}

func openMemory(dir string, info store.Info, namespace string) (*memory, error) {
	m := &memory{dir: dir, scope: info.Identity + "\x00" + namespace, seen: map[string]uint64{}}
	if info.Place != "" {
		m.place = &memory{dir: dir, scope: "place\x00" + info.Place + "\x00" + namespace, seen: map[string]uint64{}}
	}
	if dir == "" {
		return m, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, store.Wrap(ErrInvalid, "", "open state folder", dir, err)
	}
	return m, nil
}

func (m *memory) path(name string) string {
	sum := sha256.Sum256([]byte(m.scope + "\x00" + name))
	return filepath.Join(m.dir, hex.EncodeToString(sum[:16])+".json")
}

// highest is the highest counter of name (the floor, for the empty name) that
// was ever seen, 0 if none was.
func (m *memory) highest(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen, known := m.seen[name]
	if !known {
		seen = m.load(name).Seen
	}
	if m.place != nil {
		seen = max(seen, m.place.highest(name))
	}
	return seen
}

// check returns ErrRegressed if the counter found is below seen, which was the
// highest when the read began, and remembers it otherwise.
func (m *memory) check(name string, seen, counter uint64) error {
	if counter < seen {
		kind := "lease"
		if name == "" {
			kind = "floor"
		}
		return &RegressedError{Kind: kind, Name: name, Seen: seen, Now: counter}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetSome()
	m.seen[name] = max(m.seen[name], counter)
	if m.place != nil {
		return m.place.check(name, 0, counter)
	}
	return nil
}

// mostSeen bounds what is remembered in memory: a process may use a million names
// once each.
const mostSeen = 1 << 16

func (m *memory) forgetSome() {
	if len(m.seen) < mostSeen {
		return
	}
	n := mostSeen / 8
	for name := range m.seen { // in no order
		if name == "" { // the floor
			continue
		}
		if delete(m.seen, name); n == 0 {
			return
		}
		n--
	}
}

// load returns the note for name, or an empty one.
func (m *memory) load(name string) note {
	var n note
	if m.dir == "" {
		return n
	}
	body, err := os.ReadFile(m.path(name))
	if err != nil || json.Unmarshal(body, &n) != nil || n.V != 1 || n.Scope != m.scope || n.Name != name {
		return note{}
	}
	return n
}

// save replaces the note for name. A failure is told once, and nothing else:
// forgetting is safe.
func (m *memory) save(n note) {
	if m.dir == "" {
		return
	}
	n.V, n.Scope = 1, m.scope
	if err := writeAtomic(m.path(n.Name), n); err != nil && m.failed != nil {
		m.failed(err)
		m.failed = nil
	}
}

// remember keeps the highest counter seen of name, and the observation under
// way if o is not nil.
func (m *memory) remember(name string, o *lease.Observation, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := note{Name: name, Seen: max(m.seen[name], m.load(name).Seen)}
	if o != nil {
		sum := sha256.Sum256(body)
		n.Observation, n.Digest = o, hex.EncodeToString(sum[:])
		n.Boot, n.TimeNS = bootid.Boot(), bootid.TimeNamespace()
		if n.Boot == "" {
			n.Observation = nil // a reading without its boot is worth nothing
		}
	}
	m.save(n)
	if m.place != nil {
		m.place.remember(name, nil, nil)
	}
}

// recall returns the observation kept for name if it was made on this boot, in
// this time namespace, of exactly body.
func (m *memory) recall(name string, body []byte) lease.Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.load(name)
	sum := sha256.Sum256(body)
	if n.Observation == nil || n.Boot == "" || n.Boot != bootid.Boot() || n.TimeNS != bootid.TimeNamespace() || n.Digest != hex.EncodeToString(sum[:]) {
		return lease.Observation{}
	}
	return *n.Observation
}

// recallFrom returns the boot-clock instant from which exactly body was seen under
// name, if it was on this boot and in this time namespace.
func (m *memory) recallFrom(name string, body []byte) (from time.Duration, ok bool) {
	o := m.recall("\x00seen\x00"+name, body)
	return o.From, o != lease.Observation{}
}

// rememberFrom keeps that instant.
func (m *memory) rememberFrom(name string, body []byte, from time.Duration) {
	m.remember("\x00seen\x00"+name, &lease.Observation{From: from}, body)
}

// rememberCounter keeps the highest counter seen of name for the next command, if
// it rose.
func (m *memory) rememberCounter(name string, counter uint64) {
	if m.dir != "" && m.kept(name) < counter {
		m.remember(name, nil, nil)
	}
}

// kept is the counter of name that the folder holds.
func (m *memory) kept(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load(name).Seen
}

func (m *memory) verdictPath() string { return m.path("\x00probe") }

// standing is what the verdict that the folder has of this store and driver is worth.
func (m *memory) standing(info store.Info) standing {
	if m.dir == "" {
		return unproven
	}
	var v verdict
	body, err := os.ReadFile(m.verdictPath())
	if err != nil || json.Unmarshal(body, &v) != nil || v.Identity != info.Identity || v.Driver != info.Driver {
		return unproven
	}
	switch age := time.Since(v.At); {
	case age < 0 || age >= probeTrust+probeRenewal:
		return unproven
	case age >= probeTrust:
		return ageing
	}
	return proven
}

func (m *memory) setProbed(info store.Info) {
	if m.dir != "" {
		_ = writeAtomic(m.verdictPath(), verdict{Identity: info.Identity, Driver: info.Driver, At: time.Now()})
	}
}

// writeAtomic replaces path by v as JSON. It is not synced: after a power cut
// the boot id differs and the content is void anyway.
func writeAtomic(path string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return err
	}
	_, err = f.Write(body)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
