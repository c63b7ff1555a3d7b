package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/tenure-project/tenure/slots"
)

// question is what put, get and delete are told.
type question struct {
	wait    time.Duration
	confirm bool
	args    []string
}

func (c *config) parseQuestion(name string, args []string, count int, what string, stderr io.Writer) (question, error) {
	var q question
	f := c.flags(name, stderr)
	f.DurationVar(&q.wait, "wait", 15*time.Second, "how long to ask again while nobody serves the key")
	if name == "get" {
		f.BoolVar(&q.confirm, "confirm", false, "have the guard asked, so that the answer rests on no clock")
	}
	err := parse(f, args, count, count, what, "store")
	q.args = f.Args()
	return q, err
}

func runPut(ctx context.Context, c config, args []string, stderr io.Writer) error {
	q, err := c.parseQuestion("put", args, 2, "a key and a value", stderr)
	if err != nil {
		return err
	}
	return asking(ctx, c, q.wait, func(ctx context.Context, cl *client) error {
		a, err := cl.put(ctx, q.args[0], q.args[1])
		if err == nil {
			fmt.Fprintf(stderr, "written by %s under epoch %d\n", a.owner, a.epoch)
		}
		return err
	})
}

func runDelete(ctx context.Context, c config, args []string, stderr io.Writer) error {
	q, err := c.parseQuestion("delete", args, 1, "a key", stderr)
	if err != nil {
		return err
	}
	return asking(ctx, c, q.wait, func(ctx context.Context, cl *client) error {
		a, err := cl.delete(ctx, q.args[0])
		if err == nil {
			fmt.Fprintf(stderr, "removed by %s under epoch %d\n", a.owner, a.epoch)
		}
		return err
	})
}

func runGet(ctx context.Context, c config, args []string, stdout, stderr io.Writer) error {
	q, err := c.parseQuestion("get", args, 1, "a key", stderr)
	if err != nil {
		return err
	}
	return asking(ctx, c, q.wait, func(ctx context.Context, cl *client) error {
		a, err := cl.get(ctx, q.args[0], q.confirm)
		switch {
		case err != nil:
			return err
		case !a.found:
			return errors.New("there is no such key")
		}
		fmt.Fprintf(stderr, "read from %s under epoch %d\n", a.owner, a.epoch)
		fmt.Fprintln(stdout, a.value)
		return nil
	})
}

// runMap prints the table as it is in the store: an owner may be gone, and its rows not
// yet somebody else's.
func runMap(ctx context.Context, c config, args []string, stdout, stderr io.Writer) error {
	if err := parse(c.flags("map", stderr), args, 0, 0, "", "store"); err != nil {
		return err
	}
	return reading(ctx, c, func(t *slots.Table) error {
		v, err := t.Read(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "RANGE\tEPOCH\tOWNER\tADDRESS\tPINNED")
		for _, r := range v.Rows {
			owner, addr, pin := "(nobody)", "", ""
			if r.Held() {
				owner, addr = r.Host.Owner, r.Host.Addr
			}
			if s := v.Plan.ShardOf(r.Range.A); s != nil {
				pin = s.Pin
			}
			fmt.Fprintf(w, "%v\t%d\t%s\t%s\t%s\n", r.Range, r.Epoch, owner, addr, pin)
		}
		return w.Flush()
	})
}

// runMove pins a shard: its owner drains it, and frees it for the one that is named.
func runMove(ctx context.Context, c config, args []string, stderr io.Writer) error {
	f := c.flags("move", stderr)
	if err := parse(f, args, 1, 2, "a range as `shardedkv map` prints it, and who shall serve it", "store"); err != nil {
		return err
	}
	r, err := slots.ParseRange(f.Arg(0))
	if err != nil {
		return err
	}
	return reading(ctx, c, func(t *slots.Table) error {
		_, err := t.Pin(ctx, r, f.Arg(1))
		return err
	})
}
