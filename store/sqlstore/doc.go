// Package sqlstore keeps records in a SQL database.
//
// [OpenSQLite] and [Driver] keep them in one SQLite file for the processes of
// one machine. docs/stores/sqlite.md says what that needs, what it costs and
// where its traps are.
//
// A record is a row. Its version is made of a counter of the whole store, which
// never falls, and a random number, so that not even a database that was put
// back from a backup gives a version twice (ST4). Every write is one short
// transaction whose statements are conditional on the version; nothing else
// changes a row.
package sqlstore
