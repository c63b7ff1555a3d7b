// Package ledger decides what already happened and what may be started. It is
// pure: state and input in, state out; no I/O, no clock, no goroutine, no
// randomness. Ids, times and what was read are arguments.
//
// The facts of an agent's runs form a join-semilattice: any logs fold in any
// order ([State]). In a store they are one register, the [Head], and blocks that
// only grow ([Block]), of which one answers for any run.
package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/core/lease"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Bounds of format level 1 (EX3, EX7, ST11, ST15).
const (
	MaxHead  = 32 << 10 // bytes of a head; with a block, 64 KiB answer any question
	MaxBlock = 32 << 10 // bytes of a block
	// Headroom is what an admission leaves free in a head, so that outcomes, which
	// are facts and cannot be refused, have room until the next compaction.
	Headroom = 4 << 10
	// MaxLeaves is how many blocks a head can find: two bits each, 11 KiB as text.
	MaxLeaves = 32 << 10
	// MaxDepth is how many leading bits of a run id may lead to a block. Ids that
	// agree in 64 bits were not made by SHA-256.
	MaxDepth = 64
	// MaxKept is how many attempts of one run a merge may bring to be kept for ever:
	// they share a block, which cannot be split between them, and need up to 700 bytes
	// each. A retry stops below it, at MaxAbandoned: what stopped its host 32 times is not
	// helped by the next try.
	MaxKept      = 36
	MaxAbandoned = 32
	// MaxFailures is how many older attempts of a run that is not committed are known to
	// have failed, over all its sites: enough to count to that, and 38 bytes each.
	MaxFailures = 16
	// MaxAttempt is what an entry of a block can hold.
	MaxAttempt = 1<<32 - 1
	// MaxSites is how many other sites a head can know.
	MaxSites = 16
	// MaxIntent bounds the JSON of one intent.
	MaxIntent = 4 << 10
	// MaxResult bounds a result with its output in base64.
	MaxResult = 96 << 10
	// MaxOutput is how much output a result keeps.
	MaxOutput = 64 << 10
	// MaxCheckpoint bounds a checkpoint in a file: 26 million runs.
	MaxCheckpoint = 1 << 30
)

// RunID names one run of one agent for ever (EX5).
type RunID [sha256.Size]byte

// String is the id in 64 hex digits.
func (r RunID) String() string { return hex.EncodeToString(r[:]) }

// MarshalText is String's bytes.
func (r RunID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, r[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (r *RunID) UnmarshalText(text []byte) error {
	if len(text) != 2*len(r) {
		return fmt.Errorf("a run id has %d hex digits, not %d", 2*len(r), len(text))
	}
	for _, c := range text {
		if c >= 'A' && c <= 'F' {
			return fmt.Errorf("the run id %q is not in lower case", text)
		}
	}
	_, err := hex.Decode(r[:], text)
	return err
}

// ParseRunID reads a run id; anything else is ErrInvalid.
func ParseRunID(s string) (RunID, error) {
	var r RunID
	if err := r.UnmarshalText([]byte(s)); err != nil {
		return RunID{}, store.Wrap(store.ErrInvalid, "", "parse run id", "", err)
	}
	return r, nil
}

// bit is the id's i-th leading bit.
func (r RunID) bit(i int) byte { return r[i/8] >> (7 - i%8) & 1 }

// framing separates run ids from every other use of SHA-256.
const framing = "tenure ledger run 1"

// derive hashes parts, each framed by its length, so that no two lists of parts
// give the same bytes.
func derive(parts ...string) RunID {
	h := sha256.New()
	for _, p := range append([]string{framing}, parts...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return RunID(h.Sum(nil))
}

// Occurrence is the run of agent for one instant of a trigger (EX5). trigger is a
// name, not an expression: the same instant of the same job is the same run,
// however its schedule is written. at has whole milliseconds from 1970 on; others
// are refused, never rounded.
func Occurrence(agent, trigger string, at time.Time) (RunID, error) {
	if err := checkNames(agent, "trigger", trigger); err != nil {
		return RunID{}, err
	}
	ms := at.UnixMilli()
	if ms < 0 || ms > record.MaxNumber || !time.UnixMilli(ms).Equal(at) {
		return RunID{}, store.Errorf(store.ErrInvalid, "", "derive run id", "",
			"the occurrence %v is not in whole milliseconds from 1970 on", at.UTC())
	}
	return derive(agent, "occurrence", trigger, string(binary.BigEndian.AppendUint64(nil, uint64(ms)))), nil
}

// Named is the run of agent that a user named (EX5).
func Named(agent, name string) (RunID, error) {
	if err := checkNames(agent, "run id", name); err != nil {
		return RunID{}, err
	}
	return derive(agent, "named", name), nil
}

// Manual is a run of agent by hand; id is a fresh UUID, so it is like no other
// (EX5).
func Manual(agent, id string) (RunID, error) {
	if err := checkNames(agent, "id", id); err != nil {
		return RunID{}, err
	}
	if !record.IsID(id) {
		return RunID{}, store.Errorf(store.ErrInvalid, "", "derive run id", "", "%q is not a fresh id", id)
	}
	return derive(agent, "manual", id), nil
}

func checkNames(agent, what, name string) error {
	if err := store.CheckName("job name", agent); err != nil {
		return err
	}
	return store.CheckName(what, name)
}

// Key names one attempt: runs count their attempts per site (EX3).
type Key struct {
	Run     RunID  `json:"run"`
	Site    string `json:"site"`
	Attempt uint64 `json:"attempt"`
}

func (k Key) compare(o Key) int {
	if c := string3(string(k.Run[:]), string(o.Run[:])); c != 0 {
		return c
	}
	if c := string3(k.Site, o.Site); c != 0 {
		return c
	}
	return number3(k.Attempt, o.Attempt)
}

func string3(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func number3[N int64 | uint64](a, b N) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// valid checks a key in a record. The site may be empty: that is where malformed
// intents go.
func (k Key) valid() error {
	if k.Attempt > MaxAttempt {
		return fmt.Errorf("attempt %d is out of bounds", k.Attempt)
	}
	return checkLabel("site", k.Site)
}

// checkLabel is a name that may be missing.
func checkLabel(what, s string) error {
	if s == "" {
		return nil
	}
	return store.CheckName(what, s)
}

// checkText is a text of at most 256 bytes encoded that may be missing.
func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("the %s is not UTF-8", what)
	}
	return lease.CheckWhy(what, s)
}

func isTime(ms int64) bool { return ms >= 0 && ms <= record.MaxNumber }
