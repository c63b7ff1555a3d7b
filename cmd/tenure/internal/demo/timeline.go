package demo

import (
	"fmt"
	"html"
	"sort"
	"strings"
	"time"
)

// span is a stretch of a contender's life.
type span struct {
	kind     string // waits, holds, paused, zombie
	from, to time.Duration
	token    uint64
}

// mark is an instant in it.
type mark struct {
	kind string
	at   time.Duration
	text string
}

// row is one contender.
type row struct {
	who   string
	spans []span
	marks []mark
}

// rows turns events into what is drawn. Events come in the order in which they
// were heard; a paused process speaks late, so they are put in the order of
// their own times first (one machine, one clock).
func rows(events []event, start time.Time) (out []*row, end time.Duration) {
	events = append([]event(nil), events...)
	sort.SliceStable(events, func(i, j int) bool { return events[i].At.Before(events[j].At) })
	byName := map[string]*row{}
	for _, e := range events {
		at := e.At.Sub(start)
		end = max(end, at)
		r := byName[e.Who]
		if r == nil {
			r = &row{who: e.Who}
			byName[e.Who] = r
			out = append(out, r)
		}
		r.add(e, at)
	}
	for _, r := range out {
		r.close(end)
	}
	return out, end
}

func (r *row) add(e event, at time.Duration) {
	switch e.What {
	case waits:
		r.open("waits", at, 0)
	case holds:
		r.close(at)
		r.open("holds", at, e.Token)
	case paused:
		token := r.token()
		r.close(at)
		r.open("paused", at, token)
	case resumed:
		token := r.token()
		r.close(at)
		r.open("zombie", at, token)
	case killed, released, lost, refused:
		r.close(at)
	}
	switch e.What {
	case killed, refused, released, wrote:
		r.marks = append(r.marks, mark{kind: e.What, at: at, text: e.Text})
	}
}

const open = time.Duration(-1)

func (r *row) open(kind string, at time.Duration, token uint64) {
	r.spans = append(r.spans, span{kind: kind, from: at, to: open, token: token})
}

func (r *row) close(at time.Duration) {
	if n := len(r.spans); n > 0 && r.spans[n-1].to == open {
		r.spans[n-1].to = at
	}
}

func (r *row) token() uint64 {
	if n := len(r.spans); n > 0 {
		return r.spans[n-1].token
	}
	return 0
}

const textWidth = 72

// Text draws the timeline for a terminal.
func Text(events []event, start time.Time) string {
	rows, end := rows(events, start)
	column := func(at time.Duration) int { return min(textWidth-1, int(int64(at)*textWidth/int64(end+1))) }
	fill := map[string]rune{"waits": '·', "holds": '█', "paused": '░', "zombie": '▒'}
	var b strings.Builder
	for _, r := range rows {
		line := []rune(strings.Repeat(" ", textWidth))
		for _, s := range r.spans {
			for c := column(s.from); c <= column(s.to); c++ {
				line[c] = fill[s.kind]
			}
			if s.kind == "holds" {
				line[column(s.from)] = rune('0' + s.token%10)
			}
		}
		for _, m := range r.marks {
			switch m.kind {
			case killed:
				line[column(m.at)] = '✗'
			case refused:
				line[column(m.at)] = '!'
			case released:
				line[column(m.at)] = '|'
			}
		}
		fmt.Fprintf(&b, "%3s  %s\n", r.who, strings.TrimRight(string(line), " "))
	}
	axis := []rune(strings.Repeat(" ", textWidth+6))
	for s := time.Duration(0); s <= end; s += time.Second {
		copy(axis[column(s):], []rune(fmt.Sprintf("%d", int(s.Seconds()))))
	}
	fmt.Fprintf(&b, "  s  %s\n\n", strings.TrimRight(string(axis), " "))
	b.WriteString("     · waits   1█ holds (with its token)   ░ paused   ✗ kill -9   ! write refused   | released\n")
	return b.String()
}

// Geometry of the picture, in pixels.
const (
	left, right  = 56, 24
	top, bottom  = 92, 104
	rowHeight    = 56
	barHeight    = 30
	pixelsPerSec = 104
)

// SVG draws the timeline as a picture that needs no font but the reader's own.
func SVG(events []event, start time.Time) string {
	rows, end := rows(events, start)
	x := func(at time.Duration) float64 { return left + at.Seconds()*pixelsPerSec }
	width := int(x(end)) + right + 60
	width = max(width, 920) // what the legend takes
	height := top + rowHeight*len(rows) + bottom
	var b strings.Builder
	fmt.Fprintf(&b, svgHead, width, height, width, height, html.EscapeString(title(rows)))
	for s := time.Duration(0); s <= end+time.Second/2; s += time.Second {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/><text class="tick" x="%.1f" y="%d">%d s</text>`+"\n",
			x(s), top-12, x(s), height-bottom+4, x(s), height-bottom+22, int(s.Seconds()))
	}
	for i, r := range rows {
		drawRow(&b, r, top+i*rowHeight, x)
	}
	legend(&b, height-bottom+56)
	b.WriteString("</svg>\n")
	return b.String()
}

func title(rows []*row) string {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.who
	}
	return "Timeline of the lease with contenders " + strings.Join(names, ", ")
}

func drawRow(b *strings.Builder, r *row, y int, x func(time.Duration) float64) {
	fmt.Fprintf(b, `<text class="who" x="%d" y="%d">%s</text>`+"\n", left-22, y+barHeight/2+6, html.EscapeString(r.who))
	for _, s := range r.spans {
		w := max(2, x(s.to)-x(s.from))
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="4"/>`+"\n", s.kind, x(s.from), y, w, barHeight)
		if s.kind == "holds" {
			fmt.Fprintf(b, `<text class="token" x="%.1f" y="%d">%s</text>`+"\n", x(s.from)+9, y+barHeight/2+5, tokenText(s.token, w))
		}
		if s.kind == "paused" && w > 136 {
			fmt.Fprintf(b, `<text class="asleep" x="%.1f" y="%d">paused (SIGSTOP)</text>`+"\n", x(s.from)+9, y+barHeight/2+5)
		}
	}
	for _, m := range r.marks {
		cx := x(m.at)
		switch m.kind {
		case wrote:
			fmt.Fprintf(b, `<circle class="write" cx="%.1f" cy="%d" r="2.6"/>`+"\n", cx, y+barHeight+8)
		case killed:
			fmt.Fprintf(b, `<text class="bad" x="%.1f" y="%d">✗ kill -9</text>`+"\n", cx+4, y+barHeight/2+5)
		case refused:
			fmt.Fprintf(b, `<circle class="refused" cx="%.1f" cy="%d" r="4.5"/><text class="bad" x="%.1f" y="%d">write refused: %s</text>`+"\n",
				cx, y+barHeight+8, cx+10, y+barHeight/2+5, html.EscapeString(m.text))
		case released:
			fmt.Fprintf(b, `<text class="good" x="%.1f" y="%d">released</text>`+"\n", cx+6, y+barHeight/2+5)
		}
	}
}

// tokenText is what fits into a bar of width w with room at its edges.
func tokenText(token uint64, w float64) string {
	for _, text := range []string{fmt.Sprintf("token %d", token), fmt.Sprint(token)} {
		if w >= 18+7.4*float64(len(text)) {
			return text
		}
	}
	return ""
}

func legend(b *strings.Builder, y int) {
	at := left
	for _, l := range []struct{ class, text string }{
		{"waits", "waits in line"}, {"holds", "holds the lease"}, {"paused", "paused"}, {"zombie", "awake again, a zombie"},
	} {
		fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="22" height="14" rx="3"/><text class="key" x="%d" y="%d">%s</text>`+"\n",
			l.class, at, y, at+30, y+12, l.text)
		at += 50 + 7*len(l.text)
	}
	fmt.Fprintf(b, `<circle class="write" cx="%d" cy="%d" r="2.6"/><text class="key" x="%d" y="%d">write accepted by the guard</text>`+"\n", at+6, y+7, at+16, y+12)
}

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>
  svg { background: #ffffff; font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
  .h1 { font-size: 20px; font-weight: 650; fill: #1c2733; }
  .h2 { font-size: 13px; fill: #5b6b7b; }
  .who { font-size: 16px; font-weight: 650; fill: #1c2733; text-anchor: middle; }
  .grid { stroke: #e6ebf0; stroke-width: 1; }
  .tick { font-size: 12px; fill: #5b6b7b; text-anchor: middle; }
  .key { font-size: 12px; fill: #3b4a59; }
  .token { font-size: 13px; font-weight: 600; fill: #ffffff; }
  .asleep { font-size: 12px; fill: #6b5a1e; }
  .bad { font-size: 12px; font-weight: 600; fill: #b3261e; }
  .good { font-size: 12px; font-weight: 600; fill: #1b7a43; }
  .waits { fill: #edf1f5; stroke: #c3ced9; stroke-dasharray: 3 3; }
  .holds { fill: #2563a8; }
  .paused { fill: #f6e3a1; stroke: #c9a93b; }
  .zombie { fill: #f3b6b0; stroke: #b3261e; }
  .write { fill: #2563a8; }
  .refused { fill: none; stroke: #b3261e; stroke-width: 2; }
</style>
<text class="h1" x="24" y="36">One lease, one holder, one writer</text>
<text class="h2" x="24" y="58">Every holder gets a higher token. The guarded file refuses a lower one, also from a process that slept through its loss.</text>
`
