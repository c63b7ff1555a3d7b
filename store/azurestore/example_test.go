package azurestore_test

import (
	"context"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/azurestore"
)

// Open by URL, with the credentials that the environment holds.
func ExampleDriver() {
	ctx := context.Background()
	client, err := tenure.Open(ctx, "azblob://leases/prod?account=acct1", tenure.WithDrivers(azurestore.Driver()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

// Use a container client of your own, here with one exact identity.
func ExampleNew() {
	ctx := context.Background()
	cred, err := azidentity.NewManagedIdentityCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	cc, err := container.NewClient("https://acct1.blob.core.windows.net/leases", cred, nil)
	if err != nil {
		log.Fatal(err)
	}
	st, err := azurestore.New(cc, "prod")
	if err != nil {
		log.Fatal(err)
	}
	defer st.Close()
	client, err := tenure.New(ctx, st)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
