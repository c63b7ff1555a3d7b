package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/tenure-project/tenure/store"
)

// SPEC SL2 SL4
func commitModelClauses() []Clause {
	clauses := []Clause{{
		Name: "commit-and-scan-follow-a-model",
		Says: "Commit, Scan and the calls on single keys are one store: each gives the answer that a map with a version for every key gives.",
		run:  followModel,
	}, {
		Name: "commits-of-many-keep-the-books", Peers: true,
		Says: "Many writers that decide by what they scanned and name it in their commits act as if one came after the other.",
		run:  keepTheBooks,
	}}
	for i := range clauses {
		clauses[i].Rule, clauses[i].Needs = "SL4", store.CanCommit
	}
	return clauses
}

// model is what a store must hold, and a version of each key from before.
type model struct {
	c    *check
	r    *rand.Rand
	now  map[string]store.Object
	past map[string]store.Version
	keys []string
}

func followModel(c *check) {
	m := &model{c: c, r: rand.New(rand.NewPCG(4, 4)), now: map[string]store.Object{}, past: map[string]store.Version{}}
	for i := range 8 {
		m.keys = append(m.keys, key(fmt.Sprintf("k%d", i)))
	}
	for n := range c.rounds(400) {
		switch m.r.IntN(8) {
		case 0, 1, 2, 3:
			m.commit(n)
		case 4, 5:
			m.scan()
		default:
			m.single(n)
		}
		if c.Failed() {
			return
		}
	}
	c.lists("", "", slices.Sorted(maps.Keys(m.now))...)
}

// over draws a condition on k, which holds more often than not.
func (m *model) over(k string) store.Version {
	switch m.r.IntN(8) {
	case 0:
		return m.past[k]
	case 1:
		return ""
	case 2:
		return "no-such-version"
	}
	return m.now[k].Version
}

func (m *model) set(k string, body []byte, v store.Version) {
	m.past[k] = m.now[k].Version
	m.now[k] = store.Object{Body: body, Version: v}
}

func (m *model) remove(k string) {
	m.past[k] = m.now[k].Version
	delete(m.now, k)
}

func (m *model) commit(n int) {
	changes, holds := []store.Change{}, true
	for _, at := range m.r.Perm(len(m.keys))[:1+m.r.IntN(4)] {
		k := m.keys[at]
		ch := store.Change{Key: k, Over: m.over(k), Do: store.ChangeKind(m.r.IntN(3))}
		switch {
		case ch.Do == store.Remove && ch.Over == "":
			ch.Do = store.Keep
		case ch.Do == store.Put:
			ch.Body = fmt.Appendf(nil, "%d", n/2)
		}
		changes = append(changes, ch)
		holds = holds && ch.Over == m.now[k].Version
	}
	t, _ := store.AsCommitter(m.c.s)
	made, err := t.Commit(m.c.ctx(), changes)
	if !holds {
		m.c.kind(err, store.ErrConflict, m.c.s, "", "Commit number %d, one of whose conditions does not hold,", n)
		return
	}
	if err != nil || len(made) != len(changes) {
		m.c.Fatalf("Commit number %d, whose conditions hold, gave %d versions for %d changes: %v", n, len(made), len(changes), err)
	}
	for i, ch := range changes {
		switch ch.Do {
		case store.Put:
			m.set(ch.Key, ch.Body, made[i])
		case store.Remove:
			m.remove(ch.Key)
		}
	}
}

func (m *model) scan() {
	a, b := m.keys[m.r.IntN(len(m.keys))], m.keys[m.r.IntN(len(m.keys))]
	r := store.ScanRange{From: min(a, b), To: max(a, b) + []string{"", "0"}[m.r.IntN(2)], Backwards: m.r.IntN(2) == 0, Most: 1 + m.r.IntN(9), Limit: 100}
	want := []store.Keyed{}
	for _, k := range slices.Sorted(maps.Keys(m.now)) {
		if k >= r.From && k < r.To {
			want = append(want, store.Keyed{Key: k, Object: m.now[k]})
		}
	}
	if r.Backwards {
		slices.Reverse(want)
	}
	m.c.found(m.c.scan(m.c.s, r), want[:min(len(want), r.Most)]...)
}

// single makes a call on one key.
func (m *model) single(n int) {
	k := m.keys[m.r.IntN(len(m.keys))]
	v, body := m.now[k].Version, fmt.Appendf(nil, "%d", n/2)
	switch {
	case m.r.IntN(4) == 0:
		m.c.delete(m.c.s, k)
		m.remove(k)
	case v == "":
		m.set(k, body, m.c.create(m.c.s, k, string(body)))
	case m.r.IntN(2) == 0:
		_, err := m.c.s.Create(m.c.ctx(), k, body)
		m.c.kind(err, store.ErrExists, m.c.s, k, "Create of a present key")
	default:
		m.set(k, body, m.c.replace(m.c.s, k, string(body), v))
	}
}

// books are accounts in pairs. An account without money has no record. The rule
// is that no pair is in debt: who takes from an account goes by what both have,
// and changes only one of them. If all commits are as if one came after the
// other, money is neither made nor lost, no pair is ever in debt, and each account
// holds what those who were told of success put there.
type books struct {
	c      *check
	mu     sync.Mutex
	booked map[string]int
	done   int
}

const (
	accounts = 8
	deposit  = 10
)

func account(i int) string { return key(fmt.Sprintf("account-%d", i)) }

func keepTheBooks(c *check) {
	const writers = 8
	b := &books{c: c, booked: map[string]int{}}
	opening := []store.Change{}
	for i := range accounts {
		opening = append(opening, store.Change{Key: account(i), Body: []byte(strconv.Itoa(deposit))})
		b.booked[account(i)] = deposit
	}
	c.commit(c.s, opening...)
	handles, flaws := []store.Store{c.s, c.peer()}, make([]string, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(8, uint64(i)))
			for range c.rounds(40) {
				if flaws[i] = b.transfer(c.ctx(), handles[i%2], r); flaws[i] != "" {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, flaw := range flaws {
		if flaw != "" {
			c.Fatalf("%s", flaw)
		}
	}
	have, flaw := b.look(c.scan(c.s, c.all()))
	if flaw != "" {
		c.Fatalf("at the end: %s", flaw)
	}
	for i := range accounts {
		if k := account(i); have[k].money != b.booked[k] {
			c.Errorf("%s holds %d, but those who were told of success put %d there", k, have[k].money, b.booked[k])
		}
	}
	if b.done == 0 {
		c.Errorf("none of %d writers got anything done", writers)
	}
}

// balance is what an account holds; the zero value is one without a record.
type balance struct {
	money   int
	version store.Version
}

// look says what the accounts hold, and what is wrong with that.
func (b *books) look(found []store.Keyed) (map[string]balance, string) {
	have, total := map[string]balance{}, 0
	for _, k := range found {
		n, err := strconv.Atoi(string(k.Body))
		if err != nil || n == 0 {
			return nil, fmt.Sprintf("%s holds %q", k.Key, k.Body)
		}
		have[k.Key] = balance{n, k.Version}
		total += n
	}
	if total != accounts*deposit {
		return nil, fmt.Sprintf("the accounts hold %d together, want %d: %v", total, accounts*deposit, have)
	}
	for i := 0; i < accounts; i += 2 {
		if sum := have[account(i)].money + have[account(i+1)].money; sum < 0 {
			return nil, fmt.Sprintf("%s and its pair hold %d together", account(i), sum)
		}
	}
	return have, ""
}

// transfer moves money between two accounts of different pairs, once.
func (b *books) transfer(ctx context.Context, s store.Store, r *rand.Rand) string {
	t, _ := store.AsCommitter(s)
	found, err := t.Scan(ctx, b.c.all())
	if errors.Is(err, store.ErrUnavailable) {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("Scan failed: %v", err)
	}
	have, flaw := b.look(found)
	if flaw != "" {
		return "a Scan shows: " + flaw
	}
	from := r.IntN(accounts)
	pair, to := from^1, (from+2+r.IntN(accounts-3))%accounts
	if to/2 == from/2 {
		to = (to + 2) % accounts
	}
	sum := have[account(from)].money + have[account(pair)].money
	amount := min(sum, 1+r.IntN(2*deposit))
	if amount <= 0 {
		return ""
	}
	changes := []store.Change{
		moved(account(from), have[account(from)], -amount),
		{Key: account(pair), Over: have[account(pair)].version, Do: store.Keep},
		moved(account(to), have[account(to)], amount),
	}
	r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	switch err := tryCommit(ctx, s, changes...); {
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrUnavailable):
		return ""
	case err != nil:
		return fmt.Sprintf("Commit failed: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.booked[account(from)] -= amount
	b.booked[account(to)] += amount
	b.done++
	return ""
}

// moved is the change of an account by an amount.
func moved(k string, have balance, amount int) store.Change {
	ch := store.Change{Key: k, Over: have.version, Body: []byte(strconv.Itoa(have.money + amount))}
	if have.money+amount == 0 {
		ch.Do, ch.Body = store.Remove, nil
	}
	return ch
}
