// Package demo shows what a lease with a fencing token does when a holder is
// killed, paused and resumed: with real processes, a real store and a guarded
// file.
//
// The contenders are bare holders of the library, not commands under run: run
// would end the paused one in time, and there would be no zombie to see.
package demo

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/stores"
)

// Env, when set, makes the binary a contender; its value is the JSON of a
// contender's orders.
const Env = "TENURE_DEMO_CONTENDER"

// Config says where and what to show.
type Config struct {
	// StoreURL is the store; empty means a fresh folder, removed afterwards.
	StoreURL string
	// SVG is the file that the picture is written to; empty for none.
	SVG string
	// Out receives the story and the timeline.
	Out io.Writer
	// Exe is the binary that is started as a contender.
	Exe string
}

const leaseID = "demo"

// ttlOn is the TTL that the contenders use on a store: short, so that nobody
// waits long, and as long as it must be where one key takes few writes (ST14).
func ttlOn(ctx context.Context, url string) (time.Duration, error) {
	st, _, err := tenure.OpenStore(ctx, url, tenure.WithDrivers(stores.All()...))
	if err != nil {
		return 0, err
	}
	rate := st.Info().WritesPerSecond
	ttl := 2 * time.Second
	if rate > 0 {
		ttl = max(ttl, time.Duration(10/rate*float64(time.Second)))
	}
	return ttl, st.Close()
}

// event is one thing that a contender, or the director, reports.
type event struct {
	At    time.Time `json:"at"`
	Who   string    `json:"who"`
	What  string    `json:"what"`
	Token uint64    `json:"token,omitempty"`
	Text  string    `json:"text,omitempty"`
}

// What happens, as contenders and the director say it.
const (
	waits    = "waits"
	holds    = "holds"
	wrote    = "wrote"
	refused  = "refused"
	lost     = "lost"
	released = "released"
	killed   = "killed"
	paused   = "paused"
	resumed  = "resumed"
	failed   = "failed"
)

// Run plays the demo. It returns an error if anything did not go as promised.
func Run(ctx context.Context, cfg Config) error {
	dir, err := os.MkdirTemp("", "tenure-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if cfg.StoreURL == "" {
		cfg.StoreURL = "file://" + filepath.ToSlash(filepath.Join(dir, "store"))
	}
	ttl, err := ttlOn(ctx, cfg.StoreURL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second+5*ttl)
	defer cancel()
	d := &director{cfg: cfg, ttl: ttl, guarded: filepath.Join(dir, "ledger.txt"), start: time.Now(), news: make(chan event, 256), actors: map[string]*actor{}}
	defer d.stopAll()
	fmt.Fprintf(cfg.Out, "Three processes want the lease %q (TTL %v); whoever holds it writes to a guarded file.\n\n", leaseID, ttl)
	err = d.play(ctx)
	fmt.Fprintf(cfg.Out, "\n%s\n", Text(d.events, d.start)) // of a play that failed, too: it shows where
	if err != nil {
		return err
	}
	if err := d.verify(); err != nil {
		return err
	}
	if cfg.SVG != "" {
		if err := os.WriteFile(cfg.SVG, []byte(SVG(d.events, d.start)), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(cfg.Out, "The same as a picture: %s\n", cfg.SVG)
	}
	return nil
}

// director starts contenders, does bad things to them, and keeps the events.
// Its methods are for one goroutine; news arrives from the contenders' readers.
type director struct {
	cfg     Config
	ttl     time.Duration
	guarded string
	start   time.Time
	events  []event
	news    chan event
	actors  map[string]*actor
	readers sync.WaitGroup
}

type actor struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func (d *director) play(ctx context.Context) error {
	for _, act := range []func(context.Context) error{d.begin, d.kill, d.pause, d.handOver} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// begin: A holds, B and C stand in line behind it.
func (d *director) begin(ctx context.Context) error {
	if err := d.launch("A"); err != nil {
		return err
	}
	if _, err := d.await(ctx, "A", holds); err != nil {
		return err
	}
	for _, who := range []string{"B", "C"} {
		if err := d.launch(who); err != nil {
			return err
		}
		if _, err := d.await(ctx, who, waits); err != nil {
			return err
		}
		if err := d.idle(ctx, 300*time.Millisecond); err != nil { // so that B stands before C
			return err
		}
	}
	return d.idle(ctx, 700*time.Millisecond)
}

// kill: the holder gets kill -9, a rival takes over.
func (d *director) kill(ctx context.Context) error {
	at := d.tell("A", killed, "kill -9: it cannot release anything")
	if err := d.signal("A", sigKill); err != nil {
		return err
	}
	next, err := d.await(ctx, "", holds)
	if err != nil {
		return err
	}
	d.say("%s took over %v after the kill.", next.Who, round(next.At.Sub(at)))
	return d.idle(ctx, 1200*time.Millisecond)
}

// pause: the holder is stopped beyond its lease and woken again. Its write is
// refused.
func (d *director) pause(ctx context.Context) error {
	sleeper := d.holder()
	at := d.tell(sleeper, paused, "SIGSTOP: it does not know that time passes")
	if err := d.signal(sleeper, sigStop); err != nil {
		return err
	}
	next, err := d.await(ctx, "", holds)
	if err != nil {
		return err
	}
	d.say("%s took over %v after the pause began: a stopped process is not dead, so the TTL had to pass.", next.Who, round(next.At.Sub(at)))
	if err := d.idle(ctx, 900*time.Millisecond); err != nil {
		return err
	}
	d.tell(sleeper, resumed, "SIGCONT: it goes on with its old token, a zombie")
	if err := d.signal(sleeper, sigCont); err != nil {
		return err
	}
	zombie, err := d.await(ctx, sleeper, refused)
	if err != nil {
		return err
	}
	d.say("The zombie's write under token %d was refused: %s.", zombie.Token, zombie.Text)
	return d.idle(ctx, 600*time.Millisecond)
}

// handOver: a new process waits, the holder releases cleanly.
func (d *director) handOver(ctx context.Context) error {
	if err := d.launch("D"); err != nil {
		return err
	}
	if _, err := d.await(ctx, "D", waits); err != nil {
		return err
	}
	if err := d.idle(ctx, 800*time.Millisecond); err != nil {
		return err
	}
	holder := d.holder()
	if err := d.order(holder, "release"); err != nil {
		return err
	}
	freed, err := d.await(ctx, holder, released)
	if err != nil {
		return err
	}
	next, err := d.await(ctx, "D", holds)
	if err != nil {
		return err
	}
	d.say("%s released, D held it %v later.", holder, round(max(0, next.At.Sub(freed.At))))
	if err := d.idle(ctx, 700*time.Millisecond); err != nil {
		return err
	}
	if err := d.order("D", "release"); err != nil {
		return err
	}
	_, err = d.await(ctx, "D", released)
	return err
}

func round(d time.Duration) time.Duration {
	if d > 100*time.Millisecond {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}

// launch starts a contender.
func (d *director) launch(who string) error {
	orders, err := json.Marshal(orders{Who: who, Store: d.cfg.StoreURL, File: d.guarded, TTL: d.ttl})
	if err != nil {
		return err
	}
	cmd := exec.Command(d.cfg.Exe)
	cmd.Env = append(os.Environ(), Env+"="+string(orders))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	d.actors[who] = &actor{cmd: cmd, in: in}
	d.readers.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e event
			if json.Unmarshal(lines.Bytes(), &e) == nil {
				d.news <- e
			}
		}
	})
	return nil
}

// note keeps an event and tells it, except for the many writes.
func (d *director) note(e event) {
	d.events = append(d.events, e)
	if e.What == wrote {
		return
	}
	token := ""
	if e.Token > 0 {
		token = " (token " + strconv.FormatUint(e.Token, 10) + ")"
	}
	line := fmt.Sprintf("%6.2fs  %s %s%s", e.At.Sub(d.start).Seconds(), e.Who, e.What, token)
	if e.Text != "" {
		line += ": " + e.Text
	}
	fmt.Fprintln(d.cfg.Out, line)
}

func (d *director) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, "         → "+format+"\n", args...)
}

// tell notes what the director does to a contender, and returns when.
func (d *director) tell(who, what, text string) time.Time {
	e := event{At: time.Now(), Who: who, What: what, Text: text}
	d.note(e)
	return e.At
}

// await takes in news until who (anybody, if empty) says what.
func (d *director) await(ctx context.Context, who, what string) (event, error) {
	for {
		select {
		case e := <-d.news:
			d.note(e)
			if e.What == failed {
				return e, fmt.Errorf("contender %s: %s", e.Who, e.Text)
			}
			if e.What == what && (who == "" || e.Who == who) {
				return e, nil
			}
		case <-ctx.Done():
			return event{}, fmt.Errorf("%s never came to %q: %w", cmp.Or(who, "nobody else"), what, context.Cause(ctx))
		}
	}
}

// idle takes in news for a while.
func (d *director) idle(ctx context.Context, t time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, t)
	defer cancel()
	_, err := d.await(ctx, "", "nothing")
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// holder is who said last that it holds the lease.
func (d *director) holder() string {
	who := ""
	for _, e := range d.events {
		if e.What == holds {
			who = e.Who
		}
	}
	return who
}

func (d *director) signal(who string, s syscall.Signal) error {
	return d.actors[who].cmd.Process.Signal(s)
}

func (d *director) order(who, what string) error {
	_, err := fmt.Fprintln(d.actors[who].in, what)
	return err
}

// stopAll ends what is left, by PID.
func (d *director) stopAll() {
	for _, a := range d.actors {
		_ = a.cmd.Process.Kill()
	}
	go func() { // readers must not block on news that nobody takes
		for range d.news {
		}
	}()
	d.readers.Wait()
	close(d.news)
	for _, a := range d.actors {
		_ = a.cmd.Wait()
	}
}

// verify reads the guarded file: its lines carry the token that wrote them, and
// tokens never fall, whatever happened.
func (d *director) verify() error {
	f, err := os.Open(d.guarded)
	if err != nil {
		return err
	}
	defer f.Close()
	lines, last := 0, uint64(0)
	for s := bufio.NewScanner(f); s.Scan(); lines++ {
		var token uint64
		var who string
		if _, err := fmt.Sscanf(s.Text(), "token %d by %s", &token, &who); err != nil {
			return fmt.Errorf("the guarded file holds %q", s.Text())
		}
		if token < last {
			return fmt.Errorf("the guarded file was written under token %d after token %d", token, last)
		}
		last = token
	}
	fmt.Fprintf(d.cfg.Out, "The guarded file has %d lines, and their tokens never fall: no zombie got through.\n", lines)
	return nil
}
