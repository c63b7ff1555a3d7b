package slotmap

import "fmt"

// legendPitch is the height of a line of the legend.
const legendPitch = 19

// column is where the parts of a legend's line stand, from the column's left edge.
type column struct {
	x                         int
	owner, addr               int // in characters
	slots, share, ranges, end int // right edges; the epochs begin after end
}

// columns are the legend's, and how many owners each has.
func (d *drawing) columns() (all []column, each int) {
	shown := min(len(d.shares), mostLegend)
	if shown <= oneColumn {
		return []column{{x: left, owner: 40, addr: 44, slots: 690, share: 770, ranges: 850, end: 880}}, shown
	}
	half := column{owner: 16, addr: 18, slots: 305, share: 360, ranges: 412, end: 426}
	l, r := half, half
	l.x, r.x = left, left+perLine*slotWide/2+10
	return []column{l, r}, (shown + 1) / 2
}

func (d *drawing) legendHigh() int {
	_, each := d.columns()
	return 40 + (each+3)*legendPitch
}

// legend tells what the colours and hatchings mean.
func (d *drawing) legend() {
	y := bottom + 30
	cols, each := d.columns()
	shown := d.shares[:min(len(d.shares), mostLegend)]
	for k, c := range cols {
		part := shown[min(k*each, len(shown)):min((k+1)*each, len(shown))]
		if len(part) == 0 {
			continue
		}
		d.line(c, y, "b dim", Share{Owner: "owner", Addr: "address"}, [4]string{"slots", "share", "ranges", "epochs"})
		for i, s := range part {
			at := y + (i+1)*legendPitch
			d.printf(`<rect class="c%d" x="%d" y="%d" width="14" height="14" rx="2"/>`, d.colours[s.Owner], c.x, at-11)
			d.line(c, at, "ink", s, [4]string{grouped(s.Slots), percent(s.Slots), grouped(s.Ranges), s.epochs()})
		}
	}
	y += each*legendPitch + 4
	if more := d.shares[len(shown):]; len(more) > 0 {
		y += legendPitch
		d.printf(`<text class="ink" x="%d" y="%d">and %s more owners with %s slots (%s)</text>`+"\n", left+22, y, grouped(len(more)), grouped(slotsOf(more)), percent(slotsOf(more)))
	}
	y += legendPitch
	d.key(left, y, "free", fmt.Sprintf("free: %s slots (%s)", grouped(d.m.Count(Free)), percent(d.m.Count(Free))))
	if n := d.m.Count(Kept) + d.m.Count(Watched); n > 0 {
		d.key(left+perLine*slotWide/2+10, y, "kept", fmt.Sprintf("free, but not at once: %s slots (%s)", grouped(n), percent(n)))
	}
	y += legendPitch + 4
	d.printf(`<text class="dim" x="%d" y="%d">Read line by line: each has %d slots. The table names owners; it does not prove that they live.</text>`+"\n", left, y, perLine)
}

func (d *drawing) key(x, y int, pattern, text string) {
	d.printf(`<rect fill="url(#%s)" x="%d" y="%d" width="14" height="14"/><text class="ink" x="%d" y="%d">%s</text>`+"\n", pattern, x, y-11, x+22, y, safe(text))
}

// line writes one line of the legend.
func (d *drawing) line(c column, y int, class string, s Share, numbers [4]string) {
	d.printf(`<text class="%s" x="%d" y="%d">%s</text>`, class, c.x+22, y, safe(tail(s.Owner, c.owner)))
	d.printf(`<text class="%s" x="%d" y="%d">%s</text>`, class, c.x+22+int(float64(c.owner+1)*charWide), y, safe(tail(orDash(s.Addr), c.addr)))
	for i, edge := range []int{c.slots, c.share, c.ranges} {
		d.printf(`<text class="%s e" x="%d" y="%d">%s</text>`, class, c.x+edge, y, numbers[i])
	}
	d.printf(`<text class="%s" x="%d" y="%d">%s</text>`+"\n", class, c.x+c.end, y, numbers[3])
}
