package slots

import (
	"testing"

	"github.com/tenure-project/tenure/internal/core/lease"
)

// crowded is a register with every slot a row of its own, on 100 hosts, each row claimed
// and renewed by itself: the most that a table of short names can be.
func crowded(t testing.TB) *Table {
	tab := must(New("orders", RegisterForm, 0, id(1), 1_767_225_600_000))
	tab.Rows = make([]Row, Count)
	hosts := make([]*Host, 100)
	for i := range hosts {
		hosts[i] = sessionHost("host-"+id(i)[:8]+".example.org", i+1).on(i)
	}
	for i := range tab.Rows {
		tab.Rows[i] = Row{Range: r(uint16(i), uint16(i)), Epoch: uint64(100_000 + i), Renewal: 12, Since: 1_767_225_600_000 + int64(i), Attempt: id(7000 + i), Host: hosts[i%100]}
	}
	tab.Counter = 200_000
	if err := tab.Valid(); err != nil {
		t.Fatal(err)
	}
	return tab
}

// A register of 16,384 rows is less than 1.5 MB.
//
// SPEC SL5
func TestARegisterOfAllSlotsIsSmall(t *testing.T) {
	t.Parallel()
	body := must(crowded(t).Encode())
	t.Logf("%d rows: %d bytes", Count, len(body))
	if len(body) > 1_500_000 {
		t.Errorf("%d rows take %d bytes", Count, len(body))
	}
}

func BenchmarkEncodeTable(b *testing.B) {
	tab := crowded(b)
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(must(tab.Encode()))))
	}
}

// At most 40 ms for 16,384 rows.
func BenchmarkDecodeTable(b *testing.B) {
	body := must(crowded(b).Encode())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		must(DecodeTable("k", "orders", body))
	}
}

func BenchmarkClaimAllOfOneHost(b *testing.B) {
	ranges := make([]Range, Count)
	for i := range ranges {
		ranges[i] = r(uint16(i), uint16(i))
	}
	tab := must(New("orders", RegisterForm, 0, id(1), 1))
	for b.Loop() {
		next, _, err := tab.Claim(Claim{Ranges: ranges, Host: self("a", 1), Attempt: id(2)})
		if err != nil || len(next.Rows) != Count {
			b.Fatal(err)
		}
	}
}

func BenchmarkClaimOneAmongAll(b *testing.B) {
	tab := crowded(b)
	c := Claim{Ranges: []Range{r(77, 77)}, Host: self("a", 1), Attempt: id(2), Sights: []Sight{{State: tab.Rows[77].State(), How: lease.HowProven, Evidence: "x"}}}
	for b.Loop() {
		if _, answers, err := tab.Claim(c); err != nil || !answers[0].Fresh {
			b.Fatal(err, answers)
		}
	}
}
