package slotmap

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// The picture is a page that is read like text: 32 lines of 512 slots, one slot 2 wide and
// a line high. A range is a bar, or a few full lines, and its place is read from the edge.
// A Hilbert curve would make compact areas, but nobody finds slot 9,000 in one; 128 x 128
// cells show short ranges as hairlines, without room for a name. Here a shard of 64 slots
// is 128 wide, so its owner's name and its epoch stand in it: names tell owners apart
// where there are more of them than colours that people can tell apart.
const (
	perLine    = 512
	lines      = Slots / perLine
	slotWide   = 2
	lineHigh   = 22
	linePitch  = 25
	left       = 62 // of the first slot of a line
	top        = 96 // of the first line
	wide       = left + perLine*slotWide + 24
	bottom     = top + lines*linePitch
	charWide   = 6.7 // of the picture's small text, at most
	mostSingle = 1024
	mostLegend = 64
	oneColumn  = 14 // as many owners in the legend stand in one column
)

// segment is the part of a row that is in one line.
type segment struct{ x, y, w int }

// segments are the parts of the slots first to last, in their order.
func segments(first, last int) []segment {
	var all []segment
	for first <= last {
		line := first / perLine
		end := min(last, (line+1)*perLine-1)
		all = append(all, segment{x: left + first%perLine*slotWide, y: top + line*linePitch, w: (end - first + 1) * slotWide})
		first = end + 1
	}
	return all
}

// drawing is one picture being written.
type drawing struct {
	*bufio.Writer
	m       *Map
	shares  []Share
	colours map[string]int
}

// SVG writes the map as a picture of its own, for light and dark.
func (m *Map) SVG(w io.Writer) error {
	d := &drawing{Writer: bufio.NewWriter(w), m: m, shares: m.Shares()}
	d.colours = m.colours(d.shares)
	high := bottom + 40 + d.legendHigh()
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`+"\n", wide, high, wide, high)
	d.printf("<title id=\"t\">Slots of %s</title>\n<desc id=\"d\">%s</desc>\n", safe(m.Table), safe(m.summary(d.shares)))
	d.style()
	d.printf(`<rect class="bg" width="%d" height="%d"/>`+"\n", wide, high)
	d.head()
	d.free()
	d.rows()
	d.legend()
	d.printf("</svg>\n")
	return d.Flush()
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// safe is text for XML, which has no control characters.
func safe(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(clean)) // a strings.Builder never fails
	return b.String()
}

func (d *drawing) style() {
	d.printf(`<style>
text{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.h{font:600 22px system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif}
.s{font:13px system-ui,"Segoe UI",Helvetica,Arial,"DejaVu Sans",sans-serif}
.b{font-weight:700}.e{text-anchor:end}.m{text-anchor:middle}
.bg{fill:#fff}.ink{fill:#1f2328}.dim{fill:#59636e}.f{fill:#f1f3f5}.l{stroke:#b6bec7}.k{stroke:#59636e}.g{stroke:#d1d9e0}
.d{fill:#111}.w{fill:#fff}
`)
	used := map[int]bool{}
	for _, c := range d.colours {
		used[c] = true
	}
	for i, c := range palette {
		if used[i] {
			d.printf(".c%d{fill:%v}", i, c)
		}
	}
	d.printf(`
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.ink{fill:#f0f6fc}.dim{fill:#9198a1}.f{fill:#1c2128}.l{stroke:#444c56}.k{stroke:#9198a1}.g{stroke:#3d444d}}
</style>
<defs>
<pattern id="free" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="f" width="7" height="7"/><path class="l" d="M0 0v7"/></pattern>
<pattern id="kept" width="5" height="5" patternUnits="userSpaceOnUse"><rect class="f" width="5" height="5"/><path class="k" d="M0 0h5M0 0v5"/></pattern>
</defs>
`)
}

// head is the title, and the edges that slots are found by.
func (d *drawing) head() {
	m := d.m
	d.printf(`<text class="h ink" x="%d" y="34">Slots of %s</text>`+"\n", left, safe(tail(m.Table, 60)))
	d.printf(`<text class="s ink" x="%d" y="56">%s</text>`+"\n", left, safe(m.summary(d.shares)))
	d.printf(`<text class="s dim e" x="%d" y="34">namespace %s, %s</text>`+"\n", wide-24, safe(tail(m.Namespace, 40)), m.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	d.printf(`<text class="s dim e" x="%d" y="56">highest epoch given: %d</text>`+"\n", wide-24, m.Counter)
	for n := 0; n < perLine; n += 64 {
		x := left + n*slotWide
		d.printf(`<path class="g" d="M%d.5 %dv6"/><text class="dim" x="%d" y="%d">+%d</text>`+"\n", x, top-9, x+4, top-5, n)
	}
	for line := range lines {
		d.printf(`<text class="dim e" x="%d" y="%d">%d</text>`+"\n", left-8, top+line*linePitch+15, line*perLine)
	}
}

// free draws what nobody holds: everything, which the rows are laid over.
func (d *drawing) free() {
	var path strings.Builder
	for _, s := range segments(0, Slots-1) {
		s.draw(&path, 0)
	}
	d.printf(`<path fill="url(#free)" d="%s"/>`+"\n", path.String())
	if len(d.shares) == 0 {
		x, y := left+perLine*slotWide/2, top+(lines*linePitch)/2
		d.printf(`<rect class="bg" x="%d" y="%d" width="300" height="44" rx="6"/><text class="h m dim" x="%d" y="%d">Nobody holds a slot</text>`+"\n", x-150, y-30, x, y)
	}
}

func (s segment) draw(b *strings.Builder, gap int) {
	fmt.Fprintf(b, "M%d %dh%dv%dh-%dz", s.x, s.y, s.w-gap, lineHigh, s.w-gap)
}

// rows draws the rows: each by itself, with its name, as long as a person can look at them
// one by one; else all of an owner, or of a colour, as one path.
func (d *drawing) rows() {
	if len(d.m.Rows) > mostSingle {
		d.merged()
		return
	}
	for i := range d.m.Rows {
		r := &d.m.Rows[i]
		fill, ink := "", "ink"
		switch r.State {
		case Held:
			c := d.colours[r.Owner]
			fill, ink = fmt.Sprintf(`class="c%d"`, c), "d"
			if palette[c].dark() {
				ink = "w"
			}
		case Kept, Watched:
			fill = `fill="url(#kept)"`
		default:
			continue // the ground shows it
		}
		var path strings.Builder
		all := segments(r.First, r.Last)
		for k, s := range all {
			gap := 0
			if k == len(all)-1 && s.w > 6 && s.x+s.w < left+perLine*slotWide {
				gap = 1 // that rows of one owner can be told apart
			}
			s.draw(&path, gap)
		}
		d.printf(`<path %s d="%s"><title>%s</title></path>`, fill, path.String(), safe(r.tells()))
		d.label(r, all, ink)
		d.printf("\n")
	}
}

// tells is what a row says when it is pointed at.
func (r *Row) tells() string {
	where := fmt.Sprintf("slots %d-%d (%s)", r.First, r.Last, grouped(r.slots()))
	switch r.State {
	case Kept:
		return fmt.Sprintf("%s: free, kept for %s (last epoch %d)", where, r.Owner, r.Epoch)
	case Watched:
		return fmt.Sprintf("%s: free, watched after a forced end (last epoch %d)", where, r.Epoch)
	}
	if r.Addr != "" {
		return fmt.Sprintf("%s: %s, epoch %d, at %s", where, r.Owner, r.Epoch, r.Addr)
	}
	return fmt.Sprintf("%s: %s, epoch %d", where, r.Owner, r.Epoch)
}

// label writes the owner into a row where it has room.
func (d *drawing) label(r *Row, all []segment, ink string) {
	room := func(s segment) int { return int(float64(s.w-8) / charWide) }
	name, epoch := r.Owner, fmt.Sprintf("e%d", r.Epoch)
	switch r.State {
	case Kept:
		name = "for " + r.Owner
	case Watched:
		name = "watched"
	}
	at := all[0]
	for _, s := range all {
		if room(at) < width(name)+1+len(epoch) && s.w > at.w {
			at = s
		}
	}
	n := room(at)
	text := name
	switch {
	case n >= width(name)+1+len(epoch):
		text += " " + epoch
	case n >= width(name):
	case n >= 4:
		text = tail(name, n)
	default:
		return
	}
	if r.State != Held { // over the hatching
		d.printf(`<rect class="bg" x="%d" y="%d" width="%d" height="14"/>`, at.x+2, at.y+4, int(float64(width(text))*charWide)+4)
	}
	d.printf(`<text class="%s" x="%d" y="%d">%s</text>`, ink, at.x+4, at.y+15, safe(text))
}

// merged draws many rows: first what is kept, then all rows of each owner in one path, or
// of each colour where owners are as many as rows.
func (d *drawing) merged() {
	byOwner := len(d.shares) <= mostSingle
	paths, order := map[string]*strings.Builder{}, []string{}
	fills := map[string]string{}
	for i := range d.m.Rows {
		r := &d.m.Rows[i]
		key, fill := "", `fill="url(#kept)"`
		switch {
		case r.State == Free:
			continue
		case r.State == Held:
			fill = fmt.Sprintf(`class="c%d"`, d.colours[r.Owner])
			key = fill
			if byOwner {
				key = r.Owner
			}
		}
		b := paths[key]
		if b == nil {
			b = &strings.Builder{}
			paths[key], fills[key] = b, fill
			order = append(order, key)
		}
		for _, s := range segments(r.First, r.Last) {
			s.draw(b, 0)
		}
	}
	for _, key := range order {
		title := ""
		if byOwner && key != "" {
			title = "<title>" + safe(key) + "</title>"
		}
		d.printf(`<path %s d="%s">%s</path>`+"\n", fills[key], paths[key].String(), title)
	}
}
