package main

import (
	"bytes"
	"context"
	"fmt"
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
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/stores"
)

// asProgram says that a process of the tests is the program: one of the kinds below.
const asProgram = "SHARDEDKV_TEST_PROGRAM"

// The kinds of the program.
const (
	tested    = "tested"    // as it is
	clockless = "clockless" // never looks at a deadline
	careless  = "careless"  // nor has its files guarded
)

// TestMain lets the tests run the program as processes of their own. Each of them,
// and the tests themselves, must leave no goroutine behind.
func TestMain(m *testing.M) {
	kind := os.Getenv(asProgram)
	if kind == "" {
		os.Exit(checked(m.Run()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := program(ctx, kind, os.Args[1:])
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

// program is the program with the mistakes of its kind. The tests must find them.
func program(ctx context.Context, kind string, args []string) int {
	drivers := append(stores.All(), cutDriver())
	if kind == tested {
		return command(ctx, args, os.Stdout, os.Stderr, drivers)
	}
	c := config{drivers: drivers}
	if err := c.parseServe(args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	n := newNode(c)
	n.live = func(*slots.Grant) (context.Context, bool) { return nil, true }
	if kind == careless {
		n.write = func(_ context.Context, s *shard, data []byte) error {
			if err := os.WriteFile(s.path+".new", data, 0o600); err != nil {
				return err
			}
			return os.Rename(s.path+".new", s.path)
		}
	}
	if err := n.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, kind, err)
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
		s.Store = faultstore.New(inner, faultstore.Options{Trace: s.note})
		s.over.Go(s.watch)
		return s, nil
	}}
}

// cutStore is a store whose link follows a file, which another process makes and
// removes. It prints what is done about the table, for a test that counts.
type cutStore struct {
	*faultstore.Store
	file string
	quit chan struct{}
	over sync.WaitGroup
}

const callMark = "call: "

func (s *cutStore) note(e faultstore.Event) {
	s.follow()
	if strings.Contains(e.Key, "/slots") && !e.Done {
		fmt.Fprintf(os.Stderr, "%s%d %s %s\n", callMark, time.Now().UnixNano(), e.Op, e.Key)
	}
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

// tail is the end of the output, without the calls.
func (b *lockedBuffer) tail() string {
	var lines []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, callMark) {
			lines = append(lines, line)
		}
	}
	s := strings.Join(lines, "")
	if len(s) > 12_000 {
		s = fmt.Sprintf("(%d bytes before)...%s", len(s)-12_000, s[len(s)-12_000:])
	}
	return s
}
