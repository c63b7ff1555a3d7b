package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The demo, played with real processes: whoever is killed is followed by another
// one, whoever is paused beyond its lease is refused when it wakes, and a release
// is followed at once. It checks itself that no token fell in the guarded file.
//
// SPEC UI1 LS2 LS5 LS14 GD1
// CASE B40
func TestDemo(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "file")
	demo := p.startWith([]string{"TENURE_STORE="}, "tenure", "demo", "--svg", "picture.svg")
	demo.want(0)
	said := demo.output()
	rest := said
	for _, step := range []string{
		`A holds \(token 1\)`,
		`A killed: kill -9`,
		`(B|C) holds \(token 2\)`,
		`(B|C) paused: SIGSTOP`,
		`(B|C) holds \(token 3\)`,
		`(B|C) resumed: SIGCONT`,
		`(B|C) refused \(token 2\): the file has seen token 3`,
		`The zombie's write under token 2 was refused`,
		`D waits`,
		`(B|C) released \(token 3\)`,
		`D holds \(token 4\)`,
		`D released \(token 4\)`,
		`(?m)^  A  .*✗`,
		`their tokens never fall: no zombie got through`,
		`The same as a picture: ` + regexp.QuoteMeta(p.path("picture.svg")),
	} {
		at := regexp.MustCompile(step).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("%q does not come where it should in\n%s", step, said)
		}
		rest = rest[at[1]:]
	}
	picture(t, p.path("picture.svg"))
	if left := p.processes(); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// picture wants well-formed XML that shows the refused write.
func picture(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	classes := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(string(raw)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v\n%s", err, raw)
		}
		switch x := token.(type) {
		case xml.CharData:
			text.Write(x)
		case xml.StartElement:
			for _, a := range x.Attr {
				if a.Name.Local == "class" {
					classes[a.Value]++
				}
			}
		}
	}
	if !strings.Contains(text.String(), "write refused: the file has seen token 3") || classes["refused"] != 1 {
		t.Errorf("the refused write is not shown:\n%s", raw)
	}
	for _, class := range []string{"waits", "holds", "paused", "zombie", "write", "grid"} {
		if classes[class] < 2 { // once in the legend
			t.Errorf("%q is not drawn:\n%s", class, raw)
		}
	}
}
