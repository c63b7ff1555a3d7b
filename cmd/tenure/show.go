package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// showName prints a name so that no two names look alike. Plain ASCII and
// accented Latin-1 letters stand for themselves; anything else is quoted with
// escapes, and followed by its readable form where that is harmless.
func showName(name string) string {
	if plainName(name) {
		return name
	}
	quoted := strconv.QuoteToASCII(name)
	if readable(name) {
		quoted += " (" + name + ")"
	}
	return quoted
}

func plainName(name string) bool {
	for _, r := range name {
		ascii := r > ' ' && r < unicode.MaxASCII && r != '"' && r != '\\'
		if !ascii && !(r >= 0xC0 && r <= 0xFF && unicode.IsLetter(r)) {
			return false
		}
	}
	return name != ""
}

// readable reports whether a terminal shows name without surprises: letters and
// digits of scripts that run from left to right, nothing that combines, and
// something that an escape hides.
func readable(name string) bool {
	escaped := false
	for _, r := range name {
		switch {
		case r < 0x20 || r == 0x7f || r == '"' || r == '\\':
			return false
		case r <= unicode.MaxASCII:
		case unicode.In(r, unicode.Arabic, unicode.Hebrew, unicode.Syriac, unicode.Thaana, unicode.Nko) || !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return false
		default:
			escaped = true
		}
	}
	return escaped
}

// printable escapes what must not reach a terminal: control characters, and
// characters that are invisible or turn the direction of the text.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 && !strings.ContainsRune(text, unicode.ReplacementChar) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], string(r)):
			fmt.Fprintf(&b, `\x%02x`, text[i]) // a byte that is not UTF-8
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// table prints rows in aligned columns, two spaces apart.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer) {
	var widths []int
	for _, r := range t.rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c))
		}
	}
	for _, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			b.WriteString(c + strings.Repeat(" ", widths[i]-width(c)+2))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// width is how many columns of a terminal text takes.
func width(text string) int {
	n := 0
	for _, r := range text {
		n++
		if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r >= 0xFF00 && r <= 0xFF60 {
			n++
		}
	}
	return n
}

// stamp prints an instant for people: to the second, in UTC.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// age prints a duration for people: coarse where it is long.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// orDash stands in for an empty cell.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
