package slotmap

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
)

// colour is an sRGB colour.
type colour struct{ r, g, b uint8 }

// hues are those of Okabe and Ito, which people who see colours in another way can tell
// apart; grey is left for what nobody holds.
var hues = []colour{
	{0x56, 0xb4, 0xe9}, {0xe6, 0x9f, 0x00}, {0x00, 0x9e, 0x73}, {0xcc, 0x79, 0xa7}, {0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}, {0xf0, 0xe4, 0x42},
}

// palette is every hue, then each darker, then each lighter: lightness is what all eyes
// see. Where there are more owners than colours, names in the picture tell them apart.
var palette = func() []colour {
	all := slices.Clone(hues)
	for _, c := range hues {
		all = append(all, c.towards(colour{}, 0.42))
	}
	for _, c := range hues {
		all = append(all, c.towards(colour{255, 255, 255}, 0.55))
	}
	return all
}()

func (c colour) towards(d colour, part float64) colour {
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-part) + float64(b)*part)) }
	return colour{mix(c.r, d.r), mix(c.g, d.g), mix(c.b, d.b)}
}

func (c colour) String() string { return fmt.Sprintf("#%02x%02x%02x", c.r, c.g, c.b) }

// luminance is the relative one, 0 to 1.
func (c colour) luminance() float64 {
	lin := func(v uint8) float64 {
		if x := float64(v) / 255; x > 0.03928 {
			return math.Pow((x+0.055)/1.055, 2.4)
		}
		return float64(v) / 255 / 12.92
	}
	return 0.2126*lin(c.r) + 0.7152*lin(c.g) + 0.0722*lin(c.b)
}

// dark reports whether white text is read better on c than black.
func (c colour) dark() bool { l := c.luminance(); return 1.05/(l+0.05) > (l+0.05)/0.05 }

// ansi is the colour of the 6 x 6 x 6 cube of terminals that is near.
func (c colour) ansi() int {
	step := func(v uint8) int { return (int(v)*5 + 127) / 255 }
	return 16 + 36*step(c.r) + 6*step(c.g) + step(c.b)
}

// colours gives each owner the place of a colour in the palette. The name chooses, so that
// an owner looks alike in two pictures as far as that goes; one that another owner has is
// passed over while there are others, and later one that a neighbour has.
func (m *Map) colours(shares []Share) map[string]int {
	n := len(palette)
	if len(shares) <= len(hues) {
		n = len(hues)
	}
	near := m.neighbours()
	names := make([]string, len(shares))
	for i, s := range shares {
		names[i] = s.Owner
	}
	slices.Sort(names)
	chosen, uses := make(map[string]int, len(names)), make([]int, n)
	for i, name := range names {
		taken := make([]bool, n)
		for _, o := range near[name] {
			if c, ok := chosen[o]; ok {
				taken[c] = true
			}
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		want := int(h.Sum32() % uint32(n))
		pick := want
		for k := range n {
			c := (want + k) % n
			if !taken[c] && uses[c] <= i/n {
				pick = c
				break
			}
		}
		chosen[name] = pick
		uses[pick]++
	}
	return chosen
}

// neighbours are the owners that meet in the picture, beside or above one another.
func (m *Map) neighbours() map[string][]string {
	of, near := m.owners(), map[string][]string{}
	meet := func(a, b string) {
		if a == b || a == "" || b == "" {
			return
		}
		if l := near[a]; len(l) < len(palette) && !slices.Contains(l, b) {
			near[a] = append(l, b)
		}
	}
	for s := range of {
		for _, o := range []int{s + 1, s + perLine} {
			if o < Slots {
				meet(of[s], of[o])
				meet(of[o], of[s])
			}
		}
	}
	return near
}
