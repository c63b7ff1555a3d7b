package faultstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/faultstore"
	"github.com/tenure-project/tenure/store/memstore"
)

// The reply of the second replace gets lost after it took effect. Only reading
// back tells.
func ExampleNew() {
	ctx := context.Background()
	s := faultstore.New(memstore.New(), faultstore.Options{Rules: []faultstore.Rule{
		{Ops: []faultstore.Op{faultstore.OpReplace}, Skip: 1, Times: 1, Fault: faultstore.LoseReply()},
	}})
	defer s.Close()

	v, _ := s.Create(ctx, "n/lease/a", []byte("renewal 0"))
	v, _ = s.Replace(ctx, "n/lease/a", []byte("renewal 1"), v)
	_, err := s.Replace(ctx, "n/lease/a", []byte("renewal 2"), v)
	fmt.Println(errors.Is(err, store.ErrUnknown))

	o, _ := s.Get(ctx, "n/lease/a", 1024)
	fmt.Println(string(o.Body))
	// Output:
	// true
	// renewal 2
}

// One seed gives one bad day of the network, again and again.
func ExampleChaos() {
	day := func() (trouble int) {
		s := faultstore.New(memstore.New(), faultstore.Chaos(7, 1, 0))
		defer s.Close()
		for i := range 200 {
			ctx, cancel := context.WithTimeout(context.Background(), 150*time.Millisecond) // some calls hang
			if _, err := s.Create(ctx, fmt.Sprintf("n/lease/%d", i), nil); err != nil {
				trouble++
			}
			cancel()
		}
		return trouble
	}
	first, second := day(), day()
	fmt.Println(first > 0, first == second)
	// Output: true true
}
