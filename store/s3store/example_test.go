package s3store_test

import (
	"context"
	"fmt"
	"log"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/s3store"
)

// A program that keeps its leases in a bucket.
func ExampleDriver() {
	ctx := context.Background()
	c, err := tenure.Open(ctx, "s3://company-leases/prod?region=eu-west-1", tenure.WithDrivers(s3store.Driver()))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	err = c.Do(ctx, "nightly-report", func(ctx context.Context, l *tenure.Lease) error {
		fmt.Println("working under token", l.Token())
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// The bucket's settings, for an operator.
func ExampleStore_Inspect() {
	ctx := context.Background()
	s, err := s3store.Open(ctx, s3store.Config{Bucket: "company-leases", Prefix: "prod", Region: "eu-west-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	sentences, err := s.Inspect(ctx)
	if err != nil {
		fmt.Println(err)
	}
	for _, sentence := range sentences {
		fmt.Println(sentence)
	}
}
