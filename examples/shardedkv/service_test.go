package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/slots"
	"github.com/tenure-project/tenure/store"
	"github.com/tenure-project/tenure/store/stores"
)

// here is a service of one process, which is the test's.
type here struct {
	*testing.T
	url, data, base string
	log             *lockedBuffer
	stop            func()
}

// serveHere serves from dir until the test ends or stop is called.
func serveHere(t *testing.T, dir string, edit func(*node), args ...string) *here {
	t.Helper()
	h := &here{T: t, url: "file://" + filepath.Join(dir, "store"), data: filepath.Join(dir, "data"), log: &lockedBuffer{}}
	if err := os.MkdirAll(h.data, 0o700); err != nil {
		t.Fatal(err)
	}
	c := config{drivers: stores.All()}
	args = append([]string{"--store", h.url, "--data", h.data, "--listen", "127.0.0.1:0", "--owner", "a", "--shards", "2", "--ttl", "1s"}, args...)
	if err := c.parseServe(args, h.log); err != nil {
		t.Fatal(err)
	}
	n := newNode(c)
	if edit != nil {
		edit(n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- n.run(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		ran <- nil
	}
	t.Cleanup(func() {
		h.stop()
		if t.Failed() {
			t.Log(h.log.tail())
		}
	})
	return h
}

// said waits until the process has said so.
func (h *here) said(what string) string {
	h.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // poll: the process serves beside the test
		for line := range strings.Lines(h.log.String()) {
			if strings.Contains(line, what) {
				return line
			}
		}
	}
	h.Fatalf("it did not say %q", what)
	return ""
}

// ask makes one request of the process itself.
func (h *here) ask(method, path, body string) (status int, text string, header http.Header) {
	h.Helper()
	if h.base == "" {
		_, rest, _ := strings.Cut(h.said("msg=serving"), "address=")
		h.base = "http://" + strings.TrimSpace(rest)
	}
	r, err := http.NewRequestWithContext(h.Context(), method, h.base+path, strings.NewReader(body))
	if err != nil {
		h.Fatal(err)
	}
	t := &http.Transport{DisableKeepAlives: true}
	res, err := t.RoundTrip(r)
	if err != nil {
		h.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // it was read
	b, err := io.ReadAll(res.Body)
	if err != nil {
		h.Fatal(err)
	}
	return res.StatusCode, string(b), res.Header
}

// What a request gets, also one that asks for what is not served, and what the commands
// print.
//
// SPEC SL9 UI4
func TestRequests(t *testing.T) {
	t.Parallel()
	h := serveHere(t, t.TempDir(), nil)
	for _, r := range []string{"0-8191", "8192-16383"} {
		h.said("msg=serves process=a range=" + r)
	}
	long := strings.Repeat("x", maxValue)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"PUT", "/kv/a%2Fb%20c", "v 1", 204, ""},
		{"GET", "/kv/a%2Fb%20c", "", 200, "v 1"},
		{"HEAD", "/kv/a/b%20c", "", 200, ""},
		{"GET", "/kv/a/b%20c?confirm=1", "", 200, "v 1"},
		{"PUT", "/kv/empty", "", 204, ""},
		{"GET", "/kv/empty", "", 200, ""},
		{"PUT", "/kv/long", long, 204, ""},
		{"PUT", "/kv/long", long + "x", 400, "at most 65536 bytes"},
		{"GET", "/kv/long", "", 200, long},
		{"PUT", "/kv/bytes", "\xff", 400, "not UTF-8"},
		{"GET", "/kv/bytes", "", 404, "no such key"},
		{"DELETE", "/kv/a/b%20c", "", 204, ""},
		{"DELETE", "/kv/a/b%20c", "", 204, ""},
		{"GET", "/kv/a/b%20c", "", 404, "no such key"},
		{"GET", "/kv/", "", 400, "is no key"},
		{"GET", "/kv/" + strings.Repeat("k", maxKey+1), "", 400, "is no key"},
		{"GET", "/kv/%ff", "", 400, "is no key"},
		{"POST", "/kv/k", "", 405, "PUT and DELETE"},
		{"GET", "/", "", 404, "/kv/KEY"},
		{"GET", "/map", "", 200, `"Owner":"a"`},
	} {
		status, text, header := h.ask(c.method, c.path, c.body)
		if status != c.status || c.says == "" && text != "" || !strings.Contains(text, c.says) {
			t.Errorf("%s %.40s: %d %.200q, want %d %.40q", c.method, c.path, status, text, c.status, c.says)
		}
		if status/100 == 2 && c.path != "/map" && (header.Get(slots.HeaderOwner) != "a" || header.Get(slots.HeaderEpoch) == "") {
			t.Errorf("%s %s: %v does not say who served it", c.method, c.path, header)
		}
	}
	for _, c := range []struct {
		args []string
		says string
		code int
	}{
		{[]string{"put", "--store", h.url, "k", "v"}, "written by a under epoch ", 0},
		{[]string{"get", "--store", h.url, "k"}, "v\n", 0},
		{[]string{"get", "--confirm", "--store", h.url, "k"}, "v\n", 0},
		{[]string{"delete", "--store", h.url, "k"}, "removed by a", 0},
		{[]string{"get", "--store", h.url, "k"}, "no such key", 1},
		{[]string{"put", "--store", h.url, "k", "\xff"}, "not UTF-8", 1},
		{[]string{"map", "--store", h.url}, "8192-16383", 0},
		{[]string{"move", "--store", h.url, "0-8191", "b"}, "", 0},
		{[]string{"map", "--store", h.url}, " b\n", 0},
		{[]string{"move", "--store", h.url, "0-8191"}, "", 0},
		{[]string{"move", "--store", h.url, "0-8190", "b"}, "0-8190 is no shard", 1},
	} {
		if code, out, bad := try(t, c.args...); code != c.code || !strings.Contains(out+bad, c.says) {
			t.Errorf("shardedkv %q: exit code %d, %s", c.args, code, out+bad)
		}
	}
}

// A write of which the file does not tell whether it happened is answered as such; one
// that certainly did not is refused, and changes nothing.
//
// SPEC GD1
func TestFailedWrites(t *testing.T) {
	t.Parallel()
	h := serveHere(t, t.TempDir(), func(n *node) {
		n.write = func(ctx context.Context, s *shard, data []byte) error {
			switch {
			case strings.Contains(string(data), "unknown"):
				return store.Errorf(store.ErrUnknown, "", "write", "", "made up")
			case strings.Contains(string(data), "unavailable"):
				return store.Errorf(store.ErrUnavailable, "", "write", "", "made up")
			}
			return guarded(ctx, s, data)
		}
	})
	h.said("range=0-8191")
	h.said("range=8192-16383")
	for value, want := range map[string]int{"unknown": 500, "unavailable": 503} {
		if status, text, _ := h.ask("PUT", "/kv/k", value); status != want || !strings.Contains(text, "made up") {
			t.Errorf("%s: %d %s", value, status, text)
		}
	}
	if status, _, _ := h.ask("GET", "/kv/k", ""); status != 404 {
		t.Errorf("a value that was not written is there: %d", status)
	}
	if status, text, _ := h.ask("PUT", "/kv/k", "fine"); status != 204 {
		t.Errorf("the next write: %d %s", status, text)
	}
}

// A guard that saw a newer epoch refuses the write, and its host takes a newer one still:
// also where the store was lost, and all epochs began anew beside the old files.
//
// SPEC SL6 GD1
func TestNewerEpoch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := serveHere(t, dir, nil)
	h.said("range=0-8191")
	h.said("range=8192-16383")
	if status, text, _ := h.ask("PUT", "/kv/k", "1"); status != 204 {
		t.Fatal(status, text)
	}
	r := slots.Range{B: 8191}
	if slots.SlotOf("k") > r.B {
		r = slots.Range{A: 8192, B: 16383}
	}
	g, err := fileguard.Open(shardPath(h.data, r), "default", "kv")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Raise(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	if status, text, _ := h.ask("GET", "/kv/k?confirm=1", ""); status != 503 || !strings.Contains(text, "fenced") {
		t.Errorf("a confirmed read: %d %s", status, text)
	}
	h.said("epoch=41")
	if status, text, header := h.ask("PUT", "/kv/k", "2"); status != 204 || header.Get(slots.HeaderEpoch) != "41" {
		t.Errorf("after the newer epoch: %d %s %v", status, text, header)
	}
	h.stop()
	if err := os.RemoveAll(filepath.Join(dir, "store")); err != nil {
		t.Fatal(err)
	}
	again := serveHere(t, dir, nil)
	again.said("epoch=42")
	if status, text, _ := again.ask("GET", "/kv/k", ""); status != 200 || text != "2" {
		t.Errorf("after the store was lost: %d %q", status, text)
	}
}

// A shard whose file is damaged is not served, and says why; the others are. It is served
// once the file is mended.
//
// SPEC SL8
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "data", "slots-00000-08191.json")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	key := ""
	for i := 0; key == "" || slots.SlotOf(key) > 8191; i++ {
		key = strings.Repeat("k", i+1)
	}
	damage := []string{
		`{"range":"0-8191","epoch":1,"values":{"a"`, `{"range":"0-100","epoch":1,"values":{}}`, `{"range":"0-8191","epoch":999,"values":{}}`,
		`{"range":"0-8191","epoch":1}`, `{"range":"0-8191","epoch":1,"values":{},"more":1}`, `{"range":"0-8191","epoch":1,"values":{}}}`, "",
	}
	for i, body := range damage {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readShard(path, slots.Range{B: 8191}, 7); store.KindOf(err) != store.ErrCorrupt {
			t.Errorf("damage %d is read as %v", i, err)
		}
	}
	h := serveHere(t, dir, nil)
	h.said("range=8192-16383")
	h.said("a shard cannot be opened yet")
	if status, text, _ := h.ask("GET", "/kv/"+key, ""); status != 503 {
		t.Errorf("a damaged shard: %d %s", status, text)
	}
	if err := os.WriteFile(path, []byte(`{"range":"0-8191","epoch":1,"values":{"`+key+`":"back"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	h.said("msg=serves process=a range=0-8191")
	if status, text, _ := h.ask("GET", "/kv/"+key, ""); status != 200 || text != "back" {
		t.Errorf("a mended shard: %d %q", status, text)
	}
}

// Bad input is told before anything happens.
//
// SPEC UI4
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	serve := []string{"serve", "--store", "file://" + dir + "/store", "--data", dir, "--listen", "127.0.0.1:0", "--owner", "a"}
	for say, args := range map[string][]string{
		"shardedkv serve --store": {},
		"shardedkv put --store":   {"walk"},
		"--store is missing":      {"map"},
		"--owner is missing":      {"serve", "--store", "mem:x", "--data", dir, "--listen", ":0"},
		"is no folder":            append(serve, "--data", dir+"/nowhere"),
		"is no flag":              append(serve, "more"),
		"not defined":             {"map", "--stor", "x"},
		"--shards is 0":           append(serve, "--shards", "0"),
		"--weight 0":              append(serve, "--weight", "0"),
		"--settle -1s":            append(serve, "--settle", "-1s"),
		"TTL":                     append(serve, "--ttl", "10ms"),
		"no driver for nowhere":   {"map", "--store", "nowhere:x"},
		"missing port":            append(serve, "--listen", "nowhere"),
		"--advertise":             append(serve, "--listen", ":0"),
		"a key and a value":       {"put", "--store", "mem:x", "k"},
		"a key after its flags":   {"get", "--store", "mem:x", "k", "v"},
		"start a process":         {"get", "--store", "file://" + dir + "/none", "k"},
		"a range":                 {"move", "--store", "mem:x"},
		"neither a slot nor":      {"move", "--store", "mem:x", "all", "a"},
	} {
		if code, _, bad := try(t, args...); code == 0 || !strings.Contains(bad, say) {
			t.Errorf("shardedkv %q: exit code %d, %q does not say %q", args, code, bad, say)
		}
	}
	for _, command := range []string{"serve", "put", "get", "delete", "map", "move"} {
		if code, _, bad := try(t, command, "--help"); code != 0 || !strings.Contains(bad, "-store") {
			t.Errorf("shardedkv %s --help: exit code %d, %s", command, code, bad)
		}
	}
}
