package etcdstore

import (
	"testing"

	"github.com/tenure-project/tenure/slots/slotstest"
)

// Each slot has one owner at a time, under epochs that rise.
//
// SPEC SL2 SL3 SL4 SL5 SL7 SL8 SL9 LS8 LS11 LS12 ST9
func TestSlots(t *testing.T) {
	t.Parallel()
	slotstest.Run(t, harness(t))
}
