package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/cmd/tenure/internal/bench"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// Missing rights to delete are told and are no failure; other missing rights and
// a store that does not answer are.
//
// SPEC ST8 ST13 UI1
func TestBenchInTrouble(t *testing.T) {
	t.Parallel()
	args := []string{"bench", "store", "--rounds", "3", "--duration", "1s"}
	r := onStore(t, fail(store.ErrDenied, faultstore.OpDelete), args...)
	r.want(t, 0, "renew", "tenure: warning: these credentials may not delete: ")
	r.want(t, 0, "delete", "keys that start with default/probe/bench-")
	onStore(t, fail(store.ErrDenied, faultstore.OpReplace), args...).want(t, 77, "", "denied")
	onStore(t, fail(store.ErrUnavailable), args...).want(t, 69, "", "store unavailable")
	onStore(t, []faultstore.Rule{{Fault: faultstore.Hang(), Ops: []faultstore.Op{faultstore.OpGet}}}, args...).want(t, 69, "", "")
	r = onStore(t, []faultstore.Rule{{Ops: []faultstore.Op{faultstore.OpCreate}, Match: func(c faultstore.Call) bool { return strings.Contains(c.Key, "op=2f") }, Times: 1, Fault: faultstore.Fail(store.ErrUnavailable)}}, args...)
	r.want(t, 0, "1 create; 1 failed", "")
}

// A TTL that the store's limit of writes does not allow is refused, and the
// default is one that it allows.
//
// SPEC ST14 DL5
func TestBenchKeepsTheLimitOfWrites(t *testing.T) {
	t.Parallel()
	bench := func(rate float64, args ...string) result {
		dir := t.TempDir()
		var stdout, stderr bytes.Buffer
		a := newApp(strings.NewReader(""), &stdout, &stderr, []string{"HOME=" + dir, "XDG_RUNTIME_DIR=" + filepath.Join(dir, "run"), "TENURE_STORE=limited:"})
		a.drivers = append(a.drivers, store.Driver{Scheme: "limited", Open: func(context.Context, *url.URL) (store.Store, error) {
			return limited{memstore.New(), rate}, nil
		}})
		code := a.run(newRootCmd(a), append([]string{"bench", "store", "--rounds", "2"}, args...))
		return result{code, stdout.String(), stderr.String()}
	}
	bench(20, "--ttl", "499ms").want(t, 64, "", "--ttl 499ms: a key of this store takes 20 writes per second, so a TTL is at least 500ms")
	bench(20, "--ttl", "500ms").want(t, 0, "at a TTL of 500ms (renewed each 100ms,", "")
	bench(0.5, "--ttl", "19s").want(t, 64, "", "so a TTL is at least 20s")
}

// limited takes few writes per key.
type limited struct {
	store.Store
	rate float64
}

func (l limited) Info() store.Info {
	i := l.Store.Info()
	i.WritesPerSecond, i.Can = l.rate, 0
	return i
}

// sample is a result with figures that are easy to check.
func sample(info store.Info) benchResult {
	times := bench.Times{}
	for i := range 100 {
		times = append(times, time.Duration(i+1)*time.Millisecond)
	}
	steps := []bench.Step{
		{Name: bench.StepCreate, Times: times, Failed: 2, Calls: map[string]float64{"create": 1}},
		{Name: bench.StepAcquireNew, Times: times[:3], Calls: map[string]float64{"create": 1, "get": 2.126}},
		{Name: bench.StepRenew, Times: bench.Times{1500 * time.Millisecond}, Calls: map[string]float64{"replace": 1}},
		{Name: bench.StepRelease, Calls: map[string]float64{}},
	}
	return benchResult{
		info: info, namespace: "default", flags: benchFlags{rounds: 1000, concurrency: 2, limit: 10 * time.Second},
		report: bench.Report{Steps: steps, Ended: bench.EndedLimit, Took: 11 * time.Second, Prefix: "default/probe/bench-x-"},
		cost:   costOf(info, 15*time.Second, callsOf(steps, bench.StepRenew)),
	}
}

// Where requests have a price it is told, with where it comes from, in lines
// that fit a terminal.
func TestBenchTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	sample(store.Info{Scheme: "s3", Identity: "s3://bucket/leases", Driver: "s3store/1"}).print(&out)
	const want = `store  s3://bucket/leases (s3store/1)
run    the time limit of 10s came before 1,000 rounds, 2 at once, 11.0s

step                 n     p50     p90     p99     max  requests
create             100  50.0ms  90.0ms  99.0ms   100ms  1 create; 2 failed
acquire, new name    3  2.00ms  3.00ms  3.00ms  3.00ms  3.13 = 1 create + 2.13 get
renew                1   1.50s   1.50s   1.50s   1.50s  1 replace
release              0       -       -       -       -  -

One lease, held for 30 days at a TTL of 15s (renewed each 3s, less up to 1/8 by chance):
  requests  921,600 (0.36 a second); 1 per renewal, counted here
  money     $4.61 a month ($4.32 if it were renewed each 3s sharp)
  a waiter  polls each 1s: 2,592,000 reads, $1.04 a month
  below $1  from a TTL of 1m10s on
  price     $5.00 per million writes, $0.40 per million reads: list price of November 2026,
            Amazon S3 Standard (us-east-1); yours may differ
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for line := range strings.Lines(out.String()) {
		if width(line) > 101 {
			t.Errorf("a line of %d columns: %s", width(line), line)
		}
	}
}

// The JSON has the same figures; money is null where there is no price.
func TestBenchJSON(t *testing.T) {
	t.Parallel()
	j := sample(store.Info{Scheme: "gs", Identity: "gs://bucket"}).json()
	switch c := j.Cost; {
	case j.Ended != "duration" || j.Steps[0].P99 != 99 || j.Steps[0].Max != 100 || j.Steps[1].Total != 3.126:
		t.Errorf("%+v", j)
	case c.Dollars == nil || *c.Dollars != 4.61 || *c.DollarTTL != 70_000 || *c.WaiterPoll != 1000 || *c.WaiterCost != 1.04 || c.Renewals != 921_600 || !c.Measured:
		t.Errorf("%+v", c)
	case c.Price.Writes != 5 || c.Price.Reads != 0.4 || c.Price.Region == "" || c.Price.Read == "":
		t.Errorf("%+v", c.Price)
	}
	body, err := json.Marshal(sample(store.Info{Scheme: "file", Can: store.CanWatch}).json())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"dollars_per_month":null`, `"waiter_poll_ms":null`, `"price":null`, `"requests_per_second":0.3556`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{0: "0", 999.4: "999", 1000: "1,000", 864000: "864,000", 12345678: "12,345,678"} {
		if got := grouped(n); got != want {
			t.Errorf("%v: %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1500: "1.50µs", 99_900: "99.9µs", 123456 * time.Nanosecond: "123µs", 12 * time.Millisecond: "12.0ms", 90 * time.Second: "90.0s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
