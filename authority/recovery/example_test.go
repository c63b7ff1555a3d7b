package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/recovery"
	"github.com/tenure-project/tenure/store/memstore"
)

// A process reports a fault: nobody takes up work until the leader released a round
// that it stopped for.
func Example() {
	ctx := context.Background()
	s, err := tenure.Join(ctx, memstore.New(), "worker-1")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Leave(ctx) //nolint:errcheck // the example ends here
	// A report is shown by the leader's next renewal: soon, for an example.
	a, err := authority.Open(ctx, s, "stream", authority.RenewEvery(50*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	l, err := a.Lead(ctx)
	if err != nil {
		log.Fatal(err)
	}
	faults := recovery.Open(a)
	before, err := faults.Admission(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// Any process reports, once it has stopped its work.
	fault, err := faults.Report(ctx, "the input is damaged")
	if err != nil {
		log.Fatal(err)
	}
	err = before.Check(ctx, l.Proof())
	fmt.Println("admitted before the fault:", err == nil, "changed:", errors.Is(err, authority.ErrChanged))

	// The leader ends it: a round freezes the faults, and a release clears those of the
	// processes that stopped.
	round, err := faults.Begin(ctx, l.Proof(), []byte("go on from the newest commit"))
	if err != nil {
		log.Fatal(err)
	}
	stopped := []assignment.Participant{{Node: fault.Proof.Node, Incarnation: fault.Proof.Incarnation}}
	res, err := faults.Release(ctx, l.Proof(), round, stopped)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Answer, "generation", round.Generation)

	// Who wants to work looks anew, gathers its evidence, and checks just before it acts.
	now, err := faults.Admission(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("faulty:", now.Faulty(), "admitted:", now.Check(ctx, l.Proof()) == nil)
	// Output:
	// admitted before the fault: false changed: true
	// created generation 1
	// faulty: false admitted: true
}
