package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// herd is how many hosts' worth of cron begin at one instant.
const herd = 40

// A herd that finds no verdict of a probe, as at the first midnight, all ends well: one
// process probes, and the others wait for it.
//
// SPEC ST10 EX4
func TestHerdOnAFreshStore(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	var all []*program
	for i := range herd {
		all = append(all, p.start("tenure", "--verbose", "once", "--job", fmt.Sprint("j", i%4), "--run-id", "r", "--", "sh", "-c", "echo ran >>"+fmt.Sprint("ran", i%4)))
	}
	probes, ran := 0, 0
	for _, g := range all {
		g.want(0)
		probes += strings.Count(g.output(), "probing the store")
		ran += strings.Count(g.output(), "done already")
	}
	if probes != 1 || ran != herd-4 {
		t.Errorf("%d probes, %d of %d found it done", probes, ran, herd)
	}
}

// A process that is killed while it probes leaves no lock behind: the next one does not
// wait, but probes by itself.
//
// SPEC ST10
func TestProberIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	p.touch("cut")
	once := []string{"tenure", "--verbose", "--store", cutURL(p.url, p.path("cut")), "once", "--job", "j", "--run-id", "r", "--", "true"}
	first := p.start(once...)
	eventually(t, first.output, func() bool { return strings.Contains(first.output(), "probing the store") })
	for _, pid := range p.processes() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
	first.wait()
	p.remove("cut")
	begun := time.Now()
	p.start(once...).want(0, "probing the store")
	if took := time.Since(begun); took > 25*time.Second { // it waits for 30 s for one that lives
		t.Errorf("it took %v", took)
	}
}
