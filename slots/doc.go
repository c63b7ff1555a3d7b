// Package slots says which host serves which key, and proves it with an epoch (SL).
// Keys hash to 16,384 slots; a table in the store says who owns which range of them:
//
//	t, err := slots.Create(ctx, client, "orders")
//	h, err := t.Host(slots.HostConfig{Owner: "host-7", Addr: "10.0.0.7:8080", Ranges: []slots.Range{r}})
//	go h.Run(ctx)
//	...
//	epoch, ok := h.EpochFor(slots.SlotOf(key)) // before each write, and with it
//
// # What is promised
//
//   - At most one host answers EpochFor(slot) at any instant, while clocks keep the rate
//     bound: a host stops two thirds of its TTL after it began to send the last renewal
//     that was confirmed, and a rival waits a whole TTL of its own after it saw the row.
//   - An epoch is given once. A later owner of a slot has a higher one than every owner
//     before, whatever the bounds of the ranges were.
//   - A refused decision writes nothing, and a late call takes no life away.
//   - A restart is not a new owner exactly where that is proven: by the lock of the
//     [Volume] that the row names. Everybody else is a rival, also one of the same name.
//
// # What is not
//
// A resource that does not check the epoch is not protected: a host that was stopped
// after it asked EpochFor acts when it wakes. Hand the epoch to the resource with every
// write, and let it refuse a lower one (package guard), or keep the effect under
// [Grant.Context] where a late one does no harm.
//
// Nor is it promised that a range is served. Nobody serves it between the end of an owner
// and the next claim.
//
// # Self and session
//
// By itself a host renews each of its ranges. Under a session it renews none: the ranges
// live by the session's one renewal, and the table changes only when they change hands.
// Take a session where there are many ranges, or where the store takes few writes.
//
// # Balance
//
// Instead of naming its ranges a host may be [HostConfig.Balanced]: the table is cut into
// [Shards], a plan in the store says which host each is meant for, and the hosts follow
// it. They choose one among them, by the lease [LeaseName], that makes the plan from what
// all announce: weight, capacity, whether they live. A move is a hand-over: the host
// drains the work (HostConfig.Drain), ends its grant, and frees the row for the successor,
// which claims it at once under the next epoch; nobody serves the range between these
// two writes. How many moves are under way at once, and how often the plan may change, is
// bounded by [Balance]. A plan that is out of date misplaces shards, and that is all: who
// serves is decided by the table. [Table.Pin] overrides it, [Host.Leave] empties a host
// before it stops. What a host announced is removed ten minutes, or ten TTLs, after the
// leader saw its session to be over; a host that finds its own gone announces itself anew
// within about two TTLs.
//
// # Requests
//
// Where the store wakes nobody (an object store), an idle balanced host makes beside the
// renewals of its session one look at the plan each TTL/6, one at the balancer's lease and
// session about each 3/8 TTL, and one a minute or so at its rows and its announcement: some
// 2,200 an hour with a TTL of 30 s, whatever the number of hosts. The leader makes about
// 1,500 more, and for each host two looks at its session in a TTL and one at its announcement
// (8 at most in one planning): some 4,000 an hour with 3 hosts and 30,000 with 100. So it
// sees a dead host within 1.7 TTL, and one that asks to leave within a TTL. While something
// moves they look each TTL/15, at most each second. A longer TTL makes all of it less.
//
// # Limits
//
// Where the table is one record, all hosts write to the same key. Self hosts there compete
// at each renewal: thirty hosts of ten ranges, and a hundred, keep them with a TTL of 30 s and
// 20 ms to a request; a host warns once when hosts times the time of a write are more than
// half of a renew interval (TTL/4), for then ranges lapse. Take sessions, best from about ten
// hosts on. Two stores' tables are two tables. A trusted clock of the store, and
// proofs of death other than a volume's lock and a session's end, are not used.
//
// docs/design/0009-slots.md has the whole argument.
package slots
