package sqlstore

import (
	"testing"

	"github.com/tenure-project/tenure/internal/membership/membertest"
)

// A node's name is one live process.
//
// SPEC PL1 PL2 PL3 PL4 PL5 PL6 PL8 PL9 LS3 LS8 LS11 LS12
func TestIdentities(t *testing.T) {
	t.Parallel()
	membertest.Run(t, harness())
}
