package pgstore

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-project/tenure/store"
)

// A write that waited for another one says what it found after that, not what
// it saw when it began.
//
// SPEC ST2 ST5
func TestRefusalAfterAWaitTellsTheTruth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sql string
		want      error
	}{
		{"deleted", "DELETE FROM %t WHERE key = '%k'", store.ErrNotFound},
		{"replaced", "UPDATE %t SET version = gen_random_uuid() WHERE key = '%k'", store.ErrConflict},
		{"deleted and made again", "WITH g AS (DELETE FROM %t WHERE key = '%k' RETURNING key) SELECT 1; INSERT INTO %t VALUES ('%k', '', gen_random_uuid(), now())", store.ErrConflict},
	} {
		for _, op := range []string{"Replace", "DeleteIf"} {
			t.Run(c.name+" under "+op, func(t *testing.T) {
				t.Parallel()
				u := place(t)
				s := open(t, with(u, "watch", "no"))
				v := must(s.Create(t.Context(), key, []byte("0")))(t)
				other := must(pgconn.Connect(t.Context(), bare(u)))(t)
				defer func() { _ = other.Close(contextWithoutEnd) }()
				run := func(sql string) {
					t.Helper()
					if _, err := other.Exec(t.Context(), sql).ReadAll(); err != nil {
						t.Fatal(err)
					}
				}
				run("BEGIN; " + fill(c.sql, s.sql.records))
				done := make(chan error, 1)
				go func() {
					if op == "DeleteIf" {
						done <- s.DeleteIf(t.Context(), key, v)
						return
					}
					_, err := s.Replace(t.Context(), key, []byte("1"), v)
					done <- err
				}()
				eventually(t, "the wait for the row", func() bool {
					return admin(t, u, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%"+param(u, "schema")+"%'")[0][0] == "1"
				})
				run("COMMIT")
				kindIs(t, <-done, c.want, op)
			})
		}
	}
}

func fill(sql, table string) string {
	out := ""
	for i := 0; i < len(sql); i++ {
		if sql[i] == '%' && i+1 < len(sql) {
			i++
			switch sql[i] {
			case 't':
				out += table
			case 'k':
				out += key
			}
			continue
		}
		out += string(sql[i])
	}
	return out
}

// A trigger or a policy that keeps the server from writing is no conflict, which
// the caller would try again for ever.
//
// SPEC ST8
func TestWriteThatTheServerSwallows(t *testing.T) {
	t.Parallel()
	u := place(t)
	s := open(t, with(u, "watch", "no"))
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	schema := param(u, "schema")
	admin(t, u, "CREATE FUNCTION "+schema+".no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "+
		"CREATE TRIGGER no BEFORE UPDATE OR DELETE ON "+s.sql.records+" FOR EACH ROW EXECUTE FUNCTION "+schema+".no()")
	_, err := s.Replace(t.Context(), key, []byte("1"), v)
	kindIs(t, err, store.ErrDenied, "Replace that a trigger swallows")
	kindIs(t, s.DeleteIf(t.Context(), key, v), store.ErrDenied, "DeleteIf that a trigger swallows")
	says(t, err, "trigger")
}

// SPEC ST4
func TestForeignMarksMatchNothing(t *testing.T) {
	t.Parallel()
	s := open(t, with(place(t), "watch", "no"))
	v := must(s.Create(t.Context(), key, []byte("0")))(t)
	upper := store.Version("")
	for _, r := range v {
		if r >= 'a' && r <= 'f' {
			r -= 'a' - 'A'
		}
		upper += store.Version(r)
	}
	for _, foreign := range []store.Version{"", "x", upper, " " + v, v + "0", "{" + v + "}", "00000000-0000-0000-0000-000000000000"} {
		if foreign == v {
			continue
		}
		_, err := s.Replace(t.Context(), key, []byte("1"), foreign)
		kindIs(t, err, store.ErrConflict, "Replace from the mark "+string(foreign))
	}
}
