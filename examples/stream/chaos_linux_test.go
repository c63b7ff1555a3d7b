package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/authority/recovery"
)

var seedFlag = flag.Uint64("seed", 0, "of the troubles; 0 is another one each time")

var seed = sync.OnceValue(func() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano())
})

// trouble is one thing that happens to a process.
type trouble struct {
	kind   string // kill, pause, cut, term
	leader bool   // to the leader, if it has none yet
	long   bool   // for longer than the TTL
}

// deck has n troubles of all kinds, to leaders and workers, in any order.
func deck(r *rand.Rand, n int) []trouble {
	kinds := []string{"kill", "pause", "cut", "kill", "pause", "cut", "term"}
	var all []trouble
	for i := range n {
		all = append(all, trouble{kind: kinds[i%len(kinds)], leader: i/len(kinds)%2 == 0, long: i%5 != 0})
	}
	r.Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// storm brings troubles over a cluster, at random steps of its progress, and ends
// each of them after a while.
type storm struct {
	*cluster
	r    *rand.Rand
	ttl  time.Duration
	left []trouble
	undo map[string]ending // by the process's name: it is in trouble
	seen progress
	say  []string
}

type ending struct {
	due time.Time
	do  func()
}

// progress is what the storm saw, and holds against what it sees next.
type progress struct {
	token, sequence, commits, epoch, version uint64
	decider                                  uint64 // the token of the newest commit
	most                                     int    // owners of slots at one time
}

func newStorm(c *cluster, ttl time.Duration, troubles int) *storm {
	c.Logf("the same troubles again: go test -run %s . -args -seed %d", c.Name(), seed())
	r := rand.New(rand.NewPCG(seed(), uint64(troubles)))
	return &storm{cluster: c, r: r, ttl: ttl, left: deck(r, troubles), undo: map[string]ending{}}
}

// run plays all troubles, then waits until every process ended well.
func (s *storm) run(names ...string) {
	for _, name := range names {
		s.start(name, "tested")
	}
	total := uint64(0) // checkpoints that the input has
	next, after := time.Now(), uint64(1)
	s.poll("the end", func() (bool, error) {
		s.endTroubles(false)
		v, err := s.view()
		if err != nil {
			return false, err
		}
		s.watch(v)
		total = uint64(s.batches())
		due := time.Now().After(next) && s.seen.commits >= after || s.seen.commits+20 > total
		if len(s.left) > 0 && due && !v.sealed && s.strike(v) {
			next, after = time.Now().Add(time.Duration(s.r.Int64N(int64(s.ttl/2)))), s.seen.commits+s.r.Uint64N(3)
		}
		return v.sealed, nil
	})
	s.endTroubles(true)
	for _, p := range s.procs {
		p.want(0)
	}
	if len(s.left) > 0 {
		s.Errorf("the input ended before the last %d troubles", len(s.left))
	}
	v, err := s.view()
	if err != nil {
		s.Fatal(err)
	}
	if s.watch(v); s.seen.commits != total {
		s.Errorf("%d checkpoints, and the input has %d batches", s.seen.commits, total)
	}
	s.Logf("%s; leaderships %d, assignments %d, checkpoints %d of %d attempts", s.exact(), s.seen.token, s.seen.version, s.seen.commits, s.seen.epoch)
	for _, line := range s.say {
		s.Log(line)
	}
}

// strike brings the next trouble. One process at least is left in peace.
func (s *storm) strike(v *view) bool {
	var well, lead []string
	for _, name := range slices.Sorted(maps.Keys(s.procs)) {
		if _, bad := s.undo[name]; bad {
			continue
		}
		well = append(well, name)
		if v.leader.Node == "stream/"+name {
			lead = append(lead, name)
		}
	}
	t := s.left[0]
	if len(well) < 2 || t.leader && len(lead) == 0 {
		if len(well) < 2 || len(s.left) == 1 || s.left[1].leader {
			s.r.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
			return false // look again in a moment
		}
		s.left[0], s.left[1] = s.left[1], t
		t = s.left[0]
	}
	from := well
	if t.leader {
		from = lead
	} else if len(lead) > 0 {
		from = slices.DeleteFunc(slices.Clone(well), func(name string) bool { return name == lead[0] })
	}
	s.left = s.left[1:]
	s.bring(t, s.procs[from[s.r.IntN(len(from))]])
	return true
}

// bring brings t over a process, and notes how it ends.
func (s *storm) bring(t trouble, p *proc) {
	role, lasts := "worker", s.ttl/4
	if t.leader {
		role = "leader"
	}
	if t.long {
		lasts = s.ttl*5/4 + time.Duration(s.r.Int64N(int64(s.ttl)))
	}
	e := ending{do: func() { s.start(p.name, "tested") }}
	switch t.kind {
	case "kill":
		p.ended = true
		p.signal(syscall.SIGKILL)
		lasts = time.Duration(s.r.Int64N(int64(s.ttl)))
	case "term":
		p.ended = true
		p.signal(syscall.SIGTERM)
		lasts = time.Duration(s.r.Int64N(int64(s.ttl)))
	case "pause":
		p.signal(syscall.SIGSTOP)
		e.do = func() { p.signal(syscall.SIGCONT) }
	case "cut":
		if err := os.WriteFile(s.cutFile(p.name), nil, 0o600); err != nil {
			s.Fatal(err)
		}
		e.do = func() { _ = os.Remove(s.cutFile(p.name)) }
	}
	e.due = time.Now().Add(lasts)
	s.undo[p.name] = e
	s.say = append(s.say, fmt.Sprintf("%s of the %s %s after %d checkpoints, for %v", t.kind, role, p.name, s.seen.commits, lasts.Round(time.Millisecond)))
}

// endTroubles ends those that lasted long enough, or all.
func (s *storm) endTroubles(all bool) {
	for name, e := range s.undo {
		p := s.procs[name]
		if p.ended && p.running() && !all { // it leaves in its own time
			continue
		}
		if all || time.Now().After(e.due) {
			if p.ended {
				<-p.done
			}
			e.do()
			delete(s.undo, name)
		}
	}
}

// watch holds what stands now against what stood before: nothing falls, and every
// commit has exactly the words below its offsets.
func (s *storm) watch(v *view) {
	s.Helper()
	token, sequence := v.head.Token(), v.head.Sequence()
	if token < s.seen.token || sequence < s.seen.sequence || v.state.Commits < s.seen.commits || v.attempt.Epoch < s.seen.epoch+1 {
		s.Fatalf("token %d, sequence %d, commits %d, attempt %d came after %+v", token, sequence, v.state.Commits, v.attempt.Epoch, s.seen)
	}
	s.seen.token, s.seen.sequence, s.seen.epoch = token, sequence, v.attempt.Epoch-1
	if v.assigned != nil {
		s.seen.version, s.seen.most = max(s.seen.version, v.assigned.Fence.Version), max(s.seen.most, len(v.assigned.Fence.Participants))
	}
	if v.state.Commits == s.seen.commits {
		return
	}
	s.seen.commits = v.state.Commits
	want := counts{}
	for slot, to := range v.state.Offsets {
		text, err := os.ReadFile(s.input.paths[slot])
		if err != nil {
			s.Fatal(err)
		}
		want.addText(string(text[:to]))
	}
	if got := v.state.Counts.text(); got != want.text() {
		s.Fatalf("after %d checkpoints the counts are\n%s, the input up to %d has\n%s", v.state.Commits, got, v.state.Offsets, want.text())
	}
	_, commit, err := checkpoint.Read(s.reader).Newest(s.Context())
	if err != nil {
		return // the next look tells
	}
	if commit.Proof.Token < s.seen.decider {
		s.Fatalf("epoch %d was committed with token %d, one before with %d", commit.Epoch, commit.Proof.Token, s.seen.decider)
	}
	s.seen.decider = commit.Proof.Token
}

// batches is how many checkpoints the input has.
func (s *storm) batches() int {
	var most int
	for slot := range s.input.paths {
		n := 0
		for at := int64(0); at < s.input.sizes[slot]; n++ {
			to, err := s.input.count(slot, at, batch, counts{})
			if err != nil {
				s.Fatal(err)
			}
			at = to
		}
		most = max(most, n)
	}
	return most
}

const batch = 5

// Thirty times a leader or a worker of four is killed, paused, cut off from the store
// or told to leave, at random steps. The counts of every checkpoint are exact, and so
// are those of the end; the log is sound; tokens only rise.
//
// SPEC LA1 LA2 LA3 LA4 LA5 LA6 CK AS RF CT PL6 PL8 PL9
// CASE B01 B05 B07
func TestStorm(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", 6, 60*batch, "--ttl", "1s", "--batch", fmt.Sprint(batch), "--pace", "100ms", "--poll", "25ms", "--verbose")
	newStorm(c, time.Second, 30).run("a", "b", "c", "d")
}

// The same on a database.
//
// SPEC LA2 LA3 LA4 CK AS RF CT
func TestStormOnSQLite(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "sqlite://"+filepath.Join(t.TempDir(), "stream.db"), 4, 40*batch, "--ttl", "2s", "--batch", fmt.Sprint(batch), "--pace", "100ms", "--poll", "50ms", "--verbose")
	newStorm(c, 2*time.Second, 6).run("a", "b", "c")
}

// A worker is stopped before it contributes to a checkpoint that another one has
// contributed to already, and that one is killed: the attempt is void, and so is what
// was contributed. A leader that takes it in all the same counts twice, and the check
// finds that.
//
// SPEC CK AS RF
// CASE B01
func TestVoidContribution(t *testing.T) {
	t.Parallel()
	for kind, code := range map[string]int{"tested": 0, "careless": 1} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "", 3, 20*batch, "--ttl", "1s", "--batch", fmt.Sprint(batch), "--pace", "50ms", "--poll", "25ms")
			c.strand(kind)
			for _, p := range c.procs {
				if !p.ended {
					p.want(0)
				}
			}
			if code == 0 {
				c.exact()
				return
			}
			if got, said := c.verify(); got != code {
				t.Errorf("verify of a careless leader ended with %d: %s", got, said)
			} else {
				t.Log(said)
			}
		})
	}
}

// strand starts three processes and leaves a part behind that no commit takes in.
func (c *cluster) strand(kind string) {
	c.Helper()
	for _, name := range []string{"a", "b", "c"} {
		c.start(name, kind)
	}
	var v *view
	c.poll("all three own slots", func() (bool, error) {
		var err error
		v, err = c.view()
		return err == nil && v.assigned != nil && len(v.assigned.Fence.Participants) == 3, err
	})
	var workers []*proc
	for name, p := range c.procs {
		if v.leader.Node != "stream/"+name {
			workers = append(workers, p)
		}
	}
	stopped, killed := workers[0], workers[1]
	stopped.signal(syscall.SIGSTOP)
	n := &node{config: config{job: "stream", ttl: time.Minute}, client: c.client}
	c.poll("a part is stranded", func() (bool, error) {
		var err error
		if v, err = c.view(); err != nil {
			return false, err
		}
		has := map[string]bool{}
		for _, p := range v.assigned.Fence.Participants {
			part, err := n.getPart(c.Context(), n.partKey(v.attempt, v.assigned.Fence, p))
			if err != nil {
				return false, err
			}
			has[p.Node] = part != nil
		}
		return has["stream/"+killed.name] && !has["stream/"+stopped.name], v.head.Validate(c.Context(), authority.PartCheckpoint, authority.PartAssignment)
	})
	killed.ended = true
	killed.signal(syscall.SIGKILL)
	void := v.attempt
	c.poll("the attempt is void", func() (bool, error) {
		h, err := checkpoint.Read(c.reader).History(c.Context())
		if err != nil {
			return false, err
		}
		o, _ := h.Outcome(void.Epoch)
		if o != nil && o.Verdict != checkpoint.Aborted {
			c.Fatalf("attempt %+v is %s", void, o.Verdict)
		}
		return o != nil, nil
	})
	c.poll("the stopped process lost its slots", func() (bool, error) {
		cur, err := assignment.Read(c.reader).Current(c.Context())
		return err == nil && !slices.ContainsFunc(cur.Fence.Participants, func(p assignment.Participant) bool { return p.Node == "stream/"+stopped.name }), err
	})
	stopped.signal(syscall.SIGCONT)
}

// A worker whose input is damaged says so and ends; others take its slots over, and
// the end is exact. The round that this took is on record.
//
// SPEC RF AS PL6
func TestBrokenWorker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", 4, 40*batch, "--ttl", "2s", "--batch", fmt.Sprint(batch), "--pace", "50ms", "--poll", "25ms")
	good := c.args[1]
	own := filepath.Join(c.dir, "own")
	if err := os.CopyFS(own, os.DirFS(good)); err != nil {
		t.Fatal(err)
	}
	c.start("a", "tested")
	c.start("b", "tested")
	c.args[1] = own
	broken := c.start("broken", "tested")
	broken.ended = true
	c.poll("it owns slots", func() (bool, error) {
		v, err := c.view()
		return err == nil && v.assigned != nil && slices.ContainsFunc(v.assigned.Fence.Participants, func(p assignment.Participant) bool { return p.Node == "stream/broken" }), err
	})
	for _, path := range c.input.paths {
		if err := os.Truncate(filepath.Join(own, filepath.Base(path)), 0); err != nil {
			t.Fatal(err)
		}
	}
	broken.want(1)
	if !strings.Contains(broken.log.String(), "ends at byte") {
		t.Error("it does not say why")
	}
	c.procs["a"].want(0)
	c.procs["b"].want(0)
	c.exact()
	stopped := false
	for r, err := range recovery.Read(c.reader).Releases(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		stopped = stopped || slices.ContainsFunc(r.Stopped, func(p assignment.Participant) bool { return p.Node == "stream/broken" })
	}
	if !stopped {
		t.Error("no round ended its fault")
	}
}

// All processes are killed at once. One that is started again under one of their
// names goes on from the newest commit and finishes alone.
//
// SPEC LA3 CK AS PL3
func TestEverybodyDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "", 4, 30*batch, "--ttl", "1s", "--batch", fmt.Sprint(batch), "--pace", "50ms", "--poll", "25ms")
	names := []string{"a", "b", "c"}
	for _, name := range names {
		c.start(name, "tested")
	}
	c.poll("all own slots and some is committed", func() (bool, error) {
		v, err := c.view()
		return err == nil && v.base >= 4 && v.assigned != nil && len(v.assigned.Fence.Participants) == len(names), err
	})
	for _, name := range names {
		c.procs[name].ended = true
		c.procs[name].signal(syscall.SIGKILL)
	}
	for _, name := range names {
		<-c.procs[name].done
	}
	before, err := c.view()
	if err != nil {
		t.Fatal(err)
	}
	c.start("b", "tested").want(0)
	t.Log(c.exact())
	if after, err := c.view(); err != nil || after.head.Token() <= before.head.Token() || after.assigned.Fence.Version <= before.assigned.Fence.Version {
		t.Errorf("token %d and assignment %d came after token %d and assignment %d (%v)", after.head.Token(), after.assigned.Fence.Version,
			before.head.Token(), before.assigned.Fence.Version, err)
	}
}
