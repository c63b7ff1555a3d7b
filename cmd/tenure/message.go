package main

import (
	"strings"
)

// joint stands between the parts of a joined error. It is not in any part: a
// message's own NUL is escaped before.
const joint = "\x00"

// errorText is err's message, safe for a terminal. Only the parts of a joined
// error stand on lines of their own, which all begin with the program's name: a
// line break in a text that somebody else wrote is escaped, so that nobody can
// write a message in our name.
func errorText(err error) string {
	parts := strings.Split(strings.TrimRight(jointed(err), "\n"+joint), joint)
	for i, p := range parts {
		parts[i] = printable(p)
	}
	return strings.Join(parts, "\ntenure:   ")
}

// jointed is err's message with a joint where the parts of a joined error meet.
func jointed(err error) string {
	text := ownText(err)
	var parts []error
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		parts = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		parts = e.Unwrap()
	}
	plains, jointeds := make([]string, 0, len(parts)), make([]string, 0, len(parts))
	for _, p := range parts {
		if p != nil {
			plains, jointeds = append(plains, ownText(p)), append(jointeds, jointed(p))
		}
	}
	if len(plains) > 1 && strings.Join(plains, "\n") == text {
		return strings.Join(jointeds, joint)
	}
	for i, p := range plains {
		if p != jointeds[i] { // it has a joint, so it is not empty
			text = strings.Replace(text, p, jointeds[i], 1)
		}
	}
	return text
}

func ownText(err error) string { return strings.ReplaceAll(err.Error(), joint, `\x00`) }

// indented makes text of our own reports safe for a terminal: further lines are
// indented.
func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n  ")
}
