package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// statements is the SQL of one store; it differs only in the tables' names.
type statements struct {
	records, queue string // quoted and with their schema

	get, list, present, now                    string
	create, replace, delete, deleteIf          string
	enqueue, waiting, leave, leaveAll, standIn string
	makeRecords, makeQueue, look               string

	commitSQL
}

// durable makes the commit of the transaction it runs in wait for the disk
// where a role, database or connection says that it need not (ST16). It never
// lowers what is set, such as remote_apply.
const durable = `CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END`

// tell notifies those who listen, in the transaction of the write. A store that
// watches keys holds a shared lock for them on its listening connection; if the
// lock is free, nobody watches, and the notification, which makes the commits of
// the whole server wait for each other, is left out. The lock lasts until after
// the commit is visible, so one who comes to watch in between gets his lock only
// then, and sees the change when he compares.
const tell = `CASE WHEN NOT pg_try_advisory_xact_lock($2) THEN pg_notify($3, $4) END`

// alive is whether a place in line was confirmed lately by the server's clock.
// A clock that was set back makes places look far in the future: those count no
// more than old ones, until their next sign of life.
const alive = `until BETWEEN clock_timestamp() AND clock_timestamp() + interval '8 seconds'`

func newStatements(schema, records, queue string) statements {
	q := statements{records: quote(schema) + "." + quote(records), queue: quote(schema) + "." + quote(queue)}
	fill := func(text string) string {
		return strings.NewReplacer("{records}", q.records, "{queue}", q.queue, "{durable}", durable, "{tell}", tell, "{alive}", alive,
			"{page}", fmt.Sprint(pageSize), "{key}", quote(queue+"_key")).Replace(text)
	}
	q.get = fill(`SELECT pg_is_in_recovery(), r.version, r.modified, octet_length(r.body), CASE WHEN octet_length(r.body) <= $2 THEN r.body END
		FROM (SELECT 1) one LEFT JOIN {records} r ON r.key = $1`)
	q.list = fill(`SELECT pg_is_in_recovery(), k.key FROM (SELECT 1) one LEFT JOIN LATERAL
		(SELECT key FROM {records} WHERE key COLLATE "C" > $1 AND key COLLATE "C" >= $2 AND key COLLATE "C" < $3
		ORDER BY key COLLATE "C" LIMIT {page}) k ON true ORDER BY k.key COLLATE "C"`)
	q.present = fill(`SELECT pg_is_in_recovery(), (SELECT version FROM {records} WHERE key = $1)`)

	q.create = fill(`WITH w AS (INSERT INTO {records} (key, body, version, modified) VALUES ($1, $5, gen_random_uuid(), clock_timestamp())
		ON CONFLICT (key) DO NOTHING RETURNING version) SELECT version, {durable}, {tell} FROM w`)
	q.replace = fill(`WITH w AS (UPDATE {records} SET body = $6, version = gen_random_uuid(), modified = clock_timestamp()
		WHERE key = $1 AND version = $5 RETURNING version)
		SELECT w.version, (SELECT version FROM {records} WHERE key = $1), CASE WHEN w.version IS NOT NULL THEN {durable} END,
		CASE WHEN w.version IS NOT NULL THEN {tell} END FROM (SELECT 1) one LEFT JOIN w ON true`)
	q.deleteIf = fill(`WITH w AS (DELETE FROM {records} WHERE key = $1 AND version = $5 RETURNING version)
		SELECT w.version, (SELECT version FROM {records} WHERE key = $1), CASE WHEN w.version IS NOT NULL THEN {durable} END,
		CASE WHEN w.version IS NOT NULL THEN {tell} END FROM (SELECT 1) one LEFT JOIN w ON true`)
	q.delete = fill(`WITH w AS (DELETE FROM {records} WHERE key = $1 RETURNING version) SELECT version, {durable}, {tell} FROM w`)

	q.commitSQL = newCommitSQL(fill)

	// Places are numbered by the clock, and always above those in the same line. A
	// sequence of an unlogged table does not survive a fail-over (PostgreSQL 15:
	// "bad magic number in sequence"), and a logged one needs a right of its own.
	q.enqueue = fill(`WITH swept AS (DELETE FROM {queue} WHERE until < clock_timestamp() - interval '60 seconds')
		INSERT INTO {queue} (id, key, member, until) SELECT greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
		(SELECT max(id) + 1 FROM {queue} WHERE key = $1)), $1, $2, clock_timestamp() + interval '4 seconds'
		ON CONFLICT (id) DO NOTHING RETURNING id`)
	q.waiting = fill(`SELECT pg_is_in_recovery(), EXISTS (SELECT FROM {queue} WHERE key = $1 AND {alive} AND NOT (member = $2 AND id = ANY($3)))`)
	q.standIn = fill(`WITH seen AS (UPDATE {queue} SET until = clock_timestamp() + interval '4 seconds'
		WHERE member = $1 AND id = ANY($2) AND NOT until BETWEEN clock_timestamp() + interval '3 seconds' AND clock_timestamp() + interval '8 seconds')
		SELECT id, before FROM (SELECT id, member, count(*) FILTER (WHERE member = $1 AND id = ANY($2) OR member <> $1 AND {alive})
		OVER (PARTITION BY key ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
		FROM {queue} WHERE key IN (SELECT key FROM {queue} WHERE member = $1)) line WHERE member = $1 AND id = ANY($2)`)
	const goneTell = `SELECT pg_notify($2, '') FROM (SELECT 1) one WHERE EXISTS
		(SELECT FROM gone g JOIN {queue} q ON q.key = g.key AND q.id > g.id AND q.member <> $1)`
	q.leave = fill(`WITH gone AS (DELETE FROM {queue} WHERE member = $1 AND id = ANY($3) RETURNING key, id) ` + goneTell)
	q.leaveAll = fill(`WITH gone AS (DELETE FROM {queue} WHERE member = $1 RETURNING key, id) ` + goneTell)

	// Half of each page is left free, so that an update finds room beside the row
	// and changes no index; the dead rows are few but come fast.
	q.makeRecords = fill(`CREATE TABLE IF NOT EXISTS {records} (
	key text COLLATE "C" PRIMARY KEY,
	body bytea NOT NULL,
	version uuid NOT NULL,
	modified timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 1000)`)
	q.makeQueue = fill(`CREATE UNLOGGED TABLE IF NOT EXISTS {queue} (
	id bigint PRIMARY KEY,
	key text COLLATE "C" NOT NULL,
	member text NOT NULL,
	until timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000); CREATE INDEX IF NOT EXISTS {key} ON {queue} (key, id)`)
	q.look = lookSQL
	return q
}

// lookSQL asks what the driver must know of a server: $1 is the schema, $2 and
// $3 the tables.
const lookSQL = `SELECT current_setting('server_version_num')::int8, pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes'),
	current_database()::text, has_function_privilege('pg_control_system()', 'execute'),
	n.oid IS NOT NULL, r.oid IS NOT NULL, r.relkind = 'r', r.relpersistence = 'p',
	(SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum) FROM pg_attribute a
		WHERE a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname IN ('key', 'body', 'version', 'modified'))::text,
	EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = r.oid AND i.indisunique AND i.indisvalid AND i.indnatts = 1 AND i.indpred IS NULL AND a.attname = 'key'
		AND i.indcollation[0] IN (SELECT oid FROM pg_collation WHERE collname IN ('C', 'POSIX'))),
	q.oid IS NOT NULL AND has_schema_privilege(n.oid, 'usage') AND has_table_privilege(q.oid, 'select') AND has_table_privilege(q.oid, 'insert')
		AND has_table_privilege(q.oid, 'update') AND has_table_privilege(q.oid, 'delete')
	FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = $1
	LEFT JOIN pg_class r ON r.relnamespace = n.oid AND r.relname = $2
	LEFT JOIN pg_class q ON q.relnamespace = n.oid AND q.relname = $3`

// wantColumns is what lookSQL must find in the table, in any order.
var wantColumns = []string{"body bytea", "key text", "modified timestamp with time zone", "version uuid"}

// finding is what lookSQL found.
type finding struct {
	version                      int64
	standby                      bool
	fsync, fullPages, database   string
	control                      bool // its identifier may be read
	schema, table, plain, logged bool
	columns                      []string
	unique, queue                bool
}

func (s *Store) look(ctx context.Context) (finding, error) {
	r := request{op: opOpen}
	rows, err := s.exec(ctx, r, s.sql.look, textArg(s.cfg.Schema), textArg(s.cfg.Table), textArg(s.cfg.queueTable()))
	if err != nil {
		return finding{}, err
	}
	got, err := s.first(r, rows, 13)
	if err != nil {
		return finding{}, err
	}
	columns := strings.Split(string(got[10]), ", ")
	slices.Sort(columns)
	return finding{
		version: got.int(0), standby: got.bool(1), fsync: string(got[2]), fullPages: string(got[3]), database: string(got[4]),
		control: got.bool(5), schema: got.bool(6), table: got.bool(7), plain: got.bool(8), logged: got.bool(9),
		columns: columns, unique: got.bool(11), queue: got.bool(12),
	}, nil
}

// setUp makes the tables if they are absent and refuses a server or a table
// that cannot keep the contract.
func (s *Store) setUp(ctx context.Context) error {
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.judgeServer(found); err != nil {
		return err
	}
	if !found.table || !found.queue && !s.cfg.MustExist {
		if found, err = s.makeTables(ctx, found); err != nil {
			return err
		}
	}
	if err := s.judgeTable(found); err != nil {
		return err
	}
	s.can = store.CanDeleteIf | store.CanClock | store.CanModTime | store.CanCommit
	if found.queue {
		s.can |= store.CanQueue
	}
	if !s.cfg.NoWatch {
		s.can |= store.CanWatch
	}
	return s.identify(ctx, found)
}

// judgeServer refuses a server on which an acknowledged write is not durable
// (ST16), or which cannot write.
func (s *Store) judgeServer(found finding) error {
	const minVersion = 13_00_00
	bad := func(kind error, format string, args ...any) error {
		return store.Errorf(kind, s.label, opOpen, "", format, args...)
	}
	switch {
	case found.version < minVersion:
		return bad(store.ErrInvalid, "the server is PostgreSQL %d; 13 or newer is needed", found.version/10000)
	case found.standby:
		return s.fromPrimary(opOpen, "", true)
	case s.cfg.TrustStorage:
	case found.fsync != "on":
		return bad(store.ErrInvalid, "fsync is %s on this server: a crash of its machine can lose acknowledged writes. Set it on, or say durability=trust if the storage itself makes them durable", found.fsync)
	case found.fullPages != "on":
		return bad(store.ErrInvalid, "full_page_writes is %s on this server: a crash of its machine can tear pages. Set it on, or say durability=trust if the file system cannot tear a page", found.fullPages)
	}
	return nil
}

// judgeTable refuses a table that this driver did not make.
func (s *Store) judgeTable(found finding) error {
	bad := func(format string, args ...any) error {
		return store.Errorf(store.ErrInvalid, s.label, opOpen, "", "%s "+format, append([]any{s.sql.records}, args...)...)
	}
	switch {
	case !found.plain:
		return bad("is not an ordinary table")
	case !found.logged:
		return bad("is unlogged: it is emptied by a crash of the server. ALTER TABLE %s SET LOGGED", s.sql.records)
	case !slices.Equal(found.columns, wantColumns):
		return bad("has the columns %v, want %v: it is another program's, or of another version", found.columns, wantColumns)
	case !found.unique:
		return bad("has no unique index on key alone with the collation C")
	}
	return nil
}

// raced are the errors of a CREATE IF NOT EXISTS that another one overtook.
var raced = []string{"23505", "42P07", "42710", "40001", "40P01", "XX000"}

// makeTables makes what is absent. Any number of callers may do so at once.
func (s *Store) makeTables(ctx context.Context, found finding) (finding, error) {
	where := fmt.Sprintf("the table %s of the database %q", s.sql.records, found.database)
	switch {
	case !found.schema:
		return found, store.Errorf(store.ErrInvalid, s.label, opOpen, "", "there is no schema %q in the database %q, or this user may not see it: CREATE SCHEMA %s", s.cfg.Schema, found.database, quote(s.cfg.Schema))
	case !found.table && s.cfg.MustExist:
		return found, store.Errorf(store.ErrInvalid, s.label, opOpen, "", "%s does not exist, and create=no forbids to make it: is the URL right?", where)
	}
	for try := range 10 {
		err := s.tryMake(ctx, found)
		again, lookErr := s.look(ctx)
		switch {
		case lookErr != nil:
			return found, lookErr
		case again.table && (err == nil || again.queue || code(err) == "42501"):
			return again, nil // perhaps without the lines, whose table is for others to make
		case err != nil && (try == 9 || !slices.Contains(raced, code(err))):
			return found, s.failed(ctx, request{op: opOpen, sent: true}, err)
		}
	}
	return found, store.Errorf(store.ErrUnavailable, s.label, opOpen, "", "%s was made and is not there", where)
}

func (s *Store) tryMake(ctx context.Context, found finding) error {
	c, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	if !found.table {
		if _, err := c.Conn().PgConn().Exec(ctx, s.sql.makeRecords).ReadAll(); err != nil {
			return err
		}
	}
	_, err = c.Conn().PgConn().Exec(ctx, s.sql.makeQueue).ReadAll()
	return err
}

// identify gives the store its name, the same from every process: the cluster's
// own identifier, which a fail-over keeps, and the table.
func (s *Store) identify(ctx context.Context, found finding) error {
	cluster := "0::int8"
	if found.control {
		cluster = "(SELECT system_identifier FROM pg_control_system())"
	}
	s.sql.now = "SELECT pg_is_in_recovery(), clock_timestamp(), pg_postmaster_start_time(), " + cluster
	place := fmt.Sprintf("%s/%s.%s", found.database, s.cfg.Schema, s.cfg.Table)
	c := s.cfg.Pool.ConnConfig
	hosts := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, fmt.Sprintf("%s:%d", f.Host, f.Port))
	}
	slices.Sort(hosts)
	s.place = fmt.Sprintf("%s://%s/%s", scheme, strings.Join(slices.Compact(hosts), ","), place)
	if !found.control {
		s.identity = fmt.Sprintf("%s:%s:%d/%s", scheme, c.Host, c.Port, place)
		return nil
	}
	r := request{op: opOpen}
	rows, err := s.exec(ctx, r, s.sql.now)
	if err != nil {
		return err
	}
	got, err := s.first(r, rows, 4)
	if err != nil {
		return err
	}
	s.identity = fmt.Sprintf("%s:%d/%s", scheme, uint64(got.int(3)), place)
	return nil
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// code is the SQLSTATE of err, if the server gave one.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
