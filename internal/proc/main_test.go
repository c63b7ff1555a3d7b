//go:build linux

package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// The test binary plays every part: started as "run" it is a wrapper (and, by
// itself, the supervisor) around a hold that this file fakes, started as
// "helper" it is a command.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "run":
			os.Exit(playRun())
		case "helper":
			os.Exit(playHelper(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

const (
	configVar = "PROC_TEST_CONFIG"
	tokenVar  = "PROC_TEST_TOKEN"

	testLost   = 76
	testFailed = 70
)

// config is what a test asks of a run. Durations are in milliseconds.
type config struct {
	Log      string
	TTL      int
	Grace    int
	Reserve  int
	TreeOnly bool
	// Wait is how long the hold takes to be there.
	Wait int
	// RenewFor is how long the hold is renewed; 0 is for ever.
	RenewFor int
	// LoseAfter ends the hold at once after so long; 0 is never.
	LoseAfter int
	// Release is how long giving up the hold takes, unless somebody hurries.
	Release int
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// event is one line of a run's log.
type event struct {
	What  string
	At    time.Duration
	Value time.Duration `json:",omitempty"`
	Text  string        `json:",omitempty"`
	Pid   int
}

type journal struct {
	clk  clock.Clock
	path string
	mu   sync.Mutex
}

func (j *journal) write(what string, value time.Duration, text string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	line, _ := json.Marshal(event{What: what, At: j.clk.Boot(), Value: value, Text: text, Pid: os.Getpid()})
	_, _ = f.Write(append(line, '\n'))
}

// fakeHold is renewed like a lease: its deadline is TTL after the renewal, and
// it is done when that is nearer than the time to stop.
type fakeHold struct {
	clk  clock.Clock
	log  *journal
	ttl  time.Duration
	stop time.Duration

	mu       sync.Mutex
	deadline time.Duration
	err      error
	done     chan struct{}
}

func newFakeHold(c clock.Clock, log *journal, cfg config) *fakeHold {
	h := &fakeHold{clk: c, log: log, ttl: ms(cfg.TTL), stop: StopTime(ms(cfg.Grace), ms(cfg.Reserve)), done: make(chan struct{})}
	h.renew()
	go h.keep(cfg)
	return h
}

func (h *fakeHold) keep(cfg config) {
	began := h.clk.Boot()
	for {
		d, _ := h.Deadline()
		clock.Sleep(h.clk, min(h.ttl/10, d-h.stop-h.clk.Boot()), h.done)
		now := h.clk.Boot()
		if cfg.LoseAfter > 0 && now-began >= ms(cfg.LoseAfter) {
			h.end(errors.New("somebody took it"))
			return
		}
		if d, ok := h.Deadline(); !ok || now >= d-h.stop {
			h.end(errors.New("not renewed in time"))
			return
		}
		if cfg.RenewFor == 0 || now-began < ms(cfg.RenewFor) {
			h.renew()
		}
	}
}

func (h *fakeHold) renew() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clk.Boot()
	if h.err != nil || h.deadline != 0 && now >= h.deadline {
		return
	}
	// The log comes first: a test must know of a deadline that anybody acts on.
	h.log.write("deadline", now+h.ttl, "")
	h.deadline = now + h.ttl
}

func (h *fakeHold) end(why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = why
		close(h.done)
	}
}

func (h *fakeHold) Deadline() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline, h.clk.Boot() < h.deadline
}
func (h *fakeHold) Done() <-chan struct{} { return h.done }
func (h *fakeHold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func playRun() int {
	var cfg config
	if err := json.Unmarshal([]byte(os.Getenv(configVar)), &cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 64
	}
	clk := clock.NewSystem()
	log := &journal{clk: clk, path: cfg.Log}
	o := Options{Clock: clk, Grace: ms(cfg.Grace), Reserve: ms(cfg.Reserve), LostCode: testLost, FailCode: testFailed, TreeOnly: cfg.TreeOnly}
	rep, err := Main(o, func(s *Supervisor) Outcome { return lead(s, cfg, clk, log) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 64
	}
	log.write("exit "+string(rep.Role), time.Duration(rep.Code), rep.Message)
	return rep.Code
}

func lead(s *Supervisor, cfg config, clk clock.Clock, log *journal) Outcome {
	log.write("supervisor", 0, s.Contain())
	if clock.Sleep(clk, ms(cfg.Wait), s.Context().Done()); s.Context().Err() != nil {
		return given(log, s, Result{})
	}
	hold := newFakeHold(clk, log, cfg)
	defer hold.end(errors.New("released"))
	file, err := NewDeadlineFile(42)
	if err != nil {
		return Outcome{Code: 64, Message: err.Error()}
	}
	args := os.Args[slices.Index(os.Args, "--")+1:]
	res := s.Run(Command{Args: args, Env: append(os.Environ(), "TENURE_DEADLINE_FILE="+file.Path()), DeadlineFile: file}, hold)
	text, _ := json.Marshal(res)
	log.write("result", 0, string(text))
	if len(res.Survivors) == 0 {
		clock.Sleep(clk, ms(cfg.Release), s.Hurried())
		log.write("released", 0, "")
	}
	return given(log, s, res)
}

// given is the verdict as the command line would give it.
func given(log *journal, s *Supervisor, res Result) Outcome {
	var sig *SignalError
	switch err := context.Cause(s.Context()); {
	case res.End == "" && err != nil:
		log.write("gave up", 0, err.Error())
		if errors.As(err, &sig) {
			return Outcome{Code: sig.Code(), Message: "run: " + err.Error()}
		}
		return Outcome{Code: 75, Message: "run: " + err.Error()}
	case res.Lost != nil:
		return Outcome{Code: testLost, Message: "run: lost: " + res.Lost.Error()}
	case res.Err != nil:
		return Outcome{Code: res.Code, Message: "run: " + res.Err.Error()}
	}
	return Outcome{Code: res.Code}
}
