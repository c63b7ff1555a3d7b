package main

import (
	"cmp"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenure-project/tenure/slots"
)

// A process is stopped for longer than its TTL, another one serves its shard, and clients
// that still know the first one's address wait for it. When it wakes, the deadline keeps
// its reads, and the guard its writes, from being answered: each is left out in turn, and
// the check finds what follows.
//
// SPEC SL6 SL9 GD1
// CASE B01
func TestSuperseded(t *testing.T) {
	t.Parallel()
	all := func(kvOp) bool { return true }
	for kind, want := range map[string]struct {
		all, guarded porcupine.CheckResult
	}{
		tested:    {porcupine.Ok, porcupine.Ok},
		clockless: {porcupine.Illegal, porcupine.Ok}, // a stale read
		careless:  {porcupine.Illegal, porcupine.Illegal},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "", "--shards", "1", "--ttl", "1s")
			c.supersede(kind)
			if got := c.history.linearizable(all); got != want.all {
				t.Errorf("everything: %s, want %s", got, want.all)
			}
			if got := c.history.linearizable(func(o kvOp) bool { return o.kind != plainGet }); got != want.guarded {
				t.Errorf("writes and confirmed reads: %s, want %s", got, want.guarded)
			}
			if err := c.history.oneHost(); (err != nil) != (kind != tested) {
				t.Errorf("two hosts: %v", err)
			} else if err != nil {
				t.Log(err)
			}
		})
	}
}

// supersede has a process of the kind wake up to requests that were sent when another one
// served already.
func (c *cluster) supersede(kind string) {
	c.Helper()
	first := c.start("a", kind)
	c.open()
	c.balanced(1, "a")
	c.start("b", tested)
	route, _ := c.router.Route(0)
	late := &client{http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, base: "http://" + route.Addr}
	c.done(func() (answer, error) { return c.put(c.client, 0, "k", "1") })
	first.signal(syscall.SIGSTOP)
	c.balanced(1, "b")
	c.done(func() (answer, error) { return c.put(c.client, 0, "k", "2") })
	var asked sync.WaitGroup
	for i, op := range []kvOp{{plainGet, "k", ""}, {"get", "k", ""}, {"put", "k", "3"}} {
		asked.Go(func() {
			_, err := c.history.call(1+i, op, func() (answer, error) {
				if op.kind == "put" {
					return late.put(c.Context(), op.key, op.value)
				}
				return late.get(c.Context(), op.key, op.kind == "get")
			})
			c.Log(op, err)
		})
	}
	first.signal(syscall.SIGCONT)
	asked.Wait()
	c.done(func() (answer, error) { return c.get(c.client, 0, "k", true) })
}

// done asks until it is done: an owner in the table has yet to open its shard.
func (c *cluster) done(ask func() (answer, error)) {
	c.Helper()
	c.poll("a request is served", func() bool { _, err := ask(); return err == nil })
}

// All processes are killed at once under load. Every write that was confirmed is there
// when one of them is started again.
//
// SPEC SL7 SL8
func TestEverybodyDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", "--shards", "4", "--ttl", "1s")
	for _, name := range []string{"a", "b"} {
		c.start(name, tested)
	}
	c.open()
	c.balanced(4, "a", "b")
	l := c.load(4, 16, 5*time.Millisecond, seed())
	c.poll("some is written", func() bool { return c.history.answered() > 200 })
	for _, p := range c.procs {
		p.ended = true
		p.signal(syscall.SIGKILL)
	}
	for _, p := range c.procs {
		<-p.done
	}
	c.start("b", tested)
	l.end()
	c.history.check(t)
}

// A shard is moved to and fro while clients write to it. The time that nobody serves it is
// printed. Two writes to the store hand it over: its owner's release, and the successor's
// claim. (What the plan says is written before, by whoever balances.)
//
// SPEC SL8 SL9
func TestMove(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"register": "", "rows": "sqlite://" + filepath.Join(t.TempDir(), "kv.db")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, url, "--shards", "3", "--ttl", "5s") // two and one: nothing moves for balance
			c.start("a", tested)
			c.start("b", tested)
			c.open()
			c.balanced(3, "a", "b")
			l := c.load(6, 400, 5*time.Millisecond, seed())
			var gaps []time.Duration
			for range 5 {
				gaps = append(gaps, c.moveUnderLoad())
			}
			slices.Sort(gaps)
			if gaps[2] > time.Second { // the pause between two refreshes is 1.25 s: the successor was not woken
				t.Errorf("nobody served a shard for %v", gaps)
			}
			l.end()
			c.history.check(t)
		})
	}
}

// moveUnderLoad moves a shard from the one that has two to the one that has one, and
// prints what that costs.
func (c *cluster) moveUnderLoad() (unserved time.Duration) {
	c.Helper()
	var was, now slots.Route
	to := "b"
	if c.shares()["b"] > 1 {
		to = "a"
	}
	c.poll("it is under load", func() bool {
		for _, route := range c.router.Routes() {
			if was = route; was.Owner != to {
				return c.history.under(was.Epoch) > 50
			}
		}
		return false
	})
	pinned := time.Since(c.history.start)
	if _, err := c.table.Pin(c.Context(), was.Range, to); err != nil {
		c.Fatal(err)
	}
	c.poll("it moved, and is under load", func() bool {
		now, _ = c.router.Route(was.Range.A)
		return now.Owner == to && c.history.under(now.Epoch) > 50
	})
	last, first := c.history.gap(was.Epoch, now.Epoch)
	writes, reads := handOver(c.calls(pinned, first))
	c.Logf("%s to %s: nobody served it for %v, %v after the pin; the store was written to by %q, with %d reads in between",
		was.Owner, to, (first - last).Round(100*time.Microsecond), (last - pinned).Round(time.Millisecond), writes, reads)
	if want := []string{was.Owner, to}; !slices.Equal(writes, want) {
		c.Errorf("the hand-over was written by %q, want one write of each of %q", writes, want)
	}
	return first - last
}

// handOver are those who wrote, in order, and how often the last of them read since the
// write before its own.
func handOver(calls []storeCall) (writers []string, reads int) {
	for i, call := range calls {
		if !call.write() {
			continue
		}
		if len(writers) > 0 {
			reads = 0
			for _, before := range slices.Backward(calls[:i]) {
				if before.write() {
					break
				}
				if before.who == call.who && before.op != "watch" {
					reads++
				}
			}
		}
		writers = append(writers, call.who)
	}
	return writers, reads
}

// answered is how many requests were.
func (h *history) answered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.served)
}

// under is how many requests were served under an epoch.
func (h *history) under(epoch uint64) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.served {
		if s.epoch == epoch {
			n++
		}
	}
	return n
}

// gap is from the last answer under one epoch to the first under another.
func (h *history) gap(old, next uint64) (last, first time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first = time.Since(h.start)
	for _, s := range h.served {
		switch s.epoch {
		case old:
			last = max(last, s.end)
		case next:
			first = min(first, s.end)
		}
	}
	return last, first
}

// storeCall is what a process asked of the table in the store.
type storeCall struct {
	at      time.Duration
	who, op string
}

func (s storeCall) write() bool {
	return s.op != "get" && s.op != "scan" && s.op != "watch" && s.op != "list"
}

// calls are those of all processes between two instants of the history, in order.
func (c *cluster) calls(from, to time.Duration) []storeCall {
	c.Helper()
	var all []storeCall
	for _, name := range slices.Sorted(maps.Keys(c.procs)) {
		for line := range strings.Lines(c.procs[name].log.String()) {
			f := strings.Fields(strings.TrimPrefix(line, callMark))
			if !strings.HasPrefix(line, callMark) || !strings.Contains(f[2], "/slots/") && !strings.Contains(f[2], "/slots-row/") {
				continue
			}
			at, err := strconv.ParseInt(f[0], 10, 64)
			if err != nil {
				c.Fatal(line)
			}
			if s := (storeCall{time.Unix(0, at).Sub(c.history.start), name, f[1]}); s.at >= from && s.at <= to {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b storeCall) int { return cmp.Compare(a.at, b.at) })
	return all
}
