package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-project/tenure"
	authlog "github.com/tenure-project/tenure/authority"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
)

const deployment = "dddddddd-4444-4444-8444-444444444444"

// oneSlot names an assignment of one slot.
var oneSlot = &assignment.Fence{
	Version: 1, Slots: 1, Digest: core.DigestOf("map", nil), Participants: []assignment.Participant{{Node: "n1", Incarnation: deployment}},
}

// abortOf is a decision: the outcome that aborts the checkpoint of an epoch.
func abortOf(b *testing.B, epoch uint64) []byte {
	return must(checkpoint.NewAbort(checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}, deployment, oneSlot).Encode())(b)
}

// must returns a value, or ends the benchmark.
func must[T any](v T, err error) func(b *testing.B) T {
	return func(b *testing.B) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}

// authorities are n authorities that one session leads, on a store of the shared
// server.
func authorities(b *testing.B, n int) (*Store, []*authlog.Authority) {
	b.Helper()
	s := openCalm(b, fresh(), shared.node(b).endpoint)
	c := must(tenure.New(b.Context(), closed{s}, tenure.WithoutProbe(), tenure.WithTTL(time.Minute)))(b)
	b.Cleanup(func() { _ = c.Close() })
	session := must(c.Join(b.Context(), "n1"))(b)
	all := make([]*authlog.Authority, n)
	for i := range all {
		all[i] = must(authlog.Open(b.Context(), session, "jobs "+strconv.Itoa(i), authlog.PruneEvery(-1)))(b)
		must(all[i].Lead(b.Context()))(b)
	}
	return s, all
}

// closed is a store that somebody else closes.
type closed struct{ *Store }

// Close does nothing.
func (closed) Close() error { return nil }

// decider appends decisions to one authority.
type decider struct {
	a     *authlog.Authority
	l     *authlog.Leader
	epoch uint64
}

func (d *decider) append(b *testing.B) {
	d.epoch++
	res, err := d.a.Append(b.Context(), d.l.Proof(), checkpoint.Rules{}, abortOf(b, d.epoch))
	if err != nil || res.Answer != authlog.Created {
		b.Errorf("%v, %v", res.Answer, err)
	}
}

// swapper replaces one key by transactions that compare its revision, with the bytes
// of a decision.
type swapper struct {
	c     *clientv3.Client
	key   string
	at    int64
	epoch uint64
}

func (s *swapper) swap(b *testing.B) {
	s.epoch++
	r, err := s.c.Txn(b.Context()).If(clientv3.Compare(clientv3.ModRevision(s.key), "=", s.at)).
		Then(clientv3.OpPut(s.key, string(abortOf(b, s.epoch)))).Commit()
	if err != nil || !r.Succeeded {
		b.Errorf("%+v, %v", r, err)
		return
	}
	s.at = r.Header.Revision
}

// BenchmarkAppend is a decision beside one transaction of the same server that
// compares a revision and puts the same bytes: the least that decides anything there.
// One writer tells the latency, sixteen authorities at once the throughput, beside
// sixteen keys.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			_, all := authorities(b, n)
			c := must(clientv3.New(clientv3.Config{Endpoints: []string{shared.node(b).endpoint}}))(b)
			b.Cleanup(func() { _ = c.Close() })
			var ours, floor []func(*testing.B)
			for i, a := range all {
				ours = append(ours, (&decider{a: a, l: a.Leader()}).append)
				floor = append(floor, (&swapper{c: c, key: fresh() + strconv.Itoa(i)}).swap)
			}
			const window = 250 * time.Millisecond
			var o, f []time.Duration
			var spent time.Duration
			for b.Loop() { // in turn, so that other load meets both
				o = append(o, race(b, window, ours)...)
				f = append(f, race(b, window, floor)...)
				spent += window
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(at(o, 0.5), "p50-us")
			b.ReportMetric(at(o, 0.99), "p99-us")
			b.ReportMetric(at(f, 0.5), "floor-p50-us")
			b.ReportMetric(at(f, 0.99), "floor-p99-us")
			b.ReportMetric(at(o, 0.5)/at(f, 0.5), "ratio")
			b.ReportMetric(float64(len(o))/spent.Seconds(), "appends/s")
			b.ReportMetric(float64(len(f))/spent.Seconds(), "floor/s")
		})
	}
}

// race lets all run at once, each again and again, for a while, and returns how long
// each call took.
func race(b *testing.B, d time.Duration, all []func(*testing.B)) []time.Duration {
	var wg sync.WaitGroup
	took := make([][]time.Duration, len(all))
	end := time.Now().Add(d)
	for i, f := range all {
		wg.Go(func() {
			for start := time.Now(); start.Before(end) && !b.Failed(); {
				f(b)
				now := time.Now()
				took[i] = append(took[i], now.Sub(start))
				start = now
			}
		})
	}
	wg.Wait()
	return slices.Concat(took...)
}

// at is a quantile in microseconds.
func at(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return float64(all[min(int(q*float64(len(all))), len(all)-1)]) / float64(time.Microsecond)
}

// BenchmarkAudit verifies a chain of 4,096 live links, beside reading as many objects
// of known names one after the other.
func BenchmarkAudit(b *testing.B) {
	s, all := authorities(b, 1)
	a := all[0]
	begun := core.Proof(a.Leader().Proof())
	m := must(assignment.NewMap(core.MaxLive+1, oneSlot.Participants))(b)
	must(s.Create(b.Context(), a.Kit().Key("assignment", fmt.Sprintf("%016d", m.Version)), must(m.Encode())(b)))(b)
	oneSlot := m.Fence()
	for v := range uint64(core.MaxLive) {
		d := &assignment.Decision{V: record.Level, Kind: assignment.Drain, Verdict: assignment.Commit, Predecessor: oneSlot.At(v + 1), Target: oneSlot.At(v + 2), Begun: &begun}
		if res := must(a.Append(b.Context(), a.Leader().Proof(), assignment.Rules{}, must(d.Encode())(b)))(b); res.Answer != authlog.Created {
			b.Fatal(res.Answer)
		}
	}
	var keys []string
	for key, err := range s.List(b.Context(), a.Kit().Key("entry", ""), "") {
		keys = append(keys, must(key, err)(b))
	}
	var o, f []time.Duration
	for b.Loop() {
		start := time.Now()
		if report := must(a.Reader().Audit(b.Context()))(b); report.Entries != core.MaxLive {
			b.Fatal(report.Entries)
		}
		o, start = append(o, time.Since(start)), time.Now()
		for _, k := range keys {
			must(s.Get(context.Background(), k, core.MaxEntry))(b)
		}
		f = append(f, time.Since(start))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(at(o, 0.5)/1e6, "audit-s")
	b.ReportMetric(at(f, 0.5)/1e6, "floor-s")
	b.ReportMetric(at(o, 0.5)/at(f, 0.5), "ratio")
}
