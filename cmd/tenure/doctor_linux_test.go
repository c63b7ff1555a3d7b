package main

import (
	"testing"
	"time"
)

// SPEC DL5
func TestSlewPPM(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		freq, tick int64
		want       float64
	}{{0, 10000, 0}, {65536, 10000, 1}, {-32768000, 10000, -500}, {0, 10100, 10000}, {0, 9000, -100000}} {
		if got := slewPPM(c.freq, c.tick); got != c.want {
			t.Errorf("slewPPM(%d, %d) = %v, want %v", c.freq, c.tick, got, c.want)
		}
	}
}

func TestClockShift(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"monotonic           0         0\nboottime            0         0\n":         0,
		"monotonic           0         0\nboottime         7200 500000000\n":         2*time.Hour + 500*time.Millisecond,
		"monotonic        7200         0\nboottime         7200         0\n":         0,
		"monotonic           0         0\nboottime          -60         0\nbroken\n": -time.Minute,
		"": 0,
	} {
		if got := clockShift(text); got != want {
			t.Errorf("clockShift(%q) = %v, want %v", text, got, want)
		}
	}
}

// This machine's own clocks can be read.
func TestReadClocks(t *testing.T) {
	t.Parallel()
	if c := readClocks(); c.mono <= 0 {
		t.Errorf("the monotonic clock reads %v", c.mono)
	}
	if name, err := fileSystem(t.TempDir()); err != nil || name == "" {
		t.Errorf("file system %q: %v", name, err)
	}
}
