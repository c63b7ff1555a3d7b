package assignment_test

import (
	"context"
	"fmt"
	"log"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/authority"
	"github.com/tenure-project/tenure/authority/assignment"
	"github.com/tenure-project/tenure/store/memstore"
)

// A leader that owns all slots gives one to a process that joined, by a drain.
func Example() {
	ctx := context.Background()
	client, err := tenure.New(ctx, memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the example ends here
	var all []assignment.Participant
	var sessions []*tenure.Session
	for _, node := range []string{"worker-1", "worker-2"} {
		s, err := client.Join(ctx, node)
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, assignment.Participant{Node: node, Incarnation: s.Proof().Incarnation})
		sessions = append(sessions, s)
	}
	a, err := authority.Open(ctx, sessions[0], "stream")
	if err != nil {
		log.Fatal(err)
	}
	l, err := a.Lead(ctx)
	if err != nil {
		log.Fatal(err)
	}
	slots := assignment.Open(a)
	if _, _, err := slots.Seed(ctx, []assignment.Participant{all[0], all[0]}); err != nil {
		log.Fatal(err)
	}

	// The target is staged and the drain begun: whoever loses a slot finishes what it
	// does with it. Then the drain is committed.
	drain, err := slots.BeginDrain(ctx, l.Proof(), []assignment.Participant{all[0], all[1]})
	if err != nil {
		log.Fatal(err)
	}
	res, err := slots.CommitDrain(ctx, l.Proof(), drain)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Answer)

	// Every process reads who owns what.
	current, err := assignment.Read(a.Reader()).Current(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for slot := range current.Map.Owners {
		owner, _ := current.Map.Owner(slot)
		fmt.Printf("version %d, slot %d: %s\n", current.Fence.Version, slot, owner.Node)
	}
	// Output:
	// created
	// version 2, slot 0: worker-1
	// version 2, slot 1: worker-2
}
