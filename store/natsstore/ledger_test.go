package natsstore

import (
	"testing"

	"github.com/tenure-project/tenure/ledger/ledgertest"
)

// Each run happens once, and its ledger says so.
//
// SPEC EX1 EX3 EX4 EX6 EX7 ST9
func TestLedgers(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, harness())
}
