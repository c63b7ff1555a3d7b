package ledger

import (
	"errors"
	"testing"
	"time"
	_ "time/tzdata" // the zones must be there

	"github.com/tenure-project/tenure/store"
)

// A run is an instant: the clock on the wall that shows the same time twice names two
// runs, whoever writes one instant in two zones names one, and both are done once.
//
// SPEC EX5
// CASE B87
func TestOccurrencesAreInstants(t *testing.T) {
	for _, c := range []struct {
		zone        string
		first, wall string // the instant at which the wall shows wall for the first time
		apart       time.Duration
	}{
		{"Europe/London", "2024-10-27T00:30:00Z", "01:30", time.Hour},
		{"America/New_York", "2024-11-03T05:30:00Z", "01:30", time.Hour},
		{"Australia/Lord_Howe", "2024-04-06T14:45:00Z", "01:45", 30 * time.Minute},
	} {
		t.Run(c.zone, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				zone, err := time.LoadLocation(c.zone)
				if err != nil {
					t.Fatal(err)
				}
				first, err := time.Parse(time.RFC3339, c.first)
				if err != nil {
					t.Fatal(err)
				}
				h := w.host()
				for i, at := range []time.Time{first, first.Add(c.apart)} {
					if got := at.In(zone).Format("15:04"); got != c.wall {
						t.Fatalf("the wall shows %s at %v", got, at)
					}
					local, err1 := Occurrence(job, DefaultTrigger, at.In(zone))
					utc, err2 := Occurrence(job, DefaultTrigger, at)
					if err := errors.Join(err1, err2); err != nil || local != utc {
						t.Fatalf("%+v and %+v, %v", local, utc, err)
					}
					want(t, h.do(local), Ran, 1)
					want(t, h.do(utc), Done, 1)
					if r := w.info(utc); len(r.Attempts) != 1 {
						t.Errorf("pass %d: %+v", i, r)
					}
				}
			})
		})
	}
}

// Names, triggers and jobs keep runs apart; the same name is the same run; a run by hand
// is like no other.
//
// SPEC EX5
func TestRunsByName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		h := w.host()
		named, err := Named(job, "2024")
		if err != nil {
			t.Fatal(err)
		}
		want(t, h.do(named), Ran, 1)
		want(t, h.do(named), Done, 1)
		seen := map[RunID]bool{named.ID: true}
		for range 3 {
			r, err := Manual(h.c, job)
			if err != nil || seen[r.ID] {
				t.Fatalf("%+v, %v", r, err)
			}
			seen[r.ID] = true
			want(t, h.do(r), Ran, 1)
		}
		again, err := ParseRunID(named.ID.String())
		if err != nil {
			t.Fatal(err)
		}
		want(t, h.do(ByID(job, again)), Done, 1)
		_, err = ParseRunID("x")
		wantErr(t, err, store.ErrInvalid)
	})
}
