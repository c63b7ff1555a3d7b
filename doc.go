// Package tenure decides who owns what in a distributed program, on storage
// that the program already has, and lets the things that are owned refuse
// everybody else.
//
// # A lease
//
// [Open] a store by its URL, then [Client.Do] runs a function while this
// process holds a named lease:
//
//	client, err := tenure.Open(ctx, "file:///var/lib/tenure")
//	...
//	err = client.Do(ctx, "nightly-report", func(ctx context.Context, l *tenure.Lease) error {
//		return report(ctx, l.Token())
//	})
//
// The function's context ends in time: before anybody else can hold the lease,
// also when the store hangs, the network is cut or the machine was suspended.
// [Client.Acquire] and [Client.TryAcquire] give a handle instead.
//
// # What a lease does not do
//
// A lease alone does not stop a process that stalls between its last check and
// its effect. Its [Lease.Token] does, where the resource refuses a token lower
// than the highest it has seen: the packages under guard do that for files and
// SQL databases. docs/GUARANTEES.md says what is promised and what is not.
//
// # Time
//
// A holder trusts its grant from before it sent the request that won it, for
// the TTL less a margin, on a clock that counts suspend. A rival takes a silent
// lease over only after it watched it for a full TTL on its own clock. Wall
// clocks of two machines are never compared.
//
// # Errors
//
// Use errors.Is with the Err values of this package. A *[HeldError] says who
// holds a lease.
package tenure
