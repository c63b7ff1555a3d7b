package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-project/tenure"
	"github.com/tenure-project/tenure/store/sqlstore"
)

// childEnv makes the test binary a client of the store named by its value.
const childEnv = "TENURE_BENCH_CHILD"

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := child(url); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// childTTL is far longer than any round of a benchmark: nothing in them may
// rest on a lease that lapses.
const childTTL = time.Minute

// child does what its standard input says, a line at a time, until that ends:
//
//	acquire             prints "held", when, and the token
//	release             prints "releasing" and "released", each with when
//	keep <node> <n> <ttl> holds n leases under a session: see keep
//	measure             prints what that process used so far
//	loop <from> <until> acquires and releases between the two instants, and
//	                    prints "looped", how often, and its longest wait
//
// Instants are nanoseconds of the boot clock.
func child(url string) error {
	ctx := context.Background()
	c, err := tenure.Open(ctx, url, tenure.WithDrivers(sqlstore.Driver()), tenure.WithoutProbe(), tenure.WithTTL(childTTL))
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var l *tenure.Lease
	var k *kept
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		order := strings.Fields(orders.Text())
		switch order[0] {
		case "acquire":
			if l, err = c.Acquire(ctx, "job", tenure.NoChildren()); err == nil {
				fmt.Println("held", int64(machine.Boot()), l.Token())
			}
		case "release":
			start := machine.Boot()
			if err = l.Release(ctx); err == nil {
				fmt.Println("releasing", int64(start))
				fmt.Println("released", int64(machine.Boot()))
			}
		case "keep":
			n, _ := strconv.Atoi(order[2])
			k, err = keep(ctx, url, order[1], n, nanos(order[3]))
		case "measure":
			k.measure()
		case "loop":
			err = loop(ctx, c, nanos(order[1]), nanos(order[2]))
		}
		if err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

// loop holds the lease as often as it can get it.
func loop(ctx context.Context, c *tenure.Client, from, until time.Duration) error {
	time.Sleep(from - machine.Boot())
	ctx, cancel := context.WithTimeout(ctx, until-machine.Boot())
	defer cancel()
	n, longest := 0, time.Duration(0)
	for last := machine.Boot(); ; n++ {
		l, err := c.Acquire(ctx, "job")
		now := machine.Boot()
		longest = max(longest, now-last)
		if err != nil && ctx.Err() != nil {
			break // the time is up
		}
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			return err
		}
		last = now
	}
	fmt.Println("looped", n, int64(longest))
	return nil
}

func nanos(s string) time.Duration {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err) // only this program gives such orders
	}
	return time.Duration(n)
}
