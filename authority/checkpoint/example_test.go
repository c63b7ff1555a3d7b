package checkpoint_test

import (
	"context"
	"fmt"
	"log"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/authority/checkpoint"
	"github.com/tenure-project/tenure/store/memstore"
)

// A leader seeds the assignment, commits a checkpoint that was made under it, and
// anybody reads what to recover from.
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

	// Two slots, both of this process. The fence of the current assignment goes into
	// every outcome.
	me := assignment.Participant{Node: l.Proof().Node, Incarnation: l.Proof().Incarnation}
	slots := assignment.Open(a)
	if _, _, err := slots.Seed(ctx, []assignment.Participant{me, me}); err != nil {
		log.Fatal(err)
	}
	current, err := slots.Current(ctx)
	if err != nil {
		log.Fatal(err)
	}

	// A deployment's id is made once, and kept where its configuration is.
	checkpoints, err := checkpoint.Open(a, "0f8fad5b-d9cb-469f-a165-70867728950e")
	if err != nil {
		log.Fatal(err)
	}
	attempt := checkpoint.Attempt{Epoch: 1, Checkpoint: 100}
	res, err := checkpoints.Commit(ctx, l.Proof(), checkpoint.Capsule{Attempt: attempt, Fence: current.Fence, Data: []byte("offset 4711")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Answer, res.Stands())

	// What a process that starts recovers from. It needs only a reader.
	reader := checkpoint.Read(a.Reader())
	_, commit, err := reader.Newest(ctx)
	if err != nil {
		log.Fatal(err)
	}
	capsule, err := reader.Capsule(ctx, commit)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("epoch %d under assignment %d: %s\n", capsule.Epoch, capsule.Fence.Version, capsule.Data)
	// Output:
	// created true
	// epoch 1 under assignment 1: offset 4711
}
