package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestRunScripts plays the transcripts of run, each on a store of files and on
// SQLite. CUT is a store that does not answer while the file $WORK/cut exists.
//
// SPEC UI1 UI4 LS1 LS5 GD1
// CASE B07 B27 B29 B48 B49 B68 B69
func TestRunScripts(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			runScripts(t, "run", func(env *testscript.Env) error {
				if err := setUpScript(env); err != nil {
					return err
				}
				if scheme == "sqlite" {
					env.Setenv("TENURE_STORE", "sqlite://"+filepath.Join(env.WorkDir, "store.db"))
				}
				env.Setenv("CUT", cutURL(env.Getenv("TENURE_STORE"), filepath.Join(env.WorkDir, "cut")))
				return nil
			})
		})
	}
}

// The command has the standard files of tenure itself, and none of its
// descriptors: it could keep a lock of ours otherwise.
//
// SPEC UI1
// CASE B29
func TestNoDescriptorOfOurs(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"file", "sqlite"} {
		p := newPlace(t, scheme)
		plain := p.start("work", "-fds")
		plain.want(0)
		inside := p.start("tenure", "run", "--lease", "j", "--guard", "data", "--", "work", "-fds")
		inside.want(0)
		if want, got := descriptors(plain), descriptors(inside); !slices.Equal(got, want) {
			t.Errorf("on %s the command has\n%s\nand without tenure it has\n%s", scheme, inside.output(), plain.output())
		}
	}
}

// descriptors are the numbers of the open descriptors, and where those lead that
// are no standard files.
func descriptors(g *program) []string {
	var all []string
	for line := range strings.Lines(g.output()) {
		if n, _, _ := strings.Cut(line, " "); n == "0" || n == "1" || n == "2" {
			line = n
		}
		all = append(all, line)
	}
	slices.Sort(all)
	return all
}

// Much output passes untouched, and a reader that goes away ends the command, as
// without tenure.
//
// SPEC UI1
func TestPipesAroundTheCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	const size = 8 << 20
	if err := os.WriteFile(p.path("big"), bytes.Repeat([]byte("0123456789abcde\n"), size/16), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start("sh", "-c", "tenure run --lease j -- cat <big | tenure run --lease k -- cat >copy").want(0)
	a, err := os.ReadFile(p.path("big"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(p.path("copy")); err != nil || !bytes.Equal(a, b) {
		t.Errorf("%d of %d bytes came, or others (%v)", len(b), len(a), err)
	}
	p.start("sh", "-c", "{ tenure run --lease j -- sh -c 'cat big big big'; echo $? >code; } | head -c 1 >/dev/null; cat code").want(0, "141\n")
	p.start("sh", "-c", "tenure run --lease j -- sh -c 'echo lost; echo said >&2; exit 3' >&-").want(3, "said\n")
	p.start("sh", "-c", "tenure run --lease j -- cat <&-").want(0)
	p.start("tenure", "check", "j", "--token", "1").want(exitNotCurrent) // nothing is held any more
}
