// Package etcdstore keeps leases in an etcd cluster (v3 API).
//
// Every conditional write is one transaction, sent once. A record is one key;
// its value begins with a line that holds a fresh random stamp, and a version
// is the modification revision together with that stamp. The transaction
// compares both, so a version stays worthless for ever after the record
// changed, even if the cluster was restored from a snapshot and counts the same
// revisions again (ST4).
//
// The line of waiters hangs on one short etcd lease per open store, and the
// watches of one open store share one stream. See docs/stores/etcd.md.
package etcdstore
