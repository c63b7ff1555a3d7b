package authority_test

import (
	"context"
	"fmt"
	"log"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/catalog"
	"github.com/tenure-project/tenure/store/memstore"
)

// A process leads an authority, seals a decision, and gives the leadership up.
func Example() {
	ctx := context.Background()
	s, err := tenure.Join(ctx, memstore.New(), "worker-1")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Leave(ctx) //nolint:errcheck // the example ends here

	a, err := authority.Open(ctx, s, "stream")
	if err != nil {
		log.Fatal(err)
	}
	l, err := a.Lead(ctx)
	if err != nil {
		log.Fatal(err)
	}
	definitions := []catalog.Definition{{Name: "words", Text: "count by word"}}
	for range 2 { // asking again converges
		res, err := catalog.Seal(ctx, a, l.Proof(), definitions)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Answer)
	}
	if err := l.StepDown(ctx); err != nil {
		log.Fatal(err)
	}
	snapshot, err := a.Reader().Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, led := snapshot.Leader()
	fmt.Println(led, snapshot.Token())
	// Output:
	// created
	// unchanged
	// false 1
}
