package slotmap

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// The text has 16 lines of 64 characters, so that it fits a terminal of 80 columns with
// its legend beside the prompt.
const (
	textLines   = 16
	textColumns = 64
	perChar     = Slots / textLines / textColumns
)

// letters name the owners in the text, who holds most first.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// The characters that name no owner.
const (
	textFree    = '.' // nobody holds any of these slots
	textMixed   = '*' // several owners, or one and nobody
	textUnnamed = '+' // one owner, who is not in the legend
)

// Text writes the map for a terminal of 80 columns, with colours if coloured says so.
func (m *Map) Text(w io.Writer, coloured bool) error {
	out := bufio.NewWriter(w)
	shares := m.Shares()
	t := texture{of: m.owners(), letter: map[string]rune{}}
	if coloured {
		t.colour = m.colours(shares)
	}
	for i, s := range shares {
		t.letter[s.Owner] = textUnnamed
		if i < len(letters) {
			t.letter[s.Owner] = rune(letters[i])
		}
	}
	gap, what := "   ", m.held(shares)
	if width(m.Table)+len(gap)+width(what) > 80 {
		gap = "\n"
	}
	fmt.Fprintf(out, "%s%s%s\n", tail(m.Table, 80), gap, what)
	if more := m.unfree(); more != "" {
		fmt.Fprintln(out, more)
	}
	for line := range textLines {
		fmt.Fprintf(out, "%5d  ", line*textColumns*perChar)
		for col := range textColumns {
			t.char(out, (line*textColumns+col)*perChar)
		}
		fmt.Fprintln(out)
	}
	m.textLegend(out, &t, shares)
	return out.Flush()
}

// texture is what the characters of the text are chosen by.
type texture struct {
	of     *[Slots]string
	letter map[string]rune
	colour map[string]int // nil: none
	seen   [3]bool        // free, mixed, unnamed
}

// char writes the character of the slots from first on.
func (t *texture) char(w io.Writer, first int) {
	owner := t.of[first]
	for _, o := range t.of[first+1 : first+perChar] {
		if o != owner {
			t.seen[1] = true
			fmt.Fprintf(w, "%c", textMixed)
			return
		}
	}
	if owner == "" {
		t.seen[0] = true
		fmt.Fprintf(w, "%c", textFree)
		return
	}
	l := t.letter[owner]
	t.seen[2] = t.seen[2] || l == textUnnamed
	fmt.Fprint(w, t.painted(owner, string(l)))
}

// painted is text in an owner's colour, if there are colours.
func (t *texture) painted(owner, text string) string {
	c, ok := t.colour[owner]
	if !ok {
		return text
	}
	ink := 16
	if palette[c].dark() {
		ink = 231
	}
	return fmt.Sprintf("\x1b[48;5;%dm\x1b[38;5;%dm%s\x1b[0m", palette[c].ansi(), ink, text)
}

func (m *Map) textLegend(w io.Writer, t *texture, shares []Share) {
	var what []string
	for i, text := range []string{". nobody", "* several", "+ owners without a letter"} {
		if t.seen[i] {
			what = append(what, text)
		}
	}
	fmt.Fprintf(w, "       1 character is %d slots", perChar)
	if len(what) > 0 {
		fmt.Fprintf(w, " (%s)", strings.Join(what, ", "))
	}
	fmt.Fprint(w, "\n")
	shown := shares[:min(len(shares), len(letters))]
	if len(shown) == 0 {
		return
	}
	name, addr := len("OWNER"), len("ADDRESS")
	for _, s := range shown {
		name, addr = max(name, width(s.Owner)), max(addr, width(s.Addr))
	}
	name, addr = min(name, 20), min(addr, 22)
	fmt.Fprintf(w, "\n   %s  %s  %6s %6s %7s  %s\n", padded("OWNER", name), padded("ADDRESS", addr), "SLOTS", "SHARE", "RANGES", "EPOCHS")
	for _, s := range shown {
		fmt.Fprintf(w, "%s  %s  %s  %6s %6s %7s  %s\n", t.painted(s.Owner, string(t.letter[s.Owner])),
			padded(tail(s.Owner, name), name), padded(tail(orDash(s.Addr), addr), addr), grouped(s.Slots), percent(s.Slots), grouped(s.Ranges), s.epochs())
	}
	if more := shares[len(shown):]; len(more) > 0 {
		fmt.Fprintf(w, "+  and %s more owners with %s slots\n", grouped(len(more)), grouped(slotsOf(more)))
	}
}

func padded(text string, n int) string { return text + strings.Repeat(" ", max(0, n-width(text))) }
