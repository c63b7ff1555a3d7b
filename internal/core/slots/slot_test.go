package slots

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// Which slot a key has is pinned for ever: the published vectors of FNV-1a, and what a
// program of another language computed.
//
// SPEC SL1
func TestSlotsOfKeysArePinned(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]uint64{
		"":        0xcbf29ce484222325,
		"a":       0xaf63dc4c8601ec8c,
		"foobar":  0x85944171f73967e8,
		"acme":    0x724d383f4f6de0f,
		"user:42": 0x6c151ea4dcd221c2,
		"München": 0x5a2d37adad99d4f3,
		"\x00":    0xaf63bd4c8601b7df,
	} {
		if got := SlotOf(key); got != uint16(want%Count) {
			t.Errorf("slot of %q: %d, not %d", key, got, want%Count)
		}
		if SlotOfBytes([]byte(key)) != SlotOf(key) {
			t.Errorf("%q as bytes is elsewhere", key)
		}
		h := fnv.New64a()
		h.Write([]byte(key))
		if h.Sum64() != want {
			t.Errorf("%q: %x", key, h.Sum64())
		}
	}
	for text, slot := range map[string]uint16{"": 8997, "a": 11404, "foobar": 10216} {
		if SlotOf(text) != slot {
			t.Errorf("slot of %q: %d", text, SlotOf(text))
		}
	}
}

// Which slot a number has, too: splitmix64 as published, whose first output for the seed
// 0 is e220a8397b1dcdaf.
//
// SPEC SL1
func TestSlotsOfNumbersArePinned(t *testing.T) {
	t.Parallel()
	if got := splitmix64(0); got != 0xe220a8397b1dcdaf {
		t.Errorf("splitmix64(0) is %x", got)
	}
	for key, want := range map[uint64]uint16{0: 3503, 1: 7361, 2: 5838, 42: 11925, 4294967296: 312, 1<<64 - 1: 11296} {
		if got := SlotOfInt(key); got != want {
			t.Errorf("slot of %d: %d, not %d", key, got, want)
		}
	}
	var hit [Count / 64]bool // numbers in a row spread
	for i := range uint64(Count) {
		hit[SlotOfInt(i)/64] = true
	}
	for i, ok := range hit {
		if !ok {
			t.Errorf("no number below %d is in the slots from %d", Count, i*64)
		}
	}
}

// SPEC SL1
func TestRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Range{"0-8191": {0, 8191}, " 7 ": {7, 7}, "16383": {Last, Last}, "3 - 4": {3, 4}, "0-16383": All} {
		got, err := ParseRange(text)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
		if again, err := ParseRange(got.String()); err != nil || again != want {
			t.Errorf("%q is %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", " ", "9-1", "0-16384", "16384", "a-b", "1-2-3", "-1", "1-", "-", "+1", "0x10", "1_0", "99999999999999999999", "1\u00a02"} {
		if got, err := ParseRange(text); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q is %v, %v", text, got, err)
		}
	}
	if !r(0, 10).Overlaps(r(10, 20)) || r(0, 9).Overlaps(r(10, 20)) || !r(5, 5).Overlaps(All) {
		t.Error("overlaps")
	}
	if All.Len() != Count || r(3, 3).Len() != 1 || !All.Contains(Last) || r(1, 2).Contains(0) || r(1, 2).Contains(3) {
		t.Error("length or content")
	}
	if !All.Holds(r(3, 9)) || r(3, 9).Holds(r(3, 10)) || r(3, 9).Holds(r(2, 9)) || nothing.Holds(r(0, 0)) || nothing.Holds(r(1, 1)) || nothing.Holds(All) {
		t.Error("holds")
	}
	body, err := json.Marshal(map[string]Range{"r": r(3, 9)})
	if err != nil || string(body) != `{"r":"3-9"}` {
		t.Errorf("%s, %v", body, err)
	}
	var back Range
	if err := json.Unmarshal([]byte(`"3-9"`), &back); err != nil || back != r(3, 9) {
		t.Errorf("%v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`"9-3"`), &back); err == nil || back != r(3, 9) {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []Range{{9, 3}, {0, Count}} {
		if _, err := json.Marshal(bad); err == nil {
			t.Errorf("%v is written", bad)
		}
	}
}
