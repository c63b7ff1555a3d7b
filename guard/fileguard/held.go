package fileguard

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/store"
)

// lookEvery is about how often one who is inside looks whether a higher token
// asks for the resource.
const lookEvery = 25 * time.Millisecond

// Holder says who is inside.
type Holder struct {
	// Token is the token under which it got in; 0 if it is not known.
	Token uint64 `json:"token"`
	// PID is its process, as it sees itself.
	PID int `json:"pid"`
	// Started is when the process started, in ticks since boot, and Space the
	// number of its PID namespace: together they tell it from another process
	// that got the same PID. Both are 0 where the system does not say.
	Started uint64 `json:"started"`
	Space   uint64 `json:"space"`
}

// Running reports whether PID is that very process for this process, so that a
// signal to it would reach the right one. False if that cannot be told.
func (h Holder) Running() bool {
	started, space := processIdentity(h.PID)
	return h.PID > 0 && h.Started > 0 && started == h.Started && space == h.Space
}

// BusyError says that somebody else was inside until the caller's context
// ended. Its kind is store.ErrUnavailable: the caller has not written. One who
// may end a holder of a lower token can do so and try again.
type BusyError struct {
	// Path is the guarded path, Op what was tried.
	Path, Op string
	// Holder is who was inside last.
	Holder Holder
	// Cause is why waiting ended.
	Cause error
}

// Error names the holder.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%s: %s %s: process %d, with token %d, is still inside: %v", scheme, e.Op, e.Path, e.Holder.PID, e.Holder.Token, e.Cause)
}

// Is reports whether target is store.ErrUnavailable.
func (e *BusyError) Is(target error) bool { return target == store.ErrUnavailable }

// Unwrap returns why waiting ended.
func (e *BusyError) Unwrap() error { return e.Cause }

// Held is the resource, held under a token. It must be released. Its methods
// are safe for concurrent use.
type Held struct {
	g     *Guard
	token uint64

	ctx     context.Context
	cancel  context.CancelCauseFunc
	watcher sync.WaitGroup

	mu   sync.Mutex // keeps Release from giving the resource away under a Write
	hold *os.File   // nil once released
}

// Hold gets inside under token for a longer action: until Release, no other
// token gets in. A higher token that was seen is a *guard.FencedError; somebody
// inside until ctx ends is a [BusyError]. If that is a lower token, its context
// is cancelled by the attempt. ctx bounds the getting in only.
func (g *Guard) Hold(ctx context.Context, token uint64) (*Held, error) {
	hold, err := g.enter(ctx, "hold", token)
	if err != nil {
		return nil, err
	}
	h := &Held{g: g, token: token, hold: hold}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.watcher.Go(h.watch)
	return h, nil
}

// Context ends, with a *guard.FencedError as its cause, within about 40 ms after
// a higher token asked for the resource. The holder must then end its action and
// call Release; the other one waits for that as long as it can afford to, and
// may end this process afterwards. The context also ends with Release, or if the
// mark cannot be read any more.
func (h *Held) Context() context.Context { return h.ctx }

// Token is the token under which the resource is held.
func (h *Held) Token() uint64 { return h.token }

// Write is Guard.Write for the one who holds the resource. A higher token that
// waits refuses it already.
func (h *Held) Write(ctx context.Context, data []byte) error {
	const op = "write"
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return h.errReleased(op)
	}
	return h.g.replace(ctx, op, h.token, data)
}

// File returns a copy of the lock's file for os/exec.Cmd.ExtraFiles. The
// resource then stays held until every process that got it has ended, even if
// this one is killed. The caller closes the copy once the command is started.
func (h *Held) File() (*os.File, error) {
	const op = "copy lock"
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold == nil {
		return nil, h.errReleased(op)
	}
	f, err := duplicate(h.hold)
	if err != nil {
		return nil, failed(op, h.g.path, store.ErrUnavailable, "", err)
	}
	return f, nil
}

// Release lets others in, unless a process that got [Held.File] is still
// inside. It waits for a Write under way, and may be called again.
func (h *Held) Release() {
	h.cancel(context.Canceled)
	h.watcher.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hold != nil {
		leave(h.hold)
		h.hold = nil
	}
}

func (h *Held) errReleased(op string) error {
	return store.Errorf(guard.ErrInvalid, scheme, op, h.g.path, "the resource was released")
}

// watch cancels the holder's context when the mark says so.
func (h *Held) watch() {
	for {
		t := time.NewTimer(lookEvery/2 + rand.N(lookEvery))
		select {
		case <-t.C:
		case <-h.ctx.Done():
			t.Stop()
			return
		}
		if err := h.g.stillAdmits(h.token); err != nil {
			h.cancel(err)
			return
		}
	}
}

// sayHolder notes in the file of the hold who is inside.
func (g *Guard) sayHolder(op string, hold *os.File, token uint64) error {
	h := Holder{Token: token, PID: os.Getpid()}
	h.Started, h.Space = processIdentity(h.PID)
	body, err := json.Marshal(h)
	if err == nil {
		err = hold.Truncate(0)
	}
	if err == nil {
		_, err = hold.WriteAt(body, 0)
	}
	if err != nil {
		return failed(op, g.path, store.ErrUnavailable, "", err)
	}
	return nil
}

// holder reads who is, or was last, inside. What is written at this moment
// cannot be read as anything: then nobody is known.
func (g *Guard) holder() (h Holder, known bool) {
	f, err := os.Open(g.file(holdName))
	if err != nil {
		return Holder{}, false
	}
	defer leave(f)
	body, err := io.ReadAll(io.LimitReader(f, maxMark))
	if err != nil || json.Unmarshal(body, &h) != nil {
		return Holder{}, false
	}
	return h, h.Token > 0
}
