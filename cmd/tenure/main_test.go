package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/cmd/tenure/internal/demo"
)

// TestMain lets the tests run the program, and helpers built on the same code,
// as processes of their own. Each of them, and the tests themselves, must leave
// no goroutine behind.
func TestMain(m *testing.M) {
	// Most tests here wait for other processes: more of them fit at once than
	// there are processors. A -parallel on the command line still decides.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	testscript.Main(checkedMain{m}, map[string]func(){
		"tenure": func() {
			code := runWithFaults(os.Args[1:])
			if slices.Contains(os.Args, "--") || os.Getenv(demo.Env) != "" { // the process ends at once by design
				os.Exit(code)
			}
			os.Exit(checked(code))
		},
		"hold":   func() { os.Exit(checked(runHold(os.Args[1:]))) },
		"member": func() { os.Exit(checked(runMember(os.Args[1:]))) },
		"decide": func() { os.Exit(checked(runDecide(os.Args[1:]))) },
		"spoil":  func() { os.Exit(checked(runSpoil(os.Args[1:]))) },
		"rawput": func() { os.Exit(checked(runRawput(os.Args[1:]))) },
		"work":   func() { os.Exit(runWork(os.Args[1:])) },
	})
}

// runWithFaults is the whole program, with one driver more: "cut:".
func runWithFaults(args []string) int {
	if code, ok := contend(os.Environ(), os.Stdin, os.Stdout); ok {
		return code
	}
	a := newApp(os.Stdin, os.Stdout, os.Stderr, os.Environ())
	a.drivers = append(a.drivers, cutDriver())
	return a.run(newRootCmd(a), args)
}

type checkedMain struct{ m *testing.M }

func (c checkedMain) Run() int { return checked(c.m.Run()) }

// checked turns a success that left goroutines behind into a failure.
func checked(code int) int {
	if err := goleak.Find(goleak.IgnoreTopFunction("os/signal.signal_recv"), goleak.IgnoreTopFunction("os/signal.loop")); err != nil {
		fmt.Fprintln(os.Stderr, "left behind:", err)
		return 99
	}
	return code
}

// TestScripts runs the transcripts. TENURE_UPDATE_SCRIPTS=1 rewrites what they
// expect.
//
// SPEC UI1 UI4
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "script", setUpScript)
}

func runScripts(t *testing.T, folder string, setUp func(*testscript.Env) error) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", folder),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("TENURE_UPDATE_SCRIPTS") != "",
		Setup:               setUp,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":    scriptCode,
			"scrub":   scriptScrub,
			"cite":    scriptCite,
			"await":   scriptAwait,
			"envfrom": scriptEnvFrom,
			"owned":   scriptOwned,
			"epochof": scriptEpochOf,
			"planned": scriptPlanned,
		},
	})
}

// setUpScript gives each script a home of its own, and names for what cannot be
// seen in a script.
func setUpScript(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, "home")
	env.Setenv("HOME", home)
	env.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector's pause at the end of every process
	env.Setenv("XDG_RUNTIME_DIR", filepath.Join(env.WorkDir, "run"))
	env.Setenv("TENURE_STORE", "file://"+filepath.Join(env.WorkDir, "store"))
	for name, text := range map[string]string{
		"ESC": "\x1b", "NL": "\n", "ZWSP": "\u200b", "NFC": "\u00e9", "NFD": "e\u0301", "RLO": "\u202e", "NBSP": "\u00a0",
		"BADUTF8": "\xff", "CYRILLIC": "\u0430", "EMOJI": "\U0001f510", "HEBREW": "\u05d0", "TAB": "\t",
		"LONG": strings.Repeat("x", 129),
	} {
		env.Setenv(name, text)
	}
	return os.MkdirAll(home, 0o700)
}

// scriptCode runs a command and wants exactly one exit code: code 64 tenure ls
// --bogus. Its output can be matched as after exec.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command...")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	ts.Logf("[stdout]\n%s[stderr]\n%s", ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// volatile are the parts of an output that differ from run to run.
var volatile = []struct {
	form *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "ID"},
	{regexp.MustCompile(`\b\d+\.\ds`), "AGE"},
	{regexp.MustCompile(`"(for_ms|silent_ms)":\d+`), `"$1":N`},
	{regexp.MustCompile(`"renewal":[1-9]\d*`), `"renewal":N`},
	{regexp.MustCompile(`\b(sequence +)[1-9]\d*`), "${1}N"},
	{regexp.MustCompile(`"(version|go|os|arch)":"[^"]+"`), `"$1":"TEXT"`},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ns|µs|ms)|\b\d+\.\d\ds`), "TOOK"},
	{regexp.MustCompile(`"(took|p50|p90|p99|max)_ms":[0-9.]+`), `"${1}_ms":N`},
	{regexp.MustCompile(`(bench-|mem:)[a-z0-9]{10,}`), "${1}RANDOM"},
	{regexp.MustCompile(`  +`), "  "}, // columns as wide as what stood in them
}

// scriptScrub writes an output without its volatile parts: scrub stdout got.
func scriptScrub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: scrub stdout|stderr|FILE FILE")
	}
	text := strings.ReplaceAll(ts.ReadFile(args[0]), ts.Getenv("WORK"), "$WORK")
	for _, v := range volatile {
		text = v.form.ReplaceAllString(text, v.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// scriptAwait waits until a background command, another process, has written to
// a file. It polls, for 20 s at most.
func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: await FILE")
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(ts.MkAbs(args[0])); err == nil && info.Size() > 0 {
			return
		}
	}
	ts.Fatalf("%s did not come", args[0])
}

// scriptEnvFrom sets the variables of a file of NAME=VALUE lines, as a command
// under a lease would find them.
func scriptEnvFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: envfrom FILE")
	}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		ts.Setenv(name, value)
	}
}
