package slots_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/tenure-project/tenure/slots"
)

// oneOwner is a table in which everything has one owner; a program reads a real one.
type oneOwner struct{ addr string }

func (o oneOwner) Routes(context.Context) ([]slots.Route, error) {
	return []slots.Route{{Range: slots.All, Owner: "host-7", Addr: o.addr, Epoch: 3}}, nil
}

func (o oneOwner) Watch(ctx context.Context, changed func()) error {
	changed()
	<-ctx.Done()
	return nil
}

// EpochFor makes it a host as well; a program has a Host of package slots.
func (oneOwner) EpochFor(uint16) (epoch uint64, ok bool) { return 3, true }

// A request finds its slot's owner, which serves it under its epoch.
func Example_router() {
	slotOf := func(r *http.Request) (uint16, bool, error) { return slots.SlotOf(r.URL.Path), true, nil }

	// The owner.
	handler, err := slots.Serve(slots.ServeConfig{Host: oneOwner{}, Owner: "host-7", Slot: slotOf},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served, _ := slots.SlotFrom(r.Context())
			fmt.Fprintf(w, "slot %d under epoch %d", served.Slot, served.Epoch)
		}))
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	// A client.
	router, err := slots.NewRouter(oneOwner{server.URL}, slots.RouterConfig{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- router.Run(ctx) }() // keeps the map fresh
	transport, err := slots.NewTransport(slots.TransportConfig{Router: router, Slot: slotOf, Base: server.Client().Transport})
	if err != nil {
		panic(err)
	}
	res, err := (&http.Client{Transport: transport}).Get("http://orders/customer-17")
	if err != nil {
		panic(err)
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	fmt.Println(string(answer))
	route, _ := router.RouteKey("/customer-17")
	fmt.Println(route.Owner, route.Range)
	stop()
	<-stopped
	// Output:
	// slot 14421 under epoch 3
	// host-7 0-16383
}
