package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	core "github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/core/authority/assignment"
	"github.com/tenure-project/tenure/internal/core/authority/checkpoint"
	"github.com/tenure-project/tenure/internal/record"
	"github.com/tenure-project/tenure/store"
)

const deployment = "dddddddd-4444-4444-8444-444444444444"

// fenceOf names an assignment of one slot each to n participants.
func fenceOf(n int) *assignment.Fence {
	f := &assignment.Fence{Version: 1, Slots: uint64(n), Digest: core.DigestOf("map", nil)}
	for i := range n {
		f.Participants = append(f.Participants, assignment.Participant{Node: fmt.Sprintf("node-%04d", i), Incarnation: deployment})
	}
	return f
}

// abortOf is a decision: the outcome that aborts the checkpoint of an epoch.
func abortOf(b *testing.B, epoch uint64, f *assignment.Fence) []byte {
	b.Helper()
	body, err := checkpoint.NewAbort(checkpoint.Attempt{Epoch: epoch, Checkpoint: epoch}, deployment, f).Encode()
	check(b, err)
	return body
}

// leader leads an authority on st.
func leader(b *testing.B, st store.Store) (*authority.Authority, *authority.Leader) {
	b.Helper()
	s, err := client(b, st, tenure.WithTTL(childTTL)).Join(b.Context(), "n1")
	check(b, err)
	a, err := authority.Open(b.Context(), s, "jobs", authority.PruneEvery(-1))
	check(b, err)
	l, err := a.Lead(b.Context())
	check(b, err)
	return a, l
}

// BenchmarkAppend is one decision, an entry and the head that admits it, beside the
// two durable writes that it cannot do without.
func BenchmarkAppend(b *testing.B) {
	for _, p := range places(b) {
		b.Run(p.kind, func(b *testing.B) {
			others(b)
			st := &counted{linedStore: local(b, p.url)}
			a, l := leader(b, st)
			epoch, calls := uint64(0), int64(0)
			o, f := alternate(b, func() {
				epoch++
				before := st.reads.Load() + st.writes.Load()
				res, err := a.Append(b.Context(), l.Proof(), checkpoint.Rules{}, abortOf(b, epoch, fenceOf(1)))
				check(b, err)
				if res.Answer != authority.Created {
					b.Fatal(res.Answer)
				}
				calls += st.reads.Load() + st.writes.Load() - before
			}, p.floor(b))
			compare(b, o, f)
			b.ReportMetric(float64(calls)/float64(epoch), "requests/decision")
		})
	}
}

// fill appends as many decisions as a chain holds, writes the map down that is current
// then, and returns where the entries are.
func fill(b *testing.B, st store.Store, a *authority.Authority, l *authority.Leader) (keys []string) {
	b.Helper()
	begun := core.Proof(l.Proof())
	m, err := assignment.NewMap(core.MaxLive+1, fenceOf(1).Participants)
	check(b, err)
	body, err := m.Encode()
	check(b, err)
	_, err = st.Create(b.Context(), a.Kit().Key("assignment", fmt.Sprintf("%016d", m.Version)), body)
	check(b, err)
	f := m.Fence()
	for v := range uint64(core.MaxLive) {
		d := &assignment.Decision{V: record.Level, Kind: assignment.Drain, Verdict: assignment.Commit, Predecessor: f.At(v + 1), Target: f.At(v + 2), Begun: &begun}
		body, err := d.Encode()
		check(b, err)
		res, err := a.Append(b.Context(), l.Proof(), assignment.Rules{}, body)
		check(b, err)
		if res.Answer != authority.Created {
			b.Fatal(res.Answer)
		}
	}
	for key, err := range st.List(b.Context(), a.Kit().Key("entry", ""), "") {
		check(b, err)
		keys = append(keys, key)
	}
	return keys
}

// BenchmarkAudit verifies a chain of 4,096 live links, beside reading as many objects
// of known names one after the other.
func BenchmarkAudit(b *testing.B) {
	for _, p := range places(b) {
		b.Run(fmt.Sprintf("%s/%d", p.kind, core.MaxLive), func(b *testing.B) {
			others(b)
			st := local(b, p.url)
			a, l := leader(b, st)
			keys := fill(b, st, a, l)
			o, f := alternate(b, func() {
				report, err := a.Reader().Audit(b.Context())
				check(b, err)
				if report.Entries != core.MaxLive {
					b.Fatalf("%d entries", report.Entries)
				}
			}, func() { readAll(b, st, keys) })
			hideTime(b)
			b.ReportMetric(o.median().Seconds(), "audit-s")
			b.ReportMetric(f.median().Seconds(), "floor-s")
			b.ReportMetric(ratio(o.median(), f.median()), "ratio")
		})
	}
}

// readAll reads objects one after the other.
func readAll(b *testing.B, st store.Store, keys []string) {
	b.Helper()
	for _, k := range keys {
		_, err := st.Get(context.Background(), k, core.MaxEntry)
		check(b, err)
	}
}

// BenchmarkRecords encodes and decodes the head of an authority with a fault slot for
// each of 129 processes, and an entry whose assignment has as many participants,
// beside the bare JSON of the same: the rest is the check that the bytes are the
// canonical ones, and valid.
func BenchmarkRecords(b *testing.B) {
	a, l := leader(b, local(b, filePlace(b)))
	res, err := a.Append(b.Context(), l.Proof(), checkpoint.Rules{}, abortOf(b, 1, fenceOf(assignment.MaxParticipants)))
	check(b, err)
	s, err := a.Reader().Snapshot(b.Context())
	check(b, err)
	var reports []core.Report
	for _, p := range fenceOf(assignment.MaxParticipants).Participants {
		reports = append(reports, core.Report{Node: p.Node, Incarnation: p.Incarnation, Term: 1, Request: 1})
	}
	head, _, err := s.Kit().Fold(deployment, reports...)
	check(b, err)
	body, err := head.Encode()
	check(b, err)
	b.Run("Head/encode", func(b *testing.B) {
		records(b, len(body), func() error { _, err := head.Encode(); return err }, func() error { _, err := json.Marshal(head); return err })
	})
	b.Run("Head/decode", func(b *testing.B) {
		records(b, len(body), func() error { _, err := core.Decode("k", "jobs", body); return err },
			func() error { return json.Unmarshal(body, new(core.Head)) })
	})
	entry, err := a.Reader().Object(b.Context(), "entry", res.Winner.Name().Element(), core.MaxEntry)
	check(b, err)
	b.Run("Entry/decode", func(b *testing.B) {
		records(b, len(entry), func() error { return record.Decode("k", entry, new(core.Entry)) },
			func() error { return json.Unmarshal(entry, new(core.Entry)) })
	})
}

// records compares two ways with a record of some bytes.
func records(b *testing.B, bytes int, ours, floor func() error) {
	b.Helper()
	others(b)
	o, f := alternate(b, func() { check(b, ours()) }, func() { check(b, floor()) })
	hideTime(b)
	b.ReportMetric(float64(bytes), "bytes")
	b.ReportMetric(micros(o.median()), "p50-us")
	b.ReportMetric(micros(f.median()), "floor-p50-us")
	b.ReportMetric(ratio(o.median(), f.median()), "ratio")
}
