package natsstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// script stands for the JetStream of a server that has none: it answers what a
// test says.
type script struct {
	t      testing.TB
	srv    *server.Server
	nc     *nats.Conn
	bucket string

	// patient is a context that ends once something got no answer: a caller
	// who gives up then.
	patient context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	info     string                              // to STREAM.INFO
	message  func(request string) string         // to STREAM.MSG.GET; "" for no answer
	ack      func(m *nats.Msg) string            // to a write; "" for no answer
	api      map[string]func(body string) string // to other API subjects, by how they begin
	writes   []*nats.Msg
	gets     int
	barriers int
}

// created is when the scripted stream was made.
var created = time.Unix(1_700_000_000, 0).UTC()

// plainServer is a server without JetStream, for all scripts; plain starts it.
var plainServer *server.Server

var plain = sync.OnceValue(func() error {
	s, err := startServer(&server.Options{ServerName: "plain", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, MaxPayload: 1 << 20})
	plainServer = s
	return err
})

func newScript(t testing.TB) *script {
	t.Helper()
	if err := plain(); err != nil {
		t.Fatal(err)
	}
	srv := plainServer
	c := &script{t: t, srv: srv, nc: dial(t, srv.ClientURL()), bucket: newBucket(), api: map[string]func(string) string{}}
	c.patient, c.cancel = context.WithCancel(within(t, 30*time.Second))
	t.Cleanup(c.cancel)
	c.info = c.infoOf(nil)
	c.message = func(string) string { return refuse(404, codeNoMessage, "no message found") }
	c.ack = func(*nats.Msg) string { return c.acked(7) }
	stream := "KV_" + c.bucket
	for subject, handle := range map[string]nats.MsgHandler{
		"$JS.API.STREAM.INFO." + stream:       c.onInfo,
		"$JS.API.STREAM.MSG.GET." + stream:    c.onGet,
		"$KV." + c.bucket + ".>":              c.onWrite,
		"$JS.API.CONSUMER.*." + stream + ".>": c.onAPI,
		"$JS.API.STREAM.PURGE." + stream:      c.onAPI,
		"$JS.API.STREAM.CREATE." + stream:     c.onAPI,
	} {
		if _, err := c.nc.Subscribe(subject, handle); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *script) onInfo(m *nats.Msg) {
	c.mu.Lock()
	info := c.info
	if f := c.api["info"]; f != nil {
		info = f(string(m.Data))
	}
	c.mu.Unlock()
	c.answer(m, info)
}

func (c *script) onGet(m *nats.Msg) {
	c.mu.Lock()
	c.gets++
	reply := c.message(string(m.Data))
	c.mu.Unlock()
	c.answer(m, reply)
}

func (c *script) onWrite(m *nats.Msg) {
	c.mu.Lock()
	var reply string
	if strings.HasSuffix(m.Subject, ".SYNC") {
		c.barriers++
		reply = c.acked(6)
		if f := c.api["barrier"]; f != nil {
			reply = f("")
		}
	} else {
		c.writes = append(c.writes, m)
		reply = c.ack(m)
	}
	c.mu.Unlock()
	c.answer(m, reply)
}

func (c *script) onAPI(m *nats.Msg) {
	c.mu.Lock()
	reply := ""
	for start, f := range c.api {
		if strings.HasPrefix(m.Subject, start) {
			reply = f(string(m.Data))
		}
	}
	c.mu.Unlock()
	c.answer(m, reply)
}

func (c *script) answer(m *nats.Msg, reply string) {
	if reply == "" {
		c.cancel()
		return
	}
	if err := m.Respond([]byte(reply)); err != nil {
		c.t.Errorf("the script could not answer: %v", err)
	}
}

// set changes what the script does.
func (c *script) set(f func(c *script)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// counts are how many writes, reads and fences arrived.
func (c *script) counts() (writes, gets, barriers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.writes), c.gets, c.barriers
}

// open opens the scripted bucket.
func (c *script) open(query string) *Store {
	c.t.Helper()
	return openAt(c.t, c.srv.ClientURL()+"/"+c.bucket+query)
}

// infoOf is a fit stream, as changed.
func (c *script) infoOf(change func(config map[string]any)) string {
	config := map[string]any{
		"name": "KV_" + c.bucket, "subjects": []string{"$KV." + c.bucket + ".>"}, "retention": "limits", "storage": "file",
		"discard": "new", "num_replicas": 1, "max_msgs_per_subject": 2, "max_msgs": -1, "max_bytes": -1, "max_msg_size": -1,
	}
	if change != nil {
		change(config)
	}
	return encode(map[string]any{"type": "info", "config": config, "created": created, "state": map[string]any{"messages": 0}})
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// refuse is an error of the API.
func refuse(code, errCode int, description string) string {
	return encode(map[string]any{"type": "error", "error": map[string]any{"code": code, "err_code": errCode, "description": description}})
}

// acked is the acknowledgement of a write.
func (c *script) acked(seq int) string {
	return fmt.Sprintf(`{"stream":"KV_%s","seq":%d}`, c.bucket, seq)
}

// stored is a message of key, with headers in pairs.
func (c *script) stored(key string, seq int, body string, headers ...string) string {
	message := map[string]any{
		"subject": "$KV." + c.bucket + "." + strings.ReplaceAll(key, "/", "."), "seq": seq,
		"data": base64.StdEncoding.EncodeToString([]byte(body)), "time": created,
	}
	if len(headers) > 0 {
		h := "NATS/1.0\r\n"
		for i := 0; i < len(headers); i += 2 {
			h += headers[i] + ": " + headers[i+1] + "\r\n"
		}
		message["hdrs"] = base64.StdEncoding.EncodeToString([]byte(h + "\r\n"))
	}
	return encode(map[string]any{"type": "get", "message": message})
}
