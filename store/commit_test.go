package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// What a driver may be asked is judged in one place; the messages name what was
// wrong.
//
// SPEC SL4
func TestCheckChanges(t *testing.T) {
	t.Parallel()
	put := store.Change{Key: "n/k/a", Body: []byte("123")}
	for _, c := range []struct {
		changes []store.Change
		says    string // "" if they are good
	}{
		{[]store.Change{put}, ""},
		{[]store.Change{put, {Key: "n/k/b", Body: []byte("1234567")}}, ""},
		{[]store.Change{put, {Key: "n/k/b", Body: []byte("12345678")}}, "11 bytes together"},
		{[]store.Change{{Key: "n/k/a", Do: store.Keep}, {Key: "n/k/b", Over: "v", Do: store.Keep}, {Key: "n/k/c", Over: "v", Do: store.Remove}}, ""},
		{nil, "1 to 40 changes, this one 0"},
		{[]store.Change{put, put}, "n/k/a: invalid: it is named twice"},
		{[]store.Change{put, {Key: "n//b"}}, "an element has"},
		{[]store.Change{{Key: "n/k/a", Do: store.Remove}}, "needs the version"},
		{[]store.Change{{Key: "n/k/a", Over: "v", Do: store.Remove, Body: []byte("1")}}, "a remove has no body"},
		{[]store.Change{{Key: "n/k/a", Do: store.Keep, Body: []byte("1")}}, "a keep has no body"},
		{[]store.Change{{Key: "n/k/a", Do: 3}}, "kind 3"},
	} {
		err := store.CheckChanges(c.changes, 10)
		if c.says == "" && err != nil {
			t.Errorf("%v: %v", c.changes, err)
		}
		if c.says != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %v, want ErrInvalid with %q", c.changes, err, c.says)
		}
	}
}

// SPEC SL4
func TestCheckScan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		r    store.ScanRange
		says string
	}{
		{store.ScanRange{To: "z", Most: 1}, ""},
		{store.ScanRange{From: "n/k/", To: "n/k0", Most: store.MaxScan, Limit: 1 << 30}, ""},
		{store.ScanRange{From: "n/k/", To: "n/k/", Most: 1}, ""},
		{store.ScanRange{From: "n", Most: 1}, "no upper bound"},
		{store.ScanRange{From: "o", To: "n", Most: 1}, "upside down"},
		{store.ScanRange{To: "z"}, "at most 0 objects"},
		{store.ScanRange{To: "z", Most: store.MaxScan + 1}, "at most 32769 objects"},
		{store.ScanRange{To: "z", Most: 1, Limit: -1}, "-1 bytes"},
		{store.ScanRange{To: "~", Most: 1}, "the character '~'"},
		{store.ScanRange{From: "A", To: "z", Most: 1}, "the character 'A'"},
		{store.ScanRange{To: strings.Repeat("z", 801), Most: 1}, "800 bytes"},
	} {
		err := store.CheckScan(c.r)
		if c.says == "" && err != nil {
			t.Errorf("%v: %v", c.r, err)
		}
		if c.says != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%+v: %v, want ErrInvalid with %q", c.r, err, c.says)
		}
	}
}

// The end of a prefix is above every key with it, and above no other key.
//
// SPEC SL4
func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	from := store.Prefix("n", "slots")
	to := store.PrefixEnd(from)
	for key, in := range map[string]bool{
		"n/slots/a": true, store.Key("n", "slots", strings.Repeat("\xff", 10)): true, "n/slots/z/z": true, "n/slots/-": true, "n/slots/_": true, "n/slots/=ff": true,
		"n/slots": false, "n/slots0": false, "n/slots-": false, "n/slot/a": false, "n/slotsa/a": false, "o": false, "n": false,
	} {
		if got := key >= from && key < to; got != in {
			t.Errorf("%q from %q to %q: %v, want %v", key, from, to, got, in)
		}
	}
	if got := store.ChangeKind(7).String(); got != "ChangeKind(7)" {
		t.Errorf("an unknown kind is called %q", got)
	}
}
