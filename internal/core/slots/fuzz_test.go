package slots

import (
	"bytes"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// What is decoded is valid, and encodes to exactly the bytes that were read; all else is
// corrupt or newer. Nothing panics.
//
// SPEC ST7
func fuzz(f *testing.F, names ...string) {
	for _, name := range names {
		f.Add(forms()[name].body)
	}
	f.Add([]byte(`{"v":1,"table":"orders","form":"register","texts":["x"],"rows":[[0,0,0,0,0,0,0,8]]}`))
	read := forms()[names[0]].read
	f.Fuzz(func(t *testing.T, body []byte) {
		again, err := read(body)
		if kind := store.KindOf(err); err != nil && kind != store.ErrCorrupt && kind != store.ErrNewer {
			t.Fatal(err)
		}
		if err == nil && !bytes.Equal(again, body) {
			t.Fatalf("%s\nis encoded as\n%s", body, again)
		}
	})
}

func FuzzTable(f *testing.F)    { fuzz(f, "register", "counter", "empty") }
func FuzzRow(f *testing.F)      { fuzz(f, "row", "session", "forced", "handed") }
func FuzzPlan(f *testing.F)     { fuzz(f, "plan") }
func FuzzAnnounce(f *testing.F) { fuzz(f, "announce") }
