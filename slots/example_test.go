package slots_test

import (
	"context"
	"fmt"

	tenure "github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store/memstore"
)

// A host owns two ranges, and hands its epoch to the resource with every write.
func Example() {
	ctx := context.Background()
	client, err := tenure.New(ctx, memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	table, err := slots.Create(ctx, client, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	host, err := table.Host(slots.HostConfig{
		Owner: "host-7", Addr: "10.0.0.7:8080",
		Ranges: []slots.Range{{A: 0, B: 8191}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	host.Refresh(ctx) // Run does this as often as it must

	for _, key := range []string{"anna", "bert", "carl"} {
		if epoch, ok := host.EpochFor(slots.SlotOf(key)); ok {
			fmt.Printf("write %s under epoch %d\n", key, epoch)
		} else {
			fmt.Printf("%s is not ours\n", key)
		}
	}
	fmt.Println(host.Release(ctx))
	// Output:
	// anna is not ours
	// write bert under epoch 1
	// write carl under epoch 1
	// <nil>
}

// Work hangs on the grant: its context ends when the range may not be served any more.
func ExampleHost_Grant() {
	ctx := context.Background()
	client, err := tenure.New(ctx, memstore.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()
	table, err := slots.Create(ctx, client, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	host, err := table.Host(slots.HostConfig{Owner: "host-7", Ranges: []slots.Range{slots.All}})
	if err != nil {
		fmt.Println(err)
		return
	}
	host.Refresh(ctx)
	grant, _ := host.Grant(slots.SlotOf("anna"))
	fmt.Println(grant, grant.Live())

	host.Lose(slots.SlotOf("anna"), 5) // a newer epoch was seen at the resource
	<-grant.Done()
	fmt.Println(grant.Err())
	// Output:
	// slots 0-16383, epoch 1 true
	// slots 0-16383 (owner "host-7", epoch 1): epoch 5 was seen, which is newer than 1
}
