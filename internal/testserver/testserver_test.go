//go:build unix

package testserver

import "testing"

// A private cluster starts, survives a crash, and is gone afterwards.
func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	p, err := StartPostgreSQL("fsync=off")
	Need(t, "PostgreSQL", err)
	defer p.Remove()
	p.Stop()
	if err := p.Restart(); err != nil {
		t.Fatal(err)
	}
}
