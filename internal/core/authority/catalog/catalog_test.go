package catalog

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/internal/core/authority"
	"github.com/tenure-project/tenure/internal/record/recordtest"
	"github.com/tenure-project/tenure/store"
)

// A manifest is read strictly, and every one has the same key: one is sealed.
//
// SPEC CT ST7
func TestManifest(t *testing.T) {
	t.Parallel()
	m := &Manifest{V: 1, Definitions: []Definition{{Name: "orders", Text: "create <table>"}, {Name: "an order", Text: "x"}}}
	body, err := m.Encode()
	if err != nil || string(body) != `{"v":1,"definitions":[{"name":"orders","text":"create <table>"},{"name":"an order","text":"x"}]}` {
		t.Fatalf("%s, %v", body, err)
	}
	recordtest.Golden(t, "manifest", body)
	it, err := Rules{}.Item("k", authority.Proof{}, body)
	if err != nil || it.Key != 1 || it.Value.(*Manifest).Definitions[1].Name != "an order" {
		t.Errorf("%+v, %v", it, err)
	}
	for what, bad := range map[string]string{
		"empty":      `{"v":1,"definitions":[]}`,
		"twice":      `{"v":1,"definitions":[{"name":"a","text":"x"},{"name":"a","text":"y"}]}`,
		"no text":    `{"v":1,"definitions":[{"name":"a","text":""}]}`,
		"no name":    `{"v":1,"definitions":[{"name":"","text":"x"}]}`,
		"white":      `{"v":1,"definitions":[{"name":" a","text":"x"}]}`,
		"unknown":    `{"v":1,"definitions":[{"name":"a","text":"x","y":1}]}`,
		"not JSON":   `{"v":1`,
		"bad spaces": `{"v":1, "definitions":[{"name":"a","text":"x"}]}`,
	} {
		if _, err := (Rules{}).Item("k", authority.Proof{}, []byte(bad)); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range MaxDefinitions {
		m.Definitions = append(m.Definitions, Definition{Name: strings.Repeat("n", 3), Text: "x"})
	}
	if m.Valid() == nil {
		t.Error("too many definitions")
	}
	if (&Manifest{}).Valid() == nil {
		t.Error("no level")
	}
}
