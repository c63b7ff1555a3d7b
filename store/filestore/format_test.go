package filestore

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/tenure-project/tenure/store"
)

// SPEC ST7
func TestHeaderIsStrict(t *testing.T) {
	t.Parallel()
	body := []byte("some body")
	h := firstHeader("ns/lease/a", body).next(record, body)
	line := h.line()
	back, err := parseHeader(append(line, body...), "ns/lease/a", 2)
	if err != nil {
		t.Fatal(err)
	}
	if h.size = int64(len(line)); back != h {
		t.Fatalf("read back %+v, want %+v", back, h)
	}
	if !back.matches(body) || back.matches([]byte("some bodY")) || back.matches(nil) {
		t.Error("the body's checksum does not tell bodies apart")
	}
	for i := range line { // no byte can change unseen
		for _, c := range []byte{'0', '1', ' ', '\n', 'a', 'z', 0, line[i] ^ 1, line[i] ^ 0x20} {
			if c == line[i] {
				continue
			}
			bad := bytes.Clone(line)
			bad[i] = c
			if got, err := parseHeader(bad, "ns/lease/a", 2); err == nil {
				t.Fatalf("byte %d changed to %q went unseen: %+v", i, c, got)
			}
		}
		if _, err := parseHeader(line[:i], "ns/lease/a", 2); err == nil {
			t.Fatalf("a header cut off after %d bytes went unseen", i)
		}
	}
}

// SPEC ST7 ST11
func TestHeaderBelongsToItsPlace(t *testing.T) {
	t.Parallel()
	first := firstHeader("ns/lease/a", nil)
	for _, c := range []struct {
		what   string
		line   []byte
		key    string
		number uint64
	}{
		{"another key", first.line(), "ns/lease/b", 1},
		{"another number", first.line(), "ns/lease/a", 2},
		{"nothing", nil, "ns/lease/a", 1},
		{"no line end", bytes.Repeat([]byte("x"), 2*maxHeader), "ns/lease/a", 1},
	} {
		if _, err := parseHeader(c.line, c.key, c.number); err == nil {
			t.Errorf("%s was accepted", c.what)
		}
	}
	odd := first
	odd.kind = "other"
	if _, err := parseHeader(odd.line(), odd.key, 1); err == nil {
		t.Error("an unknown kind was accepted")
	}
	odd = first
	odd.prev = odd.nonce
	if _, err := parseHeader(odd.line(), odd.key, 1); err == nil {
		t.Error("a first state that follows another was accepted")
	}
	odd = first
	odd.length = MaxBody + 1
	if _, err := parseHeader(odd.line(), odd.key, 1); err == nil {
		t.Error("a body above the bound was accepted")
	}
}

// SPEC ST15
func TestNewerFormatIsNotCorrupt(t *testing.T) {
	t.Parallel()
	line := strings.Replace(string(firstHeader("a", nil).line()), stateMark, "tenure-state/2", 1)
	if _, err := parseHeader([]byte(line), "a", 1); !errors.Is(err, errNewerFormat) {
		t.Errorf("a state of a later level: %v", err)
	}
	for mark, want := range map[string]bool{
		"tenure-state/2": true, "tenure-state/10": true, "tenure-state/1": false, "tenure-state/0": false,
		"tenure-state/": false, "tenure-state": false, "tenure-store/2": false, "tenure-state/x": false, "": false,
	} {
		if newer(mark, stateMark) != want {
			t.Errorf("newer(%q) is not %v", mark, want)
		}
	}
}

func TestNumberNames(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{1, 9, 10, 1 << 40, 1<<64 - 1} {
		if got, ok := numberOf(numberName(n)); !ok || got != n {
			t.Errorf("numberOf(numberName(%d)) = %d, %v", n, got, ok)
		}
	}
	for _, bad := range []string{"", "1", "life", strings.Repeat("0", 20), "+0000000000000000001", "0000000000000000000a", strings.Repeat("9", 20), strings.Repeat("0", 20) + "1"} {
		if n, ok := numberOf(bad); ok {
			t.Errorf("numberOf(%q) = %d", bad, n)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"file:///var/lib/x":           "/var/lib/x",
		"file:/var/lib/x":             "/var/lib/x",
		"file://localhost/var/lib/x":  "/var/lib/x",
		"file:relative/x":             "relative/x",
		"file:./x?network=allow":      "./x",
		"file:a%20b":                  "a b",
		"file:///a%23b":               "/a#b",
		"file:///tmp/~/x":             "/tmp/~/x",
		"file:///var/x?network=allow": "/var/x",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if path, _, err := parseURL(u); err != nil || path != want {
			t.Errorf("%s opens %q, %v; want %q", raw, path, err, want)
		}
	}
	for _, raw := range []string{
		"file:", "file://", "file:~/x", "file:~", "file://host/x", "file://relative/x", "file:///x#frag", "file:///x?netwrok=allow",
		"file:///x?network=yes", "file:///x?network=", "file:///x?network=allow&network=allow", "file:%zz", "file:a%00b", "file://me@localhost/x",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			continue // refused even earlier
		}
		if path, _, err := parseURL(u); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s opens %q, %v; want ErrInvalid", raw, path, err)
		}
	}
}
