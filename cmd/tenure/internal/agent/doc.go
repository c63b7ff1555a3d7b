// Package agent lets many commands of one host hold their leases under one
// session, which one process, the agent, renews for all of them (LS8, UI1). The
// guarantee, and what each side does for it, is in docs/design/0006-agent.md.
//
// # The protocol
//
// A client is the supervisor of one command. It connects to a unix socket in a
// private folder and holds at most one lease by that connection. Either side sends
// lines, each one JSON object of at most 16 KiB with a field "op". Fields that are
// not known are refused, in both directions; so is another version, in words.
// Durations and instants are in nanoseconds; instants are of the boot clock, which
// both sides must share.
//
//	client                                agent
//	hello {v}                             hello {v, boot, time_namespace, store, namespace,
//	                                             node, incarnation, term, ttl_ns, margin_ns}
//	status                                status {status}
//	acquire {lease, note, wait_ns,        waiting: three times in a TTL; then
//	         stop_ns, group}              granted {token, deadline_ns}, or
//	                                      error {kind, text}: the end of the connection
//	                                      deadline {deadline_ns}: after each renewal
//	                                      stop {text}: end the work, then release
//	                                      lost {text}: end the work, the lease is gone
//	release: no work is under it          released, or error {kind, text}
//
// wait_ns is 0 to try once, -1 to wait for ever. stop_ns is what the work needs to
// end, group the control group of the work and whoever ends it (package proc), where
// there is one. An agent that is silent for its TTL while a client waits is stopped, or
// hangs. Deadlines are coalesced: only the newest one waits to be sent. A client that
// gives up waiting says release, whether or not it was granted anything, and closes
// the connection.
package agent
