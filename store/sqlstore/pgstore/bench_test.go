package pgstore

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/tenure-project/tenure/internal/testserver"
	"github.com/tenure-project/tenure/store"
)

// BenchmarkReplace compares one conditional write with the UPDATE that it cannot
// do without, in turn, on a server that syncs. It also reports the bytes of
// write-ahead log, for a record of 600 bytes.
func BenchmarkReplace(b *testing.B) {
	p, err := testserver.StartPostgreSQL()
	testserver.Need(b, "PostgreSQL", err)
	b.Cleanup(p.Remove)
	s := open(b, p.DSN)
	body := make([]byte, 600)
	_, _ = rand.Read(body)
	v := must(s.Create(b.Context(), key, body))(b)
	other := must(s.Create(b.Context(), key+"2", body))(b)
	var took [2][]time.Duration
	var written [2]store.Version
	start := walPosition(b, p.DSN)
	for b.Loop() {
		_, _ = rand.Read(body)
		t0 := time.Now()
		written[0] = bareReplace(b, s, body, other)
		t1 := time.Now()
		if v, err = s.Replace(b.Context(), key, body, v); err != nil {
			b.Fatal(err)
		}
		took[0], took[1] = append(took[0], t1.Sub(t0)), append(took[1], time.Since(t1))
		other = written[0]
	}
	var median [2]float64
	for i := range took {
		slices.Sort(took[i])
		median[i] = float64(took[i][len(took[i])/2])
	}
	b.ReportMetric(median[0], "bare-ns")
	b.ReportMetric(median[1], "store-ns")
	b.ReportMetric(median[1]/median[0], "ratio")
	b.ReportMetric(float64(walPosition(b, p.DSN)-start)/float64(2*b.N), "wal-bytes")
}

func bareReplace(b *testing.B, s *Store, body []byte, at store.Version) store.Version {
	rows, err := s.exec(b.Context(), request{op: "bare"},
		"UPDATE "+s.sql.records+" SET body = $1, version = gen_random_uuid() WHERE key = $2 AND version = $3 RETURNING version",
		bytesArg(body), textArg(key+"2"), versionArg(at))
	if err != nil || len(rows) != 1 {
		b.Fatal(err, len(rows))
	}
	return rows[0].version(0)
}

func walPosition(b *testing.B, u string) int64 {
	b.Helper()
	text := admin(b, u, "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8")[0][0]
	var n int64
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	return n
}
