package tenure

import (
	"strings"
	"testing"
)

// A store URL with a part that Go would leave out, or with a parameter twice, is
// refused before anything is opened, and no message quotes its secrets.
//
// SPEC UI4 ST11
func TestMalformedStoreURLs(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"mem:?namespace=a;b":               "semicolon",
		"mem:?namespace=%zz":               "percent",
		"mem:?namespace=a&namespace=b":     "2 namespaces",
		"mem:?namespace=":                  "namespace",
		"mem:?register=yes":                "numbered",
		"no-scheme":                        "not a store URL",
		"nosuch://user:hunter2@h/p?a=b":    "no driver for nosuch:",
		"://user:hunter2@h/p":              "not a store URL",
		"x://user:hunter2?y@h/p":           "not a store URL",
		"mem:?hunter2@host=c":              "has a parameter that is none",
		"postgres://user:hunter2@h/d":      "store/sqlstore/pgstore",
		"file:///tmp/x?secret=hunter2;a=b": "semicolon",
	} {
		_, _, err := OpenStore(t.Context(), url)
		wantErr(t, err, ErrInvalid)
		if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; it should say %q and no secret", url, err, says)
		}
	}
}
