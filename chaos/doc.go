// Package chaos holds tests alone: the command, as real processes, on every
// kind of store, each a real server on loopback, with kills and pauses. They
// print how long a fail-over took beside the lease's TTL.
package chaos
