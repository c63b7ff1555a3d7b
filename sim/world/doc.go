// Package world runs contenders for leases over a bad network, in virtual time,
// and watches every step with an oracle.
//
// A [Plan] says everything that chance decides before a world begins; [NewPlan]
// draws one from a seed. [Run] plays it in the caller's testing/synctest bubble
// and returns a [Verdict]. Directed tests make a [World] themselves, [World.Spawn]
// processes in it and do to them what they like.
//
// # What a world is made of
//
//	World     the place that keeps the records, the oracle, the trace
//	Proc      one process: clocks, a gate, a link, a tenure.Client, its callers
//	clock     wall, monotonic and boot clock with a rate of their own
//	gate      stops a whole process: no timer fires, no reply arrives
//	port      what a client knows as its store: the link behind the gate
//	link      a faultstore.Store: what the network does to one process
//	wire      takes time, and lets what was sent arrive though nobody waits
//	place     one memstore.Store, where effects happen one after the other
//	oracle    sees every effect, every hand-out and every answer
//	fate      crashes, pauses, suspends, cuts links, steps clocks, by the seed
//
// A process that crashes is one that is stopped for ever: no line of its code
// runs any more, while what it had sent still arrives. One that is stopped for
// a while finds, when it goes on, that all its timers are overdue, and meets
// them in an order that the seed decides. A machine that is suspended is
// stopped too, and its monotonic clock stands still for that time.
//
// # What the oracle asserts
//
//	R1   At one instant at most one handle of a lease is live; none is live once
//	     the record says that another tenure began.
//	R2   Tokens handed out for a lease rise and never repeat; each was granted in
//	     the record to exactly that handle.
//	R3   A record moves by legal steps only: its counter never falls, a renewal is
//	     its holder's, a released record stays released until a new grant.
//	R4   A record falls by observation only after it stood unchanged for its TTL
//	     of true time; so does a forced end for the superseded TTL, and a
//	     hand-over to somebody else for its hold.
//	R5   "Proven" is said only of processes that are gone.
//	R6   A tenure is released in the record only after it ended where it was held.
//	R7   The guard accepts no lower token after a higher one and no token from two
//	     handles; it refuses nobody who is live.
//	R8   Work under Do: no function runs on with a live context while a later one
//	     begins; one that stops in time ends before the next begins; in one
//	     process none begins before the last returned; what overruns is reported.
//	R9   No past tenure leaves the record unless it is archived or counted, and
//	     History tells all of them and nothing else.
//	R10  The floor never falls; a record is removed only when it is released and
//	     the floor is at its counter.
//	R11  A lease is called lost only when it is.
//	R12  Answers are true: a confirmed release is one, a raised counter is raised,
//	     what took effect is not called a loss, no error blames what is not to
//	     blame.
//	R13  Where nothing goes wrong nobody loses a lease.
//	R14  When the faults have ended every lease can be acquired within a bound;
//	     every process ends in time, and so does an acquisition that does not wait.
//	R15  A watch tells the transitions in order, each once.
//	R16  Nobody floods the store, whatever goes wrong.
//	R17  The context of a lease ends with its deadline, whatever the store does.
//
// Of worlds with sessions, where processes fight for fewer node names:
//
//	R18  At one instant at most one session of a node is live; none is live once
//	     the record says that it ended, but for the superseded TTL after force.
//	R19  A node's record moves by legal steps only: the sequence rises by one with
//	     a renewal and a takeover and with nothing else, a term is the counter
//	     before it plus one, an incarnation owns the name in one unbroken run.
//	R20  A name falls by observation only after its record stood unchanged for its
//	     TTL of true time, and after force for the superseded TTL; "proven" is said
//	     only of processes that are gone.
//	R21  No term above the first acts, renews, is replaced or drops its certificate
//	     unless that stands under both names. There is one certificate for a
//	     predecessor and one for a successor and term, made by a takeover, with bytes
//	     that never change, and it is removed only where the head speaks for it.
//	R22  The lease of a session is taken only when that exact session is over, after
//	     the wait that force asks for, citing evidence that is true.
//	R23  A name is given up only when its session is not live; a session that is told
//	     to have left in order holds nothing by then and is granted nothing later.
//	R24  No lease outlives its session.
//	R26  A lease is stolen from a session only after that was told; it has ended when
//	     the session next renews.
//
// Of worlds with authorities:
//
//	R27  At one instant at most one leadership of an authority is live, by both of its
//	     deadlines; none is live once the head says that it ended, but after force.
//	     Tokens handed out rise, and each was granted in the head to that session.
//	R28  A head moves by legal steps only: the sequence rises by one, and by more with
//	     a jump; a token is the counter before it plus one and is never given twice;
//	     whoever does not lead changes faults and numbers only; a takeover carries all
//	     that stood.
//	R29  A decision is admitted only with the proof of the leadership that the head
//	     before it names, by that leadership's process, at its sequence, one by each
//	     write. It stands there in full, follows the newest one of its chain, and what
//	     the head says of a chain is exactly what was admitted, less what the bounds
//	     gave up. A catalog is sealed once, a drain is committed by who began it, and
//	     whoever a recovery replaces is over.
//	R30  Bounds never fall, a commit stays at or above the horizon, a compaction takes
//	     64 outcomes to 16.
//	R31  A leadership passes on only after it was silent for its TTL of true time, when
//	     its session is over, or when it was given up; after force only after the
//	     superseded TTL.
//	R32  A fault is made once, of a report that was written. A release clears exactly
//	     the faults of the processes that stopped, none that its round did not freeze.
//	R33  Answers to decisions are true: what stands does, by that very decision; what
//	     was told to conflict or to be fenced never will.
//	R34  Nothing is removed that the head reaches, no capsule from the horizon on, no
//	     report that the head does not show, no map that the current one rests on.
//	R35  What a snapshot, an admission and a reader say was so at one instant while they
//	     asked; an audit is clean and counts what stands.
//	R36  When the faults have ended every authority can be led within a bound, every
//	     pending report gets into the head, decisions are admitted, rounds released.
//
// Of worlds with jobs, whose processes run each occurrence of a schedule by a ledger:
//
//	R37  A head moves by legal steps only: the sequence rises by one, the epoch never
//	     falls and is one that the lease gave out, the site and the birth stay. An
//	     attempt is admitted at the head's epoch, to a run that is not committed and
//	     has no open one. Only whose function ended so says so, or a person, a probe
//	     or a retry within their rights. Nothing that was ever said is lost, whatever
//	     is compacted, split or merged, and blocks say nothing else.
//	R38  A function begins once, for an attempt of its own process, after that was
//	     shown a head where the attempt stands and its run is not committed, and then
//	     the lease; and never after its attempt was recorded as not begun.
//	R39  What Once and Did answer is true, and an error comes with what it belongs to.
//	R40  Where the guard keeps run ids, no occurrence has two effects. Occurrences are
//	     counted by their instants, which the ledger does not know.
//	R41  When the faults have ended every occurrence that anybody asked for is done, or
//	     held where the policy is to hold. One that is done has an effect. Each effect
//	     is by an attempt that the ledger shows as committed, given up or unknown, and
//	     two never as one that is committed. Where nothing goes wrong a function
//	     begins once. A listing shows all of that.
//
// Of worlds with tables of slots, whose hosts come back under their names:
//
//	R42  At one instant at most one host answers for a slot, under an epoch that the
//	     table gave for it and that is not below one answered before; none once its
//	     row fell or was released, nor, renewing itself, longer than two thirds of its
//	     TTL after its last sign of life arrived.
//	R43  A table moves by legal steps only: the counter never falls, an epoch is new and
//	     above the counter before it, those of a slot only rise, rows never overlap. A
//	     row is renewed, claimed and released by its own process, goes on under its
//	     epoch after a restart only under the same volume's lock, and is released only
//	     after nobody answers. A write that decides nothing is none. No older leader's
//	     plan follows a newer one's.
//	R44  A row falls by observation only after it stood unchanged for its TTL of true
//	     time; so does a forced end for the superseded TTL, and a hand-over to somebody
//	     else for its hold. One of a session falls as R22 says.
//	R45  A resource that checks epochs takes none after a newer one and none of two
//	     hosts, and refuses nobody who is the slot's host.
//	R46  Grants are what the table gave. A range is called lost only when it is, and
//	     where nothing goes wrong never; a host that is closed, or was told of a newer
//	     epoch, answers no more; who is refused everything has written nothing.
//	R47  When the faults have ended all slots of every table can be served within a
//	     bound.
//
// R1, R4, R5, R7, R42 and R44 look at all clocks at one instant of true time, which no
// process can. Where an operator vouched for the death of a process that did
// crash, what is left of it does not count.
//
// # What is replayed
//
// One seed gives the same steps at the same instants. Whatever a process draws
// depends on the seed and on virtual time, never on the order in which goroutines
// ran; calls and timers that would meet at one instant are set apart by where in
// the program they were made. What is left to the scheduler is the order in which
// goroutines of one process wake that wait for one event, such as the closing of
// their client: one world in some hundreds then differs by microseconds in that
// process; with authorities one in twelve does, where a leadership ends and its caller
// acts at one instant. Where a host of a table with rows of their own claims several
// ranges at one instant, the order of its claims is the scheduler's, too. A changed program gives a changed world.
package world
