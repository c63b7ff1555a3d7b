// Package sim tries Tenure's promises against whole worlds: many processes that
// want the same leases, over a network, on clocks and on machines that behave as
// badly as they are allowed to. It has tests only; the worlds are in package
// world, which also says what is asserted.
//
//	go test ./sim                                   a hundred worlds and the rest, in seconds
//	go test ./sim -run TestSeeds -seeds 1000        a thousand worlds
//	go test ./sim -run TestSeeds -first 5000        others
//	go test ./sim -run 'TestSeeds$' -seed 42 -v     one world, with its whole trace
//	go test ./sim -run TestSeedsOfSessions -seed 42 -v    one with sessions
//	go test ./sim -run TestSeedsOfAuthorities -seed 42 -v    one with authorities
//	go test ./sim -run TestSeedsOfLedgers -seed 42 -v    one with ledgers
//	go test ./sim -run TestTwoTroubles -pairs 1     every pair of troubles
//
// A world that breaks a rule prints its seed, the command that plays it again,
// and the steps before and after the breach, in virtual time:
//
//	11.550859104s  p3.3     replace: beta ended: token 20, counter 20, released
//	11.553643404s  p4.2     beta: sees token 20 released
//	11.832961071s  p1.3     PAUSE 306.050407ms
//
// A process is named by its slot and generation: p3.2 is what came after p3.1
// crashed or left. Capital letters are blows of fate.
//
// # What is tried
//
//   - TestSeeds: chance. Two to eight processes with clocks of different rates,
//     up to three callers each, an operator, late landings, lost replies, hangs,
//     pauses, suspends, partitions, steps of the wall clock, crashes.
//   - TestEveryTroubleAtEveryCall: no chance. Every trouble at every store call of
//     everything that a process does with a lease; TestTwoTroubles: two at once.
//   - TestOutageOfAHerd, TestManyWaitersAskAsOne: how many requests, and when.
//   - TestSeedsOfSessions, TestEveryTroubleOfSessions: the same for processes that
//     join nodes and hold leases under sessions. Names are fought for, forced,
//     fenced, retired and raised, certificates pruned; by default a sixteenth of the
//     troubles of each script is played and a crash after each call, with -share 1
//     all of them.
//   - TestSeedsOfAuthorities: the same for processes that fight for authorities under
//     their sessions, decide in every chain with proofs that lead and proofs that do
//     not, report faults, move bounds, remove what is not needed, and read; an
//     operator deposes leaders and fences their nodes.
//   - TestSeedsOfLedgers: the same for processes that run jobs by one schedule, each by
//     its own wall clock, through a ledger each, under three policies and three guards,
//     beside a person who settles, compactions, and merges of another site.
//   - TestDamageAtEveryPlace: every damage at every object of an authority's layout,
//     and everything that can be asked afterwards.
//   - TestAQuietLeader: what a leader costs that decides nothing, and who waits for it.
//   - session_scenes_test.go: a late renewal at every point of a takeover, a storm
//     on five hundred leases, histories of 4,100 certificates, numbers at their end.
//   - found_test.go, session_found_test.go: what seeds have found, each told as a scene.
//   - TestMutationsAreFound: that all this can fail. A store, a clock or a person
//     that breaks a promise is found within a few worlds, by the right rule.
//   - TestReplay: that a seed is a world.
//   - linear tests: that the drivers are what the worlds take them for.
//
// # What it cannot show
//
// Worlds run on package memstore: what a real store does wrong is for the
// drivers' own tests. Code takes no virtual time, so a process is stopped only
// between its steps, at calls and timers. Bounds on liveness hold for faults that
// have ended.
package sim
