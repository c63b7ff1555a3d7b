package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

// Result is what an attempt left for a late caller (EX6): written once, before the
// outcome that it belongs to. It may be removed at any time; the fact stays.
// Invariants, checked by Valid:
//
//  1. v, agent, run, site, attempt, holder and epoch name one exact attempt;
//  2. the status is committed or failed;
//  3. the output is the beginning of OutputBytes bytes, at most 64 KiB, and Sum its
//     SHA-256.
type Result struct {
	V     int    `json:"v"`
	Agent string `json:"agent"`
	Key
	Holder string `json:"holder"`
	Epoch  uint64 `json:"epoch"`
	Status Status `json:"status"`
	// Exit is the exit code: of a command its own, 128 + signal if one ended it.
	Exit int `json:"exit"`
	// Why is the error of a function, or of a command that could not be started.
	Why     string `json:"why,omitempty"`
	Trigger string `json:"trigger,omitempty"`
	At      int64  `json:"at_ms,omitempty"`
	Started int64  `json:"started_ms"`
	Ended   int64  `json:"ended_ms"`
	// Output is what was kept of the output.
	Output []byte `json:"output,omitempty"`
	// OutputBytes is how much there was.
	OutputBytes int64  `json:"output_bytes"`
	Sum         string `json:"output_sha256"`
}

// KeepOutput puts in what is kept of an output of total bytes, of which all is the
// beginning: at most 64 KiB.
func (r *Result) KeepOutput(all []byte, total int64) {
	r.Output, r.OutputBytes = all[:min(len(all), MaxOutput)], total
	if len(r.Output) == 0 {
		r.Output = nil
	}
	sum := sha256.Sum256(r.Output)
	r.Sum = hex.EncodeToString(sum[:])
}

// Cut reports whether the output is not complete.
func (r *Result) Cut() bool { return r.OutputBytes > int64(len(r.Output)) }

// Valid checks the invariants.
func (r *Result) Valid() error {
	sum := sha256.Sum256(r.Output)
	switch {
	case r.V < 1 || r.V > record.Level:
		return fmt.Errorf("format level %d", r.V)
	case r.Attempt < 1 || r.Epoch > record.MaxNumber:
		return fmt.Errorf("attempt %d or epoch %d is out of bounds", r.Attempt, r.Epoch)
	case r.Status != Committed && r.Status != Failed:
		return fmt.Errorf("a result is not %q", r.Status)
	case r.Exit < 0 || r.Exit > 255:
		return fmt.Errorf("exit code %d", r.Exit)
	case !isTime(r.At) || !isTime(r.Started) || !isTime(r.Ended):
		return errors.New("a time is out of bounds")
	case len(r.Output) > MaxOutput || r.OutputBytes < int64(len(r.Output)) || r.OutputBytes > record.MaxNumber:
		return errors.New("the output is out of bounds")
	case r.Sum != hex.EncodeToString(sum[:]):
		return errors.New("the output is not the one that the sum is of")
	}
	return errors.Join(store.CheckName("job name", r.Agent), r.Key.valid(), store.CheckName("site", r.Site),
		checkText("holder", r.Holder), checkText("reason", r.Why), checkLabel("trigger", r.Trigger))
}

// Encode returns the result's canonical bytes.
func (r *Result) Encode() ([]byte, error) { return record.Encode(r, MaxResult) }

// DecodeResult reads a result strictly and checks that it is of agent's attempt.
func DecodeResult(key, agent string, k Key, body []byte) (*Result, error) {
	var r Result
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	if r.Agent != agent || r.Key != k {
		return nil, store.Errorf(store.ErrCorrupt, "", "decode", key, "the result says it is of %v, attempt %d at %q of %q", r.Run, r.Attempt, r.Site, r.Agent)
	}
	return &r, nil
}

// ReadResult reads a result strictly and checks that it is agent's, of whatever attempt.
func ReadResult(key, agent string, body []byte) (*Result, error) {
	var r Result
	if err := record.Decode(key, body, &r); err != nil {
		return nil, err
	}
	return DecodeResult(key, agent, r.Key, body)
}

// ResultName is the end of a result's key: run, site and attempt.
func ResultName(k Key) string {
	return fmt.Sprintf("%v/%s-%010d", k.Run, store.EncodeName(k.Site), k.Attempt)
}
