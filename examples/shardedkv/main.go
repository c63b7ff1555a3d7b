// Command shardedkv is a small key-value service over HTTP on package slots: each key
// is served by one of its processes, shards move between them, and a guard on every
// shard's file refuses whoever comes too late. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/stores"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr, stores.All())
	stop()
	os.Exit(code)
}

const usage = `shardedkv serves keys and values with several processes, each key from one of them.

  shardedkv serve --store URL --data DIR --listen ADDR --owner NAME   one process; start as many as you like
  shardedkv put --store URL KEY VALUE       write a value, wherever its key is served
  shardedkv get --store URL KEY             print it
  shardedkv delete --store URL KEY          remove it
  shardedkv map --store URL                 who serves what
  shardedkv move --store URL RANGE [NAME]   want a shard to be served by NAME; without it, by anybody

shardedkv COMMAND --help tells of its flags.
`

// errUsage: what to do was said already.
var errUsage = errors.New("usage")

// command runs one command and returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer, drivers []store.Driver) int {
	c := config{drivers: drivers}
	err := errUsage
	commands := map[string]func() error{
		"serve": func() error {
			if err := c.parseServe(args[1:], stderr); err != nil {
				return err
			}
			return newNode(c).run(ctx)
		},
		"put":    func() error { return runPut(ctx, c, args[1:], stderr) },
		"get":    func() error { return runGet(ctx, c, args[1:], stdout, stderr) },
		"delete": func() error { return runDelete(ctx, c, args[1:], stderr) },
		"map":    func() error { return runMap(ctx, c, args[1:], stdout, stderr) },
		"move":   func() error { return runMove(ctx, c, args[1:], stderr) },
	}
	if len(args) > 0 && commands[args[0]] != nil {
		err = commands[args[0]]()
	} else {
		fmt.Fprint(stderr, usage)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	fmt.Fprintln(stderr, "shardedkv:", err)
	return 1
}

// flags is a flag set with the flags that all commands have.
func (c *config) flags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("shardedkv "+name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.url, "store", "", "the store's `URL`, such as file:///var/lib/kv, sqlite:///var/lib/kv.db or s3://bucket/prefix")
	f.StringVar(&c.tableName, "table", "kv", "the `name` of the table of slots: several have room in one store")
	return f
}

// parse reads args and says what is missing. What is not a flag are the positional
// arguments least to most.
func parse(f *flag.FlagSet, args []string, least, most int, what string, required ...string) error {
	if err := f.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	switch n := f.NArg(); {
	case most == 0 && n > 0:
		return fmt.Errorf("%q is no flag: see %s --help", f.Arg(0), f.Name())
	case n < least || n > most:
		return fmt.Errorf("%s takes %s after its flags, not %q", f.Name(), what, strings.Join(f.Args(), " "))
	}
	for _, name := range required {
		if f.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s is missing: %s", name, f.Lookup(name).Usage)
		}
	}
	return nil
}

func (c *config) parseServe(args []string, stderr io.Writer) error {
	f := c.flags("serve", stderr)
	f.StringVar(&c.data, "data", "", "the `folder` of the shards' files, one disk for all processes")
	f.StringVar(&c.listen, "listen", "", "the `address` to serve on, such as 127.0.0.1:8001; port 0 takes a free one")
	f.StringVar(&c.advertise, "advertise", "", "the `address` that others reach this process at, if it is not --listen's")
	f.StringVar(&c.owner, "owner", "", "this process's `name`: the same after a restart, and nobody else's")
	f.IntVar(&c.shards, "shards", 12, "how many shards the keys are cut into, the same for all processes and for good")
	f.IntVar(&c.weight, "weight", 1, "this process's share of the shards beside that of others")
	f.DurationVar(&c.ttl, "ttl", 5*time.Second, "how long a silent process is taken for alive")
	f.DurationVar(&c.settle, "settle", 5*time.Second, "how long a new process is there before shards are moved to it, so that one that comes and goes moves none")
	verbose := f.Bool("verbose", false, "log what the library retries, too")
	if err := parse(f, args, 0, 0, "", "store", "data", "listen", "owner"); err != nil {
		return err
	}
	if info, err := os.Stat(c.data); err != nil || !info.IsDir() {
		return fmt.Errorf("--data is %q, which is no folder: make it first, once for all processes", c.data)
	}
	if c.shards < 1 || c.shards > slots.Count || c.weight < 1 || c.settle < 0 {
		return fmt.Errorf("--shards is %d, --weight %d, --settle %v: give 1 to %d, at least 1, and at least 0", c.shards, c.weight, c.settle, slots.Count)
	}
	if host, _, err := net.SplitHostPort(c.listen); err != nil {
		return fmt.Errorf("--listen is %q: %w (give host and port, such as 127.0.0.1:8001)", c.listen, err)
	} else if ip := net.ParseIP(host); c.advertise == "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return fmt.Errorf("--listen is %q, which is every address of this machine: say with --advertise which one others reach", c.listen)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	c.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("process", c.owner)
	return nil
}
