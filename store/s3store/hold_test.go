package s3store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

type observer chan tenure.Event

func (o observer) Observe(e tenure.Event) { o <- e }

// held acquires a lease at a server that takes the key in want only; the key is
// in the file of shared credentials.
func held(t *testing.T, want *atomic.Value, file string, ttl time.Duration) (*tenure.Lease, <-chan tenure.Event) {
	t.Helper()
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	writeKeys(t, file, testKey)
	want.Store(testKey)
	s, err := openText(t, "s3://bucket/p?profile=held&path_style=1&endpoint="+serve(t, expiring(newModel(), want)).URL)
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan tenure.Event, 1000)
	c, err := tenure.New(t.Context(), s, tenure.WithTTL(ttl), tenure.WithRenewEvery(200*time.Millisecond), tenure.WithoutProbe(), tenure.WithStateDir(t.TempDir()),
		tenure.WithObserver(observer(events)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	l, err := c.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	return l, events
}

// Credentials expire in mid-hold, and newer ones come before the deadline: the
// hold goes on under the same token. If none come, it ends in time and says why.
//
// SPEC LS4 LS7
// CASE B65
func TestHoldSurvivesExpiredCredentials(t *testing.T) {
	var want atomic.Value
	file := filepath.Join(t.TempDir(), "credentials")
	l, events := held(t, &want, file, 10*time.Second)
	want.Store(newKey)
	await(t, events, tenure.EventRenewFailed)
	writeKeys(t, file, newKey)
	await(t, events, tenure.EventRenewed)
	if !l.Live() {
		t.Errorf("the hold ended: %v", l.Err())
	}
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// CASE B65
func TestHoldEndsInTimeWithoutNewerCredentials(t *testing.T) {
	var want atomic.Value
	l, events := held(t, &want, filepath.Join(t.TempDir(), "credentials"), time.Second)
	want.Store(newKey)
	expired := time.Now()
	<-l.Context().Done()
	if took := time.Since(expired); took > 2*time.Second {
		t.Errorf("the hold went on for %v", took)
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, tenure.ErrExpired) {
		t.Errorf("the cause is %v", cause)
	}
	if e := await(t, events, tenure.EventRenewFailed); !errors.Is(e.Err, store.ErrDenied) || !strings.Contains(e.Err.Error(), "expired") {
		t.Errorf("the renewals failed by %v", e.Err)
	}
}

// await returns the next event of a kind.
func await(t *testing.T, events <-chan tenure.Event, kind tenure.EventKind) tenure.Event {
	t.Helper()
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no event %v", kind)
		}
	}
}
