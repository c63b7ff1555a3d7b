package azurestore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// events is an observer that hands events on and forgets what nobody takes.
type events chan tenure.Event

func (e events) Observe(ev tenure.Event) {
	select {
	case e <- ev:
	default:
	}
}

// sasFile writes a SAS token for the emulator's container that ends after life.
func sasFile(t *testing.T, path string, life time.Duration) {
	t.Helper()
	a := azurite(t)
	cred, err := blob.NewSharedKeyCredential(a.Account, a.Key)
	if err != nil {
		t.Fatal(err)
	}
	may := sas.ContainerPermissions{Read: true, Create: true, Write: true, Delete: true, List: true}
	q, err := sas.BlobSignatureValues{
		Protocol: sas.ProtocolHTTPSandHTTP, ExpiryTime: time.Now().Add(life), ContainerName: testContainer, Permissions: may.String(),
	}.SignWithSharedKey(cred)
	if err != nil {
		t.Fatal(err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, []byte(q.Encode()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// holdUntilExpired takes a lease in the emulator with the token in file, puts
// one in its place that has run out, and returns when a renewal was refused.
func holdUntilExpired(t *testing.T, file string, ttl time.Duration) (*tenure.Lease, events) {
	t.Helper()
	sasFile(t, file, time.Hour)
	c := place(t)
	c.key, c.sasFile = "", file
	s := openAt(t, c)
	seen := make(events, 100)
	client, err := tenure.New(t.Context(), s, tenure.WithTTL(ttl), tenure.WithObserver(seen),
		tenure.WithoutProbe(), tenure.WithStateDir(t.TempDir()), tenure.WithReleaseLimit(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	l, err := client.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	sasFile(t, file, -time.Minute)
	sig := s.auth.(*signature)
	sig.mu.Lock()
	err = sig.read()
	sig.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case e := <-seen:
			if errors.Is(e.Err, store.ErrDenied) && strings.Contains(e.Err.Error(), "SAS token has expired at") {
				return l, seen
			}
		case <-l.Done():
			t.Fatalf("the hold ended before a renewal was refused: %v", l.Err())
		}
	}
}

// A hold outlives the credentials that it began with, if there are newer ones.
//
// CASE B65
func TestHoldOutlivesCredentials(t *testing.T) {
	t.Parallel()
	azurite(t)
	file := filepath.Join(t.TempDir(), "sas")
	l, seen := holdUntilExpired(t, file, 10*time.Second)
	sasFile(t, file, time.Hour)
	for {
		select {
		case e := <-seen:
			if e.Kind != tenure.EventRenewed {
				continue
			}
			if err := l.Check(t.Context()); err != nil {
				t.Error(err)
			}
			return
		case <-l.Done():
			t.Fatalf("the hold ended: %v", l.Err())
		}
	}
}

// Without newer ones the holder ends in time; the cause was told.
//
// SPEC LS7
// CASE B65
func TestHoldEndsWithoutCredentials(t *testing.T) {
	t.Parallel()
	azurite(t)
	l, _ := holdUntilExpired(t, filepath.Join(t.TempDir(), "sas"), 5*time.Second)
	<-l.Done()
	if l.Live() || l.Err() == nil {
		t.Errorf("the lease is live: %v", l.Err())
	}
}
