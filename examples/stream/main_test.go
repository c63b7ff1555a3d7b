package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
	"github.com/tenure-project/tenure/store/stores"
)

// asProgram says that a process of the tests is the program: as it is, or "careless".
const asProgram = "STREAM_TEST_PROGRAM"

// TestMain lets the tests run the program as processes of their own. Each of them,
// and the tests themselves, must leave no goroutine behind.
func TestMain(m *testing.M) {
	kind := os.Getenv(asProgram)
	if kind == "" {
		os.Exit(checked(m.Run()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	drivers := append(stores.All(), cutDriver())
	var code int
	if kind == "careless" {
		code = careless(ctx, config{drivers: drivers}, os.Args[2:])
	} else {
		code = command(ctx, os.Args[1:], os.Stdout, os.Stderr, drivers)
	}
	stop()
	os.Exit(checked(code))
}

// checked turns a success that left goroutines behind into a failure.
func checked(code int) int {
	if err := goleak.Find(goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "left behind:", err)
		return 99
	}
	return code
}

// careless is the program with one mistake: its leader takes in every part that goes
// on from the newest commit, also those of attempts that were void and of processes
// that are over. The tests must find out.
func careless(ctx context.Context, c config, args []string) int {
	if err := c.parseRun(args, os.Stderr); err != nil {
		return 2
	}
	n := &node{config: c}
	n.fold = func(v *view, parts []*part) (*state, error) {
		next, err := fold(v, parts)
		if err != nil {
			return nil, err
		}
		for key, err := range n.client.Store().List(ctx, n.partPrefix(), "") {
			if err != nil {
				return nil, err
			}
			p, err := n.getPart(ctx, key)
			if err != nil {
				return nil, err
			}
			if p != nil && p.Base == v.base && p.Attempt.Epoch < v.attempt.Epoch {
				next.Counts.add(p.Counts)
			}
		}
		return next, nil
	}
	if err := n.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "careless:", err)
		return 1
	}
	return 0
}

// cutDriver opens cut:?on=URL&when=FILE: the store at URL, which does not answer this
// process while FILE exists.
func cutDriver() store.Driver {
	return store.Driver{Scheme: "cut", Open: func(ctx context.Context, u *url.URL) (store.Store, error) {
		inner, _, err := tenure.OpenStore(ctx, u.Query().Get("on"), tenure.WithDrivers(stores.All()...))
		if err != nil {
			return nil, err
		}
		s := &cutStore{file: u.Query().Get("when"), quit: make(chan struct{})}
		s.Store = faultstore.New(inner, faultstore.Options{Trace: func(faultstore.Event) { s.follow() }})
		s.over.Go(s.watch)
		return s, nil
	}}
}

// cutStore is a store whose link follows a file, which another process makes and
// removes.
type cutStore struct {
	*faultstore.Store
	file string
	quit chan struct{}
	over sync.WaitGroup
}

func (s *cutStore) follow() {
	link := faultstore.Up
	if _, err := os.Stat(s.file); err == nil {
		link = faultstore.Cut
	}
	s.SetLink(link)
}

func (s *cutStore) watch() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.follow()
		case <-s.quit:
			return
		}
	}
}

func (s *cutStore) Close() error {
	close(s.quit)
	s.over.Wait()
	return s.Store.Close()
}

// try runs a command in this process.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, bad strings.Builder
	code = command(t.Context(), args, &out, &bad, stores.All())
	return code, out.String(), bad.String()
}

// Bad input is told before anything happens.
//
// SPEC UI4
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, _, bad := try(t, "generate", "--input", dir+"/in", "--partitions", "2", "--lines", "3"); code != 0 {
		t.Fatal(bad)
	}
	run := []string{"run", "--store", "file://" + dir + "/store", "--node", "a", "--input", dir + "/in"}
	for say, args := range map[string][]string{
		"stream generate":          {},
		"stream run --store":       {"walk"},
		"--store is missing":       {"result"},
		"--node is missing":        {"run", "--store", "mem:x", "--input", dir},
		"is no flag":               {"result", "--store", "mem:x", "in"},
		"not defined":              {"result", "--stor", "x"},
		"no partitions":            {"run", "--store", "mem:x", "--node", "a", "--input", dir},
		"--batch is 0":             append(run, "--batch", "0"),
		"nothing was counted here": {"result", "--store", "file://" + dir + "/store"},
		"has partitions already":   {"generate", "--input", dir + "/in"},
		"0 partitions":             {"generate", "--input", dir + "/other", "--partitions", "0"},
		"TTL":                      append(run, "--ttl", "10ms"),
		"no driver for nowhere":    {"result", "--store", "nowhere:x"},
	} {
		if code, _, bad := try(t, args...); code == 0 || !strings.Contains(bad, say) {
			t.Errorf("stream %q: exit code %d, %q does not say %q", args, code, bad, say)
		}
	}
	for _, command := range []string{"generate", "run", "result", "verify"} {
		if code, _, bad := try(t, command, "--help"); code != 0 || !strings.Contains(bad, "-input") && command != "result" {
			t.Errorf("stream %s --help: exit code %d, %s", command, code, bad)
		}
	}
}

// A process whose folder holds another input than the stream's is refused.
//
// SPEC CK
func TestAnotherInput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, in := range []string{"/in", "/other"} {
		if code, _, bad := try(t, "generate", "--input", dir+in, "--partitions", "2", "--lines", "30", "--seed", fmt.Sprint(i)); code != 0 {
			t.Fatal(bad)
		}
	}
	url := "file://" + dir + "/store"
	unfinished(t, url, dir+"/in", 2)
	if c, _, bad := try(t, "run", "--store", url, "--node", "b", "--input", dir+"/other"); c != 1 || !strings.Contains(bad, "counts another input") {
		t.Errorf("exit code %d:\n%s", c, bad)
	}
	if c, _, bad := try(t, "verify", "--store", url, "--input", dir+"/in"); c != 1 || !strings.Contains(bad, "not finished") {
		t.Errorf("exit code %d:\n%s", c, bad)
	}
}

// A break of the log is named, with what is to be restored, also where the stream is
// not finished; the counts of the newest commit are printed beside a warning. What is
// put back mends it.
//
// SPEC LA5 CK
func TestBrokenLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, _, bad := try(t, "generate", "--input", dir+"/in", "--partitions", "2", "--lines", "30"); code != 0 {
		t.Fatal(bad)
	}
	url := "file://" + dir + "/store"
	unfinished(t, url, dir+"/in", 3)
	c, err := tenure.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it only read
	newest, key, body := entries(t, c)
	if err := c.Store().Delete(t.Context(), newest); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"result"}, {"verify", "--input", dir + "/in"}} {
		if code, _, bad := try(t, append(args, "--store", url)...); code != 1 || !strings.Contains(bad, "(restore "+newest+")") {
			t.Errorf("%s: exit code %d:\n%s", args[0], code, bad)
		}
	}
	if _, err := c.Store().Create(t.Context(), newest, body[newest]); err != nil {
		t.Fatal(err)
	}
	if err := c.Store().Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if code, _, bad := try(t, "verify", "--store", url, "--input", dir+"/in"); code != 1 || !strings.Contains(bad, ": missing: ") || !strings.Contains(bad, "(restore "+key+")") {
		t.Errorf("verify: exit code %d:\n%s", code, bad)
	}
	if code, out, bad := try(t, "result", "--store", url); code != 0 || !strings.Contains(out, "word0 ") || !strings.Contains(bad, "warning: the log is broken") {
		t.Errorf("result: exit code %d:\n%s%s", code, out, bad)
	}
	if _, err := c.Store().Create(t.Context(), key, body[key]); err != nil {
		t.Fatal(err)
	}
	if code, _, bad := try(t, "verify", "--store", url, "--input", dir+"/in"); code != 1 || !strings.Contains(bad, "not finished") {
		t.Errorf("verify: exit code %d:\n%s", code, bad)
	}
	if code, _, bad := try(t, "result", "--store", url); code != 0 || strings.Contains(bad, "warning") {
		t.Errorf("result: exit code %d:\n%s", code, bad)
	}
}

// entries are the keys of the newest checkpoint and of the oldest one, and the bytes of
// all.
func entries(t *testing.T, c *tenure.Client) (newest, oldest string, bodies map[string][]byte) {
	t.Helper()
	r, err := authority.Read(t.Context(), c, "stream")
	if err != nil {
		t.Fatal(err)
	}
	bodies = map[string][]byte{}
	for e, err := range r.Entries(t.Context(), authority.Checkpoint) {
		if err != nil {
			t.Fatal(err)
		}
		oldest = r.Key("entry", e.Link.Name().Element())
		o, err := c.Store().Get(t.Context(), oldest, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if bodies[oldest] = o.Body; newest == "" {
			newest = oldest
		}
	}
	if len(bodies) < 2 {
		t.Fatalf("%d checkpoints", len(bodies))
	}
	return newest, oldest, bodies
}

// unfinished runs a process that never finishes: it is told to stop after some
// checkpoints.
func unfinished(t *testing.T, url, in string, commits int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var log lockedBuffer
	code := make(chan int)
	go func() {
		code <- command(ctx, []string{"run", "--store", url, "--node", "a", "--input", in, "--batch", "1", "--pace", "20ms", "--poll", "10ms"}, io.Discard, &log, stores.All())
	}()
	for i := 0; !strings.Contains(log.String(), fmt.Sprintf("commits=%d ", commits)); i++ {
		if i > 3000 {
			t.Fatal("no checkpoint:\n", log.String())
		}
		time.Sleep(10 * time.Millisecond) // poll: the process commits in its own time
	}
	stop()
	if c := <-code; c != 0 {
		t.Fatalf("a process that was told to stop ended with %d:\n%s", c, log.String())
	}
}

// What a leader takes in goes on exactly where the last commit ended.
//
// SPEC CK
func TestFold(t *testing.T) {
	t.Parallel()
	v := madeView(t, "a", "b", "a")
	good := func() *part {
		return &part{Attempt: v.attempt, Base: v.base, Fence: v.assigned.Fence.State(), Owner: v.owner(0),
			Pieces: []piece{{0, 10, 20}, {2, 30, 30}}, Counts: counts{"x": 2, "y": 1}}
	}
	next, err := fold(v, []*part{good()})
	if err != nil || next.Commits != 5 || next.Offsets[0] != 20 || next.Offsets[1] != 20 || next.Offsets[2] != 30 || next.Counts["x"] != 3 || next.Counts["y"] != 1 {
		t.Errorf("%+v, %v", next, err)
	}
	if v.state.Offsets[0] != 10 || v.state.Counts["x"] != 1 {
		t.Errorf("the last state was changed: %+v", v.state)
	}
	for what, spoil := range map[string]func(p *part){
		"another attempt":    func(p *part) { p.Attempt.Epoch-- },
		"another commit":     func(p *part) { p.Base-- },
		"another assignment": func(p *part) { p.Fence = v.assigned.Fence.At(9).State() },
		"another's slot":     func(p *part) { p.Pieces[0].Slot = 1 },
		"another start":      func(p *part) { p.Owner.Incarnation = id(9) },
		"a gap":              func(p *part) { p.Pieces[0].From++ },
		"an overlap":         func(p *part) { p.Pieces[0].From-- },
		"going back":         func(p *part) { p.Pieces[0].To = 9 },
	} {
		p := good()
		spoil(p)
		if _, err := fold(v, []*part{p}); err == nil {
			t.Errorf("%s: it was taken in", what)
		}
	}
	if _, err := fold(v, []*part{good(), good()}); err == nil {
		t.Error("the same part was taken in twice")
	}
}

// An output file that another store's leaders wrote, with higher tokens, is told; it
// is not taken for the sign of a successor.
//
// SPEC GD1
func TestForeignOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if code, _, bad := try(t, "generate", "--input", dir+"/in", "--partitions", "1", "--lines", "3"); code != 0 {
		t.Fatal(bad)
	}
	g, err := fileguard.Open(dir+"/out.txt", "default", "stream")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Write(t.Context(), 7, []byte("old\n")); err != nil {
		t.Fatal(err)
	}
	code, _, bad := try(t, "run", "--store", "file://"+dir+"/store", "--node", "a", "--input", dir+"/in", "--output", dir+"/out.txt")
	if code != 1 || !strings.Contains(bad, "another store") {
		t.Errorf("exit code %d:\n%s", code, bad)
	}
	if text, err := os.ReadFile(dir + "/out.txt"); err != nil || string(text) != "old\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

// Tidying that fails is told; one that the end of the leadership cut short is not.
func TestTidyCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := generate(dir, 1, 1, 1); err != nil {
		t.Fatal(err)
	}
	in, err := openInput(dir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tenure.New(t.Context(), memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the store is memory
	s, err := c.Join(t.Context(), "stream/a")
	if err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	n := &node{config: config{job: "stream", input: in, ttl: time.Minute, log: slog.New(slog.NewTextHandler(&log, nil))}, client: c}
	m, err := n.member(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	led, err := m.authority.Lead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, none := newLeader(m, led), &checkpoint.Outcome{Attempt: checkpoint.Attempt{Epoch: 1, Checkpoint: 1}}
	over, end := context.WithCancel(t.Context())
	end()
	if l.tidy(over, none, 1); log.String() != "" {
		t.Errorf("it says %s", log.String())
	}
	if l.tidy(t.Context(), none, 1); !strings.Contains(log.String(), "tidying failed") {
		t.Errorf("it says %q", log.String())
	}
}

// Every input has its own id, and the same input the same one.
func TestInputID(t *testing.T) {
	t.Parallel()
	ids := map[string]bool{}
	for i, seed := range []uint64{1, 1, 2} {
		dir := fmt.Sprintf("%s/%d", t.TempDir(), i)
		if err := generate(dir, 2, 3, seed); err != nil {
			t.Fatal(err)
		}
		in, err := openInput(dir)
		if err != nil {
			t.Fatal(err)
		}
		ids[in.id] = true
	}
	if len(ids) != 2 {
		t.Errorf("%d ids of two inputs", len(ids))
	}
}

// A state survives its capsule.
func TestStateEncoding(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(&state{Commits: 1, Offsets: []int64{5}, Counts: counts{"é\"": 2}})
	var back state
	if err = errors.Join(err, json.Unmarshal(body, &back)); err != nil || back.Counts["é\""] != 2 || back.Offsets[0] != 5 {
		t.Errorf("%+v, %v", back, err)
	}
}

// lockedBuffer collects output while others read it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *lockedBuffer) tail() string {
	s := b.String()
	if len(s) > 12_000 {
		s = fmt.Sprintf("(%d bytes before)...%s", len(s)-12_000, s[len(s)-12_000:])
	}
	return s
}
