package crontab

import (
	"errors"
	"strings"
)

// word is one word of a line, and whether any of it was quoted.
type word struct {
	text   string
	quoted bool
}

func (w word) bare() bool { return !w.quoted }

// split cuts a line into words, up to a bare "--"; rest is what is behind that, as it
// stands, nil if there is no "--". Single and double quotes keep blanks together and
// are taken off; nothing else is special in them.
func split(line string) (words []word, rest *string, err error) {
	for {
		line = strings.TrimLeft(line, " \t")
		if line == "" {
			return words, nil, nil
		}
		var w word
		if w, line, err = next(line); err != nil {
			return nil, nil, err
		}
		if w.bare() && w.text == "--" {
			return words, &line, nil
		}
		words = append(words, w)
	}
}

// next takes the first word off a line that begins with one.
func next(line string) (w word, left string, err error) {
	var b strings.Builder
	for line != "" && line[0] != ' ' && line[0] != '\t' {
		if q := line[0]; q == '"' || q == '\'' {
			text, after, closed := strings.Cut(line[1:], string(q))
			if !closed {
				return w, "", errors.New("a quote is not closed before the command")
			}
			b.WriteString(text)
			line, w.quoted = after, true
			continue
		}
		n := strings.IndexAny(line, " \t\"'")
		if n < 0 {
			n = len(line)
		}
		b.WriteString(line[:n])
		line = line[n:]
	}
	w.text = b.String()
	return w, line, nil
}
