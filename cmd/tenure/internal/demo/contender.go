package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/guard"
	"github.com/tenure-project/tenure/guard/fileguard"
	"github.com/tenure-project/tenure/store/stores"
)

// orders are what a contender is told at its start.
type orders struct {
	Who   string `json:"who"`
	Store string `json:"store"`
	File  string `json:"file"`

	TTL time.Duration `json:"ttl"`
}

// Contend is the whole life of a contender: wait, hold and write, until told to
// release or until a write is refused. It returns the exit status.
func Contend(spec string, in io.Reader, out io.Writer) int {
	var o orders
	if err := json.Unmarshal([]byte(spec), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 64
	}
	c := &contender{o: o, out: json.NewEncoder(out), orders: make(chan string, 1)}
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			c.orders <- s.Text()
		}
	}()
	if err := c.run(context.Background()); err != nil {
		c.report(failed, 0, err.Error())
		return 1
	}
	return 0
}

type contender struct {
	o      orders
	out    *json.Encoder
	orders chan string
	lines  []byte
}

func (c *contender) report(what string, token uint64, text string) {
	_ = c.out.Encode(event{At: time.Now(), Who: c.o.Who, What: what, Token: token, Text: text})
}

func (c *contender) run(ctx context.Context) error {
	client, err := tenure.Open(ctx, c.o.Store, tenure.WithTTL(c.o.TTL), tenure.WithLabel("demo/"+c.o.Who),
		tenure.WithDrivers(stores.All()...), tenure.WithoutProbe())
	if err != nil {
		return err
	}
	defer client.Close()
	g, err := fileguard.Open(c.o.File, client.Namespace(), leaseID)
	if err != nil {
		return err
	}
	c.report(waits, 0, "")
	l, err := client.Acquire(ctx, leaseID, tenure.NoChildren(), tenure.Guards(g))
	if err != nil {
		return err
	}
	c.report(holds, l.Token(), "")
	if c.lines, err = os.ReadFile(c.o.File); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return c.work(ctx, l, g)
}

// work writes a line every 150 ms. It never asks whether the lease is live: it
// plays a process that was paused between its check and its write.
func (c *contender) work(ctx context.Context, l *tenure.Lease, g *fileguard.Guard) error {
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.orders:
			c.report(released, l.Token(), "")
			return l.Release(ctx)
		case <-tick.C:
		}
		lines := fmt.Appendf(c.lines, "token %d by %s\n", l.Token(), c.o.Who)
		err := g.Write(ctx, l.Token(), lines)
		var fenced *guard.FencedError
		switch {
		case errors.As(err, &fenced):
			c.report(refused, l.Token(), fmt.Sprintf("the file has seen token %d", fenced.Highest))
			return c.drain(l)
		case err != nil:
			return err
		}
		c.lines = lines
		c.report(wrote, l.Token(), "")
	}
}

// drain says why the lease ended; a zombie has nothing to release.
func (c *contender) drain(l *tenure.Lease) error {
	<-l.Done()
	c.report(lost, l.Token(), "")
	return nil
}
