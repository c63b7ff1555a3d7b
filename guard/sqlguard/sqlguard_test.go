package sqlguard_test

import (
	"strings"
	"testing"

	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/sqlguard"
	"github.com/tenure-project/tenure/store"
)

// The behaviour is tested against real databases where their drivers are: see
// store/sqlstore.
//
// SPEC GD1 ST11
func TestNewRefusesBadInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                         string
		d                            sqlguard.Dialect
		subject, namespace, resource string
	}{
		{"no dialect", sqlguard.Dialect{}, "s", "n", "r"},
		{"no subject", sqlguard.SQLite(), "", "n", "r"},
		{"no namespace", sqlguard.SQLite(), "s", "", "r"},
		{"control character", sqlguard.SQLite(), "s", "n", "r\n"},
		{"long subject", sqlguard.SQLite(), strings.Repeat("s", 129), "n", "r"},
	} {
		g, err := sqlguard.New(nil, c.d, c.subject, c.namespace, c.resource)
		if g != nil || store.KindOf(err) != guard.ErrInvalid {
			t.Errorf("%s: New gave %v, %v", c.name, g, err)
		}
	}
}
