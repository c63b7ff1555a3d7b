package crontab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of this test are the same on every machine

	"go.uber.org/goleak"

	"github.com/tenure-project/tenure/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const good = `# the jobs of every host
*/5 * * * *   clean  -- find /tmp -name '*.old' -delete   # the shell reads this
@daily        backup --unknown hold --late 6h -- ./backup.sh --all >log 2>&1

TZ = "Europe/Berlin"
30 2 * * sun  report --unknown="probe=./happened x" 'a "b"' -- date "+%F"` + "\r\n" + `	@every 30s	poll	--	curl -fsS http://localhost/ -- x
CRON_TZ=America/New_York
0 9 1 jan,jul fri-mon/1 -odd -- true
`

// SPEC EX5
func TestParse(t *testing.T) {
	t.Parallel()
	jobs, err := Parse("f", strings.Replace(good, "fri-mon/1 -odd", "fri-mon 'half yearly'", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`2 clean "*/5 * * * *" UTC [] "find /tmp -name '*.old' -delete   # the shell reads this"`,
		`3 backup "@daily" UTC ["--unknown" "hold" "--late" "6h"] "./backup.sh --all >log 2>&1"`,
		`6 report "30 2 * * sun" Europe/Berlin ["--unknown=probe=./happened x" "a \"b\""] "date \"+%F\""`,
		`7 poll "@every 30s" UTC [] "curl -fsS http://localhost/ -- x"`,
		`9 half yearly "0 9 1 jan,jul fri-mon" America/New_York [] "true"`,
	}
	var got []string
	for _, j := range jobs {
		got = append(got, fmt.Sprintf("%d %s %q %v %q %q", j.Line, j.Name, j.Expr, j.Zone, j.Options, j.Command))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	from := time.Date(2026, 3, 29, 0, 10, 0, 0, time.UTC) // the night in which Berlin has no 02:30
	for i, want := range []string{"2026-03-29T00:15:00Z", "2026-03-30T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T00:10:30Z", "2026-07-01T13:00:00Z"} {
		at, ok := jobs[i].Schedule.Next(from)
		if i == 4 { // either day of month or of week
			at, ok = jobs[i].Schedule.Next(time.Date(2026, 6, 30, 23, 0, 0, 0, time.UTC))
		}
		if !ok || at.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s is next at %v, want %s", jobs[i].Name, at, want)
		}
	}
}

// Every fault is found, with its line, and then no job is returned.
func TestFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "f:1: there is no job in this file",
		"# nothing\n\n":                    "f:2: there is no job in this file",
		"* * * *":                          `f:1: the schedule "* * * *" is not complete`,
		"-- x":                             `f:1: the schedule "" is not complete`,
		"@every":                           `f:1: the schedule "@every" is not complete`,
		"@every 1 j -- x":                  `f:1: "1" is not a duration such as 30s`,
		"@every 1ms j -- x":                "f:1: schedule: invalid: every 1ms with offset 0s",
		"@reboot j -- x":                   "f:1: parse cron",
		"61 * * * * j -- x":                "f:1: parse cron",
		"* * * * * -- x":                   `f:1: the job's name is missing behind the schedule "* * * * *"`,
		"* * * * *":                        "f:1: the job's name is missing",
		"* * * * * --late 1h -- x":         "f:1: the job's name is missing",
		"* * * * * j":                      `f:1: "--" is missing before the command`,
		"* * * * * root /bin/true":         `f:1: "--" is missing before the command`,
		"* * * * * j --":                   `f:1: there is no command behind "--"`,
		"* * * * * j '--' x":               `f:1: "--" is missing`,
		"* * * * * j 'a -- x":              "f:1: a quote is not closed before the command",
		"* * * * * j\x00 -- x":             "f:1: the line has the control character",
		"* * * * * j\xff -- x":             "f:1: the line is not UTF-8",
		"* * * * * '' -- x":                "f:1: ",
		"@daily j -- x\n@hourly j -- y":    `f:2: the job "j" stands in line 1 already`,
		"MAILTO=me\n@daily j -- x":         "f:1: MAILTO cannot be set here, only TZ can",
		"TZ=Local\n@daily j -- x":          `f:1: the zone "Local" need not be the same on every host`,
		"TZ=\n@daily j -- x":               `f:1: the zone "" need not be`,
		"TZ=Mars/Olympus\n@daily j -- x":   `f:1: there is no time zone "Mars/Olympus" here`,
		"* * * * * j -- x\n5 j\n61 j\n":    "f:3: ",
		strings.Repeat("#\n", MaxFile/2+1): "f:1: the file has more than",
	} {
		jobs, err := Parse("f", text, nil)
		var at *LineError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, store.ErrInvalid) || !errors.As(err, &at) || jobs != nil {
			t.Errorf("%.40q: %v and %d jobs, want %q", text, err, len(jobs), want)
		}
	}
}

// What is wrong with a job is told beside everything else.
func TestCheck(t *testing.T) {
	t.Parallel()
	check := func(j Job) error { return fmt.Errorf("%s is refused", j.Name) }
	jobs, err := Parse("f", "@daily a -- x\n* * b -- y\n@daily c -- z", check)
	if want := "f:1: a is refused\nf:2: "; jobs != nil || err == nil || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "\nf:3: c is refused") {
		t.Errorf("%d jobs and %v", len(jobs), err)
	}
	if jobs, err := Parse("f", "@daily a -- x", func(Job) error { return nil }); err != nil || len(jobs) != 1 {
		t.Errorf("%d jobs and %v", len(jobs), err)
	}
}

// Nothing crashes the parser, and what it accepts it finds again in a file that is
// written from its answer.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("TZ=UTC\n0 0 29 2 * leap --tz 'x' -- a -- b")
	f.Add("@every 100ms j -- x")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := Parse("f", text, nil)
		if (err == nil) != (len(jobs) > 0) {
			t.Fatalf("%d jobs and %v", len(jobs), err)
		}
		for _, j := range jobs {
			if j.Name == "" || j.Command == "" || j.Schedule == nil || strings.ContainsAny(j.Name+j.Command, "\n\x00") {
				t.Fatalf("%+v", j)
			}
			if strings.ContainsAny(j.Name, `"' `+"\t") {
				continue
			}
			again, err := Parse("f", fmt.Sprintf("TZ=%v\n%s '%s' -- %s", j.Zone, j.Expr, j.Name, j.Command), nil)
			if err != nil || again[0].Name != j.Name || again[0].Command != j.Command || again[0].Expr != j.Expr {
				t.Fatalf("%+v is read as %+v (%v)", j, again, err)
			}
		}
	})
}
