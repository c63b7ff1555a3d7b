package main

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tenure-project/tenure/store/storetest"
)

// No two names look alike in a listing, and none does anything to the terminal.
//
// SPEC ST11
// CASE B52
func TestNamesAreShownApart(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, name := range storetest.HostileNames() {
		shown := showName(name)
		if other, taken := seen[shown]; taken {
			t.Errorf("%q and %q are both shown as %s", name, other, shown)
		}
		seen[shown] = name
		for _, r := range shown {
			if !unicode.IsPrint(r) || unicode.In(r, unicode.Mn, unicode.Me, unicode.Arabic, unicode.Hebrew) {
				t.Errorf("%q is shown with the character %U", name, r)
			}
		}
		if head, _, quoted := strings.Cut(shown, " ("); quoted && !ascii(head) {
			t.Errorf("%q is shown as %s, whose exact part is not ASCII", name, shown)
		}
	}
}

func ascii(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// SPEC UI1
// CASE B52
func TestShowName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"deploy/prod-1": "deploy/prod-1",
		"zürich":        "zürich",
		"a b":           `"a b"`,
		`a"b`:           `"a\"b"`,
		`a\b`:           `"a\\b"`,
		"имя":           `"\u0438\u043c\u044f" (имя)`,
		"名前":            `"\u540d\u524d" (名前)`,
		"pа":            `"p\u0430" (pа)`, // the second letter is Cyrillic
		"e\u0301":       `"e\u0301"`,
		"a\u200bb":      `"a\u200bb"`,
		"שלום":          `"\u05e9\u05dc\u05d5\u05dd"`,
		"🔒":             `"\U0001f512"`,
		"":              `""`,
	} {
		if got := showName(name); got != want {
			t.Errorf("showName(%+q) = %s, want %s", name, got, want)
		}
	}
}

// What somebody else wrote into a record does not reach the terminal raw.
func TestCleanText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain text":     "plain text",
		"é 名前":           "é 名前",
		"a\x1b[2Jb":      `a\x1b[2Jb`,
		"a\nb":           "a\n  b", // an error of several lines
		"a\r\tb\x00":     `a\r\tb\x00`,
		"a\u202eb":       `a\u202eb`,
		"a\xffb":         `a\xffb`,
		"a\ufffdb\x1b":   "a\ufffdb\\x1b",
		"ends in line\n": "ends in line",
	} {
		if got := indented(text); got != want {
			t.Errorf("indented(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTableColumns(t *testing.T) {
	t.Parallel()
	var tab table
	tab.row("NAME", "TOKEN")
	tab.row("名前", "1")
	tab.row("zürich", "2")
	var b strings.Builder
	tab.print(&b)
	if want := "NAME    TOKEN\n名前    1\nzürich  2\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0.0s", 1234 * time.Millisecond: "1.2s", 61 * time.Second: "1m01s", 90 * time.Minute: "1h30m",
		49 * time.Hour: "2d01h", -2 * time.Second: "-2.0s",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %s, want %s", d, got, want)
		}
	}
}
