package world

import (
	"strings"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Mutation is a deliberate fault that breaks a promise on which Tenure rests:
// a store that is none, a clock that is none, an operator who lies. The oracle
// must find each.
type Mutation struct {
	// Name says what is broken, Found the rules of which one must find it first.
	Name  string
	Found []string
	// Rules are on every link for the whole world.
	Rules []faultstore.Rule
	// Prepare edits the plan so that the fault can show.
	Prepare func(p *Plan)

	clock       func(slot int, c *simClock)                   // breaks a clock of a process as it starts
	forget      func(e effect) bool                           // acknowledges a write and drops it
	late        time.Duration                                 // of a reply, by which the sender's clocks are set back at most
	ghost       bool                                          // nobody ever comes to the front of a line
	hasty       bool                                          // a stopped process is taken for a dead one
	liar        bool                                          // the operator vouches for the living
	thief       bool                                          // the operator releases what is in use
	rollback    bool                                          // the place goes back to an older state
	openGuard   bool                                          // the guard takes every token
	sessions    bool                                          // the world has sessions
	twist       func(e effect) []byte                         // what is written instead of a body; nil: the body
	mirage      func(p *Proc, key string, body []byte) []byte // what is read instead; nil: the body
	hurry       func(body []byte) bool                        // who reads that takes a TTL to have passed
	releases    bool                                          // somebody gives up names that are in use
	unseals     bool                                          // somebody removes certificates that are needed
	onlyLate    string                                        // the keys of which late speaks, by what they contain
	burns       bool                                          // somebody removes what heads reach
	restores    bool                                          // heads go back to older states
	authorities bool                                          // the world has authorities
	answer      func(authority.Result) authority.Result       // what is told instead of an answer
	jobs        bool                                          // the world has jobs
	instant     func(p *Proc, at time.Time) time.Time         // what a run's id is made of instead of its occurrence
	meddles     bool                                          // another site does what is about to begin here
	slots       bool                                          // the world has tables of slots
	blind       func(e effect) bool                           // a write whose condition is not looked at
	recast      func(e effect) []store.Change                 // what is committed instead; nil: the changes
	blow        blow                                          // that strikes most, if not the zero value
}

func (m *Mutation) forgets(e effect) bool { return m.forget != nil && m.forget(e) }

// answered sets the clocks of a process back by as long as the answer to its
// write took: as if it counted its trust from the answer.
func (m *Mutation) answered(p *Proc, key string, took time.Duration) {
	if m.late > 0 && strings.Contains(key, m.onlyLate) {
		p.clk.shift(-min(time.Duration(float64(took)*p.clk.rate), m.late))
	}
}

// Control is the mutation without its fault: it only makes the same plan.
func (m Mutation) Control() Mutation {
	return Mutation{Prepare: m.Prepare, sessions: m.sessions, authorities: m.authorities, jobs: m.jobs, slots: m.slots, meddles: m.meddles}
}

// Plan draws the plan of the kind of world that m is about.
func (m Mutation) Plan(seed uint64) Plan {
	p := NewPlan(seed)
	if m.sessions {
		p = NewSessionPlan(seed)
	}
	if m.authorities {
		p = NewAuthorityPlan(seed)
	}
	if m.jobs {
		p = NewLedgerPlan(seed)
	}
	if m.slots {
		p = NewSlotPlan(seed)
	}
	p.Mutation = m
	return p
}

// onTime reports whether the clocks are good enough to judge how long a process
// takes.
func (m *Mutation) onTime() bool { return m.clock == nil && m.late == 0 }

// instantAt is the instant of an occurrence as a process sees it.
func (m *Mutation) instantAt(p *Proc, at time.Time) time.Time {
	if m.instant != nil {
		return m.instant(p, at)
	}
	return at
}
