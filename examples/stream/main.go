// Command stream counts words with several processes, exactly, whatever happens to
// them. It is a model of an engine that is built on package authority: see README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/stores"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:], os.Stdout, os.Stderr, stores.All())
	stop()
	os.Exit(code)
}

const usage = `stream counts the words of a partitioned input with several processes, exactly.

  stream generate --input DIR                  make an input to count
  stream run --store URL --node NAME --input DIR   one process; start as many as you like
  stream result --store URL                    print what is counted so far
  stream verify --store URL --input DIR        compare the result with a plain count

stream COMMAND --help tells of its flags.
`

// errUsage: what to do was said already.
var errUsage = errors.New("usage")

// command runs one command and returns the exit code.
func command(ctx context.Context, args []string, stdout, stderr io.Writer, drivers []store.Driver) int {
	c := config{drivers: drivers}
	err := errUsage
	commands := map[string]func() error{
		"generate": func() error { return runGenerate(args[1:], stderr) },
		"run": func() error {
			err := c.parseRun(args[1:], stderr)
			if err != nil {
				return err
			}
			return (&node{config: c}).run(ctx)
		},
		"result": func() error { return runResult(ctx, c, args[1:], stdout, stderr) },
		"verify": func() error { return runVerify(ctx, c, args[1:], stdout, stderr) },
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
	fmt.Fprintln(stderr, "stream:", err)
	return 1
}

// flags is a flag set with the flags that most commands have.
func (c *config) flags(name string, stderr io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet("stream "+name, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.url, "store", "", "the store's `URL`, such as file:///var/lib/stream, sqlite:///var/lib/stream.db or s3://bucket/prefix")
	f.StringVar(&c.job, "job", "stream", "the stream's `name`: several have room in one store")
	return f
}

// parse reads args and says what is missing.
func parse(f *flag.FlagSet, args []string, required ...string) error {
	if err := f.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag: see %s --help", f.Arg(0), f.Name())
	}
	for _, name := range required {
		if f.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s is missing: %s", name, f.Lookup(name).Usage)
		}
	}
	return nil
}

const inputUsage = "the `folder` of partitions p-*.txt"

func (c *config) parseRun(args []string, stderr io.Writer) error {
	f := c.flags("run", stderr)
	dir := f.String("input", "", inputUsage+", the same for all processes")
	f.StringVar(&c.name, "node", "", "this process's `name`: the same after a restart, and nobody else's")
	f.StringVar(&c.output, "output", "", "a `file` that shows the counts of the newest commit; on a local disk, shared by all processes of the machine")
	f.DurationVar(&c.ttl, "ttl", 15*time.Second, "how long a silent process is taken for alive")
	f.DurationVar(&c.poll, "poll", 200*time.Millisecond, "the pause between two looks of the leader for parts")
	f.DurationVar(&c.pace, "pace", 0, "how long the work on one checkpoint takes at least")
	f.IntVar(&c.batch, "batch", 1000, "`lines` of a partition in one checkpoint")
	verbose := f.Bool("verbose", false, "log what the library retries, too")
	if err := parse(f, args, "store", "node", "input"); err != nil {
		return err
	}
	if c.batch < 1 || c.poll <= 0 || c.pace < 0 {
		return fmt.Errorf("--batch is %d, --poll %v, --pace %v: give at least 1, more than 0 and at least 0", c.batch, c.poll, c.pace)
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	c.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("process", c.name)
	var err error
	c.input, err = openInput(*dir)
	return err
}

func runGenerate(args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("stream generate", flag.ContinueOnError)
	f.SetOutput(stderr)
	dir := f.String("input", "", "the `folder` to make the partitions in")
	partitions := f.Int("partitions", 8, "how many")
	lines := f.Int("lines", 100_000, "lines of each")
	seed := f.Uint64("seed", 1, "of the random words")
	if err := parse(f, args, "input"); err != nil {
		return err
	}
	return generate(*dir, *partitions, *lines, *seed)
}

func runResult(ctx context.Context, c config, args []string, stdout, stderr io.Writer) error {
	if err := parse(c.flags("result", stderr), args, "store"); err != nil {
		return err
	}
	return reading(ctx, c, func(r *authority.Reader) error {
		_, broken := audit(ctx, r)
		res, err := readResult(ctx, r)
		if err != nil && broken != nil { // it says what is to be restored
			return broken
		}
		if err != nil {
			return err
		}
		if res.sealed == nil {
			fmt.Fprintf(stderr, "stream: not finished; this is the state after %d checkpoints\n", res.state.Commits)
		}
		if broken != nil { // the counts are those of a sound commit
			fmt.Fprintf(stderr, "stream: warning: %v\n", broken)
		}
		_, err = io.WriteString(stdout, res.state.Counts.text())
		return err
	})
}

func runVerify(ctx context.Context, c config, args []string, stdout, stderr io.Writer) error {
	f := c.flags("verify", stderr)
	dir := f.String("input", "", inputUsage)
	if err := parse(f, args, "store", "input"); err != nil {
		return err
	}
	in, err := openInput(*dir)
	if err != nil {
		return err
	}
	return reading(ctx, c, func(r *authority.Reader) error {
		said, err := verify(ctx, r, in)
		if err == nil {
			fmt.Fprintln(stdout, said)
		}
		return err
	})
}
