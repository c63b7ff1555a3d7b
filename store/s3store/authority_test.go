package s3store

import (
	"testing"

	"github.com/tenure-project/tenure/authority/authoritytest"
)

// An authority has one leader at a time, and a fenced log.
//
// SPEC LA2 LA3 LA4 LA5 LA8 CK AS RF CT ST9
func TestAuthoritiesModel(t *testing.T) {
	t.Parallel()
	authoritytest.Run(t, modelHarness(t, newModel()))
}

// An authority has one leader at a time, also where its rivals use another gateway.
//
// SPEC LA2 LA3 LA4 LA5 LA8 CK AS RF CT ST9
func TestAuthoritiesVersitygw(t *testing.T) {
	t.Parallel()
	authoritytest.Run(t, gatewayHarness(t))
}
