package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC SL2 SL4 ST4 ST7 ST13 ST16
func commitClauses() []Clause {
	clauses := []Clause{{
		Name: "commit-makes-every-change",
		Says: "Commit makes every change if each condition holds, and returns the new version of each key that it put.",
		run:  commitKinds,
	}, {
		Name: "commit-refuses-as-a-whole",
		Says: "If one condition does not hold, Commit is ErrConflict, names such a key, and nothing happened.",
		run:  commitRefusals,
	}, {
		Name: "commit-of-conditions-only",
		Says: "Keep changes nothing: it is a condition only.",
		run: func(c *check) {
			v := c.create(c.s, key("a"), "body")
			keep := []store.Change{{Key: key("a"), Over: v, Do: store.Keep}, {Key: key("b"), Do: store.Keep}}
			for i, made := range c.commit(c.s, keep...) {
				if made != "" {
					c.Errorf("change number %d, a Keep, made the version %q", i, made)
				}
			}
			c.state(c.s, key("a"), "body", v)
			c.absent(c.s, key("b"))
			c.refuses(key("b"), store.Change{Key: key("a"), Over: v, Do: store.Keep}, store.Change{Key: key("b"), Over: v, Do: store.Keep})
			c.refuses(key("a"), store.Change{Key: key("a"), Do: store.Keep}, store.Change{Key: key("b"), Do: store.Keep})
			c.state(c.s, key("a"), "body", v)
		},
	}, {
		Name: "commit-versions-never-come-back",
		Says: "A version never comes back for a key, not for equal bytes and not after the key was removed and made again.",
		run:  commitVersions,
	}, {
		Name: "commit-of-bad-changes",
		Says: "Changes that make no sense, or too many or too large ones, are ErrInvalid before anything happens.",
		run:  badChanges,
	}, {
		Name: "commit-of-the-largest",
		Says: "A commit has up to MaxChanges changes of any keys, whose bodies have up to Info.MaxBody bytes together.",
		run:  largestCommit,
	}, {
		Name: "commit-shares-no-bodies",
		Says: "A body belongs to its caller: what the caller does with it before or after a call changes no record.",
		run: func(c *check) {
			body := []byte("first")
			v := c.commit(c.s, store.Change{Key: key("k"), Body: body})[0]
			copy(body, "XXXXX")
			c.state(c.s, key("k"), "first", v)
			got := c.scan(c.s, c.all())[0].Body
			copy(got, "YYYYY")
			_ = append(got, "more"...)
			c.state(c.s, key("k"), "first", v)
			c.found(c.scan(c.s, c.all()), store.Keyed{Key: key("k"), Object: store.Object{Body: []byte("first"), Version: v}})
		},
	}, {
		Name: "commit-cut-off",
		Says: "Commit returns soon after its context ends; ErrUnavailable says that nothing happened, ErrUnknown that all of it may have, and never a part.",
		run:  commitCutOff,
	}, {
		Name: "commits-outlive-the-handle", Peers: true,
		Says: "Acknowledged means durable: a commit that returned is there when the place is opened again.",
		run: func(c *check) {
			old := c.create(c.s, key("b"), "old")
			made := c.commit(c.s, store.Change{Key: key("a"), Body: []byte("new")}, store.Change{Key: key("b"), Over: old, Do: store.Remove})
			if err := c.s.Close(); err != nil {
				c.Errorf("Close: %v", err)
			}
			p := c.peer()
			c.state(p, key("a"), "new", made[0])
			c.absent(p, key("b"))
			c.replace(p, key("a"), "newer", made[0])
		},
	}, {
		Name: "commit-wakes-watches", Needs: store.CanWatch, Peers: true,
		Says: "Watch returns nil once the key may be at another version, also by a commit of many keys.",
		run:  commitWakes,
	}}
	for i := range clauses {
		clauses[i].Rule, clauses[i].Needs = "SL4", clauses[i].Needs|store.CanCommit
	}
	return clauses
}

// commit commits and reports a breach unless it succeeds, with as many versions
// as there are changes.
func (c *check) commit(s store.Store, changes ...store.Change) []store.Version {
	c.Helper()
	t, _ := store.AsCommitter(s)
	made, err := t.Commit(c.ctx(), changes)
	if err != nil {
		c.Fatalf("Commit whose conditions all hold failed: %v", err)
	}
	if len(made) != len(changes) {
		c.Fatalf("Commit of %d changes returned %d versions", len(changes), len(made))
	}
	for i, ch := range changes {
		if (made[i] != "") != (ch.Do == store.Put) {
			c.Errorf("Commit returned the version %q for a %v", made[i], ch.Do)
		}
	}
	return made
}

// refuses reports a breach unless a commit is refused because of key k.
func (c *check) refuses(k string, changes ...store.Change) {
	c.Helper()
	t, _ := store.AsCommitter(c.s)
	made, err := t.Commit(c.ctx(), changes)
	c.kind(err, store.ErrConflict, c.s, k, "Commit with a condition on %s that does not hold", k)
	if len(made) != 0 {
		c.Errorf("a refused Commit returned the versions %q", made)
	}
}

func commitKinds(c *check) {
	kept, over, gone, other := c.create(c.s, key("kept"), "kept"), c.create(c.s, key("over"), "old"), c.create(c.s, key("gone"), "gone"), c.create(c.s, key("other"), "other")
	changes := []store.Change{
		{Key: key("over"), Over: over, Body: []byte("new")},
		{Key: key("absent"), Do: store.Keep},
		{Key: key("gone"), Over: gone, Do: store.Remove},
		{Key: key("made"), Body: []byte("made")},
		{Key: key("kept"), Over: kept, Do: store.Keep},
		{Key: key("empty")},
	}
	made := c.commit(c.s, changes...)
	c.state(c.s, key("over"), "new", made[0])
	c.absent(c.s, key("absent"))
	c.absent(c.s, key("gone"))
	c.state(c.s, key("made"), "made", made[3])
	c.state(c.s, key("kept"), "kept", kept)
	c.state(c.s, key("empty"), "", made[5])
	c.state(c.s, key("other"), "other", other)
	c.lists("", "", key("empty"), key("kept"), key("made"), key("other"), key("over"))
	// What a commit made is like what any other write made, and the other way.
	v := c.replace(c.s, key("made"), "replaced", made[3])
	v = c.commit(c.s, store.Change{Key: key("made"), Over: v, Body: []byte("again")})[0]
	c.state(c.s, key("made"), "again", v)
	c.delete(c.s, key("made"))
	c.create(c.s, key("gone"), "back")
}

// commitRefusals breaks one condition of a commit in every way at every place.
func commitRefusals(c *check) {
	broken := []struct {
		what, key string
		over      store.Version
	}{
		{"a present key that must be absent", key("x-present"), ""},
		{"an old version", key("x-present"), c.create(c.s, key("x-present"), "0")},
		{"a version that never was", key("x-present"), "no-such-version"},
		{"a version of an absent key", key("x-absent"), c.create(c.s, key("x-absent"), "0")},
		{"a version that never was of an absent key", key("x-never"), "no-such-version"},
	}
	present := c.replace(c.s, key("x-present"), "1", broken[1].over)
	c.delete(c.s, key("x-absent"))
	put, removed, kept := c.create(c.s, key("put"), "put"), c.create(c.s, key("removed"), "removed"), c.create(c.s, key("kept"), "kept")
	good := []store.Change{
		{Key: key("a-made"), Body: []byte("made")}, {Key: key("put"), Over: put, Body: []byte("new")}, {Key: key("removed"), Over: removed, Do: store.Remove},
		{Key: key("kept"), Over: kept, Do: store.Keep}, {Key: key("z-made"), Body: []byte("made")}, {Key: key("zz-absent"), Do: store.Keep},
	}
	for _, b := range broken {
		for _, do := range []store.ChangeKind{store.Put, store.Remove, store.Keep} {
			if do == store.Remove && b.over == "" {
				continue
			}
			for at := range len(good) + 1 {
				changes := append([]store.Change{}, good[:at]...)
				changes = append(changes, store.Change{Key: b.key, Over: b.over, Do: do})
				c.refuses(b.key, append(changes, good[at:]...)...)
			}
			c.refuses(b.key, store.Change{Key: b.key, Over: b.over, Do: do})
		}
		c.state(c.s, key("put"), "put", put)
		c.state(c.s, key("removed"), "removed", removed)
		c.state(c.s, key("kept"), "kept", kept)
		c.state(c.s, key("x-present"), "1", present)
		c.lists("", "", key("kept"), key("put"), key("removed"), key("x-present"))
		if c.Failed() {
			c.Fatalf("the condition was: %s", b.what)
		}
	}
	c.commit(c.s, good...) // they did hold
}

func commitVersions(c *check) {
	k, seen := key("k"), map[store.Version]int{}
	for round := range c.rounds(20) {
		a := c.commit(c.s, store.Change{Key: k, Body: []byte("same")})[0]
		b := c.commit(c.s, store.Change{Key: k, Over: a, Body: []byte("same")})[0]
		for _, v := range []store.Version{a, b} {
			if before, twice := seen[v]; twice {
				c.Fatalf("version %q of round %d came back in round %d", v, before, round)
			}
			seen[v] = round
		}
		c.refuses(k, store.Change{Key: k, Over: a, Do: store.Remove})
		if round%2 == 0 {
			c.commit(c.s, store.Change{Key: k, Over: b, Do: store.Remove})
		} else {
			c.delete(c.s, k)
		}
		c.absent(c.s, k)
	}
	v := c.commit(c.s, store.Change{Key: k, Body: []byte("same")})[0]
	for old := range seen {
		c.refuses(k, store.Change{Key: k, Over: old, Body: []byte("late")})
		_, err := c.s.Replace(c.ctx(), k, []byte("late"), old)
		c.kind(err, store.ErrConflict, c.s, k, "Replace at a version from before the key was removed")
	}
	c.state(c.s, k, "same", v)
}

func badChanges(c *check) {
	t, _ := store.AsCommitter(c.s)
	v := c.create(c.s, key("k"), "body")
	put := func(n int) (out []store.Change) {
		for i := range n {
			out = append(out, store.Change{Key: key(fmt.Sprintf("k-%d", i)), Body: []byte("x")})
		}
		return out
	}
	most := c.s.Info().MaxBody
	half := bytes.Repeat([]byte("x"), most/2+1)
	bad := map[string][]store.Change{
		"no change":                          nil,
		"too many changes":                   put(store.MaxChanges + 1),
		"a key twice":                        append(put(3), put(2)[1]),
		"a bad key":                          append(put(1), store.Change{Key: "a//b"}),
		"no key":                             append(put(1), store.Change{}),
		"a removal of an absent":             append(put(1), store.Change{Key: key("k"), Do: store.Remove}),
		"a condition with a body":            append(put(1), store.Change{Key: key("k"), Over: v, Do: store.Keep, Body: []byte("x")}),
		"a removal with a body":              append(put(1), store.Change{Key: key("k"), Over: v, Do: store.Remove, Body: []byte("x")}),
		"an unknown kind":                    append(put(1), store.Change{Key: key("k"), Over: v, Do: 3}),
		"a body that is too large":           {{Key: key("a"), Body: append(half, half...)}},
		"bodies that are too large together": {{Key: key("a"), Body: half}, {Key: key("b"), Body: half}},
	}
	for what, changes := range bad {
		_, err := t.Commit(c.ctx(), changes)
		c.kind(err, store.ErrInvalid, c.s, "", "Commit with %s", what)
	}
	c.state(c.s, key("k"), "body", v)
	c.lists("", "", key("k"))
}

// largestCommit replaces and makes as many of the longest keys as a commit may
// have, with all the bytes that it may have.
func largestCommit(c *check) {
	most := c.s.Info().MaxBody
	long := strings.Repeat("a", 199)
	changes, keys := make([]store.Change, store.MaxChanges), make([]string, store.MaxChanges)
	for i := range changes {
		keys[i] = strings.Join([]string{long, long, long, fmt.Sprintf("%s%04d", strings.Repeat("b", 190), i)}, "/")
		changes[i] = store.Change{Key: keys[i], Body: bytes.Repeat([]byte{byte(i)}, most/len(changes))}
	}
	for range 2 {
		made := c.commit(c.s, changes...)
		for i := range changes {
			o, err := c.s.Get(c.ctx(), keys[i], most)
			if err != nil || o.Version != made[i] || !bytes.Equal(o.Body, changes[i].Body) {
				c.Fatalf("after a commit of %d bytes key number %d is at version %q, want %q, with %d bytes, want %d: %v",
					most, i, o.Version, made[i], len(o.Body), len(changes[i].Body), err)
			}
			changes[i].Over = made[i]
			changes[i].Body = bytes.Repeat([]byte{byte(i + 1)}, most/len(changes))
		}
	}
	for i := range changes {
		changes[i].Do, changes[i].Body, changes[i].Over = store.Remove, nil, c.getLong(keys[i]).Version
	}
	c.commit(c.s, changes...)
	c.lists("", "")
}

func (c *check) getLong(k string) store.Object {
	c.Helper()
	o, err := c.s.Get(c.ctx(), k, c.s.Info().MaxBody)
	if err != nil {
		c.Fatalf("Get(%s) failed: %v", k, err)
	}
	return o
}

// commitCutOff ends contexts at all kinds of instants of a commit and holds the
// answer against what is found afterwards. The record at a is the caller's own
// sign; b and what comes and goes must agree with it.
func commitCutOff(c *check) {
	t, _ := store.AsCommitter(c.s)
	a, b := key("a"), key("b")
	va, vb, present := c.create(c.s, a, "start"), c.create(c.s, b, "start"), "start"
	typical := c.typicalWrite()
	for i := range c.rounds(150) {
		limit := typical * time.Duration(i%20+1) / 15
		body, fresh := fmt.Sprintf("round %d", i), key(fmt.Sprintf("fresh-%d", i))
		err := c.cut(limit, "Commit", func(ctx context.Context) error {
			_, err := t.Commit(ctx, []store.Change{
				{Key: fresh, Body: []byte(body)}, {Key: b, Over: vb, Body: []byte(body)}, {Key: a, Over: va, Body: []byte(body)},
			})
			return err
		})
		if errors.Is(err, store.ErrUnknown) {
			// It can land as long as its conditions hold: this ends that.
			vb = c.overtakeCommit(b, vb)
		}
		oa, ob := c.get(c.s, a), c.get(c.s, b)
		if want := c.after(err, body, present, string(oa.Body)); string(oa.Body) != want {
			c.Fatalf("Commit cut off after %v answered %v, but %s holds %q, want %q", limit, err, a, oa.Body, want)
		}
		happened := string(oa.Body) == body
		_, err = c.s.Get(c.ctx(), fresh, readLimit)
		if got := !errors.Is(err, store.ErrNotFound); got != happened || !errors.Is(err, store.ErrNotFound) && err != nil {
			c.Fatalf("Commit cut off after %v changed %s: %v, and made %s: %v", limit, a, happened, fresh, got)
		}
		if got := strings.HasPrefix(string(ob.Body), body+"/") || string(ob.Body) == body; got != happened && !strings.Contains(string(ob.Body), "/") {
			c.Fatalf("Commit cut off after %v changed %s: %v, and %s: %v", limit, a, happened, b, got)
		}
		present, va, vb = string(oa.Body), oa.Version, ob.Version
	}
}

// overtakeCommit moves k on from version v, unless a commit in doubt did.
func (c *check) overtakeCommit(k string, v store.Version) store.Version {
	c.Helper()
	w, err := c.s.Replace(c.ctx(), k, []byte("overtaken/"), v)
	if errors.Is(err, store.ErrConflict) {
		return c.get(c.s, k).Version
	}
	if err != nil {
		c.Fatalf("Replace after a commit whose outcome is unknown failed: %v", err)
	}
	return w
}

func commitWakes(c *check) {
	p := c.peer()
	old := c.create(c.s, key("over"), "0")
	gone := c.create(c.s, key("gone"), "0")
	waiting := []<-chan error{}
	for _, s := range []store.Store{c.s, p} {
		waiting = append(waiting, c.watching(s, key("over"), old), c.watching(s, key("gone"), gone), c.watching(s, key("made"), ""))
	}
	pause(c.ctx(), c.quiet())
	c.commit(p, store.Change{Key: key("gone"), Over: gone, Do: store.Remove}, store.Change{Key: key("made")}, store.Change{Key: key("over"), Over: old})
	for _, w := range waiting {
		c.wakes(w, "a Watch of a key that a commit changed")
	}
}
