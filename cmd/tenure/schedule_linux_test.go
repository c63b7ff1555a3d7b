package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An occurrence whose process ended before the command began is tried again, whatever it
// ended with: it waited for long enough, or it was killed. That is told once.
//
// SPEC EX6 UI1
func TestScheduleTriesAgainWhatDidNotBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, options, said string
		harm                func(p *place) bool
	}{
		{"waited", "--wait 200ms", "it was not begun (exit code 75)", func(*place) bool { return true }},
		{"killed", "--note killme", "it was not begun (", killOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "file")
			holder := p.start("tenure", "run", "--lease", "once/j", "--", "work", "-log", "b", "-until", "go")
			p.await(holder, "b", "begin", 1)
			p.write("jobs", "@every 219000h j "+c.options+" -- work -log a -for 10ms\n")
			s := p.start("tenure", "schedule", "jobs")
			eventually(t, s.output, func() bool { return c.harm(p) && strings.Contains(s.output(), c.said) })
			p.touch("go")
			holder.want(0)
			p.await(s, "a", "begin", 1)
			s.signal(syscall.SIGTERM)
			s.want(0)
			if n := strings.Count(s.output(), "it was not begun"); n != 1 {
				t.Errorf("it was told %d times: %s", n, s.output())
			}
			p.start("tenure", "ledger", "ls", "--job", "j", "--json").want(0, `"committed":1,"repeated":0`)
		})
	}
}

// killOnce kills both processes of every `tenure once` that waits.
func killOnce(p *place) bool {
	for _, pid := range p.processes() {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(args, []byte("\x00--note=killme\x00")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return true
}

// Many jobs that are due at once run a few at a time, and all of them run. A host that
// comes later starts no process.
//
// SPEC EX6 UI1
func TestScheduleRunsAFewAtATime(t *testing.T) {
	t.Parallel()
	const jobs = 10
	p := newPlace(t, "sqlite")
	var file strings.Builder
	for i := range jobs {
		fmt.Fprintf(&file, "@every 219000h j%d -- echo b >>out; sleep 0.05; echo e >>out\n", i)
	}
	p.write("jobs", file.String())
	lines := func() string {
		text, _ := os.ReadFile(p.path("out"))
		return string(text)
	}
	s := p.start("tenure", "schedule", "--parallel", "2", "jobs")
	eventually(t, func() string { return lines() + s.output() }, func() bool { return strings.Count(lines(), "e") == jobs })
	s.signal(syscall.SIGTERM)
	s.want(0)
	running, most := 0, 0
	for _, what := range strings.Fields(lines()) {
		if what == "b" {
			running++
		} else {
			running--
		}
		most = max(most, running)
	}
	if most > 2 {
		t.Errorf("%d ran at the same time", most)
	}
	second := p.start("tenure", "-v", "schedule", "jobs")
	eventually(t, second.output, func() bool { return strings.Count(second.output(), ": done already") == jobs })
	second.signal(syscall.SIGTERM)
	second.want(0)
	if strings.Contains(second.output(), ": started") || strings.Count(lines(), "b") != jobs {
		t.Errorf("something was started: %s", second.output())
	}
}

// What cleans temporary files up takes the folder of the scheduler away: the jobs go on.
//
// SPEC UI1
func TestScheduleOutlivesItsFolder(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	tmp := p.path("tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "TMPDIR="+tmp)
	p.write("jobs", "@every 500ms j -- echo x >>out\n")
	s := p.start("tenure", "schedule", "jobs")
	ran := func() int {
		text, _ := os.ReadFile(p.path("out"))
		return strings.Count(string(text), "x")
	}
	eventually(t, s.output, func() bool { return ran() > 0 })
	all, err := filepath.Glob(tmp + "/tenure-schedule-*")
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if err := os.Rename(all[0], tmp+"/gone"); err != nil {
		t.Fatal(err)
	}
	before := ran() + 1 // one may be at it
	eventually(t, s.output, func() bool { return ran() > before })
	s.signal(syscall.SIGTERM)
	s.want(0)
	p.start("tenure", "ledger", "ls", "--job", "j", "--json").want(0, `"repeated":0`)
}

// The folder of the status files is made again if it is gone. One that somebody else put
// in its place is left alone.
//
// SPEC UI1
func TestScheduleFolder(t *testing.T) {
	s, _ := tested(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	folder := func() string {
		if err := s.folder(); err != nil {
			t.Fatal(err)
		}
		return s.dir
	}
	first := folder()
	if again := folder(); filepath.Dir(first) != tmp || again != first {
		t.Errorf("it is %s, then %s", first, again)
	}
	if err := os.Rename(first, filepath.Join(tmp, "gone")); err != nil {
		t.Fatal(err)
	}
	second := folder()
	for _, harm := range []func() error{
		func() error { return os.Mkdir(second, 0o700) },
		func() error { return os.Symlink(first, second) },
	} {
		if err := errors.Join(os.Rename(second, second+".gone"), harm()); err != nil {
			t.Fatal(err)
		}
		third := folder()
		if third == second || third == first {
			t.Errorf("what a stranger put at %s is used", third)
		}
		second = third
	}
	if info, err := os.Stat(second); err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v", info, err)
	}
}

// The output of a command comes whole, however late its reader begins, and is counted.
//
// SPEC EX6
func TestKeptOutputHasASlowReader(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	g := p.start("sh", "-c", `tenure once --job j --run-id r --keep-output -- sh -c 'head -c 100000 /dev/zero | tr "\0" x' | (sleep 2; wc -c)`)
	g.want(0)
	if got := strings.TrimSpace(g.output()); got != "100000" {
		t.Errorf("%s bytes came", got)
	}
	if r := p.run("j", "r", "committed", "committed"); r.Attempts[0].Result == nil || r.Attempts[0].Result.OutputBytes != 100000 {
		t.Errorf("the ledger says %+v", r.Attempts[0].Result)
	}
}
