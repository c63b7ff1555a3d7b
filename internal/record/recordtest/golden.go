// Package recordtest holds what tests of records share.
package recordtest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew; commit only what you understand")

// Golden compares body with testdata/NAME.json of the package under test, which pins
// it byte for byte.
func Golden(t *testing.T, name string, body []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, append(body, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(body) + "\n"; got != string(want) {
		t.Errorf("%s is now\n%swas\n%s", path, got, want)
	}
}
