//go:build linux

package chaos

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/nats-io/nats-server/v2/server"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tenure-project/tenure/internal/testserver"
)

// openEtcd starts a cluster of one member in this process.
func openEtcd(t *testing.T) place {
	c := embed.NewConfig()
	c.Dir = t.TempDir()
	c.LogLevel = "fatal"
	client, peer := freeURL(t), freeURL(t)
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready after a minute")
	}
	return place{url: "etcd://" + client.Host + "/leases", ttl: shortTTL}
}

func freeURL(t *testing.T) url.URL {
	port, err := testserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
}

// openNATS starts a server in this process that syncs every write.
func openNATS(t *testing.T) place {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: filepath.Join(t.TempDir(), "js"), SyncAlways: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("NATS is not ready after a minute")
	}
	return place{url: "nats://" + s.Addr().String() + "/leases", ttl: shortTTL}
}

// openGCS starts fake-gcs-server in this process. It does what leases need of
// Google's service, but no conditional delete.
func openGCS(t *testing.T) place {
	s, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "chaos"})
	return place{url: "gs://chaos/leases?endpoint=" + url.QueryEscape(s.URL()), ttl: 10 * time.Second}
}

func openAzure(t *testing.T) place {
	a, err := testserver.StartAzurite()
	testserver.Need(t, "Azurite", err)
	t.Cleanup(a.Stop)
	key, err := azblob.NewSharedKeyCredential(a.Account, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := azblob.NewClientWithSharedKeyCredential(a.Endpoint, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateContainer(t.Context(), "chaos", nil); err != nil {
		t.Fatal(err)
	}
	return place{
		url: "azblob://chaos/leases?account=" + a.Account + "&endpoint=" + url.QueryEscape(a.Endpoint),
		env: []string{"AZURE_STORAGE_ACCOUNT=" + a.Account, "AZURE_STORAGE_KEY=" + a.Key},
		ttl: shortTTL,
	}
}
