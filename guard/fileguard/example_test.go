package fileguard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/fileguard"
)

// A holder with token 7 was asleep while its lease went to token 8.
func Example() {
	dir, err := os.MkdirTemp("", "guarded")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()

	g, err := fileguard.Open(filepath.Join(dir, "report.txt"), "prod", "nightly-report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("7 writes:", g.Write(ctx, 7, []byte("by 7")))

	// The new holder raises the guard before its first read.
	fmt.Println("8 raises:", g.Raise(ctx, 8))

	err = g.Write(ctx, 7, []byte("by 7, late"))
	var fenced *guard.FencedError
	if errors.As(err, &fenced) {
		fmt.Printf("7 is refused: %d was seen\n", fenced.Highest)
	}
	// Output:
	// 7 writes: <nil>
	// 8 raises: <nil>
	// 7 is refused: 8 was seen
}

// A longer action holds the resource, and ends when a higher token asks for it.
func ExampleGuard_Hold() {
	dir, err := os.MkdirTemp("", "guarded")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	g, err := fileguard.Open(filepath.Join(dir, "archive"), "prod", "archiver")
	if err != nil {
		log.Fatal(err)
	}
	held, err := g.Hold(context.Background(), 7)
	if err != nil {
		log.Fatal(err)
	}
	next := make(chan error)
	go func() { next <- g.Raise(context.Background(), 8) }()

	<-held.Context().Done() // the action is told to end
	fmt.Println(context.Cause(held.Context()))
	held.Release()
	fmt.Println("8 raised:", <-next)
	// Output:
	// fenced: token 7 of prod/archiver is refused, 8 was seen: this holder was superseded
	// 8 raised: <nil>
}
