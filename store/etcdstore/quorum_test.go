package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-project/tenure/store"
)

// cluster starts a cluster of three members with quick elections.
func cluster(t testing.TB) []*node {
	t.Helper()
	nodes := make([]*node, 3)
	var initial []string
	for i := range nodes {
		n, err := newNode(fmt.Sprintf("m%d", i), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		n.cfg.TickMs, n.cfg.ElectionMs = 20, 200
		initial = append(initial, n.cfg.InitialCluster)
		nodes[i] = n
		t.Cleanup(n.stop)
	}
	for _, n := range nodes {
		n.cfg.InitialCluster = strings.Join(initial, ",")
	}
	startAll(t, nodes...)
	return nodes
}

func startAll(t testing.TB, nodes ...*node) {
	t.Helper()
	errs := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() {
			err := n.start()
			if err == nil {
				err = n.ready()
			}
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func endpointsOf(nodes []*node) (all []string) {
	for _, n := range nodes {
		all = append(all, n.endpoint)
	}
	return all
}

// settled writes body over version v (a create if it is empty) until it is known
// whether that took effect, as the layer above does.
func settled(ctx context.Context, s *Store, k, body string, v store.Version) (bool, error) {
	doubt := false
	for {
		call, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		var err error
		if v == "" {
			_, err = s.Create(call, k, []byte(body))
		} else {
			_, err = s.Replace(call, k, []byte(body), v)
		}
		cancel()
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, store.ErrUnknown):
			doubt = true
		case errors.Is(err, store.ErrUnavailable):
		case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrConflict):
			return false, err
		case !doubt:
			return false, nil
		default:
			o, err := s.Get(ctx, k, 100)
			if err == nil {
				return string(o.Body) == body, nil
			}
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		sleep(ctx, 10*time.Millisecond) // poll
	}
}

// Without a quorum nothing is granted and nothing is refused, and every call
// ends within its limit. What was in doubt is settled after the recovery.
//
// SPEC ST1 ST9 ST13
// CASE B26
func TestQuorumIsLost(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	s := openAt(t, "p", endpointsOf(nodes)...)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if ok, err := settled(ctx, s, "n/k/before", "1", ""); !ok || err != nil {
		t.Fatalf("a create in a healthy cluster: %v, %v", ok, err)
	}
	nodes[1].stop()
	nodes[2].stop()
	doubtful := map[string]bool{}
	for i := range 12 {
		k := fmt.Sprintf("n/k/%d", i)
		call, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		begun := time.Now()
		_, err := s.Create(call, k, []byte("1"))
		if took := time.Since(begun); took > time.Second {
			t.Errorf("Create with a limit of 250 ms took %v", took)
		}
		switch {
		case errors.Is(err, store.ErrUnknown):
			doubtful[k] = true
		case errors.Is(err, store.ErrUnavailable):
			doubtful[k] = false
		default:
			t.Errorf("Create without a quorum: %v", err)
		}
		_, err = s.Get(call, "n/k/before", 10)
		kindIs(t, err, store.ErrUnavailable, "Get without a quorum")
		cancel()
	}
	startAll(t, nodes[1:]...)
	if err := definite(ctx, func() error { _, err := s.Get(ctx, "n/k/before", 10); return err }); err != nil {
		t.Fatalf("Get after the recovery: %v", err)
	}
	for k, doubt := range doubtful {
		err := definite(ctx, func() error { _, err := s.Get(ctx, k, 10); return err })
		if !doubt && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Create of %s certainly did nothing, but Get says %v", k, err)
		}
		if ok, err := settled(ctx, s, k, "1", ""); err != nil || !ok && !doubt {
			t.Errorf("settling %s: %v, %v", k, ok, err)
		}
		if o, err := s.Get(ctx, k, 10); err != nil || string(o.Body) != "1" {
			t.Errorf("%s afterwards: %q, %v", k, o.Body, err)
		}
	}
}

// A writer counts through the loss of the leader without losing or doubling a
// step, and watches and waiting lines come back.
//
// SPEC ST2 ST9 ST14
// CASE B02 B26
func TestLeaderIsLost(t *testing.T) {
	t.Parallel()
	nodes := cluster(t)
	s := openAt(t, "p", endpointsOf(nodes)...)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if ok, err := settled(ctx, s, key, "0", ""); !ok || err != nil {
		t.Fatalf("Create: %v, %v", ok, err)
	}
	first, err := s.Enqueue(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Enqueue(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	const steps = 60
	for i := range steps {
		if i == steps/2 {
			leader(t, nodes).stop()
		}
		o, err := s.Get(ctx, key, 10)
		for errors.Is(err, store.ErrUnavailable) && ctx.Err() == nil {
			o, err = s.Get(ctx, key, 10)
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(o.Body) != fmt.Sprint(i) {
			t.Fatalf("after %d steps the count is %s", i, o.Body)
		}
		if ok, err := settled(ctx, s, key, fmt.Sprint(i+1), o.Version); !ok || err != nil {
			t.Fatalf("step %d: %v, %v", i, ok, err)
		}
	}
	first.Leave()
	if err := second.Wait(ctx, 0); err != nil {
		t.Errorf("the turn of the second in line after the leader was lost: %v", err)
	}
	second.Leave()
}

// leader is the member that leads.
func leader(t testing.TB, nodes []*node) *node {
	t.Helper()
	c := client(t, clientv3.Config{Endpoints: endpointsOf(nodes)})
	for _, n := range nodes {
		st, err := c.Status(t.Context(), n.endpoint)
		if err == nil && st.Leader == st.Header.MemberId {
			return n
		}
	}
	t.Fatal("no member leads")
	return nil
}
