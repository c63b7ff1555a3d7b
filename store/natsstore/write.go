package natsstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tenure-project/tenure/store"
)

// headerExpected is the condition of a write: the server takes it only if the
// last message of its subject has this sequence, 0 for none.
const headerExpected = "Nats-Expected-Last-Subject-Sequence"

// attempts is how often Create and Delete try again after a refusal that shows
// a state from which they can go on.
const attempts = 8

// judgeDelays are the pauses between the reads that find the reason of a
// refusal. It shows at the first read but where another write to the key is
// still under way.
var judgeDelays = []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}

var (
	errRefused  = errors.New("the server refused the write, but nothing shows why: an outdated leader, or another write that is still under way")
	errNotTaken = errors.New("the key changed again and again meanwhile")
)

// Create stores body if key is absent (ST1). A key that was deleted is absent,
// and its marker's sequence is then the condition.
func (s *Store) Create(ctx context.Context, key string, body []byte) (store.Version, error) {
	const op = "create"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	attempt, expected := rand.Text(), uint64(0)
	for range attempts {
		seq, l, o := s.write(ctx, key, expected, attempt, nats.Header{}, body)
		switch {
		case o != nil:
			return "", s.unsure(op, key, o)
		case l == nil:
			return s.place.version(seq), nil
		case l.present():
			return "", store.Errorf(store.ErrExists, s.w.identity, op, key, "the key is at version %s", s.place.version(l.seq))
		}
		expected = l.seq
	}
	return "", store.Wrap(store.ErrUnavailable, s.w.identity, op, key, errNotTaken)
}

// Replace stores body if key is at version v (ST2).
func (s *Store) Replace(ctx context.Context, key string, body []byte, v store.Version) (store.Version, error) {
	const op = "replace"
	if err := s.check(ctx, op, key, body); err != nil {
		return "", err
	}
	seq, err := s.change(ctx, op, key, v, nats.Header{}, body)
	if err != nil {
		return "", err
	}
	return s.place.version(seq), nil
}

// DeleteIf removes key if it is at version v, atomically against Replace: it is
// a conditional write of a marker.
func (s *Store) DeleteIf(ctx context.Context, key string, v store.Version) error {
	const op = "delete-if"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	_, err := s.change(ctx, op, key, v, marker(), nil)
	return err
}

// change writes over version v.
func (s *Store) change(ctx context.Context, op, key string, v store.Version, header nats.Header, body []byte) (uint64, error) {
	expected, ok := s.place.sequence(v)
	if !ok { // of an earlier stream, or no version at all: only the kind is open
		l, o := s.read(ctx, key)
		if o != nil {
			return 0, s.failed(op, key, o)
		}
		return 0, s.stale(op, key, l, v)
	}
	seq, l, o := s.write(ctx, key, expected, rand.Text(), header, body)
	switch {
	case o != nil:
		return 0, s.unsure(op, key, o)
	case l != nil:
		return 0, s.stale(op, key, *l, v)
	}
	return seq, nil
}

// stale is the error for a version that is not the present one.
func (s *Store) stale(op, key string, l last, v store.Version) error {
	if !l.present() {
		return store.Errorf(store.ErrNotFound, s.w.identity, op, key, "no record")
	}
	return store.Errorf(store.ErrConflict, s.w.identity, op, key, "the key is at version %s, not %q", s.place.version(l.seq), v)
}

// Delete removes key; an absent key is a success (ST5). The key's last record
// and the marker stay in the stream until a listing meets them, a minute later
// or more.
func (s *Store) Delete(ctx context.Context, key string) error {
	const op = "delete"
	if err := s.check(ctx, op, key, nil); err != nil {
		return err
	}
	l, o := s.read(ctx, key)
	for range attempts {
		switch {
		case o != nil:
			return s.failed(op, key, o)
		case !l.present():
			return nil
		}
		_, now, o := s.write(ctx, key, l.seq, rand.Text(), marker(), nil)
		switch {
		case o != nil:
			return s.unsure(op, key, o)
		case now == nil:
			return nil
		}
		l = *now
	}
	return store.Wrap(store.ErrUnavailable, s.w.identity, op, key, errNotTaken)
}

// marker are the headers of a message that says that its key is deleted.
func marker() nats.Header { return nats.Header{headerOperation: []string{"DEL"}} }

// write sends one conditional write, once. It gives the new sequence, or the
// state that makes the condition false for good, or the outcome if neither is
// known.
func (s *Store) write(ctx context.Context, key string, expected uint64, attempt string, header nats.Header, body []byte) (uint64, *last, *outcome) {
	header[headerExpected] = []string{strconv.FormatUint(expected, 10)}
	header[headerAttempt] = []string{attempt}
	seq, o := s.publish(ctx, s.place.subject(key), header, body)
	if o == nil || o.err != errRefused {
		return seq, nil, o
	}
	return s.judge(ctx, key, expected, attempt)
}

// judge finds out why a write was refused. The message went to every server
// that takes itself for the leader: the refusal of a deposed one says nothing
// about what the present one did. So only the state counts, and sequences only
// grow: past the expected one, the condition can never be true again.
func (s *Store) judge(ctx context.Context, key string, expected uint64, attempt string) (uint64, *last, *outcome) {
	unsure := func(err error) *outcome { return &outcome{sent: true, kind: store.ErrUnavailable, err: err} }
	for i := 0; ; i++ {
		l, o := s.read(ctx, key)
		switch {
		case o != nil:
			return 0, nil, unsure(o.err)
		case l.attempt == attempt:
			return l.seq, nil, nil
		case l.seq > expected, l.seq == 0 && expected > 0 && !s.cfg.LeaderReads:
			return 0, &l, nil
		case i == len(s.judgeDelays):
			return 0, nil, unsure(errRefused)
		}
		pause := time.NewTimer(s.judgeDelays[i])
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, nil, unsure(context.Cause(ctx))
		}
	}
}

// unsure makes the error of a write: ErrUnknown if it may have been taken.
func (s *Store) unsure(op, key string, o *outcome) error {
	if o.sent {
		return store.Wrap(store.ErrUnknown, s.w.identity, op, key, o.err)
	}
	return s.failed(op, key, o)
}

// publish sends one message to the stream, once, and returns the sequence that
// it got there. A false condition is the outcome errRefused.
func (s *Store) publish(ctx context.Context, subject string, header nats.Header, body []byte) (uint64, *outcome) {
	header["Nats-Expected-Stream"] = []string{s.place.stream}
	reply, o := s.w.request(ctx, subject, header, body)
	if o != nil {
		return 0, o
	}
	var ack struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
	}
	e, err := answer(reply, &ack)
	switch {
	case err != nil:
		return 0, &outcome{sent: true, kind: store.ErrUnavailable, err: err}
	case e != nil:
		return 0, s.refusal(e)
	case ack.Stream != s.place.stream || ack.Seq == 0 || ack.Duplicate:
		return 0, &outcome{sent: true, kind: store.ErrUnavailable, err: errors.New("the acknowledgement is not one of this bucket")}
	}
	return ack.Seq, nil
}

// refusal judges what a server said to a write. Only what it says before it
// passes the write on to the others is known to have had no effect.
func (s *Store) refusal(e *apiError) *outcome {
	nothing := func(kind error) *outcome { return &outcome{kind: kind, err: s.explain(e)} }
	switch e.ErrCode {
	case codeWrongLast, codeWrongLastInFlight:
		return &outcome{sent: true, kind: store.ErrUnavailable, err: errRefused}
	case codeTooLarge, codeHeaderTooLarge:
		return nothing(store.ErrInvalid)
	case codeInsufficient, codeAccountResources, codeStorageResources, codeMemoryResources, codeClusterNotAvail, codeOffline,
		codeNotEnabled, codeNotEnabledAccount, codeSealed, codeOtherStream, codeNoStream:
		return nothing(store.ErrUnavailable)
	case codeStoreFailed:
		switch e.Description { // refused alike by every server, and not a broken disk
		case "maximum bytes exceeded", "maximum messages exceeded", "maximum messages per subject exceeded":
			return nothing(store.ErrUnavailable)
		}
	}
	return &outcome{sent: true, kind: store.ErrUnavailable, err: e}
}
