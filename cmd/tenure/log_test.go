package main

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What the library logs is printed like everything else: one line that begins
// with "tenure:", safe for a terminal. A command whose last message tells of
// losses does not print them twice, unless it is asked to say more.
//
// SPEC UI1
func TestLogIsPrintedLikeEverythingElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verbose, verdictTells bool
		want                  string
	}{
		{false, false, "warning error"},
		{false, true, "warning"},
		{true, false, "info info warning error"},
		{true, true, "info info warning error"},
	} {
		var stderr bytes.Buffer
		a := newApp(strings.NewReader(""), discard{}, &stderr, nil)
		a.flags.verbose, a.verdictTells = c.verbose, c.verdictTells
		log := a.logger().With("lease", "job")
		log.Debug("d")
		log.Info("i")
		log.Warn("renewal failed", "left", 1500*time.Millisecond, "error", errors.New("the store\x1b[2J says\nno"))
		log.Error("lost", "cause", errors.New("stolen"))
		var levels []string
		for _, m := range regexp.MustCompile(`(?m)^tenure: (\w+): \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z `).FindAllStringSubmatch(stderr.String(), -1) {
			levels = append(levels, m[1])
		}
		if got := strings.Join(levels, " "); got != c.want {
			t.Errorf("%+v: printed %q\n%s", c, got, stderr.String())
		}
		if !strings.Contains(stderr.String(), `Z renewal failed (lease job, left 1.5s): the store\x1b[2J says\nno`+"\n") {
			t.Errorf("the warning is\n%s", stderr.String())
		}
	}
}
