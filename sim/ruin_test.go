package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
	"github.com/tenure-project/tenure/internal/clock"
	core "github.com/tenure-project/tenure/internal/core/authority"
	corecheckpoint "github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/sim/world"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
)

// newRuin makes a place with three authorities that have everything that the layout
// knows: decisions in all chains, with and without a blob, live ones, anchors and
// some that were given up, capsules, maps, proposals, drains, a report that waits, a
// cursor and something in quarantine.
func newRuin(t *testing.T) *ruin {
	t.Helper()
	s := &ruin{objects: map[string][]byte{}, live: map[string]string{}, told: map[string]string{}}
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New()
		defer func() { _ = st.Close() }()
		furnish(t, st, "default", map[string]int{"main": 3, "other": 2})
		furnish(t, st, "elsewhere", map[string]int{"main": 1})
		for key, err := range st.List(context.Background(), "", "") {
			o, bad := st.Get(context.Background(), key, core.MaxBlob)
			if err != nil || bad != nil {
				t.Fatal(err, bad)
			}
			s.objects[key] = o.Body
		}
	})
	s.reach(t)
	synctest.Test(t, func(t *testing.T) {
		v := s.visit(t)
		defer v.end()
		for _, l := range v.looks() {
			told, err := v.tell(l)
			if err != nil {
				t.Errorf("%s, without any damage: %v", l.name, err)
			}
			s.told[l.name] = told
		}
		v.judgeRest(t, "", "without any damage")
	})
	return s
}

// furnish lets two processes lead authorities so many times each, and decide.
func furnish(t *testing.T, st *memstore.Store, namespace string, reigns map[string]int) {
	f := furnisher{t: t, st: st, ns: namespace}
	var all []*tenure.Session
	for i, node := range []string{"a", "b"} {
		c := process(t, st.Peer(), uint64(len(reigns)*10+i), tenure.WithNamespace(namespace))
		s, err := c.Join(context.Background(), node)
		f.must(err)
		defer func() { _ = c.Close() }()
		all = append(all, s)
	}
	for name, n := range reigns {
		f.a, f.b = f.open(all[0], name), f.open(all[1], name)
		f.furnish(n)
	}
	for _, s := range all {
		f.must(s.Leave(context.Background()))
	}
}

type furnisher struct {
	t    *testing.T
	st   *memstore.Store
	ns   string
	a, b *authority.Authority
	p    tenure.Proof
}

func (f *furnisher) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *furnisher) open(s *tenure.Session, name string) *authority.Authority {
	a, err := authority.Open(context.Background(), s, name, authority.PruneEvery(-1))
	f.must(err)
	return a
}

func (f *furnisher) furnish(reigns int) {
	ctx := context.Background()
	for range reigns - 1 {
		l, err := f.a.Lead(ctx)
		f.must(err)
		f.must(l.StepDown(ctx))
	}
	l, err := f.a.Lead(ctx)
	f.must(err)
	f.p = l.Proof()
	_, err = catalog.Seal(ctx, f.a, f.p, []catalog.Definition{{Name: "t", Text: strings.Repeat(f.ns+f.a.Name(), 20<<10)}})
	f.must(err)
	f.checkpoints(ctx)
	f.assignments(ctx)
	for range 3 {
		_, err = f.b.Report(ctx, "disk")
		f.must(err)
		r := recovery.Open(f.a)
		round, err := r.Begin(ctx, f.p, nil)
		f.must(err)
		_, err = r.Release(ctx, f.p, round, []assignment.Participant{{Node: "b", Incarnation: f.b.Kit().Session().Owner.Incarnation}})
		f.must(err)
	}
	_, err = f.a.Advance(ctx, f.p, authority.Recovery, 2, 0, nil)
	f.must(err)
	f.must(l.StepDown(ctx))
	short, cancel := context.WithTimeout(ctx, ruinTTL/2)
	defer cancel()
	if _, err := f.b.Report(short, "net"); !errors.Is(err, store.ErrUnknown) {
		f.t.Fatalf("nobody leads, and a report is made at once: %v", err)
	}
}

var ruinFence = &assignment.Fence{
	Version: 9, Slots: 1, Digest: core.DigestOf("map", nil),
	Participants: []assignment.Participant{{Node: "a", Incarnation: world.Deployment}},
}

// commits are the epochs that were committed; the others up to 10 were aborted.
var commits = map[uint64]bool{1: true, 4: true, 6: true, 9: true}

func (f *furnisher) checkpoints(ctx context.Context) {
	c, err := checkpoint.Open(f.a, world.Deployment)
	f.must(err)
	fine := func(context.Context, *checkpoint.Outcome, *checkpoint.Capsule) error { return nil }
	for epoch := uint64(1); epoch <= 10; epoch++ {
		at := checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}
		if commits[epoch] {
			_, err = c.Commit(ctx, f.p, checkpoint.Capsule{Attempt: at, Fence: ruinFence, Data: []byte(fmt.Sprint(f.ns, f.a.Name(), epoch))})
		} else {
			_, err = c.Abort(ctx, f.p, at, ruinFence)
		}
		f.must(err)
		if epoch == 4 {
			_, err = c.Advance(ctx, f.p, 4, fine)
			f.must(err)
			key := f.a.Kit().Key("capsule", "no-capsule-of-ours")
			_, err = f.st.Create(ctx, key, []byte(f.ns+f.a.Name()))
			f.must(err)
			_, err = c.Sweep(ctx)
			f.must(err)
		}
	}
	_, err = c.Advance(ctx, f.p, 6, fine)
	f.must(err)
	_, err = f.a.Advance(ctx, f.p, authority.Checkpoint, 8, 0, nil)
	f.must(err)
}

func (f *furnisher) assignments(ctx context.Context) {
	c := assignment.Open(f.a)
	me := assignment.Participant{Node: "a", Incarnation: f.a.Kit().Session().Owner.Incarnation}
	other := assignment.Participant{Node: "b", Incarnation: f.b.Kit().Session().Owner.Incarnation}
	_, _, err := c.Seed(ctx, []assignment.Participant{me, other, me, other})
	f.must(err)
	drain := func(owners ...assignment.Participant) *assignment.Transition {
		t, err := c.BeginDrain(ctx, f.p, owners)
		f.must(err)
		return t
	}
	_, err = c.CommitDrain(ctx, f.p, drain(me, me, other, other))
	f.must(err)
	_, err = c.Materialize(ctx)
	f.must(err)
	_, err = c.AbortDrain(ctx, f.p, drain(other, other, me, me))
	f.must(err)
	drain(other, me, me, other)
}

// reach notes what a live link reaches.
func (s *ruin) reach(t *testing.T) {
	const prefix = "default/authority-log/main/"
	h, err := core.Decode("", "main", s.objects["default/authority/main"])
	if err != nil {
		t.Fatal(err)
	}
	s.live["default/authority/main"] = "head"
	for _, chain := range core.ChainNames() {
		trail := core.Follow(h, chain, nil)
		for l, more := trail.Next(); more; l, more = trail.Next() {
			if err := trail.Take(s.objects[prefix+"entry/"+l.Name().Element()]); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range trail.Steps() {
			s.live[prefix+"entry/"+step.Link.Name().Element()] = chain
			if n, ok := step.Entry.BlobName(); ok {
				s.live[prefix+"blob/"+n.Element()] = chain
			}
			var o corecheckpoint.Outcome
			if chain == core.Checkpoint && record.Decode("", step.Entry.Body, &o) == nil && o.Capsule != nil && o.Epoch >= h.Checkpoint.Horizon {
				n := corecheckpoint.CapsuleName{Epoch: o.Epoch, Token: step.Entry.Proof.Token, Attempt: o.Capsule.Attempt}
				s.live[prefix+"capsule/"+n.Element()] = chain
			}
		}
	}
	s.live[prefix+"assignment/"+versionOf(2)] = core.Assignment // which version 3 restored
	for key := range s.live {
		if s.objects[key] == nil {
			t.Errorf("%s is live and not there", key)
		}
	}
}

// look is one call at an authority, and what it tells.
type look struct {
	name string
	call func(ctx context.Context, v *visitor) (string, error)
}

var errNoLeader = errors.New("this process does not lead")

// looks are all calls: first those that only look, then a leader's, then whatever
// removes.
func (v *visitor) looks() []look {
	marks, err := checkpoint.Open(v.x, world.Deployment)
	if err != nil {
		v.t.Fatal(err)
	}
	slots, rounds, r := assignment.Open(v.x), recovery.Open(v.x), v.x.Reader()
	return append(append(v.chainLooks(marks, r), v.otherLooks(slots, rounds, r)...), v.acts(marks, slots, rounds)...)
}

func (v *visitor) chainLooks(marks *checkpoint.Client, r *authority.Reader) []look {
	return []look{
		{"audit", func(ctx context.Context, _ *visitor) (string, error) {
			report, err := r.Audit(ctx)
			return fmt.Sprint(report.Entries), err
		}},
		{"snapshot", func(ctx context.Context, _ *visitor) (string, error) {
			s, err := r.Snapshot(ctx)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(s.Sequence(), s.Token(), s.Counter()), nil
		}},
		{"entries", func(ctx context.Context, _ *visitor) (told string, err error) {
			for _, chain := range authority.Chains() {
				for e, bad := range r.Entries(ctx, chain) {
					if bad != nil {
						err = errors.Join(err, bad)
						break
					}
					told += fmt.Sprint(e.Link.Digest, " ")
				}
			}
			return told, err
		}},
		{"newest", func(ctx context.Context, _ *visitor) (string, error) {
			terminal, commit, err := marks.Newest(ctx)
			if err != nil || terminal == nil || commit == nil {
				return "", err
			}
			return fmt.Sprint(terminal.Link, commit.Link), nil
		}},
		{"capsules", func(ctx context.Context, _ *visitor) (told string, err error) {
			h, err := marks.History(ctx)
			if err != nil {
				return "", err
			}
			for _, o := range h.Inventory() {
				if o.Verdict == checkpoint.Committed {
					c, bad := marks.Capsule(ctx, o)
					if bad != nil {
						err = errors.Join(err, bad)
						continue
					}
					told += string(c.Data)
				}
			}
			return told, err
		}},
		{"catalog", func(ctx context.Context, _ *visitor) (string, error) {
			m, err := catalog.Read(ctx, r)
			if err != nil {
				return "", err
			}
			return m.Definitions[0].Text[:64] + m.Link.Digest, nil
		}},
	}
}

func (v *visitor) otherLooks(slots *assignment.Client, rounds *recovery.Client, r *authority.Reader) []look {
	return []look{
		{"current", func(ctx context.Context, _ *visitor) (string, error) {
			c, err := slots.Current(ctx)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(c.Fence.State(), c.Materialized, c.Decision.Link), nil
		}},
		{"draining", func(ctx context.Context, _ *visitor) (string, error) {
			t, err := slots.Draining(ctx)
			if err != nil || t == nil {
				return "none", err
			}
			return t.Target.State(), nil
		}},
		{"proposals", func(ctx context.Context, _ *visitor) (told string, err error) {
			all, err := slots.Proposals(ctx)
			for _, p := range all {
				told += p.Map.Fence().State()
			}
			return told, err
		}},
		{"releases", func(ctx context.Context, _ *visitor) (told string, err error) {
			for x, err := range rounds.Releases(ctx) {
				if err != nil {
					return told, err
				}
				told += fmt.Sprint(x.Generation, x.Link.Digest)
			}
			last, err := rounds.Last(ctx)
			if err != nil || last == nil {
				return told, err
			}
			return told + last.Link.Digest, nil
		}},
		{"pending", func(ctx context.Context, _ *visitor) (string, error) {
			all, err := r.Pending(ctx)
			return fmt.Sprint(all), err
		}},
		{"admission", func(ctx context.Context, _ *visitor) (string, error) {
			a, err := rounds.Admission(ctx)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(a.Faulty(), errors.Is(a.Check(ctx, tenure.Proof{}), authority.ErrChanged)), nil
		}},
	}
}

// acts are calls that write.
func (v *visitor) acts(marks *checkpoint.Client, slots *assignment.Client, rounds *recovery.Client) []look {
	led := func(f func(ctx context.Context, p tenure.Proof) (string, error)) func(ctx context.Context, v *visitor) (string, error) {
		return func(ctx context.Context, v *visitor) (string, error) {
			if v.leader == nil || !v.leader.Live() {
				return "", errNoLeader
			}
			return f(ctx, v.leader.Proof())
		}
	}
	return []look{
		{"lead", func(ctx context.Context, v *visitor) (string, error) {
			l, err := v.x.TryLead(ctx)
			if err != nil {
				return "", err
			}
			v.leader = l
			return fmt.Sprint(l.Token()), nil
		}},
		{"a new abort", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			res, err := marks.Abort(ctx, p, checkpoint.Attempt{Epoch: 11, Checkpoint: 11}, ruinFence)
			return res.Answer.String(), err
		})},
		{"an old abort", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			res, err := marks.Abort(ctx, p, checkpoint.Attempt{Epoch: 8, Checkpoint: 11}, ruinFence)
			return fmt.Sprint(res.Answer, res.Winner), err
		})},
		{"another seal", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			res, err := catalog.Seal(ctx, v.x, p, []catalog.Definition{{Name: "t", Text: "x"}})
			return fmt.Sprint(res.Answer, res.Winner), err
		})},
		{"an abort of the drain", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			t, err := slots.Draining(ctx)
			if err != nil || t == nil {
				return "none", err
			}
			res, err := slots.AbortDrain(ctx, p, t)
			return fmt.Sprint(res.Answer), err
		})},
		{"a round", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			v.t.Helper()
			clock.Sleep(clock.NewVirtual(1), ruinTTL, ctx.Done()) // what is pending is folded first
			round, err := rounds.Begin(ctx, p, nil)
			if err != nil {
				return "", err
			}
			res, err := rounds.Release(ctx, p, round, nil)
			return fmt.Sprint(res.Answer, round.Generation), err
		})},
		{"prune", func(ctx context.Context, v *visitor) (string, error) {
			done, err := authority.Prune(ctx, v.client, "main")
			return fmt.Sprint(done.Removed), err
		}},
		{"sweep", func(ctx context.Context, v *visitor) (told string, err error) {
			for range 2 { // one pass ends where the last one did
				done, bad := marks.Sweep(ctx)
				err = errors.Join(err, bad)
				told += fmt.Sprint(done.Deleted, done.Quarantined)
			}
			return told, err
		}},
		{"a report", func(ctx context.Context, v *visitor) (string, error) {
			f, err := v.x.Report(ctx, "disk")
			return fmt.Sprint(f.Active, f.Request), err
		}},
		{"the horizon", led(func(ctx context.Context, p tenure.Proof) (string, error) {
			changed, err := marks.Advance(ctx, p, 7, func(context.Context, *checkpoint.Outcome, *checkpoint.Capsule) error { return nil })
			return fmt.Sprint(changed), err
		})},
	}
}
