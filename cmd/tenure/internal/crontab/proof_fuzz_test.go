package crontab

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// Whatever a file has in it, it is refused with a line for each fault, or each of its
// jobs has a name of its own, a command, and an occurrence to come.
func FuzzFile(f *testing.F) {
	for _, text := range []string{
		good, strings.Replace(good, "fri-mon/1 -odd", "fri-mon 'half yearly'", 1), "", "0 0 30 2 * j -- x", "0 0 29 2 * j -- x\n\n@every 100ms k -- y",
		"@every 9999999h j -- x", "TZ='Europe/London'\n30 1 * * * j 'a b' \"c\\\"d\" -- e -- f", "TZ=../../etc/passwd\n@daily j -- x", "* * * * * j\t--\tx\r\n", "=\n", "\xff", "A=B=C",
		"@daily \"\" -- x", "@daily j --x", "@daily j -- -- x", strings.Repeat("@daily j -- x\n", 300),
	} {
		f.Add(text)
	}
	from := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		lines := max(strings.Count(text, "\n")+1, 1)
		jobs, err := Parse("f", text, nil)
		if (err == nil) != (len(jobs) > 0) {
			t.Fatalf("%d jobs and %v", len(jobs), err)
		}
		if err != nil {
			var fault *LineError
			if !errors.As(err, &fault) || !errors.Is(err, store.ErrInvalid) || fault.Line < 1 || fault.Line > lines {
				t.Fatalf("%v", err)
			}
			return
		}
		names := map[string]bool{}
		for _, j := range jobs {
			if names[j.Name] || store.CheckName("job name", j.Name) != nil || j.Command == "" || j.Line < 1 || j.Line > lines {
				t.Fatalf("%+v", j)
			}
			names[j.Name] = true
			if at, ok := j.Schedule.Next(from); !ok || !at.After(from) {
				t.Fatalf("%q: %v", j.Expr, at)
			}
		}
	})
}
