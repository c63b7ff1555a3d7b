package etcdstore

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-project/tenure/store"
)

// quickTTL is the shortest life of a lease that a server grants.
const quickTTL = 2 * time.Second

func openQuick(t testing.TB, prefix, endpoint string) *Store {
	return openWith(t, Config{Client: clientv3.Config{Endpoints: []string{endpoint}}, Prefix: prefix, memberTTL: quickTTL})
}

// openCalm opens a store that a slow disk does not throw out of its lines.
func openCalm(t testing.TB, prefix, endpoint string) *Store {
	return openWith(t, Config{Client: clientv3.Config{Endpoints: []string{endpoint}}, Prefix: prefix, memberTTL: time.Minute})
}

func enqueue(t testing.TB, s *Store) store.Ticket {
	t.Helper()
	q, err := s.Enqueue(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Leave)
	return q
}

// turn waits for a ticket's turn, within a limit that only a breach exceeds.
func turn(t testing.TB, q store.Ticket, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := q.Wait(ctx, 0); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// blocked reports a ticket whose turn it already is.
func blocked(t testing.TB, q store.Ticket, what string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := q.Wait(ctx, 0); err == nil {
		t.Fatalf("%s: it was let through", what)
	}
}

// tickets are the keys of a line, as the cluster has them.
func tickets(t testing.TB, c *clientv3.Client, s *Store) *clientv3.GetResponse {
	t.Helper()
	r, err := c.Get(t.Context(), s.queue.linePrefix(key), clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A process that is cut off, or whose lease was taken away, goes to the end of
// the line with all its tickets, in their order, and nobody is lost.
//
// SPEC LS9
func TestLostPlacesAreTakenAnew(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	prefix := fresh()
	a, b := openCalm(t, prefix, n.endpoint), openCalm(t, prefix, n.endpoint)
	a1, a2, b1 := enqueue(t, a), enqueue(t, a), enqueue(t, b)
	turn(t, a1, "the first in line")
	blocked(t, b1, "the last in line")
	admin := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	a.queue.mu.Lock()
	lease := a.queue.lease.id
	a.queue.mu.Unlock()
	if _, err := admin.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	turn(t, b1, "the only one left in line")
	for len(tickets(t, admin, a).Kvs) < 3 {
		sleep(t.Context(), time.Millisecond) // poll
	}
	blocked(t, a1, "one who stands behind now")
	b1.Leave()
	turn(t, a1, "the first of those who joined again")
	blocked(t, a2, "the second of those who joined again")
	a1.Leave()
	turn(t, a2, "the second of those who joined again")
}

// A member that does not answer any more delays the others for its lease's time
// only. When it comes back, it is in line again.
//
// SPEC LS9
func TestCutOffMemberIsPassedOver(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	p, prefix := newProxy(t, n.endpoint), fresh()
	a, b := openQuick(t, prefix, p.endpoint), openQuick(t, prefix, n.endpoint)
	a1, b1 := enqueue(t, a), enqueue(t, b)
	blocked(t, b1, "the second in line")
	p.loseAll.Store(true)
	begun := time.Now()
	turn(t, b1, "the second in line, after the first was cut off")
	if took := time.Since(begun); took > 3*quickTTL {
		t.Errorf("a member that was cut off delayed the others for %v", took)
	}
	p.loseAll.Store(false)
	p.cut()
	b1.Leave()
	turn(t, a1, "the one who was cut off")
}

// A line that is out of sight is reported, so that waiters poll instead; Leave
// and Close do not wait for the cluster.
//
// SPEC LS9 ST13
// CASE B73
func TestLineOutOfSight(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	p, prefix := newProxy(t, n.endpoint), fresh()
	a, b := openQuick(t, prefix, p.endpoint), openQuick(t, prefix, n.endpoint)
	enqueue(t, b)
	a1 := enqueue(t, a)
	blocked(t, a1, "the second in line")
	p.loseAll.Store(true)
	p.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kindIs(t, a1.Wait(ctx, 0), store.ErrUnavailable, "Wait in a line out of sight")
	begun := time.Now()
	a1.Leave()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 2*closeLimit {
		t.Errorf("Leave and Close took %v", took)
	}
}

// A place whose making is in doubt is removed again, also if it was made later.
// Here the reply is lost.
//
// SPEC LS9
// CASE B24
func TestDoubtfulPlaceLeavesNothing(t *testing.T) {
	t.Parallel()
	n := shared.node(t)
	p, prefix := newProxy(t, n.endpoint), fresh()
	a, b := openAt(t, prefix, p.endpoint), openAt(t, prefix, n.endpoint)
	if _, err := a.Enqueue(t.Context(), "suite/lease/other"); err != nil { // keeps the lease
		t.Fatal(err)
	}
	enqueue(t, a).Leave()
	admin := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	for len(tickets(t, admin, a).Kvs) > 0 {
		sleep(t.Context(), time.Millisecond) // poll
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := admin.Watch(ctx, a.queue.linePrefix(key), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-made
	p.loseReply.Store(true)
	call, giveUp := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Enqueue(call, key)
		ended <- err
	}()
	<-made // the place is there
	giveUp()
	kindIs(t, <-ended, store.ErrUnavailable, "Enqueue whose reply was lost")
	p.loseReply.Store(false)
	p.cut()
	turn(t, enqueue(t, b), "one behind a place in doubt")
}

// Leaving many lines costs few writes, and a lease without tickets stays for the
// next one.
//
// SPEC ST14
func TestLinesCostLittle(t *testing.T) {
	t.Parallel()
	n := own(t, nil)
	s := openAt(t, "p", n.endpoint)
	var all []store.Ticket
	for range 100 {
		all = append(all, enqueue(t, s))
	}
	if g := n.wire.count("LeaseGrant"); g != 1 {
		t.Errorf("100 tickets took %d leases", g)
	}
	if w := n.wire.count("Watch"); w != 1 {
		t.Errorf("100 tickets took %d watch streams", w)
	}
	for _, q := range all {
		q.Leave()
	}
	c := client(t, clientv3.Config{Endpoints: []string{n.endpoint}})
	for len(tickets(t, c, s).Kvs) > 0 {
		sleep(t.Context(), time.Millisecond) // poll
	}
	if d := n.wire.count("Txn") - 100; d > 50 {
		t.Errorf("leaving 100 places took %d transactions", d)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	r, err := c.Leases(t.Context())
	if err != nil || len(r.Leases) != 0 {
		t.Errorf("after Close there are %d leases, %v", len(r.Leases), err)
	}
}
