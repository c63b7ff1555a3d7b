package gcsstore

import (
	"testing"

	"go.uber.org/goleak"
)

// The emulator's libraries start one worker as they are loaded; the driver does
// not load them.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}
