package record

import (
	"errors"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// careless is a record whose own check forgets the level.
type careless struct {
	V    int    `json:"v"`
	Text string `json:"text"`
}

func (*careless) Valid() error { return nil }

// The level is judged before anything else of a record, whatever the type
// checks: a newer one is ErrNewer and no damage, none at all is damage.
//
// SPEC ST15 ST7
func TestLevelComesFirst(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		`{"v":1,"text":"a"}`:                nil,
		`{"v":2,"text":"a"}`:                store.ErrNewer,
		`{"v":2,"text":"a","more":[1]}`:     store.ErrNewer,
		`{"more":[1],"v":3}`:                store.ErrNewer,
		`{"v":0,"text":"a"}`:                store.ErrCorrupt,
		`{"v":-1,"text":"a"}`:               store.ErrCorrupt,
		`{"v":1.5,"text":"a"}`:              store.ErrCorrupt,
		`{"v":99999999999999999,"text":""}`: store.ErrCorrupt,
		`{"text":"a","v":1}`:                store.ErrCorrupt,
		`{"v":1,"text":"a"} `:               store.ErrCorrupt,
		`{"v":1,"text":"a","more":1}`:       store.ErrCorrupt,
		`{"v":01,"text":"a"}`:               store.ErrCorrupt,
		`{"text":"a"}`:                      store.ErrCorrupt,
		`[]`:                                store.ErrCorrupt,
		``:                                  store.ErrCorrupt,
	} {
		var c careless
		if err := Decode("key", []byte(body), &c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
}
