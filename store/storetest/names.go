package storetest

import (
	"slices"
	"strings"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST11
// CASE B52
func nameClauses() []Clause {
	return []Clause{{
		Rule: "ST11", Name: "every-name-is-its-own-record",
		Says: "Names are compared by bytes: no backend folds case or Unicode forms together, and no two names share a record.",
		run: func(c *check) {
			c.ownRecords(HostileNames(), func(name string) string { return store.Key("suite", "lease", name) }, true)
		},
	}, {
		Rule: "ST11", Name: "every-namespace-is-its-own",
		Says: "No name leaves its namespace, and no two namespaces share a record.",
		run: func(c *check) {
			c.ownRecords(HostileNames(), func(name string) string { return store.Key(name, "lease", "x") }, false)
			for _, name := range HostileNames() {
				c.lists(store.Prefix(name, "lease"), "", store.Key(name, "lease", "x"))
			}
		},
	}, {
		Rule: "ST11", Name: "longest-keys",
		Says: "A key has up to 800 bytes in elements of up to 200; long ones do not collide.",
		run: func(c *check) {
			long := strings.Repeat("a", 199)
			tail := "/" + long + "/" + long + "/" + strings.Repeat("b", 199)
			keys := []string{long + "0" + tail, long + "1" + tail, long + "1" + tail[:len(tail)-1] + "c", "a/" + long + "0", "a/" + long + "1"}
			c.ownRecords(keys, func(k string) string { return k }, false)
			slices.Sort(keys)
			c.lists("", "", keys...)
		},
	}, {
		Rule: "ST11", Name: "bad-keys-are-refused",
		Says: "A bad key is ErrInvalid before any I/O.",
		run:  badKeys,
	}}
}

// HostileNames are names that some backend, at some time, took for another
// name, or for no name: pairs that differ in case, Unicode form, invisible
// characters or trailing dots; device names; path elements; escapes; and the
// longest names of the worst bytes.
func HostileNames() []string {
	names := []string{
		"job", "Job", "JOB", "jOB",
		"a", "a.", "a..", "a .", ".a", ".", "..", "...", "a b", "a  b", "a-b", "a_b",
		"é", "e\u0301", "É", "\u212b", "\u00e5", "a\u030a", "\ufb01", "fi", "ß", "ss", "SS", "ı", "i", "İ", "ſ", "s", "K", "\u212a", "k",
		"a\u200bb", "ab", "a\u200db", "a\u00adb", "\ufeffa", "a\u202eb", "\u202eba",
		"مفتاح", "שלום", "名前", "имя", "🔒", "👩‍👩‍👧", "👩👩👧", "\U0001f512\ufe0f",
		"con", "CON", "con.txt", "nul", "aux", "prn", "com1", "lpt9", "com10", "=63on",
		"/", "//", "a/b", "a//b", "/a", "a/", "../a", "a/../b", "a\\b", "c:a", "~", "-", "--", "-rf", "*", "?", "%2f", "%", "a%00",
		"=", "=3d", "=h", "==", "_", "$HOME", "`id`", "';drop table records;--", "a|b", "<a>", "\"", "'", "#", "a&b", "a;b",
		strings.Repeat("a", 128), strings.Repeat("a", 127) + "b", strings.Repeat("A", 128), strings.Repeat("A", 127) + "B",
		strings.Repeat("é", 64), strings.Repeat("🔒", 32), strings.Repeat("🔒", 31) + "🔓", strings.Repeat(".", 128), strings.Repeat("/", 128),
		strings.Repeat("a", 53) + "A" + strings.Repeat("a", 74), strings.Repeat("=", 128), strings.Repeat("h", 128),
	}
	return names
}

// ownRecords makes a record for each name, before it reads any back.
func (c *check) ownRecords(names []string, keyOf func(name string) string, decodes bool) {
	versions := make([]store.Version, len(names))
	for i, name := range names {
		k := keyOf(name)
		if err := store.CheckKey(k); err != nil {
			c.TB.Fatalf("storetest: the key of %q: %v", name, err)
		}
		v, err := c.s.Create(c.ctx(), k, []byte("of "+name))
		if err != nil {
			c.Fatalf("Create for the name %q (key %s) failed: %v", name, k, err)
		}
		versions[i] = v
	}
	for i, name := range names {
		c.state(c.s, keyOf(name), "of "+name, versions[i])
		c.replace(c.s, keyOf(name), "of "+name, versions[i])
	}
	listed := c.list(c.s, "", "")
	if len(listed) != len(names) {
		c.Errorf("%d names are listed as %d keys", len(names), len(listed))
	}
	for _, name := range names {
		k := keyOf(name)
		if !slices.Contains(listed, k) {
			c.Errorf("the listing lacks the key %s of the name %q", k, name)
		}
		if !decodes {
			continue
		}
		element := k[strings.LastIndexByte(k, '/')+1:]
		if got, exact, err := store.DecodeName(element); err != nil || exact && got != name {
			c.Errorf("the listed element %q decodes to %q, %v; want the name %q", element, got, err, name)
		}
	}
}

func badKeys(c *check) {
	keys := []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a.b", "A", "a b", "a\x00", "a\n", "é", "a\\b", "c:a", "a%2fb", "a*",
		strings.Repeat("a", 201), "a/" + strings.Repeat("b", 201), strings.Repeat("a/", 400) + "a",
	}
	for _, k := range keys {
		for _, op := range c.keyOps(c.s) {
			err := op.call(c.ctx(), k)
			c.kind(err, store.ErrInvalid, c.s, "", "%s with the bad key %q", op.name, k)
		}
	}
	c.lists("", "")
}
