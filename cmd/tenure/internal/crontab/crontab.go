// Package crontab reads files of scheduled jobs: one line per job, much as in cron,
// with a name for each job.
//
// A file is accepted as a whole or not at all: Parse finds every fault of it, with
// its line, before anything runs.
package crontab

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/schedule"
	"github.com/tenure-project/tenure/store"
)

// MaxFile bounds a file: 1 MiB.
const MaxFile = 1 << 20

// every begins a schedule that is an interval.
const every = "@every"

// Job is one line of a file.
type Job struct {
	// Line is where it stands, counted from 1.
	Line int
	// Name is the job's.
	Name string
	// Schedule has its occurrences, and Expr is how it was written.
	Schedule ledger.Schedule
	Expr     string
	// Interval is that of @every, else 0.
	Interval time.Duration
	// Zone has the clock on the wall that the schedule is about; UTC for an interval.
	Zone *time.Location
	// Options are the words between name and command, without their quotes.
	Options []string
	// Command is the rest of the line behind "--", for a shell.
	Command string
}

// LineError is a fault of a file.
type LineError struct {
	// File and Line are where it is.
	File string
	Line int
	// Err is what is wrong there.
	Err error
}

// Error begins with FILE:LINE.
func (e *LineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

// Unwrap returns what is wrong.
func (e *LineError) Unwrap() []error { return []error{e.Err, store.ErrInvalid} }

// Parse reads a file; name is for messages. check, if not nil, says what is wrong with a
// job that can be read. The error joins a *LineError for each line with a fault; then
// there are no jobs. A file without any job is a fault, too.
func Parse(name, text string, check func(Job) error) ([]Job, error) {
	p := parser{zone: time.UTC, lines: map[string]int{}}
	if len(text) > MaxFile {
		return nil, &LineError{name, 1, fmt.Errorf("the file has more than %d bytes", MaxFile)}
	}
	var jobs []Job
	var faults []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		job, err := p.line(n, strings.TrimRight(line, "\r\n"))
		if job != nil && check != nil {
			err = check(*job)
		}
		switch {
		case err != nil:
			faults = append(faults, &LineError{name, n, err})
		case job != nil:
			jobs = append(jobs, *job)
		}
	}
	if len(jobs) == 0 && len(faults) == 0 {
		faults = append(faults, &LineError{name, max(n, 1), errors.New("there is no job in this file")})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return jobs, nil
}

type parser struct {
	zone  *time.Location
	lines map[string]int // where each job is
}

// line is the job of a line, nil if it has none.
func (p *parser) line(n int, line string) (*Job, error) {
	if err := checkText(line); err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil, nil
	}
	if name, value, ok := setting(line); ok {
		return nil, p.set(name, value)
	}
	j, err := p.job(line)
	if err != nil {
		return nil, err
	}
	if at := p.lines[j.Name]; at > 0 {
		return nil, fmt.Errorf("the job %q stands in line %d already: two lines of one name would be one job; give each its own", j.Name, at)
	}
	j.Line, p.lines[j.Name] = n, n
	return j, nil
}

func checkText(line string) error {
	if !utf8.ValidString(line) {
		return errors.New("the line is not UTF-8")
	}
	for _, r := range line {
		if r != '\t' && unicode.IsControl(r) {
			return fmt.Errorf("the line has the control character %q", r)
		}
	}
	return nil
}

// setting reads NAME=VALUE, spaces around the sign included, as cron does.
func setting(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	letter := func(r rune) bool { return r == '_' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) }
	if !ok || name == "" || strings.TrimFunc(name, letter) != "" || unicode.IsDigit(rune(name[0])) {
		return "", "", false
	}
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		value = value[1 : len(value)-1]
	}
	return name, value, true
}

// set obeys a setting, which holds for the lines below it.
func (p *parser) set(name, value string) error {
	if name != "TZ" && name != "CRON_TZ" {
		return fmt.Errorf("%s cannot be set here, only TZ can: give variables to the process that reads this file, or set them in the command", name)
	}
	zone, err := Zone(value)
	if err == nil {
		p.zone = zone
	}
	return err
}

// Zone is the time zone of a name such as Europe/Berlin or UTC. "Local" is refused: it
// is another one on each host.
func Zone(name string) (*time.Location, error) {
	const hint = "write a name such as Europe/Berlin or UTC"
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("the zone %q need not be the same on every host: %s", name, hint)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q here: %s", name, hint)
	}
	return zone, nil
}

// job reads SCHEDULE JOB [OPTION...] -- COMMAND.
func (p *parser) job(line string) (*Job, error) {
	words, rest, err := split(line)
	if err != nil {
		return nil, err
	}
	j := &Job{Zone: p.zone}
	if words, err = j.schedule(words); err != nil {
		return nil, err
	}
	if len(words) == 0 || words[0].bare() && strings.HasPrefix(words[0].text, "-") {
		return nil, fmt.Errorf("the job's name is missing behind the schedule %q: write SCHEDULE JOB [OPTION...] -- COMMAND", j.Expr)
	}
	if j.Name = words[0].text; store.CheckName("job name", j.Name) != nil {
		return nil, store.CheckName("job name", j.Name)
	}
	for _, w := range words[1:] {
		j.Options = append(j.Options, w.text)
	}
	if rest == nil {
		return nil, errors.New(`"--" is missing before the command: write SCHEDULE JOB [OPTION...] -- COMMAND`)
	}
	if j.Command = strings.TrimSpace(*rest); j.Command == "" {
		return nil, errors.New(`there is no command behind "--"`)
	}
	return j, nil
}

// schedule takes the schedule off the words.
func (j *Job) schedule(words []word) (rest []word, err error) {
	n := 5
	if len(words) > 0 && strings.HasPrefix(words[0].text, "@") {
		n = 1
		if words[0].text == every {
			n = 2
		}
	}
	var fields []string
	for _, w := range words[:min(n, len(words))] {
		fields = append(fields, w.text)
	}
	j.Expr = strings.Join(fields, " ")
	if len(words) < n {
		return nil, fmt.Errorf("the schedule %q is not complete: write five fields (minute, hour, day, month, day of week), @daily and the like, or @every DURATION", j.Expr)
	}
	if n == 2 {
		j.Zone = time.UTC
		return words[n:], j.interval(fields[1])
	}
	if j.Schedule, err = schedule.Parse(j.Expr, j.Zone); err != nil {
		return nil, err
	}
	return words[n:], nil
}

// interval makes the schedule an interval, such as 30s.
func (j *Job) interval(text string) (err error) {
	if j.Interval, err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%q is not a duration such as 30s, 15m or 1h30m", text)
	}
	j.Schedule, err = ledger.NewEvery(j.Interval, 0)
	return err
}
