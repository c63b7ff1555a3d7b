package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenure-project/tenure/cmd/tenure/internal/demo"
	"github.com/tenure-project/tenure/store"
)

func newDemoCmd(a *app) *cobra.Command {
	svg := "tenure-demo.svg"
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show a kill, a pause, a zombie and a hand-over, with real processes",
		Long: `Starts contenders for one lease as real processes on a real store, kills the
holder with -9, pauses the next one beyond its lease and wakes it again (its
write to a guarded file is refused), and hands over cleanly at the end. Draws
the timeline as text and as a picture. Takes about ten seconds.

The store is a fresh temporary folder unless --store is given.`,
		Args: cobra.NoArgs,
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if !demo.Supported {
				return store.Errorf(store.ErrInvalid, "", "demo", "", "this system cannot pause a process; see docs/cli.md")
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			if svg != "" {
				if svg, err = pictureFile(svg); err != nil {
					return err
				}
			}
			return demo.Run(ctx, demo.Config{StoreURL: a.flags.store, SVG: svg, Out: liveOutput{a.out}, Exe: exe})
		}),
	}
	c.Flags().StringVar(&svg, "svg", svg, "the picture's `file`; empty for none")
	return c
}

// pictureFile is the absolute path of the picture, if it can be written.
func pictureFile(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", invalid("--svg %s: it is there, but is no regular file: name another file", name)
	}
	probe, err := os.CreateTemp(filepath.Dir(path), ".tenure-demo-*")
	if err != nil {
		return "", invalid("--svg %s: no file can be made in its folder (%v): name a file in another folder", name, err)
	}
	return path, errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// liveOutput shows every line as it is written.
type liveOutput struct{ out *output }

func (l liveOutput) Write(p []byte) (int, error) {
	n, _ := l.out.Write(p)
	return n, l.out.flush()
}

// contend makes this process a contender of the demo, if it was started as one.
func contend(environ []string, in io.Reader, out io.Writer) (code int, ok bool) {
	for _, kv := range environ {
		if spec, found := strings.CutPrefix(kv, demo.Env+"="); found {
			return demo.Contend(spec, in, out), true
		}
	}
	return 0, false
}
