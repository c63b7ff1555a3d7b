package balance_test

import (
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/core/slots/balance"
)

// Times of the model, in its seconds.
const (
	ttl      = 3 // a dead host's rows and presence last this long
	interval = 2 // between plans
	drain    = 2 // from a new target to the release
)

// model is a cluster in which rows lapse, hosts drain before they hand over, and a
// shard is taken a second after it is free.
type model struct {
	*world
	t        *testing.T
	second   int
	up       map[string]bool
	gone     map[string]int // since when a host is down
	draining map[int]int    // by shard: seconds left
	last     map[int]string // by shard: who had it last

	taken, byDeath, deaths, voluntary, worst int
	began                                    []time.Duration
	unserved                                 map[int]int // by shard: seconds without a live owner
}

func newModel(t *testing.T, n, m int, c balance.Config) *model {
	w := settled(t, n, m, c)
	out := &model{world: w, t: t, up: map[string]bool{}, gone: map[string]int{}, draining: map[int]int{}, last: map[int]string{}, unserved: map[int]int{}}
	w.Now, w.State.Recent = 0, nil
	for i := range w.Hosts {
		w.Hosts[i].Since = -time.Hour
		out.up[w.Hosts[i].ID] = true
	}
	for i := range w.State.Hosts {
		w.State.Hosts[i].Since = -time.Hour
	}
	for i, s := range w.Shards {
		out.last[i] = s.Owner
	}
	return out
}

// set starts or stops a host's process.
func (m *model) set(id string, up bool) {
	switch {
	case up && !m.up[id]:
		delete(m.gone, id)
		if m.host(id) == nil {
			m.Hosts = append(m.Hosts, balance.Host{ID: id, Weight: 1, Alive: true, Since: m.Now})
		}
	case !up && m.up[id]:
		m.gone[id] = m.second
		m.deaths++
	}
	m.up[id] = up
}

// tick passes one second.
func (m *model) tick(leader bool) {
	m.t.Helper()
	m.second++
	m.Now = time.Duration(m.second) * time.Second
	for id, since := range m.gone {
		if m.second-since >= ttl {
			m.byDeath += m.drop(id)
			m.kill(id)
			delete(m.gone, id)
		}
	}
	if leader && m.second%interval == 0 {
		p := m.plan(m.t)
		m.voluntary += p.Voluntary
		for range p.Voluntary {
			m.began = append(m.began, m.Now)
		}
	}
	for i := range m.Shards {
		m.act(i)
	}
}

// act is what the owner and the target of a shard do in a second.
func (m *model) act(i int) {
	s := &m.Shards[i]
	switch {
	case s.Held && s.Target != "" && s.Target != s.Owner && m.up[s.Owner]:
		if m.draining[i]++; m.draining[i] >= drain {
			delete(m.draining, i)
			s.Held = false
		}
	case !s.Held && m.up[s.Target]:
		s.Owner, s.Held = s.Target, true
		if m.last[i] != s.Owner {
			m.taken++
			m.last[i] = s.Owner
		}
	default:
		delete(m.draining, i)
	}
	if s.Held {
		m.unserved[i] = 0
	} else if m.unserved[i]++; m.unserved[i] > m.worst {
		m.worst = m.unserved[i]
	}
}

func (m *model) check(c balance.Config) {
	m.t.Helper()
	for i := c.Burst; i < len(m.began); i++ {
		if m.began[i]-m.began[i-c.Burst] < c.Window {
			m.t.Fatalf("%d moves for balance from %v to %v", c.Burst+1, m.began[i-c.Burst], m.began[i])
		}
	}
	// Nothing moves but for a death or for balance.
	if m.taken > m.byDeath+m.voluntary {
		m.t.Errorf("%d shards changed hands; deaths made %d ownerless and balance moved %d", m.taken, m.byDeath, m.voluntary)
	}
}

// Hosts that come and go every few seconds cause no storm: what they had goes away once,
// and does not come back before they have settled.
//
// SPEC SL8
// CASE B58
func TestFlappingHostsCauseNoStorm(t *testing.T) {
	t.Parallel()
	const minutes, calm = 10, 10
	for _, tc := range []struct {
		flapping, up, down int
		most               int // shards that change hands while hosts flap
	}{{1, 7, 5, 26}, {5, 7, 5, 256}, {5, 20, 4, 256}, {10, 7, 5, 0}, {10, 45, 15, 0}} {
		c := balance.Config{MaxMoves: 8, Settle: time.Minute, Window: time.Minute, Burst: 24}
		m := newModel(t, 10, 256, c)
		for m.second < minutes*60 {
			for h := range tc.flapping {
				// Each at its own time.
				m.set(hostID(h), (m.second+h*(tc.up+tc.down)/tc.flapping)%(tc.up+tc.down) < tc.up)
			}
			m.tick(true)
		}
		flapped, deaths, voluntary := m.taken, m.deaths, m.voluntary
		if tc.most > 0 && flapped > tc.most {
			t.Errorf("%d of 10 flap: %d shards changed hands, at most %d expected", tc.flapping, flapped, tc.most)
		}
		if voluntary != 0 {
			t.Errorf("%d of 10 flap: %d moves to hosts that have not settled", tc.flapping, voluntary)
		}
		for h := range tc.flapping {
			m.set(hostID(h), true)
		}
		for m.second < (minutes+calm)*60 {
			m.tick(true)
		}
		m.check(c)
		within(t, m.world, 24, 28)
		t.Logf("%d of 10 flap (up %d s, down %d s) for %d min: %d deaths, %d shards lost by them, %d changed hands, %d moves for balance; "+
			"then calm: %d moves for balance; longest without an owner %d s",
			tc.flapping, tc.up, tc.down, minutes, deaths, m.byDeath, flapped, voluntary, m.voluntary-voluntary, m.worst)
	}
}

// Hosts that begin to drain and change their minds are no storm either: what has left
// does not come back before they have settled.
//
// SPEC SL8
func TestAHostThatDrainsNowAndThenCausesNoStorm(t *testing.T) {
	t.Parallel()
	c := balance.Config{MaxMoves: 8, Settle: time.Minute, Window: time.Minute, Burst: 16}
	m := newModel(t, 10, 256, c)
	for m.second < 600 {
		m.host(hostID(3)).Leaving = m.second/5%2 == 0
		m.tick(true)
	}
	if m.taken > 26 || m.voluntary != 0 {
		t.Errorf("%d shards changed hands, %d for balance", m.taken, m.voluntary)
	}
	t.Logf("60 times leaving and not: %d shards changed hands", m.taken)
}

// One to five hosts on 20 shards, one more or one fewer every ten seconds, a leader that
// is away for five: every shard has an owner again soon, and a host that loses one keeps
// the others.
//
// SPEC SL8
// CASE B58
func TestHostsThatComeAndGoEveryTenSeconds(t *testing.T) {
	t.Parallel()
	c := balance.Config{MaxMoves: 2, Settle: 5 * time.Second, Window: 10 * time.Second, Burst: 4}
	m := newModel(t, 1, 20, c)
	for m.second < 600 {
		step := m.second / 10 % 8
		n := 1 + min(step, 8-step) // 1 2 3 4 5 4 3 2
		for h := range 5 {
			m.set(hostID(h), h < n)
		}
		m.tick(m.second%40 >= 5)
	}
	m.set(hostID(1), true)
	for m.second < 700 {
		m.tick(true)
	}
	m.check(c)
	// A row lapses (the model counts from its end), the leader is back and plans, and
	// the host takes it; a host may die meanwhile.
	if m.worst > 5+interval+1+ttl {
		t.Errorf("a shard had no owner for %d s", m.worst)
	}
	if len(waiting(m.world.last)) != 0 || len(changed(m.world.last)) != 0 {
		t.Errorf("it is not calm in the end: %+v", changed(m.world.last))
	}
	t.Logf("%d deaths, %d shards lost by them, %d changed hands, %d for balance; longest without an owner %d s",
		m.deaths, m.byDeath, m.taken, m.voluntary, m.worst)
}
