package natsstore

import (
	"testing"

	"github.com/tenure-project/tenure/authority/authoritytest"
)

// An authority has one leader at a time, and a fenced log.
//
// SPEC LA2 LA3 LA4 LA5 LA8 CK AS RF CT ST9
func TestAuthorities(t *testing.T) {
	t.Parallel()
	authoritytest.Run(t, harness())
}
