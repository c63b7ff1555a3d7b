package s3store

import (
	"testing"

	"github.com/tenure-project/tenure/ledger/ledgertest"
)

// Each run happens once, and its ledger says so.
//
// SPEC EX1 EX3 EX4 EX6 EX7 ST9
func TestLedgersModel(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, modelHarness(t, newModel()))
}

// Each run happens once, also where its hosts use different gateways.
//
// SPEC EX1 EX3 EX4 EX6 EX7 ST9
func TestLedgersVersitygw(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, gatewayHarness(t))
}
