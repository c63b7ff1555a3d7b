package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// answer is what an error code of the server means for a call.
type answer struct {
	kind   error
	detail string
}

// answers lists, by SQLSTATE or its class, the errors after which a statement
// certainly had no effect: the server rolled it back. What is not here leaves
// the outcome of a write unknown; that is all of class 08 (a connection, or a
// pooler that lost its server), 57P01 to 57P05 (the server ended the session),
// 58 and XX (the server's own failures), and whatever is new.
var answers = map[string]answer{
	"0A":    {store.ErrInvalid, "the server cannot do what the driver asks; PostgreSQL 13 or newer is needed"},
	"22":    {store.ErrCorrupt, "the table is not as this driver makes it"},
	"23":    {store.ErrCorrupt, "the table has a constraint that this driver did not make"},
	"25006": {store.ErrUnavailable, "the server is a read-only standby, or default_transaction_read_only is on for this role or database; give the primary's address, or all hosts in one URL"},
	"25":    {store.ErrUnavailable, ""},
	"28":    {store.ErrDenied, "the server does not let this user in: check user, password and pg_hba.conf"},
	"3D000": {store.ErrInvalid, "the database does not exist; create it or mend the URL"},
	"3F000": {store.ErrInvalid, "the schema does not exist; create it or mend the URL"},
	"40":    {store.ErrUnavailable, "the transaction collided with another and was rolled back"},
	"42501": {store.ErrDenied, ""}, // the detail names the right
	"42P01": {store.ErrCorrupt, "the table is gone; it was there when the store was opened"},
	"42":    {store.ErrCorrupt, "the table is not as this driver makes it"},
	"53300": {store.ErrUnavailable, "the server has no free connection (max_connections, or the limit of this role or database)"},
	"53":    {store.ErrUnavailable, "the server is short of disk, memory or connections"},
	"54":    {store.ErrUnavailable, "beyond a limit of the server"},
	"55":    {store.ErrUnavailable, ""},
	"57014": {store.ErrUnavailable, "the server cancelled the statement (statement_timeout, or by hand)"},
	"XX001": {store.ErrCorrupt, "the server found its own data damaged"},
	"XX002": {store.ErrCorrupt, "the server found its own index damaged; REINDEX may help"},
}

// connecting lists what the refusal of a connection means beyond answers.
// Nothing was sent, so nothing is unknown.
var connecting = map[string]answer{
	"57P03": {store.ErrUnavailable, "the server is starting, stopping or recovering"},
	"42501": {store.ErrDenied, "this user may not CONNECT to the database"},
}

// unsettled are codes of the classes above that do leave an outcome open.
var unsettled = map[string]bool{"40003": true}

// lookUp finds the code or its class.
func lookUp(table map[string]answer, code string) (answer, bool) {
	if unsettled[code] || len(code) != 5 {
		return answer{}, false
	}
	if a, ok := table[code]; ok {
		return a, true
	}
	a, ok := table[code[:2]]
	return a, ok
}

// request is what is known of a call when it fails.
type request struct {
	op, key string
	write   bool // it may have changed something
	sent    bool // something of it may have left
}

// failed makes the error of a call.
func (s *Store) failed(ctx context.Context, r request, err error) error {
	var known *store.Error
	if errors.As(err, &known) {
		return known
	}
	unknown := r.write && r.sent && !pgconn.SafeToRetry(err)
	a := answer{kind: store.ErrUnavailable}
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		a = judge(pg, unknown, r.sent)
		if pg.Code == "42501" && r.sent {
			a.detail = s.missingRight(r.op, pg)
		}
	case unknown:
		a = answer{store.ErrUnknown, "the statement was sent, and its outcome did not come back"}
	case !r.sent:
		a.detail = connectDetail(err)
	}
	if s.stop.Err() != nil && ctx.Err() == nil {
		a.detail = "the store is closed"
	}
	e := store.Wrap(a.kind, s.label, r.op, r.key, s.clean(ctx, err))
	e.Detail = a.detail
	return e
}

// judge gives the meaning of a server's error. Only an error below FATAL tells
// that a statement was rolled back: what ends the session can come late.
func judge(pg *pgconn.PgError, unknown, sent bool) answer {
	if !sent {
		if a, ok := lookUp(connecting, pg.Code); ok {
			return a
		}
	}
	a, ok := lookUp(answers, pg.Code)
	switch {
	case unknown && (!ok || fatal(pg)):
		return answer{store.ErrUnknown, "the server ended the session in mid-statement"}
	case ok:
		return a
	}
	return answer{store.ErrUnavailable, ""}
}

// fatal reports whether the error ended the session.
func fatal(pg *pgconn.PgError) bool {
	severity := pg.SeverityUnlocalized
	if severity == "" { // some poolers
		severity = pg.Severity
	}
	return !strings.EqualFold(severity, "ERROR")
}

// missingRight names the right that the call needs.
func (s *Store) missingRight(op string, pg *pgconn.PgError) string {
	rights := map[string]string{
		"get": "SELECT", "list": "SELECT", "watch": "SELECT", "create": "SELECT and INSERT", "replace": "SELECT and UPDATE",
		"delete": "SELECT and DELETE", "delete-if": "SELECT and DELETE",
		"scan": "SELECT", "commit": "SELECT, INSERT, UPDATE and DELETE",
	}
	if need, ok := rights[op]; ok {
		return fmt.Sprintf("this user needs %s on %s", need, s.sql.records)
	}
	if op == opOpen {
		return fmt.Sprintf("this user needs USAGE on the schema %q and SELECT, INSERT, UPDATE, DELETE on the tables; to make them, CREATE on the schema", s.cfg.Schema)
	}
	return fmt.Sprintf("this user needs SELECT, INSERT, UPDATE and DELETE on %s (%s)", s.sql.queue, pg.Message)
}

// connectDetail explains what is not plain from a failed connection.
func connectDetail(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "server refused TLS"):
		return "the server has no TLS; set it up, or say sslmode=disable in the URL if the network is trusted"
	case strings.Contains(text, "read only connection"):
		return "every server of the URL is a read-only standby"
	}
	return ""
}

// clean is err as it may be shown: the context's cause if that ended the call,
// and without a password.
func (s *Store) clean(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.As(err, new(*pgconn.PgError)) {
		return context.Cause(ctx)
	}
	if text := err.Error(); hide(text, s.secrets) != text {
		return errors.New(hide(text, s.secrets))
	}
	return err
}
