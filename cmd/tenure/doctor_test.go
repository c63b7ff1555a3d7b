package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/store"
)

// SPEC DL3 DL5
func TestClockFindings(t *testing.T) {
	t.Parallel()
	const rho = 0.01
	for name, c := range map[string]struct {
		clocks clocks
		result string
		detail string
	}{
		"never slept":     {clocks{boot: time.Hour, mono: time.Hour}, resultOK, "has not slept"},
		"slept":           {clocks{boot: 3 * time.Hour, mono: time.Hour}, resultOK, "2h00m since"},
		"shifted":         {clocks{boot: 3 * time.Hour, mono: time.Hour, shift: 2 * time.Hour}, resultOK, "has not slept since it started; this time namespace shifts it by 2h0m0s"},
		"no such clock":   {clocks{}, resultWarn, "no clock here that counts time asleep"},
		"no other to see": {clocks{boot: time.Hour}, resultOK, "counts time asleep"},
	} {
		if f := c.clocks.suspend(); f.Result != c.result || !strings.Contains(f.Detail, c.detail) || (f.Result != resultOK) != (f.Todo != "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for name, c := range map[string]struct {
		clocks clocks
		result string
		detail string
	}{
		"usual":    {clocks{slewPPM: 37.5}, resultOK, "corrected by +37.5 ppm; leases allow for 10000"},
		"too fast": {clocks{slewPPM: 50000}, resultWarn, "+50000 ppm off"},
		"too slow": {clocks{slewPPM: -10001}, resultWarn, "-10001 ppm off"},
		"unknown":  {clocks{slewErr: errors.New("not permitted")}, resultWarn, "cannot be told here how fast the kernel slews the clock: not permitted"},
	} {
		if f := c.clocks.rate(rho); f.Result != c.result || !strings.Contains(f.Detail, c.detail) || (f.Result != resultOK) != (f.Todo != "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// Where a store does not survive a restart, the doctor says so before anybody
// relies on it.
//
// SPEC ST16
func TestFileSystemFinding(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"ext4": resultOK, "unknown (0x1)": resultOK, "tmpfs": resultWarn, "ramfs": resultWarn, "overlay": resultWarn} {
		if f := fileSystemFinding("/x", name, nil); f.Result != want || (f.Result != resultOK) != (f.Todo != "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if f := fileSystemFinding("/x", "", errNoStatfs); f.Result != resultOK || !strings.Contains(f.Detail, "cannot be told: not here") {
		t.Errorf("%+v", f)
	}
}

var errNoStatfs = errors.New("not here")

// A store that is too slow for the default TTL gets the TTL that it needs.
//
// SPEC DL5
func TestLatencyFinding(t *testing.T) {
	t.Parallel()
	r := store.Report{Latencies: []store.Latency{{Op: "get", Calls: 3, P50: 1500 * time.Microsecond, Max: 2 * time.Millisecond}}}
	if f := latencyFinding(r); f.Result != resultOK || f.Detail != "median/longest: get 1.5ms/2ms" {
		t.Errorf("%+v", f)
	}
	r.Latencies = append(r.Latencies, store.Latency{Op: "replace", Calls: 3, P50: time.Second, Max: 3 * time.Second})
	if f := latencyFinding(r); f.Result != resultWarn || !strings.Contains(f.Todo, "a TTL of at least 23s") {
		t.Errorf("%+v", f)
	}
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"file:///var/lib/a%20b": "/var/lib/a b", "file:rel/a%20b?network=allow": "rel/a b",
		"sqlite:///var/lib/x.db": "/var/lib", "sqlite:x.db": ".", "mem:": "", "s3://bucket/x": "",
	} {
		scheme, _, _ := strings.Cut(raw, ":")
		if got := localPath(raw, scheme); got != filepath.FromSlash(want) {
			t.Errorf("localPath(%q) = %q, want %q", raw, got, want)
		}
	}
}

// A folder of observations that others may write to could hide a roll-back.
//
// SPEC LS2 LS12
func TestStateFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := newApp(strings.NewReader(""), discard{}, discard{}, []string{"XDG_RUNTIME_DIR=" + dir})
	if f := a.stateFinding(); f.Result != resultOK {
		t.Errorf("%+v", f)
	}
	if err := os.Chmod(filepath.Join(dir, "tenure"), 0o777); err != nil {
		t.Fatal(err)
	}
	if f := a.stateFinding(); f.Result != resultWarn || !strings.Contains(f.Todo, "chmod 700") {
		t.Errorf("%+v", f)
	}
	a = newApp(strings.NewReader(""), discard{}, discard{}, nil)
	if f := a.stateFinding(); f.Result != resultWarn || !strings.Contains(f.Detail, "there is none") {
		t.Errorf("%+v", f)
	}
}
