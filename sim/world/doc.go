// Package world runs contenders for leases over a bad network, in virtual time,
// and watches every step with an oracle.
//
// A [Plan] says everything that chance decides before a world begins; [NewPlan]
// draws one from a seed. [Run] plays it in the caller's testing/synctest bubble
// and returns a [Verdict]. Directed tests make a [World] themselves, start
// processes in it and do to them what they like.
//
// # What a world is made of
//
//	World     the place that keeps the records, the oracle, the trace
//	Proc      one process: clocks, a gate, a link, a tenure.Client, its callers
//	clock     wall, monotonic and boot clock with a rate of their own
//	gate      stops a whole process: no timer fires, no reply arrives
//	link      a faultstore.Store: what the network does to one process
//	wire      takes time, and lets what was sent arrive though nobody waits
//	place     one memstore.Store, where effects happen one after the other
//	oracle    sees every effect, every hand-out and every answer
//
// A process that crashes is one that is stopped for ever: no line of its code
// runs any more, while what it had sent still arrives. One that is stopped for
// a while finds, when it goes on, that all its timers are overdue, and meets
// them in an order that the seed decides. A machine that is suspended is
// stopped too, and its monotonic clock stands still for that time.
//
// # What the oracle asserts
//
// The rules are numbered where they are checked (R1 to R17); see [Rules] for
// their list.
package world
