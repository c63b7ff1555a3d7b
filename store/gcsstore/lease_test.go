package gcsstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store"
)

// A lease by URL: an acquisition of a free name is a read and a write, a release
// one write, nothing is deleted, and a renewal that the bucket could not bear is
// refused before anything is sent.
//
// SPEC ST14 UI4
func TestLease(t *testing.T) {
	t.Parallel()
	cl := newCloud(t, nil)
	c, err := tenure.Open(t.Context(), "gs://"+testBucket+"/prod?namespace=n&endpoint="+cl.URL,
		tenure.WithDrivers(Driver()), tenure.WithoutProbe(), tenure.WithStateDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	before := len(cl.requests())
	_, err = c.TryAcquire(t.Context(), "job", tenure.TTL(9*time.Second))
	is(t, err, store.ErrInvalid)
	if err != nil && !strings.Contains(err.Error(), "at least 10s") {
		t.Errorf("the message does not say what would do: %v", err)
	}
	if n := len(cl.requests()) - before; n != 0 {
		t.Errorf("a refused timing sent %d requests", n)
	}
	l, err := c.TryAcquire(t.Context(), "job", tenure.TTL(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	acquired := cl.requests()[before:]
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	released := cl.requests()[before+len(acquired):]
	count := func(kinds []string, kind string) (n int) {
		for _, k := range kinds {
			if k == kind {
				n++
			}
		}
		return n
	}
	if count(acquired, "upload") != 1 || len(acquired) > 3 || count(released, "upload") == 0 || slices.Contains(released, "delete") {
		t.Errorf("acquiring sent %q, releasing %q", acquired, released)
	}
	if body, there := cl.body("prod/n/lease/job"); !there || !strings.Contains(body, `"job"`) {
		t.Errorf("after the release the record is %q (%v)", body, there)
	}
}
