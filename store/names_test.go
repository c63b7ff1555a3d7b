package store_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// SPEC ST11
func TestCheckName(t *testing.T) {
	t.Parallel()
	bad := []struct{ name, says string }{
		{"", "empty"}, {strings.Repeat("a", 129), "129 bytes"}, {strings.Repeat("é", 65), "130 bytes"},
		{"a\xff", "UTF-8"}, {"\xc0\xaf", "UTF-8"}, {"\xed\xa0\x80", "UTF-8"},
		{"a\x00b", "U+0000"}, {"a\nb", "U+000A"}, {"a\x7f", "U+007F"}, {"a\u0085b", "U+0085"}, {"a\x1b[2J", "U+001B"},
		{" a", "white space"}, {"a ", "white space"}, {"\u00a0a", "white space"}, {"a\u3000", "white space"}, {"\u2028", "white space"},
	}
	for _, c := range bad {
		err := store.CheckName("lease name", c.name)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "lease name") {
			t.Errorf("CheckName(%q): %v, want ErrInvalid that says %q", c.name, err, c.says)
		}
	}
	for _, name := range append(storetest.HostileNames(), strings.Repeat("🔒", 32), "a", "a b", "\u200b") {
		if err := store.CheckName("lease name", name); err != nil {
			t.Errorf("CheckName(%q): %v", name, err)
		}
	}
}

// checkElement holds the encoding of one name to what it promises.
func checkElement(t *testing.T, name string) string {
	t.Helper()
	e := store.EncodeName(name)
	if len(e) > 160 {
		t.Errorf("EncodeName(%q) has %d bytes", name, len(e))
	}
	if err := store.CheckKey(e); name != "" && err != nil {
		t.Errorf("EncodeName(%q) = %q is no key: %v", name, e, err)
	}
	// What is left has one case and one Unicode form, so a backend that folds
	// either cannot take it for another.
	if strings.ToLower(e) != e {
		t.Errorf("EncodeName(%q) = %q has upper case", name, e)
	}
	got, exact, err := store.DecodeName(e)
	switch {
	case err != nil:
		t.Errorf("DecodeName(EncodeName(%q)) = %q: %v", name, e, err)
	case exact && got != name:
		t.Errorf("DecodeName(EncodeName(%q)) gives %q", name, got)
	case !exact && (got != "" || !strings.Contains(e, "=h") || len(name) <= 53):
		t.Errorf("DecodeName(EncodeName(%q)) = %q is not exact and gives %q", name, e, got)
	}
	return e
}

// SPEC ST11
// CASE B52
func TestNoTwoNamesShareAnElement(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	check := func(name string) {
		e := checkElement(t, name)
		if other, ok := seen[e]; ok && other != name {
			t.Errorf("the names %q and %q share the element %q", name, other, e)
		}
		seen[e] = name
	}
	for _, name := range storetest.HostileNames() {
		check(name)
	}
	// Names from a small alphabet that is hard on the encoding, of all lengths
	// around the one where a digest begins.
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "A", "=", "h", "3", "d", "-", "_", "/", ".", " ", "é", "e\u0301", "🔒", "con", "=h", "\xff"}
	for range 20_000 {
		var b strings.Builder
		for n := r.IntN(129); b.Len() < n; {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		check(b.String())
	}
	// Every name of one and two bytes.
	for a := range 256 {
		check(string([]byte{byte(a)}))
		for b := range 256 {
			check(string([]byte{byte(a), byte(b)}))
		}
	}
}

// Device names of Windows are no elements, and the escape that makes them safe
// collides with nothing.
func TestDeviceNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"con", "prn", "aux", "nul", "com0", "com1", "com9", "lpt1", "lpt9"} {
		if e := checkElement(t, name); e == name || e[0] != '=' {
			t.Errorf("EncodeName(%q) = %q", name, e)
		}
	}
	for _, name := range []string{"cona", "acon", "com", "com10", "coma", "lpt", "null"} {
		if e := checkElement(t, name); e != name {
			t.Errorf("EncodeName(%q) = %q, want it unchanged", name, e)
		}
	}
}

// SPEC ST7 ST11
func TestDecodeNameRefusesWhatEncodeNameCannotMake(t *testing.T) {
	t.Parallel()
	hash := strings.Repeat("0a", 32)
	fits := strings.Repeat("a", 94)
	if _, exact, err := store.DecodeName(fits + "=h" + hash); exact || err != nil {
		t.Fatalf("the short form of a long name: exact %v, %v", exact, err)
	}
	for _, e := range []string{
		"=", "a=", "=3", "=g0", "=3D", "=61", "=2d", "con", "A", "a b", "a/b", "a.b", "é",
		"=h", "a=h", "=h" + hash, "a=h" + hash, fits + "a=h" + hash, fits[:91] + "=h" + hash,
		fits + "=h" + hash[:63], fits + "=h" + hash + "0", fits + "=h" + strings.ToUpper(hash), fits + "=h" + strings.Repeat("zz", 32),
		fits[:92] + "=3=h" + hash, fits[:91] + "=61=h" + hash,
	} {
		if name, exact, err := store.DecodeName(e); !errors.Is(err, store.ErrCorrupt) || exact || name != "" {
			t.Errorf("DecodeName(%q) = %q, %v, %v; want ErrCorrupt", e, name, exact, err)
		}
	}
}

// SPEC ST11
func TestKeysStayInTheirNamespace(t *testing.T) {
	t.Parallel()
	names := storetest.HostileNames()
	for i, namespace := range names {
		name := names[len(names)-1-i]
		k, prefix := store.Key(namespace, "lease", name), store.Prefix(namespace, "lease")
		if !strings.HasPrefix(k, prefix) || strings.Count(k, "/") != 2 {
			t.Errorf("Key(%q, lease, %q) = %q does not stay below %q", namespace, name, k, prefix)
		}
		if err := store.CheckKey(k); err != nil {
			t.Errorf("Key(%q, lease, %q): %v", namespace, name, err)
		}
	}
}

// SPEC ST11
func TestCheckKey(t *testing.T) {
	t.Parallel()
	for _, k := range []string{"", "/", "a/", "/a", "a//b", ".", "..", "A", "a b", "a\x00", "é", strings.Repeat("a", 201), strings.Repeat("a/", 400) + "a"} {
		if err := store.CheckKey(k); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("CheckKey(%q): %v, want ErrInvalid", k, err)
		}
	}
	for _, k := range []string{"a", "a/b", "=", "-/_", strings.Repeat("a", 200), strings.Repeat("a/", 399) + "aa"} {
		if err := store.CheckKey(k); err != nil {
			t.Errorf("CheckKey(%q): %v", k, err)
		}
	}
}

// SPEC ST11
func FuzzNames(f *testing.F) {
	names := storetest.HostileNames()
	for i, name := range names {
		f.Add(name, names[(i+1)%len(names)])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if ea, eb := checkElement(t, a), checkElement(t, b); ea == eb && a != b {
			t.Errorf("the names %q and %q share the element %q", a, b, ea)
		}
	})
}

// SPEC ST7 ST11
func FuzzDecodeName(f *testing.F) {
	for _, name := range storetest.HostileNames() {
		f.Add(store.EncodeName(name))
	}
	f.Fuzz(func(t *testing.T, element string) {
		name, exact, err := store.DecodeName(element)
		if err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("DecodeName(%q): %v", element, err)
		}
		if exact && store.EncodeName(name) != element {
			t.Errorf("DecodeName(%q) = %q, which encodes as %q", element, name, store.EncodeName(name))
		}
	})
}
