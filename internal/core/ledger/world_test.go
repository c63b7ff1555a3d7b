package ledger_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/ledger"
	"github.com/tenure-project/tenure/internal/record"
)

const (
	id1 = "11111111-1111-4111-8111-111111111111"
	id2 = "22222222-2222-4222-8222-222222222222"
	job = "nightly"
)

// birth is what the head that most tests begin with says of its site.
var birth = ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Site: "paris"}, Status: ledger.Raised, Birth: id1}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func runOf(n int) ledger.RunID { return must(ledger.Named(job, fmt.Sprint("run ", n))) }

func intent(n int, site string, attempt uint64, s ledger.Status, epoch uint64) ledger.Intent {
	return ledger.Intent{V: 1, Agent: job, Key: ledger.Key{Run: runOf(n), Site: site, Attempt: attempt}, Status: s, Epoch: epoch, Holder: "h"}
}

func fold(all ...ledger.Intent) *ledger.State {
	s := ledger.NewState()
	for _, i := range all {
		s.Fold(i)
	}
	return s
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// randomIntent may be anything that a caller or a foreign log could come with.
func randomIntent(r *rand.Rand) ledger.Intent {
	i := ledger.Intent{V: 1, Agent: pick(r, job, job, job, "other", "", "bad\x00name"), Holder: pick(r, "h1", "h2", "", "bad\xff"),
		Epoch:  pick(r, 0, 1, 2, 3, uint64(record.MaxNumber), record.MaxNumber+1),
		Status: pick(r, ledger.Pending, ledger.Committed, ledger.Failed, ledger.Abandoned, ledger.Raised, "", "COMMITTED"), NotStarted: r.IntN(3) == 0}
	i.Key = ledger.Key{Run: runOf(r.IntN(3)), Site: pick(r, "a", "a", "b", "", " c"), Attempt: pick(r, uint64(1), 1, 2, 3, 0, 1<<40)}
	i.Birth = pick(r, "", "", id1, id2, "x")
	if r.IntN(2) == 0 {
		i.Detail = ledger.Detail{Write: pick(r, id1, id2, "x"), Trigger: pick(r, "", "t"), At: pick[int64](r, 0, 5, -1), Since: int64(r.IntN(2))}
	}
	return i
}

func randomIntents(r *rand.Rand, n int) []ledger.Intent {
	all := make([]ledger.Intent, n)
	for i := range all {
		all[i] = randomIntent(r)
	}
	return all
}

// oracle says from a plain list of intents, by brute force, what is to be known.
func oracle(all []ledger.Intent) string {
	byAgent := map[string][]ledger.Intent{}
	for _, i := range all {
		i = placed(i)
		byAgent[i.Agent] = append(byAgent[i.Agent], i)
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(byAgent)) {
		var part strings.Builder
		oracleAgent(&part, byAgent[name])
		if part.String() != "\n" { // an agent of which nothing is known is none
			fmt.Fprintf(&b, "agent %q\n%s", name, part.String())
		}
	}
	return b.String()
}

// placed puts malformed fields where EX3 says.
func placed(i ledger.Intent) ledger.Intent {
	if i.Agent == "bad\x00name" {
		i.Agent = ""
	}
	if i.Site == " c" {
		i.Site = ""
	}
	if i.Holder == "bad\xff" {
		i.Holder = ""
	}
	if i.Epoch > record.MaxNumber {
		i.Epoch = 0
	}
	if i.Attempt > 1<<32-1 {
		i.Attempt = 0
	}
	if i.Status == "" || i.Status == "COMMITTED" {
		i.Status = ledger.Pending
	}
	if i.Status != ledger.Pending || i.Write == "x" || i.At < 0 {
		i.Detail = ledger.Detail{}
	}
	if i.Status != ledger.Raised || i.Birth == "x" || i.Agent == "" || i.Site == "" {
		i.Birth = ""
	}
	return i
}

func oracleAgent(b *strings.Builder, all []ledger.Intent) {
	epochs := map[string]uint64{}
	births := map[string]map[string]bool{}
	said := map[ledger.Key][]ledger.Intent{}
	for _, i := range all {
		if i.Status != ledger.Abandoned && i.Epoch > epochs[i.Site] {
			epochs[i.Site] = i.Epoch
		}
		if i.Birth != "" {
			if births[i.Site] == nil {
				births[i.Site] = map[string]bool{}
			}
			births[i.Site][i.Birth] = true
		}
		if i.Status != ledger.Raised {
			said[i.Key] = append(said[i.Key], i)
		}
	}
	for _, site := range slices.Sorted(maps.Keys(epochs)) {
		fmt.Fprintf(b, "epoch %q %d\n", site, epochs[site])
	}
	one := true
	for _, site := range slices.Sorted(maps.Keys(births)) {
		fmt.Fprintf(b, "birth %q %s\n", site, slices.Sorted(maps.Keys(births[site]))[0])
		one = one && len(births[site]) == 1
	}
	if !one {
		fmt.Fprintln(b, "two of one name")
	}
	var lines []string
	commits := map[ledger.RunID]int{}
	runs := map[ledger.RunID]bool{}
	older := oracleFailures(said)
	for k, intents := range said {
		runs[k.Run] = true
		line, commit, gone := oracleAttempt(intents, isNewest(said, k), older[k], epochs[k.Site])
		if line != "" {
			lines = append(lines, fmt.Sprintf("%v %q %010d %s", k.Run, k.Site, k.Attempt, line))
		}
		if commit {
			commits[k.Run]++
		}
		if commit && gone {
			commits[k.Run] += 2
		}
	}
	sort.Strings(lines)
	b.WriteString(strings.Join(lines, "\n") + "\n")
	for n := range 3 {
		if c := commits[runOf(n)]; runs[runOf(n)] {
			fmt.Fprintf(b, "run %d committed %v repeated %v\n", n, c > 0, c > 1)
		}
	}
}

func isNewest(said map[ledger.Key][]ledger.Intent, k ledger.Key) bool {
	for o := range said {
		if o.Run == k.Run && o.Site == k.Site && o.Attempt > k.Attempt {
			return false
		}
	}
	return true
}

// oracleFailures are the older attempts of which it is to be known that they failed.
func oracleFailures(said map[ledger.Key][]ledger.Intent) map[ledger.Key]bool {
	byRun, done := map[ledger.RunID][]ledger.Key{}, map[ledger.RunID]bool{}
	for k, intents := range said {
		for _, i := range intents {
			done[k.Run] = done[k.Run] || i.Status == ledger.Committed
		}
		if !isNewest(said, k) && slices.ContainsFunc(intents, func(i ledger.Intent) bool { return i.Status == ledger.Failed && !i.NotStarted }) {
			byRun[k.Run] = append(byRun[k.Run], k)
		}
	}
	kept := map[ledger.Key]bool{}
	for run, keys := range byRun {
		if done[run] {
			continue
		}
		slices.SortFunc(keys, func(a, b ledger.Key) int {
			return cmp.Or(cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(b.Site, a.Site))
		})
		for _, k := range keys[:min(len(keys), ledger.MaxFailures)] {
			kept[k] = true
		}
	}
	return kept
}

func oracleAttempt(intents []ledger.Intent, newest, failure bool, epoch uint64) (line string, commit, gone bool) {
	words := map[string]bool{}
	var by, open string
	var late bool
	for _, i := range intents {
		switch {
		case i.Status == ledger.Committed:
			words["committed"], commit = true, true
		case i.Status == ledger.Abandoned:
			gone = true
			by = max(by, fmt.Sprintf("%020d %s", i.Epoch, i.Holder))
		case i.Status == ledger.Failed && i.NotStarted && newest:
			words["not started"] = true
		case i.Status == ledger.Failed && !i.NotStarted && (newest || failure):
			words["failed"] = true
		case i.Status == ledger.Pending:
			if o := fmt.Sprintf("%020d %s %s %s %d %d", i.Epoch, i.Holder, i.Write, i.Trigger, i.At, i.Since); o >= open {
				open, late = o, i.Epoch < epoch
			}
		}
	}
	if gone {
		words["abandoned "+by] = true
	}
	if len(words) == 0 && newest && !slices.ContainsFunc(intents, func(i ledger.Intent) bool { return i.Status == ledger.Failed }) {
		words[fmt.Sprintf("open %s fenced %v", open, late)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(words)), ", "), commit, gone
}

// describe tells what a state knows in the oracle's words.
func describe(s *ledger.State) string {
	var all strings.Builder
	for _, name := range s.Agents() {
		a := s.Agent(name)
		var b strings.Builder
		for _, site := range []string{"", "a", "b"} {
			if e := a.Epoch(site); e > 0 {
				fmt.Fprintf(&b, "epoch %q %d\n", site, e)
			}
		}
		for _, site := range []string{"", "a", "b"} {
			if id := a.Birth(site); id != "" {
				fmt.Fprintf(&b, "birth %q %s\n", site, id)
			}
		}
		if a.OneEach() != nil {
			fmt.Fprintln(&b, "two of one name")
		}
		var lines, runs []string
		for n := range 3 {
			attempts := a.Attempts(runOf(n))
			for _, at := range attempts {
				lines = append(lines, fmt.Sprintf("%v %q %010d %s", at.Run, at.Site, at.Key.Attempt, words(at)))
			}
			if len(attempts) > 0 {
				yes, twice := a.Committed(runOf(n))
				runs = append(runs, fmt.Sprintf("run %d committed %v repeated %v\n", n, yes, twice))
			}
		}
		sort.Strings(lines)
		b.WriteString(strings.Join(lines, "\n") + "\n" + strings.Join(runs, ""))
		if b.String() != "\n" {
			fmt.Fprintf(&all, "agent %q\n%s", name, b.String())
		}
	}
	return all.String()
}

func words(at ledger.Attempt) string {
	var w []string
	if at.Abandoned != nil {
		w = append(w, fmt.Sprintf("abandoned %020d %s", at.Abandoned.Epoch, at.Abandoned.By))
	}
	if at.Committed {
		w = append(w, "committed")
	}
	if at.Failed {
		w = append(w, "failed")
	}
	if at.NotBegun {
		w = append(w, "not started")
	}
	if o := at.Open; o != nil {
		w = append(w, fmt.Sprintf("open %020d %s %s %s %d %d fenced %v", o.Epoch, o.Holder, o.Write, o.Trigger, o.At, o.Since, at.Fenced))
	}
	return strings.Join(w, ", ")
}

func seeded(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}
