package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// version is that of the protocol.
const version = 1

// maxLine is the longest message in bytes, its line break included. A lease's name
// and note, which are the longest parts, fit with every byte escaped.
const maxLine = 16 << 10

// The operations.
const (
	opHello    = "hello"
	opStatus   = "status"
	opAcquire  = "acquire"
	opWaiting  = "waiting"
	opGranted  = "granted"
	opDeadline = "deadline"
	opStop     = "stop"
	opLost     = "lost"
	opRelease  = "release"
	opReleased = "released"
	opError    = "error"
)

// message is one line.
type message struct {
	Op string `json:"op"`
	V  int    `json:"v,omitempty"`

	Boot          string        `json:"boot,omitempty"`
	TimeNamespace string        `json:"time_namespace,omitempty"`
	Store         string        `json:"store,omitempty"`
	Namespace     string        `json:"namespace,omitempty"`
	Node          string        `json:"node,omitempty"`
	Incarnation   string        `json:"incarnation,omitempty"`
	Term          uint64        `json:"term,omitempty"`
	TTL           time.Duration `json:"ttl_ns,omitempty"`
	Margin        time.Duration `json:"margin_ns,omitempty"`

	Lease string        `json:"lease,omitempty"`
	Note  string        `json:"note,omitempty"`
	Wait  time.Duration `json:"wait_ns,omitempty"`
	Stop  time.Duration `json:"stop_ns,omitempty"`
	Group string        `json:"group,omitempty"`

	Token    uint64        `json:"token,omitempty"`
	Deadline time.Duration `json:"deadline_ns,omitempty"`

	Kind   string  `json:"kind,omitempty"`
	Text   string  `json:"text,omitempty"`
	Status *Status `json:"status,omitempty"`
}

// Status is how an agent fares.
type Status struct {
	// PID is the agent's process.
	PID int `json:"pid"`
	// Leases counts what the session holds; Stuck those of them whose command was
	// asked to stop and did not in time; Lapsing those whose supervisor is gone, or
	// cannot be written to, and that are kept until its command must have ended.
	Leases  int `json:"leases"`
	Stuck   int `json:"stuck"`
	Lapsing int `json:"lapsing"`
	// Waiting counts commands that wait for a lease.
	Waiting int `json:"waiting"`
	// InDoubt counts writes whose outcome is not known yet.
	InDoubt int `json:"in_doubt"`
	// Margin is the time left until the session ends unless it is renewed.
	Margin time.Duration `json:"margin_ns"`
	// Draining says that the agent takes no more leases.
	Draining bool `json:"draining"`
	// Trouble is why renewing fails at present, "" if it does not.
	Trouble string `json:"trouble"`
}

// RefusedError is an answer of the other side that is no success.
type RefusedError struct {
	kind error
	text string
}

// Error is what the other side said.
func (e *RefusedError) Error() string { return e.text }

// Unwrap is the kind of error, as errors.Is finds it on the other side.
func (e *RefusedError) Unwrap() error { return e.kind }

var (
	// ErrEnding: the agent takes no more leases, because it ends or its session is over.
	ErrEnding = errors.New("the agent is ending")
	// ErrWaited: the time to wait for the lease is over.
	ErrWaited = errors.New("waited long enough")
	// ErrSilent: the agent does not answer. It is stopped, or hangs.
	ErrSilent = errors.New("the agent does not answer")
	// ErrHungUp: the agent closed the connection without a word. It is an ErrEnding,
	// too: it died, or gave up telling a process that did not listen.
	ErrHungUp = fmt.Errorf("%w: it hung up", ErrEnding)
	// ErrLate: a lease was granted while this process was stopped, and is given back.
	ErrLate = errors.New("the grant came too late")
	// ErrProtocol: the other side speaks another version, or nonsense.
	ErrProtocol = errors.New("the other side does not speak this protocol")
)

// kinds are the errors that keep their meaning on the way, the first that fits.
var kinds = []struct {
	name string
	err  error
}{
	{"protocol", ErrProtocol}, {"waited", ErrWaited}, {"ending", ErrEnding}, {"held", tenure.ErrHeld}, {"regressed", tenure.ErrRegressed},
	{"lost", tenure.ErrLost}, {"unconfirmed", tenure.ErrUnconfirmed},
	{"ending", tenure.ErrShutdown}, {"ending", tenure.ErrClosed}, {"newer", tenure.ErrNewer}, {"corrupt", tenure.ErrCorrupt},
	{"denied", tenure.ErrDenied}, {"invalid", tenure.ErrInvalid}, {"unknown", tenure.ErrUnknown}, {"unavailable", tenure.ErrUnavailable},
}

// failure is err as a message.
func failure(err error) message {
	m := message{Op: opError, Kind: "unavailable", Text: clipped(err.Error())}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			m.Kind = k.name
			break
		}
	}
	return m
}

// err is the error that an error message tells of.
func (m message) err() error {
	kind := tenure.ErrUnavailable
	for _, k := range kinds {
		if k.name == m.Kind {
			kind = k.err
			break
		}
	}
	return &RefusedError{kind: kind, text: m.Text}
}

// clipped is text short enough for a message even if every byte is escaped.
func clipped(text string) string {
	const most = 2000
	if len(text) > most {
		text = string(bytes.ToValidUTF8([]byte(text[:most]), nil)) + "..."
	}
	return text
}

func (m message) encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err == nil && len(b) >= maxLine {
		err = store.Errorf(store.ErrInvalid, "", m.Op, m.Lease, "the message has %d bytes, at most %d are allowed", len(b), maxLine-1)
	}
	return append(b, '\n'), err
}

// receiver reads messages.
type receiver struct{ r *bufio.Reader }

func newReceiver(r io.Reader) receiver { return receiver{bufio.NewReaderSize(r, maxLine)} }

// next is the next message, io.EOF at the end.
func (r receiver) next() (message, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return message{}, fmt.Errorf("%w: a message has more than %d bytes", ErrProtocol, maxLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return message{}, io.ErrUnexpectedEOF
	case err != nil:
		return message{}, err
	}
	return decode(line)
}

// decode is strict, but looks at the version first: a newer one may say more.
func decode(line []byte) (message, error) {
	var head struct {
		Op string `json:"op"`
		V  int    `json:"v"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if head.Op == opHello && head.V != version {
		return message{}, fmt.Errorf("%w: it speaks version %d, this program speaks version %d: use one version of tenure for the agent and its commands", ErrProtocol, head.V, version)
	}
	var m message
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return m, nil
}
