package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/cmd/tenure/internal/bench"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/memstore"
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
	ms := time.Millisecond
	times := map[string]bench.Times{"get": {ms, 1500 * time.Microsecond, 2 * ms}}
	if f := latencyFinding(times, 100*ms); f.Result != resultOK || f.Detail != "median/longest: get 1.5ms/2ms" {
		t.Errorf("%+v", f)
	}
	for i := range 100 {
		times["create"] = append(times["create"], time.Duration(i+1)*ms)
	}
	if f := latencyFinding(times, 100*ms); f.Result != resultOK || f.Detail != "median/longest: create 50ms/100ms (p99 99ms), get 1.5ms/2ms" {
		t.Errorf("%+v", f)
	}
	times["replace"] = bench.Times{time.Second, time.Second, 3 * time.Second}
	if f := latencyFinding(times, 3*time.Second); f.Result != resultWarn || !strings.Contains(f.Todo, "a TTL of at least 23s") {
		t.Errorf("%+v", f)
	}
	var seen callTimes
	for _, c := range []bench.Call{{Op: "get", Took: 3 * ms}, {Op: "get", Took: ms}, {Op: "create", Took: 2 * ms, Err: store.ErrExists}, {Op: "create", Took: 3 * time.Second, Err: store.ErrUnknown}} {
		seen.seen(t.Context(), c)
	}
	if f := seen.finding(); f.Result != resultWarn || !strings.Contains(f.Detail, "median/longest: get 1ms/3ms; one call took 3s") {
		t.Errorf("%+v", f)
	}
}

// The doctor says what a lease costs, where it is known.
func TestCostFinding(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		info store.Info
		want []string
	}{
		{store.Info{Scheme: "s3", Identity: "s3://b"}, []string{"TTL of 15s sends 921,600 requests (0.36 a second): $4.61,", "from a TTL of 1m10s on", "polls each 1s: 2,592,000 reads, $1.04 a month", "$5.00 per million writes", "us-east-1", "yours may differ"}},
		{store.Info{Scheme: "gs", Identity: "gs://b", WritesPerSecond: 0.5}, []string{"TTL of 20s sends 691,200 requests", "$3.46,"}},
		{store.Info{Scheme: "s3", Identity: "s3://b?endpoint=http://127.0.0.1:9"}, []string{"the price of requests is not known for this place; a waiter: polls each 1s: 2,592,000 reads"}},
		{store.Info{Scheme: "file", Identity: "file:/x", Can: store.CanWatch}, []string{"(0.36 a second): no request price; a waiter: the store wakes it"}},
	} {
		f := costFinding(c.info)
		for _, want := range c.want {
			if f.Result != resultOK || f.Check != "cost" || !strings.Contains(f.Detail, want) {
				t.Errorf("%s: %q is not in %+v", c.info.Identity, want, f)
			}
		}
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

// What a store tells of its settings is a warning each; that they cannot be seen
// is one, too.
//
// SPEC ST16
func TestSettingsFindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		st      store.Store
		results []string
		detail  string
	}{
		"a store that cannot tell": {memstore.New(), nil, ""},
		"nothing":                  {inspected{memstore.New(), nil, nil}, []string{resultOK}, "nothing stands out"},
		"versioning":               {inspected{memstore.New(), []string{"versioning is on"}, nil}, []string{resultWarn}, "versioning is on"},
		"no rights":                {inspected{memstore.New(), nil, store.ErrDenied}, []string{resultWarn}, "cannot be seen"},
		"both":                     {inspected{memstore.New(), []string{"lock"}, store.ErrUnavailable}, []string{resultWarn, resultWarn}, "lock"},
	} {
		found := settingsFindings(t.Context(), c.st)
		var results []string
		for _, f := range found {
			results = append(results, f.Result)
			if (f.Result != resultOK) != (f.Todo != "") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if !slices.Equal(results, c.results) || len(found) > 0 && !strings.Contains(found[0].Detail, c.detail) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// inspected is a store that tells of its settings.
type inspected struct {
	*memstore.Store
	says []string
	err  error
}

func (i inspected) Inspect(context.Context) ([]string, error) { return i.says, i.err }

// Over a numbered register a renewal is two requests, and costs both.
//
// SPEC ST17
func TestCostOfARegister(t *testing.T) {
	t.Parallel()
	plain := store.Info{Scheme: "s3", Identity: "s3://bucket", Driver: "s3store/1"}
	register := plain
	register.Driver = "numbered/1 over s3store/1"
	a, b := costOf(plain, 15*time.Second, nil), costOf(register, 15*time.Second, nil)
	if b.month.Total() != 2*a.month.Total() || !a.priced || b.list.Dollars(b.month) != 2*a.list.Dollars(a.month) {
		t.Errorf("plain %+v, register %+v", a.month, b.month)
	}
}
