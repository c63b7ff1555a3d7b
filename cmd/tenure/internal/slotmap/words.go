package slotmap

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// summary says in one line how the slots are shared out.
func (m *Map) summary(shares []Share) string {
	text := m.held(shares)
	if more := m.unfree(); more != "" {
		text += ", " + more
	}
	return text
}

// held says who has how much.
func (m *Map) held(shares []Share) string {
	if len(shares) == 0 {
		return fmt.Sprintf("none of the %s slots is held", grouped(Slots))
	}
	return fmt.Sprintf("%s of %s slots held by %s in %s", grouped(m.Count(Held)), grouped(Slots), counted(len(shares), "owner"), counted(m.ranges(), "range"))
}

// unfree says how much nobody has, and not everybody may claim at once; "" if there is
// none.
func (m *Map) unfree() string {
	var all []string
	if n := m.Count(Kept); n > 0 {
		all = append(all, grouped(n)+" kept for a successor")
	}
	if n := m.Count(Watched); n > 0 {
		all = append(all, grouped(n)+" watched after a forced end")
	}
	return strings.Join(all, ", ")
}

func (s *Share) epochs() string {
	if s.Low == s.High {
		return strconv.FormatUint(s.Low, 10)
	}
	return fmt.Sprintf("%d-%d", s.Low, s.High)
}

func slotsOf(shares []Share) int {
	n := 0
	for _, s := range shares {
		n += s.Slots
	}
	return n
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// percent is the share of n slots, with as many digits as it takes to see that there is
// one.
func percent(n int) string {
	p := 100 * float64(n) / Slots
	if p != 0 && p < 0.1 {
		return strconv.FormatFloat(p, 'f', 3, 64) + "%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// grouped is n with a comma between thousands.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// width is how many columns text takes.
func width(text string) int {
	n := 0
	for _, r := range text {
		n++
		if unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r >= 0xff00 && r <= 0xff60 {
			n++
		}
	}
	return n
}

// tail is text in at most n columns: of names that begin alike, the ends differ.
func tail(text string, n int) string {
	if width(text) <= n {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && width(string(runes)) > n-1 {
		runes = runes[1:]
	}
	return "…" + strings.TrimLeft(string(runes), " ")
}
