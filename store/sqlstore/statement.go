package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// statement is a prepared statement, with room for its arguments and for one row
// of its result.
type statement struct {
	s interface {
		driver.Stmt
		driver.StmtExecContext
		driver.StmtQueryContext
	}
	args []driver.NamedValue
	row  []driver.Value
}

// prepared returns the statement of query, ready for args.
func (c *conn) prepared(query string, args []any) (*statement, error) {
	s := c.stmts[query]
	if s == nil {
		made, err := c.c.Prepare(query)
		if err != nil {
			return nil, err
		}
		s = &statement{args: make([]driver.NamedValue, len(args))}
		var ok bool
		if s.s, ok = made.(interface {
			driver.Stmt
			driver.StmtExecContext
			driver.StmtQueryContext
		}); !ok {
			return nil, errors.Join(fmt.Errorf("the driver's statements are %T", made), made.Close())
		}
		c.stmts[query] = s
	}
	for i, arg := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, err
		}
		s.args[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return s, nil
}

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(query string, args ...any) (int64, error) {
	s, err := c.prepared(query, args)
	if err != nil {
		return 0, err
	}
	defer s.forget()
	r, err := s.s.ExecContext(context.Background(), s.args)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// script runs statements that stand one after the other in text.
func (c *conn) script(text string) error {
	x, ok := c.c.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("the driver's connections are %T", c.c)
	}
	_, err := x.ExecContext(context.Background(), text, nil)
	return err
}

// row reads the one row of a query; none is sql.ErrNoRows.
func (c *conn) row(query string, args []any, into ...any) error {
	found := false
	err := c.each(query, args, func(s *statement) (bool, error) {
		found = true
		return false, s.into(into...)
	})
	if err == nil && !found {
		return sql.ErrNoRows
	}
	return err
}

// rows reads all rows of a query, each with scan.
func (c *conn) rows(query string, args []any, scan func(into func(...any) error) error) error {
	return c.each(query, args, func(s *statement) (bool, error) { return true, scan(s.into) })
}

// each calls f for every row of a query while it wants more.
func (c *conn) each(query string, args []any, f func(*statement) (more bool, err error)) error {
	s, err := c.prepared(query, args)
	if err != nil {
		return err
	}
	defer s.forget()
	rows, err := s.s.QueryContext(context.Background(), s.args)
	if err != nil {
		return err
	}
	if n := len(rows.Columns()); len(s.row) != n {
		s.row = make([]driver.Value, n)
	}
	for more := true; more && err == nil; {
		if err = rows.Next(s.row); err == nil {
			more, err = f(s)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close())
}

// forget lets go of bodies, which may be large.
func (s *statement) forget() {
	clear(s.args)
	clear(s.row)
}

// into stores the row at hand.
func (s *statement) into(into ...any) error {
	if len(into) != len(s.row) {
		return fmt.Errorf("a row has %d columns, not %d", len(s.row), len(into))
	}
	for i, v := range s.row {
		if !assign(into[i], v) {
			return fmt.Errorf("column %d holds a %T, which a %T does not take", i, v, into[i])
		}
	}
	return nil
}

// assign stores v where it fits without conversion.
func assign(into any, v driver.Value) (ok bool) {
	switch into := into.(type) {
	case *int64:
		*into, ok = v.(int64)
	case *int:
		var n int64
		n, ok = v.(int64)
		*into = int(n)
	case *string:
		*into, ok = v.(string)
	case *[]byte:
		*into, ok = v.([]byte)
		ok = ok || v == nil
	}
	return ok
}
