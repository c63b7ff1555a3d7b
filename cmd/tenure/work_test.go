//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/internal/clock"
)

// worker is the program work: a command under a lease that must never run beside
// another one. The kernel is the judge: a worker locks a file for as long as it
// lives, however it dies, and reports an overlap if somebody else has it.
type worker struct {
	log, alone  string
	term, until string
	length      time.Duration
	code        int
	detach      bool
	argv, fds   bool
}

// workEvent is one line of the log.
type workEvent struct {
	What   string `json:"what"` // begin, overlap, term, end
	PID    int    `json:"pid"`
	Parent int    `json:"parent"`
	Token  uint64 `json:"token"`
	// Text says of an overlap when it was and until when the other one worked, in
	// nanoseconds of the boot clock.
	Text string `json:"text,omitempty"`
}

func runWork(args []string) int {
	var w worker
	f := flag.NewFlagSet("work", flag.ExitOnError)
	f.StringVar(&w.log, "log", "", "append events to this file")
	f.StringVar(&w.alone, "alone", "", "be alone with this file, and with this file and .detached")
	f.StringVar(&w.term, "term", "", "what to do on TERM, INT, HUP and QUIT: ignore, or end after this duration")
	f.DurationVar(&w.length, "for", 0, "end after this long")
	f.StringVar(&w.until, "until", "", "end when this file exists")
	f.IntVar(&w.code, "code", 0, "the exit status at that end")
	f.BoolVar(&w.detach, "detach", false, "leave a child of a session of its own behind, which ignores signals")
	f.BoolVar(&w.argv, "argv", false, "print the other arguments, each between < and >")
	f.BoolVar(&w.fds, "fds", false, "print the open descriptors")
	_ = f.Parse(args)
	switch {
	case w.argv:
		for _, a := range f.Args() {
			fmt.Printf("<%s>\n", a)
		}
		return w.code
	case w.fds:
		return printDescriptors()
	}
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		return 99
	}
	return w.code
}

func (w *worker) run() error {
	signals := make(chan os.Signal, 8)
	if w.term != "" {
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	}
	locks, err := w.lock()
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range locks {
			_ = l.Close()
		}
	}()
	if w.detach {
		if err := w.leaveBehind(); err != nil {
			return err
		}
	}
	w.note("begin", "")
	w.work(signals, locks)
	w.note("end", "")
	return nil
}

// work lasts until it is over, by time, by file or by signal. It polls for the
// file, which another process makes.
func (w *worker) work(signals <-chan os.Signal, locks []*os.File) {
	clk := clock.NewSystem()
	deadline := os.Getenv(envDeadlineFile)
	var over <-chan time.Time
	if w.length > 0 {
		over = time.After(w.length)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-signals:
			w.note("term", "")
			if d, err := time.ParseDuration(w.term); err == nil && over == nil {
				over = time.After(d)
			}
		case <-over:
			return
		case <-tick.C:
			for _, l := range locks {
				until, _ := os.ReadFile(deadline)
				_, _ = l.WriteAt(fmt.Appendf(nil, "beat %d, under %.32s ", clk.Boot(), until), 0)
			}
			if _, err := os.Stat(w.until); w.until != "" && err == nil {
				return
			}
		}
	}
}

// lock takes the files, or reports who has them.
func (w *worker) lock() ([]*os.File, error) {
	var locks []*os.File
	for _, name := range []string{w.alone, w.alone + ".detached"} {
		if w.alone == "" {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			other, _ := os.ReadFile(name)
			w.note("overlap", fmt.Sprintf("%s at %d: %s", filepath.Base(name), clock.NewSystem().Boot(), other))
			return nil, fmt.Errorf("somebody else works: %s: %w", name, err)
		}
		if w.detach && name != w.alone {
			_ = f.Close() // for the child
			continue
		}
		locks = append(locks, f)
	}
	return locks, nil
}

// leaveBehind starts a child that holds the second lock, and waits until it does.
func (w *worker) leaveBehind() error {
	ready := w.alone + ".ready"
	_ = os.Remove(ready)
	c := exec.Command(os.Args[0], "-log", ready, "-alone", w.alone+".detached", "-term", "ignore")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) { // a bounded poll of another process
		if info, err := os.Stat(ready); err == nil && info.Size() > 0 {
			return nil
		}
	}
	return errors.New("the child did not begin")
}

func (w *worker) note(what, text string) {
	if w.log == "" {
		return
	}
	token, _ := strconv.ParseUint(os.Getenv(envToken), 10, 64)
	line, _ := json.Marshal(workEvent{What: what, PID: os.Getpid(), Parent: os.Getppid(), Token: token, Text: text})
	f, err := os.OpenFile(w.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		_ = f.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
	}
}

// printDescriptors prints what is open in this process besides the folder that
// it reads and what the runtime opened for itself.
func printDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil || strings.HasPrefix(to, "anon_inode:[event") || strings.HasPrefix(to, "/proc/") || strings.HasPrefix(to, "/sys/fs/cgroup/") {
			continue
		}
		fmt.Printf("%s -> %s\n", e.Name(), to)
	}
	return 0
}
