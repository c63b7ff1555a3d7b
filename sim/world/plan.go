package world

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
)

// Namespace is where a world's leases are.
const Namespace = "world"

// Plan says everything that chance decides before a world begins.
type Plan struct {
	// Seed decides whatever happens in the world.
	Seed uint64
	// Slots is how many processes run at once, Leases how many leases there are.
	Slots, Leases int
	// Nodes is how many node names the processes fight for; 0 makes a world without
	// sessions.
	Nodes int
	// Authorities is how many authorities the sessions fight for; 0 makes a world
	// without any.
	Authorities int
	// Jobs is how many jobs the processes run by a schedule, each occurrence once by its
	// ledger; 0 makes a world without any. Unknown is what is done about runs of which
	// nobody knows what became of them, Interval the schedule, and Guard how well the
	// thing that the jobs act on is guarded. Merges brings in what another site did.
	Jobs     int
	Unknown  ledger.Policy
	Interval time.Duration
	Guard    Guarded
	Merges   bool
	// Tables is how many tables of slots there are; 0 makes a world without any. In one
	// that is Balanced, hosts serve what a plan of so many Shards means for them. Split lets
	// a process have a host for each range that is renewed by itself: of one host with
	// several the scheduler says which claims first.
	Tables   int
	Balanced bool
	Split    bool
	Shards   int
	// NoDelete denies every deletion of a certificate or an object of an authority,
	// NoList fails every listing of certificates, and lets every second listing of an
	// authority's objects hang.
	NoDelete, NoList bool
	// TTL, Attempt, Margin, Poll, Rho and Release are the clients' settings; zero
	// means the default.
	TTL, Attempt, Margin, Poll, Release time.Duration
	Rho                                 float64
	// Latency is how long a request usually takes at most, one way.
	Latency time.Duration
	// Length is how long the faults last.
	Length time.Duration
	// Powers are what the store can do.
	Powers store.Power
	// Retention makes a namespace whose released records are removed, and lets
	// one process do so.
	Retention bool
	// StoreClock lets the store's clock prove holders silent (LS3).
	StoreClock bool
	// Calm has no faults at all: nobody may lose anything.
	Calm bool
	// SlowReplies holds back the answer to every second write, by up to this.
	SlowReplies time.Duration
	// Outage refuses every write of an archive (LS13).
	Outage bool
	// Haste is how many times faster than usual callers act.
	Haste int
	// Intensity is how bad the network is, from 0 to 1.
	Intensity float64
	// Every is the mean time between two blows of fate.
	Every time.Duration
	// Mutation is a deliberate fault that breaks a promise which Tenure rests
	// on; the zero value is none.
	Mutation Mutation
}

// NewPlan draws a plan from a seed.
func NewPlan(seed uint64) Plan {
	r := dice(seed, "plan")
	p := Plan{
		Seed:   seed,
		Slots:  2 + r.IntN(7),
		Leases: 1 + r.IntN(3),
		TTL:    []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second}[r.IntN(5)],
		Rho:    []float64{0.001, 0.01, 0.01, 0.05, 0.1}[r.IntN(5)],
		Powers: powers(r),
	}
	p.Length = time.Duration(8+r.IntN(16)) * p.TTL
	p.Latency = p.TTL / time.Duration(20+r.IntN(400))
	p.Every = p.TTL/5 + about(r, p.TTL/2)
	if chance(r, 0.5) { // as tight as the check of the timing allows
		p.Margin = max(time.Duration(p.Rho*float64(p.TTL)), 10*time.Millisecond) + time.Microsecond
	}
	if chance(r, 0.3) {
		p.Attempt = p.TTL / 4
	}
	if p.Powers&store.CanWatch == 0 || chance(r, 0.2) {
		p.Poll = p.TTL / time.Duration(2+r.IntN(6))
	}
	if chance(r, 0.3) {
		p.Release = p.TTL / time.Duration(1+r.IntN(8))
	}
	p.Retention = chance(r, 0.3)
	if p.StoreClock = chance(r, 0.2); p.StoreClock {
		p.Powers |= store.CanClock | store.CanModTime
	}
	p.Haste = 1 + r.IntN(3)
	if p.Calm = chance(r, 0.1); !p.Calm {
		p.Intensity = r.Float64() * r.Float64()
		p.Outage = chance(r, 0.1)
		if chance(r, 0.2) {
			p.SlowReplies = p.TTL / time.Duration(2+r.IntN(8))
		}
	}
	if p.Outage {
		p.Haste, p.Leases = 10, 1
	}
	return p
}

// powers draws what a store can do. Deleting by version is always there.
func powers(r *rand.Rand) store.Power {
	can := store.CanDeleteIf
	for _, q := range []store.Power{store.CanWatch, store.CanQueue, store.CanProve} {
		if chance(r, 0.5) {
			can |= q
		}
	}
	return can
}

// String tells the plan in one line.
func (p Plan) String() string {
	s := fmt.Sprintf("seed %d: %d processes, %d leases, TTL %v, rho %v, margin %v, latency %v, slow replies %v, %v long, network %.2f, a blow every %v",
		p.Seed, p.Slots, p.Leases, p.TTL, p.Rho, p.Margin, p.Latency, p.SlowReplies, p.Length, p.Intensity, p.Every)
	for _, w := range []struct {
		is   bool
		name string
	}{
		{p.Calm, "calm"}, {p.NoDelete, "no deletes"}, {p.NoList, "no listing"}, {p.Retention, "retention"}, {p.Powers.Has(store.CanWatch), "watch"},
		{p.Powers.Has(store.CanQueue), "queue"}, {p.Powers.Has(store.CanProve), "proof"}, {p.StoreClock, "store clock"}, {p.Outage, "no archives"},
	} {
		if w.is {
			s += ", " + w.name
		}
	}
	if p.Nodes > 0 {
		s += fmt.Sprintf(", %d nodes", p.Nodes)
	}
	if p.Authorities > 0 {
		s += fmt.Sprintf(", %d authorities, haste %d", p.Authorities, p.Haste)
	}
	if p.Jobs > 0 {
		s += fmt.Sprintf(", %d jobs every %v, %v, %v, merges %v", p.Jobs, p.Interval, p.Unknown, p.Guard, p.Merges)
	}
	if p.Tables > 0 {
		s += fmt.Sprintf(", %d tables, rows %v, balanced %v", p.Tables, p.Powers.Has(store.CanCommit), p.Balanced)
	}
	if p.Mutation.Name != "" {
		s += ", mutation: " + p.Mutation.Name
	}
	return s
}

// Names are the leases.
func (p Plan) Names() []string {
	names := []string{"alpha", "beta", "gamma"}[:min(p.Leases, 3)]
	for i := len(names); i < p.Leases; i++ {
		names = append(names, fmt.Sprintf("lease-%03d", i))
	}
	return append(append(names, p.jobLeases()...), p.tableLeases()...)
}

// NodeNames are the nodes.
func (p Plan) NodeNames() (names []string) {
	for i := range p.Nodes {
		names = append(names, fmt.Sprintf("n%d", i+1))
	}
	return names
}

// NewSessionPlan draws from a seed the plan of a world whose processes hold leases
// under sessions, as well as by themselves. There are fewer node names than
// processes, so that names are fought for.
func NewSessionPlan(seed uint64) Plan {
	r := dice(seed, "session plan")
	p := NewPlan(seed)
	p.Nodes = 1 + r.IntN(max(1, min(p.Slots-1, 4)))
	p.Leases = 3 + r.IntN(30)
	p.Haste, p.Outage = 1+r.IntN(2), false
	p.Length = time.Duration(8+r.IntN(10)) * p.TTL
	p.Retention = chance(r, 0.6)
	p.NoDelete, p.NoList = chance(r, 0.15), chance(r, 0.15)
	if p.Calm {
		p.Latency = min(p.Latency, p.TTL/100) // one in fifty takes ten times as long
	}
	return p
}

// AuthorityNames are the authorities.
func (p Plan) AuthorityNames() []string { return []string{"first", "second", "third"}[:p.Authorities] }

// NewAuthorityPlan draws from a seed the plan of a world whose sessions fight for
// authorities, and decide in all their chains. Most processes have a node of their
// own, under which they come back after a crash.
func NewAuthorityPlan(seed uint64) Plan {
	r := dice(seed, "authority plan")
	p := NewPlan(seed)
	p.Slots = 2 + r.IntN(4)
	p.Nodes = max(2, p.Slots-r.IntN(2))
	p.Authorities = 1 + r.IntN(2)
	p.Leases, p.Haste, p.Outage, p.Retention = 0, 1+r.IntN(3), false, chance(r, 0.3)
	p.Length = time.Duration(8+r.IntN(8)) * p.TTL
	p.NoDelete, p.NoList = chance(r, 0.1), chance(r, 0.1)
	if p.Calm {
		p.Latency = min(p.Latency, p.TTL/100) // one in fifty takes ten times as long
	}
	if chance(r, 0.1) { // long histories, which compact themselves
		p.Haste, p.Authorities, p.Latency, p.SlowReplies = 8, 1, p.TTL/400, 0
		p.Intensity /= 8
	}
	return p
}

// options are what every client of the world is made with.
func (p Plan) options() []tenure.Option {
	opts := []tenure.Option{
		tenure.WithNamespace(Namespace), tenure.WithoutProbe(), tenure.WithTTL(p.TTL), tenure.WithClockRateBound(p.Rho),
		tenure.WithAttemptLimit(p.Attempt), tenure.WithMargin(p.Margin), tenure.WithPollEvery(p.Poll), tenure.WithReleaseLimit(p.Release),
		tenure.WithRetention(0),
	}
	if p.Retention {
		opts = append(opts, tenure.WithRetention(retention))
	}
	if p.StoreClock {
		opts = append(opts, tenure.WithStoreClock())
	}
	return opts
}

// rules are the faults that every link has for the whole world.
func (p Plan) rules() []faultstore.Rule {
	rules := slices.Clone(p.Mutation.Rules)
	if p.Outage && !p.Calm {
		rules = append(rules, faultstore.Rule{
			Match: func(c faultstore.Call) bool { return strings.HasPrefix(c.Key, store.Prefix(Namespace, "hist")) },
			Ops:   []faultstore.Op{faultstore.OpCreate}, Fault: faultstore.Fail(store.ErrUnavailable),
		})
	}
	if p.NoDelete {
		rules = append(rules, faultstore.Rule{Ops: []faultstore.Op{faultstore.OpDelete}, Fault: faultstore.Fail(store.ErrDenied)})
	}
	if p.NoList {
		rules = append(rules, faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Fault: faultstore.Fail(store.ErrUnavailable), Match: func(c faultstore.Call) bool {
			return strings.HasPrefix(c.Key, store.Prefix(Namespace, "certificate"))
		}}, faultstore.Rule{Ops: []faultstore.Op{faultstore.OpList}, Odds: 0.5, Fault: faultstore.Hang(), Match: func(c faultstore.Call) bool {
			return strings.HasPrefix(c.Key, store.Prefix(Namespace, "authority-log"))
		}})
	}
	if p.SlowReplies > 0 {
		rules = append(rules, faultstore.Rule{
			Ops: []faultstore.Op{faultstore.OpReplace}, Every: 2, Fault: faultstore.DelayReply(p.SlowReplies/2, p.SlowReplies),
		})
	}
	return rules
}

// retention is the shortest there is. Nothing in a world takes that long: who
// prunes has a wall clock that is far ahead, which may cost history and
// never safety.
const (
	retention = 48 * time.Hour
	ahead     = 100 * time.Hour
)

// attempt is the limit of one call for a lease with a TTL.
func (p Plan) attempt(ttl time.Duration) time.Duration {
	if p.Attempt != 0 && ttl == p.TTL {
		return p.Attempt
	}
	return 2 * ttl / 15
}

// longest is how long a write may be on its way.
func (p Plan) longest() time.Duration { return p.TTL * 3 / 2 }

// maxTTL is the longest TTL that a caller asks for.
func (p Plan) maxTTL() time.Duration { return 2 * p.TTL }
