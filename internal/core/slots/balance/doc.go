// Package balance decides which host should have which shard (SL8). It is pure: no I/O,
// no clock, no randomness. One leader calls Compute every few seconds, publishes the
// targets, and keeps the State for the next call; hosts follow the targets, and the
// table of rows stays the only proof of who owns what. A plan, however wrong or old, can
// move shards for nothing, and can never let two hosts serve one.
//
// # What a plan does
//
// Three layers, each made from the one before:
//
//   - base is what needs no permission. A target is kept while its host takes shards (it
//     is alive, not leaving, has a weight, and room). A move whose target no longer takes
//     shards is called off: the shard stays with its live owner. A shard without a live
//     owner and without a target gets one now.
//   - want is base with every move that has a reason: to a pin; off a host that leaves;
//     off a host with more than its capacity; for balance. It is what an operator is
//     shown as the plan without limits. Settle and Slack do apply: they say what is
//     wanted, MaxMoves, Window and Burst only how fast.
//   - the plan is base with as many moves of want as the limits allow, in that order of
//     reasons. Full hosts that pass shards to each other begin together, or not at all.
//
// # Shares
//
// A host's share is the load of all shards divided by weight. What is pinned to it is
// the least, what its capacity holds the most; what that takes from it or leaves to it
// the others divide by weight again (water-filling). Shares are fractions with one
// denominator, compared as integers, so a plan does not depend on rounding. With equal
// shards every host ends with its share rounded up or down, which is the quota rule of
// apportionment; which hosts round up is not fixed (as it would be with the largest
// remainders) but left to who has the shards already, since that saves moves.
//
// # Moves
//
// For balance, the host furthest above its share gives a shard to the one furthest
// below, as long as that makes the sum of their differences smaller and the shard is not
// heavier than the greater of the two. With equal shards no host both gives and takes, and
// the number of moves is the least that leads to balance: the greater of what hosts have
// beyond their share rounded up, and of what hosts lack of their share rounded down. With
// unequal loads the sum of differences falls with each move, so it ends, with every host
// within the heaviest shard of its share (pins and capacities apart); finding the fewest
// moves would be a packing problem, and is not tried.
//
// Nothing moves for balance until a host is outside Slack by at least a shard. Then it
// goes on to full balance, over as many plans as the limits need (State.Balancing).
//
// # Storms
//
// A host that was away, drained or restarted has to be there for Settle before shards
// are moved to it (moves off a leaving host may go to it when no settled host has room),
// and while it has not settled nothing is moved off it for balance either: its share is
// what it has. So a host that flaps loses its shards once and gets none back but its
// part by weight, rounded down, of what other hosts lose by dying. A settled host gets at
// most twice its part of these while others have room, so that no single host has to
// recover everything.
//
// A host whose presence is lost is dead for a plan: its shards get other targets at
// once, also while their rows are live, because a host that knows early that it is next
// can watch the row lapse. These do not count as moves, since the owner is not alive. If
// the host is seen again while its rows live, its shards are given back to it.
//
// At most MaxMoves shards with a live owner have another host for target. A hand-over
// counts until the target holds the shard, also while nobody does. A target that changed
// for a reason of want counts even if nobody held the shard: its old target may be just
// taking it.
//
// # What may surprise
//
//   - A shard waiting for its turn keeps its live owner as its target, even when that
//     host leaves, has weight 0 or is over its capacity. No plan gives a shard to such a
//     host that does not hold it already; so a capacity is exceeded only by what a host
//     itself holds, which is told (OverCapacity).
//   - A pin is a preference that wins over weights: while its host is absent, leaving,
//     of weight 0 or full of other pins, others serve the shard, and that is told. With
//     Config.HardPins the shard stays with whoever holds it, and goes to nobody else once
//     nobody does.
//   - A shard that nobody holds keeps its target even if better hosts appear. A leader
//     that starts with its cluster should wait until hosts have announced themselves
//     before its first plan, or the first host gets everything, and gives it away slowly.
//
// # What it does not do
//
// It measures no load and smooths none: loads that jump should be smoothed by the
// caller. It neither splits nor merges ranges, knows no zones, and does not swap shards
// of unequal load. It does not watch whether a host does what it is told: a target that
// is alive and never takes its shard keeps it, and one that never gives a shard up keeps
// its place among the MaxMoves.
package balance
