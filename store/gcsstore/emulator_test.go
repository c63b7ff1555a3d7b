package gcsstore

import (
	"io"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/storetest"
)

// emulator starts fake-gcs-server in this process. Its harness gives each test
// a bucket, since it searches a bucket from end to end for each object, and is slow even so.
func emulator(t testing.TB) storetest.Harness {
	t.Helper()
	srv, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	open := func(t testing.TB, bucket string) store.Store {
		return openStore(t, Config{Bucket: bucket, Endpoint: srv.URL()})
	}
	return storetest.Harness{
		Slow: true,
		Open: func(t testing.TB) store.Store {
			bucket := strings.ReplaceAll(freshPrefix(), "/", "-")
			srv.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
			return open(t, bucket)
		},
		Peer: func(t testing.TB, s store.Store) store.Store { return open(t, s.(*Store).name) },
	}
}

// noDelete is a store whose server cannot delete by version.
type noDelete struct{ *Store }

// Info declares no power.
func (s noDelete) Info() store.Info {
	i := s.Store.Info()
	i.Can = 0
	return i
}

// Everything but the conditional delete holds on the emulator.
//
// SPEC ST1 ST2 ST3 ST4 ST5 ST6 ST7 ST8 ST10 ST11 ST13 ST14 ST16
func TestEmulator(t *testing.T) {
	t.Parallel()
	h := emulator(t)
	open, peer := h.Open, h.Peer
	h.Open = func(t testing.TB) store.Store { return noDelete{open(t).(*Store)} }
	h.Peer = func(t testing.TB, s store.Store) store.Store { return noDelete{peer(t, s.(noDelete).Store).(*Store)} }
	storetest.Run(t, h)
	t.Run("lost", func(t *testing.T) { storetest.Lost(t, h) })
}

// The emulator deletes whatever version the condition names, and the probe says
// so: retention will not rest on it. If this test fails because the emulator
// was mended, run the whole suite on it.
//
// SPEC ST10 LS15
// CASE B18 B21
func TestEmulatorIgnoresDeleteConditions(t *testing.T) {
	t.Parallel()
	s := emulator(t).Open(t).(*Store)
	old, err := s.Create(t.Context(), testKey, []byte("1"))
	is(t, err, nil)
	_, err = s.Replace(t.Context(), testKey, []byte("2"), old)
	is(t, err, nil)
	is(t, s.DeleteIf(t.Context(), testKey, old), nil)
	_, err = s.Get(t.Context(), testKey, 10)
	is(t, err, store.ErrNotFound)
	r, err := store.Probe(t.Context(), s, store.ProbeOptions{Prefix: store.Prefix("n", "probe")})
	if err != nil || !r.Sound || r.DeleteIfSound || r.DeleteIfFlaw != "a delete at an old version succeeded" {
		t.Errorf("the probe of the emulator: %v, sound %v, delete-if sound %v, flaw %q", err, r.Sound, r.DeleteIfSound, r.DeleteIfFlaw)
	}
}

// The emulator does not say whether a 404 is about the object or the bucket, so
// the driver looks; it still takes neither for the other.
//
// SPEC ST3
func TestEmulatorMissing(t *testing.T) {
	t.Parallel()
	s := emulator(t).Open(t).(*Store)
	_, err := s.Get(t.Context(), testKey, 10)
	is(t, err, store.ErrNotFound)
	gone := openStore(t, Config{Bucket: "no-such-bucket", Endpoint: s.identity[strings.Index(s.identity, "http://"):]})
	for _, op := range operations {
		is(t, op.call(t.Context(), gone, "7"), store.ErrUnavailable)
	}
}
