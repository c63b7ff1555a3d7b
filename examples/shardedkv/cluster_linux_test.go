package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store/stores"
)

// cluster are the processes of one service, and what its clients share.
type cluster struct {
	*testing.T
	dir, url string
	args     []string
	procs    map[string]*proc
	table    *slots.Table
	router   *slots.Router
	client   *client
	history  *history
	close    []func() error

	mu        sync.Mutex
	addresses []string // of all processes that ever served
}

// proc is one name, and the process that has it.
type proc struct {
	c     *cluster
	name  string
	cmd   *exec.Cmd
	log   lockedBuffer
	done  chan struct{}
	ended bool // by the test

	before int // how much log there was before its last start
}

// newCluster is for processes with args, on a folder unless url says otherwise.
func newCluster(t *testing.T, url string, args ...string) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), url: url, procs: map[string]*proc{}, history: newHistory()}
	if url == "" {
		c.url = "file://" + filepath.Join(c.dir, "store")
	}
	data := filepath.Join(c.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	c.args = append([]string{"--data", data, "--listen", "127.0.0.1:0", "--settle", "0s"}, args...)
	t.Cleanup(c.end)
	return c
}

// start starts the process of a name, which may have had one before.
func (c *cluster) start(name, kind string) *proc {
	c.Helper()
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	p := c.procs[name]
	if p == nil {
		p = &proc{c: c, name: name}
		c.procs[name] = p
	}
	at := "cut:?" + url.Values{"on": {c.url}, "when": {c.cutFile(name)}}.Encode()
	p.cmd = exec.Command(self, append([]string{"serve", "--store", at, "--owner", name}, c.args...)...)
	p.cmd.Env = append(os.Environ(), asProgram+"="+kind, "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.done, p.ended, p.before = make(chan struct{}), false, len(p.log.String())
	if err := p.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(p.cmd, p.done)
	return p
}

func (c *cluster) cutFile(name string) string { return filepath.Join(c.dir, "cut-"+name) }

// cut takes the store from a process, or gives it back.
func (c *cluster) cut(name string, off bool) {
	c.Helper()
	err := os.Remove(c.cutFile(name))
	if off {
		err = os.WriteFile(c.cutFile(name), nil, 0o600)
	}
	if err != nil {
		c.Error(err)
	}
}

// end ends every process, and shows what they said if the test failed.
func (c *cluster) end() {
	for _, f := range c.close {
		if err := f(); err != nil {
			c.Error(err)
		}
	}
	for _, p := range c.procs {
		_ = p.cmd.Process.Kill()
		<-p.done
		if c.Failed() {
			c.Logf("%s:\n%s", p.name, p.log.tail())
		}
	}
}

func (p *proc) signal(sig syscall.Signal) {
	p.c.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.c.Error(err)
	}
}

// want waits for the end of the process and checks its exit code.
func (p *proc) want(code int) {
	p.c.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.c.Fatalf("%s goes on and on", p.name)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.c.Fatalf("%s ended with %d (%v), want %d", p.name, got, p.cmd.ProcessState, code)
	}
}

// open makes the clients' side, once a process has made the table.
func (c *cluster) open() {
	c.Helper()
	var cl *tenure.Client
	c.poll("the table is there", func() bool {
		var err error
		if cl == nil {
			if cl, err = tenure.Open(c.Context(), c.url, tenure.WithDrivers(stores.All()...), tenure.WithoutCreate()); err != nil {
				return false
			}
		}
		c.table, err = slots.Open(c.Context(), cl, "kv")
		return err == nil
	})
	var err error
	if c.router, err = slots.NewRouter(c.table, slots.RouterConfig{Every: 250 * time.Millisecond, Pause: 10 * time.Millisecond, OnChange: c.learn}); err != nil {
		c.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.router.Run(ctx) }()
	base := http.DefaultTransport.(*http.Transport).Clone()
	if c.client, err = newClient(c.router, base, 200*time.Millisecond); err != nil {
		c.Fatal(err)
	}
	c.close = append(c.close, func() error {
		stop()
		base.CloseIdleConnections()
		return errors.Join(<-ran, cl.Close())
	})
}

// learn notes where processes serve.
func (c *cluster) learn(moves []slots.RouteMove) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range moves {
		if m.To.Addr != "" && !slices.Contains(c.addresses, m.To.Addr) {
			c.addresses = append(c.addresses, m.To.Addr)
		}
	}
}

// anybody is a client of a process that served something once, with no idea what it
// serves now.
func (c *cluster) anybody(r *rand.Rand, base http.RoundTripper) *client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &client{http: &http.Client{Transport: base}, base: "http://" + c.addresses[r.IntN(len(c.addresses))]}
}

// poll tries f until it is true.
func (c *cluster) poll(what string, f func() bool) {
	c.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) { // poll: other processes act
		switch name := c.failed(); {
		case name != "":
			c.Fatalf("%s: %s ended by itself", what, name)
		case time.Now().After(end):
			c.Fatalf("%s: not within a minute", what)
		}
	}
}

// failed names a process that ended by itself, if there is one.
func (c *cluster) failed() string {
	for name, p := range c.procs {
		select {
		case <-p.done:
			if !p.ended {
				return name
			}
		default:
		}
	}
	return ""
}

// shares are how many shards each owner has.
func (c *cluster) shares() map[string]int {
	shares := map[string]int{}
	for _, r := range c.router.Routes() {
		shares[r.Owner]++
	}
	return shares
}

// balanced waits until so many shards are spread over the processes that are named.
func (c *cluster) balanced(shards int, names ...string) {
	c.Helper()
	c.poll(fmt.Sprintf("%d shards are spread over %q", shards, names), func() bool {
		shares, all := c.shares(), 0
		for _, name := range names {
			if shares[name] < shards/len(names) {
				return false
			}
			all += shares[name]
		}
		return all == shards
	})
}

// load are clients that write, read and remove keys until it is stopped.
type load struct {
	c    *cluster
	keys []string
	all  sync.WaitGroup
	stop chan struct{}
}

const requestLimit = 1500 * time.Millisecond

// load starts clients, each of which makes at most one request per pace. Half of these
// write, the others read, confirmed or not, and some remove. Every third client does not
// ask who serves a key.
func (c *cluster) load(clients, keys int, pace time.Duration, seed uint64) *load {
	l := &load{c: c, stop: make(chan struct{})}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("key-%03d", i))
	}
	for id := range clients {
		l.all.Go(func() { l.client(id, pace, rand.New(rand.NewPCG(seed, uint64(id)))) })
	}
	return l
}

var written atomic.Int64 // makes values that nobody else writes

func (l *load) client(id int, pace time.Duration, r *rand.Rand) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	for {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		key := l.keys[r.IntN(len(l.keys))]
		to := l.c.client
		if id%3 == 2 {
			to = l.c.anybody(r, base)
		}
		switch n := r.IntN(12); {
		case n < 6:
			_, _ = l.c.put(to, id, key, fmt.Sprintf("%d/%d", id, written.Add(1)))
		case n < 11:
			_, _ = l.c.get(to, id, key, n < 9)
		default:
			_, _ = l.c.remove(to, id, key)
		}
	}
}

// end stops the clients, and reads every key a last time, confirmed.
func (l *load) end() {
	l.c.Helper()
	close(l.stop)
	l.all.Wait()
	for _, key := range l.keys {
		l.c.poll("a last read of "+key, func() bool { _, err := l.c.get(l.c.client, -1, key, true); return err == nil })
	}
}

func (c *cluster) put(to *client, client int, key, value string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	return c.history.call(client, kvOp{"put", key, value}, func() (answer, error) { return to.put(ctx, key, value) })
}

func (c *cluster) remove(to *client, client int, key string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	return c.history.call(client, kvOp{"delete", key, ""}, func() (answer, error) { return to.delete(ctx, key) })
}

func (c *cluster) get(to *client, client int, key string, confirmed bool) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
	defer cancel()
	kind := plainGet
	if confirmed {
		kind = "get"
	}
	return c.history.call(client, kvOp{kind, key, ""}, func() (answer, error) { return to.get(ctx, key, confirmed) })
}
