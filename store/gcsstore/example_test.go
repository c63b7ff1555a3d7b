package gcsstore_test

import (
	"context"
	"log"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/gcsstore"
)

// Leases in a bucket, with the credentials that this machine has.
func ExampleDriver() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "gs://my-leases/prod", tenure.WithDrivers(gcsstore.Driver()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Do(ctx, "nightly-report", func(ctx context.Context, l *tenure.Lease) error {
		log.Println("writing the report under token", l.Token())
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// What in the bucket's settings would hurt leases?
func ExampleStore_Inspect() {
	ctx := context.Background()
	s, err := gcsstore.Open(ctx, gcsstore.Config{Bucket: "my-leases", Prefix: "prod"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = s.Close() }()

	warnings, err := s.Inspect(ctx)
	if err != nil {
		log.Fatal(err) // it needs storage.buckets.get
	}
	for _, w := range warnings {
		log.Println(w)
	}
}
