package ledger_test

import (
	"context"
	"fmt"
	"log"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/ledger"
)

// Every host calls this for the same occurrence, whenever its own clock says so.
func Example() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	l, err := ledger.Open(client, "nightly-report")
	if err != nil {
		log.Fatal(err)
	}
	every, err := ledger.NewEvery(time.Hour, 0)
	if err != nil {
		log.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at, _ := ledger.Latest(every, now, 24*time.Hour)
	run, err := ledger.Occurrence("nightly-report", ledger.DefaultTrigger, at)
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		out, err := l.Once(ctx, run, func(ctx context.Context, a *ledger.Attempt) (ledger.Result, error) {
			fmt.Println("reporting for", a.Run().At.Format(time.TimeOnly))
			return ledger.Result{Output: []byte("42 pages")}, nil
		}, ledger.Replay())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(out.State)
		if out.Saved != nil {
			fmt.Printf("%s\n", out.Saved.Output)
		}
	}
	// Output:
	// reporting for 03:00:00
	// ran
	// done
	// 42 pages
}
