package slots

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store/faultstore"
)

// Worlds of hosts that die, start again, are cut off, are fenced, change shapes, and
// wall clocks jump, replies are lost, late and twice: no slot is ever served by two, an epoch of a
// slot never falls, and when all is well again everything is served.
//
// SPEC SL2 SL3 SL4 SL6 ST9
func TestWorlds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		for _, form := range forms {
			t.Run(fmt.Sprintf("%s/%d", form, seed), func(t *testing.T) {
				t.Parallel()
				inTable(t, form, func(t *testing.T, w *tableWorld) { newMayhem(w, seed).run() })
			})
		}
	}
}

// mayhem is one world.
type mayhem struct {
	w      *tableWorld
	r      *rand.Rand
	alive  []*hostProc
	epochs map[uint16]uint64
	starts int
}

func newMayhem(w *tableWorld, seed uint64) *mayhem {
	return &mayhem{w: w, r: rand.New(rand.NewPCG(seed, 99)), epochs: map[uint16]uint64{}}
}

// shapes are sets of ranges that hosts want; they cover the slots 0 to 59.
var shapes = [][]Range{
	{rng(0, 19), rng(20, 39), rng(40, 59)},
	{rng(0, 19), rng(20, 39), rng(40, 59)},
	{rng(0, 29), rng(30, 59)},
	{rng(10, 49)},
}

func (m *mayhem) start(i int) *hostProc {
	m.starts++
	edit := func(s *hostSetup) {
		s.link.Seed = uint64(m.starts)
		s.rate = 0.995 + 0.01*m.r.Float64()
	}
	session := func(*hostSetup) {}
	if m.r.IntN(2) == 0 {
		session = as(fmt.Sprintf("node-%d-%d", i, m.starts))
	}
	p := m.w.host(fmt.Sprintf("h%d", i), shapes[i], edit, session)
	p.run()
	return p
}

func (m *mayhem) run() {
	for i := range shapes {
		m.alive = append(m.alive, m.start(i))
	}
	for range 60 {
		m.event(m.r.IntN(len(m.alive)))
		m.pass(time.Duration(m.r.IntN(8000)) * time.Millisecond)
	}
	for _, p := range m.alive {
		p.link.SetLink(faultstore.Up)
		p.link.Clear()
	}
	m.pass(2 * hostTTL)
	for i, p := range m.alive { // a session may have ended a while after its trouble
		if p.Health().Over != nil {
			m.alive[i] = m.start(i)
		}
	}
	m.pass(5 * hostTTL)
	for slot := range uint16(60) {
		m.served(slot)
	}
	if m.starts < 8 {
		m.w.t.Errorf("only %d processes", m.starts)
	}
}

// event does something to a host, or makes it well again.
func (m *mayhem) event(i int) {
	p := m.alive[i]
	switch m.r.IntN(10) {
	case 0:
		p.die()
		m.alive[i] = m.start(i)
	case 1:
		p.link.SetLink(faultstore.Cut)
	case 2:
		p.link.SetLink(faultstore.Mute)
	case 3:
		p.clk.StepWall(time.Duration(m.r.IntN(7200)-3600) * time.Second)
	case 4:
		p.Lose(uint16(m.r.IntN(60)), m.epochs[0]+uint64(m.r.IntN(20)))
	case 5:
		_ = p.Release(m.w.t.Context())
		m.alive[i] = m.start(i)
	case 6, 7:
		faults := []faultstore.Fault{
			faultstore.LoseReply(), faultstore.LoseRequest(), faultstore.LandLate(time.Second, 20*time.Second),
			faultstore.Duplicate(time.Second, 20*time.Second), faultstore.Delay(0, 6*time.Second), faultstore.HangApplied(),
		}
		p.link.Add(faultstore.Rule{Odds: 0.5, Fault: faults[m.r.IntN(len(faults))], Ops: []faultstore.Op{faultstore.OpReplace, faultstore.OpCommit}})
	default:
		p.link.SetLink(faultstore.Up)
		p.link.Clear()
	}
	if p.Health().Over != nil && m.alive[i] == p {
		m.alive[i] = m.start(i)
	}
}

// pass lets time pass and looks at every slot.
func (m *mayhem) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); bubbleSleep(200 * time.Millisecond) {
		for _, slot := range []uint16{0, 9, 10, 15, 19, 20, 29, 30, 39, 40, 49, 50, 59} {
			m.look(slot)
		}
	}
}

// look fails the test if two serve the slot, or one under an epoch that is below another's.
func (m *mayhem) look(slot uint16) (served bool) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	who := ""
	for _, p := range m.w.hosts {
		e, ok := p.EpochFor(slot)
		if !ok {
			continue
		}
		if who != "" {
			m.w.t.Fatalf("slot %d is served by %s and %s", slot, who, p.Owner())
		}
		who = p.Owner()
		if e < m.epochs[slot] {
			m.w.t.Fatalf("slot %d is served under epoch %d by %s after %d", slot, e, who, m.epochs[slot])
		}
		m.epochs[slot] = e
	}
	return who != ""
}

// served wants somebody to serve slot. Of shapes that do not fit only one can be had.
func (m *mayhem) served(slot uint16) {
	if m.look(slot) {
		return
	}
	t := m.w.view()
	if r := t.RowOf(slot); r != nil && r.Held() {
		m.w.t.Errorf("slot %d is served by nobody: %+v", slot, r)
		return
	}
	for _, p := range m.alive { // free, and wanted by those only whose other slots another has
		for _, q := range p.cfg.Ranges {
			blocked := false
			for _, row := range t.Rows {
				blocked = blocked || row.Held() && row.Range.Overlaps(q)
			}
			if q.Contains(slot) && !blocked {
				m.w.t.Errorf("slot %d is free, and %s could have %v", slot, p.Owner(), q)
			}
		}
	}
}
