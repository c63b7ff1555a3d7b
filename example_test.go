package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/tenure-project/tenure"
)

// Run something that only one process at a time may run.
func ExampleClient_Do() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:") // file:///var/lib/tenure in real life
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(ctx, "nightly-report", func(ctx context.Context, l *tenure.Lease) error {
		// ctx ends before anybody else can hold the lease.
		fmt.Println("writing the report under token", l.Token())
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// writing the report under token 1
	// error: <nil>
}

// Skip the work if somebody else is at it, and say who.
func ExampleClient_TryAcquire() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:", tenure.WithLabel("host-a"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	first, err := client.TryAcquire(ctx, "backup", tenure.Note("full backup"))
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release(ctx)

	_, err = client.TryAcquire(ctx, "backup")
	var held *tenure.HeldError
	if errors.As(err, &held) {
		fmt.Printf("%s holds it with token %d: %s\n", held.Label, held.Token, held.Note)
	}
	// Output: host-a holds it with token 1: full backup
}

// Keep a lease over a longer piece of work and check it where it matters.
func ExampleClient_Acquire() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	waiting, cancel := context.WithTimeout(ctx, time.Minute) // limits the waiting only
	defer cancel()
	l, err := client.Acquire(waiting, "shard-7", tenure.TTL(30*time.Second), tenure.Stop(5*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	for batch := range 3 {
		if !l.Live() { // one clock reading, no I/O
			log.Fatal(l.Err())
		}
		fmt.Println("batch", batch)
	}
	fmt.Println("release:", l.Release(ctx))
	fmt.Println("live:", l.Live())
	// Output:
	// batch 0
	// batch 1
	// batch 2
	// release: <nil>
	// live: false
}

// End the tenure of a holder that hangs, leaving a reason.
func ExampleClient_Steal() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	l, err := client.Acquire(ctx, "migration", tenure.TTL(time.Second))
	if err != nil {
		log.Fatal(err)
	}

	s, err := client.Steal(ctx, "migration", tenure.StealOptions{
		Token: l.Token(), Reason: "the host burned down", By: "anna", Vouch: true,
	})
	fmt.Println(s.State, s.EndedHow, err)
	<-l.Done() // at its next renewal the former holder learns of it
	fmt.Println("lost:", errors.Is(l.Err(), tenure.ErrLost))
	next, err := client.Acquire(ctx, "migration")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next token:", next.Token())
	// Output:
	// released vouched <nil>
	// lost: true
	// next token: 3
}

// See who held a lease, and how each tenure ended.
func ExampleClient_History() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for range 2 {
		if err := client.Do(ctx, "job", func(context.Context, *tenure.Lease) error { return nil }); err != nil {
			log.Fatal(err)
		}
	}
	h, err := client.History(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range h.Tenures {
		fmt.Println(t.Token, t.How)
	}
	// Output:
	// 1 released
	// 2 released
}

// Follow a lease from another process.
func ExampleClient_Watch() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for change, err := range client.Watch(ctx, "job") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(change.State, change.Tenure.Token)
		switch change.State {
		case tenure.Absent:
			go client.Do(ctx, "job", func(context.Context, *tenure.Lease) error { return nil })
		case tenure.Released:
			return
		}
	}
	// Output:
	// absent 0
	// held 1
	// released 1
}

// After a restore of the store from a backup, make every token higher than any
// that was seen before.
func ExampleClient_JumpAll() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.JumpAll(ctx, 1_000_000); err != nil {
		log.Fatal(err)
	}
	l, err := client.Acquire(ctx, "job")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Token())
	// Output: 1000001
}

// Keep any number of leases by one renewal, and hand them over before a planned end.
func ExampleClient_Join() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	session, err := client.Join(ctx, "host-a") // waits while another process has that name
	if err != nil {
		log.Fatal(err)
	}
	for shard := range 3 {
		l, err := session.Acquire(ctx, fmt.Sprint("shard-", shard))
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			<-l.Done()     // serve the shard until then
			l.Release(ctx) // its work has stopped: the drain waits for this
		}()
	}
	fmt.Println("term", session.Proof().Term, "keeps", session.Health().Leases, "leases")

	err = session.Drain(ctx, tenure.DrainOptions{Successor: func(lease string) string { return "host-b" }})
	fmt.Println("drained:", err)

	next, err := client.Join(ctx, "host-a") // the next start of the node
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("term", next.Proof().Term)
	// Output:
	// term 1 keeps 3 leases
	// drained: <nil>
	// term 2
}

// Make sure that one exact process is over before its work is done again.
func ExampleClient_FenceIncarnation() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	session, err := client.Join(ctx, "worker-7")
	if err != nil {
		log.Fatal(err)
	}
	worker := session.Proof() // written down beside what it works on
	if err := session.Leave(ctx); err != nil {
		log.Fatal(err)
	}

	cert, err := client.FenceIncarnation(ctx, worker.Node, worker.Incarnation, time.Minute)
	if err != nil {
		log.Fatal(err) // ErrAlive: it renewed meanwhile
	}
	fmt.Println("term", cert.Predecessor.Term, "is over:", cert.How)
	_, err = client.VerifyCertificate(ctx, cert.Body) // by whoever is shown it
	fmt.Println("verified:", err)
	// Output:
	// term 1 is over: released
	// verified: <nil>
}
