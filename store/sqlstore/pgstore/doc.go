// Package pgstore keeps records in one table of a PostgreSQL database (13 or
// newer).
//
// [Driver] opens it by URL, [Open] with a configuration of github.com/jackc/pgx.
// docs/stores/postgres.md says what that needs, what it costs and where its
// traps are.
//
// A record is a row whose version is a random UUID made by the server, so that
// no version comes back, whether after a delete, a restored backup or a
// fail-over (ST4). Every call is one statement, sent once, in a transaction of
// its own: there is no session state that a pooler could lose, no transaction
// that a stopped client could leave open, and a row lock lives no longer than
// the statement (ST13). A write raises synchronous_commit in its own transaction
// where it is off, so an acknowledged write is durable whatever the role, the
// database or the connection is set to (ST16).
package pgstore
